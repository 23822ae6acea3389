"""Parts that several rooms' tests share."""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import requests
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from resources import formats
from sandbox.engine import Engine
from tests.plots import draw_nothing
from tests.postgres import PostgresServer, programs

settings.register_profile("thorough", max_examples=1_000)  # of `make chaos`; see `tests.examples`

SLOW_FOLDERS = {"bench", "chaos", "end_to_end", "pipelines", "store"}
SLOW_FILES = {
    *("test_checks.py", "test_client.py", "test_company.py", "test_cookbook.py", "test_engine.py"),
    *("test_engine_files.py", "test_evidence.py", "test_page.py", "test_stand.py", "test_writer.py"),
}
SLOW_FIXTURES = {"_s3_service", "browser", "engine", "postgres"}
LONGEST = (
    "test_dagster_ui.py",
    "test_workers.py",
    "test_engine.py",
    "test_bench.py",
    "test_kill_points.py",
    "test_bad_input.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs services or takes seconds, and begin with it: what is short balances the end."""
    for item in items:
        places = SLOW_FOLDERS | SLOW_FILES
        if places & set(item.path.parts) or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    longest = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (item.path not in slow, longest.get(item.path.name, len(LONGEST))))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One running engine for all tests: give each test's index a name of its own."""
    # pytest's own folders are closed to user nobody, as whom the engine runs when root starts it.
    with tempfile.TemporaryDirectory(prefix="engine-") as folder, Engine(Path(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests: give each test a database, or a key, of its own."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL is installed; on Debian: apt-get install postgresql")
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as data,
        PostgresServer(Path(data), folder) as running,
    ):
        yield running


@pytest.fixture
def newer_program() -> Callable[[], AbstractContextManager[None]]:
    """Whatever runs within its context is a newer version of the program, with another format."""

    @contextmanager
    def newer() -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "FORMAT", formats.FORMAT + 1)
            patch.setattr(formats, "program_version", lambda: "99.0")
            yield

    return newer


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process draw no plots."""
    draw_nothing(monkeypatch)


@pytest.fixture(scope="module")  # its event loop runs on while it lasts, which Dagster's own would trip over
def browser() -> Iterator[Browser]:
    """One headless browser for a file, which calls nobody by itself: open a context for each test."""
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
