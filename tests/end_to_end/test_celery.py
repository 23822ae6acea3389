"""Runs whose steps go through a queue to workers, with a real Redis (`redis-server` of Debian)."""

import shutil
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
import yaml

from pipelines.dagster_home import dagster_home
from tests.end_to_end.stand import SMALL_INDEX, TODAY, WRITTEN, documents, small_company
from tests.end_to_end.test_workers import kill, started
from tests.end_to_end.webserver import free_port
from tests.resources.fake_search import FakeSearch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not shutil.which("redis-server"),
        reason="no Redis is installed; on Debian: apt-get install redis-server",
    ),
]
DEPLOYED = Path(__file__).parents[2] / "deploy" / "celery"
WORKER = ("celery", "--app", "dagster_celery.app", "worker", "--queues", "dagster", "--concurrency", "2")
UPDATE = "assets/update"


@pytest.fixture
def queue(tmp_path):
    """The address of a Redis of the test's own."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:  # noqa: S603 (our own command)
        client = redis.Redis(port=port)
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.1)
        yield f"redis://127.0.0.1:{port}/0"
        server.terminate()


@pytest.fixture
def company(recorded_stand, queue, tmp_path):
    """The small company, whose instance file lies where Dagster looks, and how its runs and workers start."""
    stand = recorded_stand
    with FakeSearch(documents(small_company())) as search, ExitStack() as ends:
        instances = tmp_path / "instances"
        instances.mkdir()
        content = {**stand.instance(), "url": search.url, "index": SMALL_INDEX}
        (instances / "small.yaml").write_text(yaml.safe_dump(content))
        # A step whose worker has died is given to another one soon.
        settings = tmp_path / "settings"
        settings.mkdir()
        deployed = (DEPLOYED / "dagster_celery_config.py").read_text()
        (settings / "dagster_celery_config.py").write_text(
            f'{deployed}\nbroker_transport_options = {{"visibility_timeout": 5}}\n'
        )
        for name, value in {
            "ASSET_OWNERS_EXECUTOR": "celery",
            "ASSET_OWNERS_CELERY_BROKER": queue,
            "ASSET_OWNERS_CELERY_BACKEND": queue,
            "DAGSTER_HOME": str(dagster_home(tmp_path)),
            "PYTHONPATH": str(settings),
        }.items():
            stand.environment.setenv(name, value)
        yield stand, lambda name: ends.enter_context(started(*WORKER, log=tmp_path / name))


@contextmanager
def running(log):
    """A run as Dagster starts it, until its end."""
    tags = f'{{"dagster/partition": "{TODAY}"}}'
    job = ("--module-name", "pipelines.definitions", "--job", "small", "--tags", tags)
    with started("dagster", "job", "execute", *job, log=log) as run:
        yield run


def test_the_steps_of_a_run_go_through_the_queue_and_one_that_is_delivered_again_writes_nothing_twice(
    company, tmp_path
):
    stand, worker = company
    workers, killed = [worker("first.log")], []

    def die_amid_writes(request, _):
        if request.url.path.endswith(UPDATE) and not killed:
            killed.append(request)
            kill(workers[0])

    stand.inventory.hooks.after = die_amid_writes
    with running(tmp_path / "run.log") as run:
        while not killed:
            assert run.poll() is None, (tmp_path / "run.log").read_text()
            time.sleep(0.2)
        workers.append(worker("second.log"))
        assert run.wait(300) == 0, (tmp_path / "run.log").read_text()
    rows = dict(stand.tables.writes().collect().select("host_id", "outcome").iter_rows())
    assert rows.keys() == WRITTEN.keys()
    assert stand.written() == {host: WRITTEN[host] for host, outcome in rows.items() if outcome == "written"}
    assert len(stand.inventory.state.journal()) == sum(map(len, stand.written().values()))
