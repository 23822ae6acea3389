"""Parts that several rooms' tests share.

What takes long to import is imported where it is needed: pytest reads this file before it starts its workers.
"""

import atexit
import fcntl
import gc
import logging
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from sandbox.engine import Engine
    from tests.elasticsearch import Elasticsearch
    from tests.end_to_end.stand import Stand
    from tests.postgres import PostgresServer

# Of `make chaos` and `make check`; see `tests.examples`.
settings.register_profile("thorough", max_examples=1_000)
settings.register_profile("quick", max_examples=25)

SERVICES = {"_s3_service", "browser", "elasticsearch", "engine", "postgres"}
"""Fixtures that start one: a test that asks for any of them is slow."""
LONGEST = (
    "test_serve.py",
    "test_local_failures.py",
    "test_dagster_ui.py",
    "test_page_in_browser.py",
    "test_limits.py",
    "test_hanging_runs.py",
    "test_celery.py",
)
"""Files to begin with: what mostly waits, beside what computes."""


@pytest.fixture(scope="session", autouse=True)
def _quick_records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Flush nothing to the disk: what a loss of power does is not tried, and the disk's speed is not ours.

    What Dagster reads from 180 files, to note by which layout its records are kept, it reads once.
    """
    from alembic.script import ScriptDirectory
    from sqlalchemy import Engine, event

    def no_flush(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", no_flush)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)  # nor do tests use the home of the person who runs them
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr(ScriptDirectory, "from_config", cache(ScriptDirectory.from_config))
        if "dagster" in sys.modules:  # no test of the rules waits for its import
            _copy_empty_records(tmp_path_factory.mktemp("records"), patch)
        yield


def _copy_empty_records(empty: Path, patch: pytest.MonkeyPatch) -> None:
    """Let Dagster's records of a new home, and of a new run, begin as copies of empty ones."""
    from dagster._core.storage.event_log import SqliteEventLogStorage
    from dagster._core.storage.sqlite_storage import DagsterSqliteStorage

    open_home, open_run = DagsterSqliteStorage.from_local, SqliteEventLogStorage._initdb
    home, run = empty / "home", empty / "run.db"

    def copied_home(base_dir: str, inst_data: Any = None) -> DagsterSqliteStorage:
        if not home.exists():
            open_home(str(home))
        if not Path(base_dir, "history").exists():
            shutil.copytree(home, base_dir, dirs_exist_ok=True)
        return open_home(base_dir, inst_data)

    def copied_run(storage: SqliteEventLogStorage, engine: Any, **options: Any) -> None:
        file = Path(engine.url.database)
        if run.exists() and not file.exists():
            shutil.copyfile(run, file)
        open_run(storage, engine, **options)
        if not run.exists():
            shutil.copyfile(file, run)

    patch.setattr(DagsterSqliteStorage, "from_local", copied_home)
    patch.setattr(SqliteEventLogStorage, "_initdb", copied_run)


def pytest_configure(config: pytest.Config) -> None:
    """Let workers compute in one thread each: a twentieth less work; of all tests' the first tries several.

    While all is imported no garbage is looked for, nor later among that: it would take a tenth of the time.
    """
    gc.disable()
    atexit.register(gc.unfreeze)  # not sooner: pytest looks for garbage at its end
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if not is_first or config.option.markexpr.startswith("not slow"):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what has nothing but excluded tests: it takes seconds."""
    left_out = "|".join(re.findall(r"not (slow|jobs)", config.option.markexpr))
    if not left_out:
        return None
    files = [collection_path] if collection_path.suffix == ".py" else [*collection_path.rglob("test_*.py")]
    marked = re.compile(rf"^pytestmark = \[?\s*pytest\.mark\.({left_out}|nightly)\b", re.MULTILINE)
    return True if files and all(marked.search(file.read_text(encoding="utf-8")) for file in files) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a service as slow, and begin with what is slow: what is short balances the end."""
    for item in items:
        if SERVICES & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("nightly"):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    longest = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (item.path not in slow, longest.get(item.path.name, len(LONGEST))))


@pytest.fixture(scope="session")
def open_stand(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Callable[..., Stand]]":
    """Opens a stand on a home folder; what it changes in the environment ends with the given patch."""
    from sandbox.inventory import serving
    from tests.end_to_end.stand import HOSTS, USERS, Stand
    from tests.resources.clock import Clock

    clock = Clock(time.time())
    with serving(tmp_path_factory.mktemp("inventory") / "state.sqlite", clock=clock) as service:

        def opened(home: Path, patch: pytest.MonkeyPatch, engine: "Engine | None" = None) -> Stand:
            patch.setenv("ASSET_OWNERS_HOME", str(home))
            stand = Stand(home, engine, service, patch, clock=clock)
            stand.hold_services()
            stand.begin(HOSTS, USERS)
            return stand

        yield opened


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster keeps its runs in memory, which takes half the time."""
    from tests.end_to_end.stand import in_memory

    monkeypatch.setattr("pipelines.cli.results.dagster_instance", in_memory)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> "Iterator[Engine]":
    """One running engine for all tests: give each test's index a name of its own.

    The workers of pytest share it: the first that needs it starts it, and waits at its end for the others,
    each of whom holds the lock `used` as long as it may use the engine.
    """
    from sandbox.engine import Engine
    from sandbox.engine_files import default_cache, install

    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with (shared / "engine").open("a+") as started, (shared / "used").open("w") as used, ExitStack() as end:
        fcntl.flock(started, fcntl.LOCK_EX)
        folder = (shared / "engine").read_text(encoding="utf-8")
        if folder:  # where another process runs it
            engine = Engine(Path(folder))
            engine._make_node(install(default_cache(), lambda _: None))
            assert engine._answers(engine._node / "logs" / "http.ports")
        else:
            # pytest's own folders are closed to user nobody, as whom the engine runs when root starts it.
            folder = end.enter_context(tempfile.TemporaryDirectory(prefix="engine-"))
            engine = end.enter_context(Engine(Path(folder)))
            (shared / "engine").write_text(folder, encoding="utf-8")
            end.callback(fcntl.flock, used, fcntl.LOCK_EX)
        fcntl.flock(used, fcntl.LOCK_SH)
        fcntl.flock(started, fcntl.LOCK_UN)
        yield engine


@pytest.fixture(scope="session")
def elasticsearch() -> "Iterator[Elasticsearch]":
    """A node of the other engine, for tests of what both must agree on."""
    from tests.elasticsearch import Elasticsearch, java

    if java() is None:
        pytest.skip("no Java 17 to 23 is installed; on Debian: apt-get install default-jre-headless")
    with tempfile.TemporaryDirectory(prefix="elasticsearch-") as data, Elasticsearch(Path(data)) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """One PostgreSQL server for all tests: give each test a database, or a key, of its own."""
    from tests.postgres import PostgresServer, programs

    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL is installed; on Debian: apt-get install postgresql")
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as data,
        PostgresServer(Path(data), folder) as running,
    ):
        yield running


@pytest.fixture
def no_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables without the catalogue, which takes most of the time that it takes to prepare them."""
    monkeypatch.setattr("resources.store.tables.refresh_catalogue", lambda *_, **__: None)


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that leave no page behind, which takes a fifth of their time."""
    monkeypatch.setattr("assets_defs.report._write_report", lambda *_: None)


@pytest.fixture
def newer_program() -> Callable[[], AbstractContextManager[None]]:
    """Whatever runs within its context is a newer version of the program, with another format."""
    from resources import format_version

    @contextmanager
    def newer() -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(format_version, "FORMAT", format_version.FORMAT + 1)
            patch.setattr(format_version, "program_version", lambda: "99.0")
            yield

    return newer


@pytest.fixture(scope="module")  # its event loop runs on while it lasts, which Dagster's own would trip over
def browser() -> "Iterator[Browser]":
    """One headless browser for a file, which calls nobody by itself: open a context for each test."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no browser is installed; on Debian: apt-get install chromium fonts-dejavu-core")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    with sync_playwright() as playwright:
        # Without a sandbox of its own, because the browser refuses to have one when root starts it.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *quiet])
        yield running
        running.close()


@pytest.fixture(scope="session")
def _s3_service() -> Iterator[str]:
    """The address of an S3 service in this process, with an empty bucket `warehouse`."""
    import requests
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    url = f"http://127.0.0.1:{port}"
    requests.put(f"{url}/warehouse", timeout=30).raise_for_status()
    yield url
    server.stop()


@pytest.fixture
def object_store(_s3_service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables go to an empty folder of the S3 service."""
    variables = {
        "AWS_ENDPOINT_URL": _s3_service,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "ASSET_OWNERS_TABLES": f"s3://warehouse/{uuid.uuid4()}/tables",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
