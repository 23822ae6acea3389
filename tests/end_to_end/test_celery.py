"""Runs whose steps go through a queue to workers, with a real Redis (`redis-server` of Debian)."""

import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
import yaml

from pipelines.dagster_home import dagster_home
from tests.end_to_end.stand import TODAY, UPDATE, WRITTEN, documents, small_company
from tests.end_to_end.webserver import eventually, free_port, kill, started
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


@pytest.fixture
def queue(tmp_path):
    """The address of a Redis of the test's own."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:  # noqa: S603 (our own command)
        yield f"redis://127.0.0.1:{port}/0"
        server.terminate()


@pytest.fixture
def stand(recorded_stand, queue, tmp_path):
    """The small company, whose instance file lies where Dagster looks, and how its runs and workers start."""
    # The step of a worker that died goes to the next one as that starts; later they look each 100 seconds.
    settings = (DEPLOYED / "dagster_celery_config.py").read_text()
    settings += '\nbroker_transport_options = {"visibility_timeout": 1}\n'
    (tmp_path / "dagster_celery_config.py").write_text(settings)
    with FakeSearch(documents(small_company())) as search:
        instances = tmp_path / "instances"
        instances.mkdir()
        content = {**recorded_stand.instance(), "url": search.url}
        (instances / "small.yaml").write_text(yaml.safe_dump(content))
        for name, value in {
            "ASSET_OWNERS_EXECUTOR": "celery",
            "ASSET_OWNERS_CELERY_BROKER": queue,
            "ASSET_OWNERS_CELERY_BACKEND": queue,
            "DAGSTER_HOME": str(dagster_home(tmp_path)),
            "PYTHONPATH": str(tmp_path),
        }.items():
            recorded_stand.environment.setenv(name, value)
        yield recorded_stand


def test_the_steps_of_a_run_go_through_the_queue_and_one_that_is_delivered_again_writes_nothing_twice(
    stand, queue, tmp_path
):
    log, killed = tmp_path / "log", []
    day = f'{{"dagster/partition": "{TODAY}"}}'
    job = ("--module-name", "pipelines.definitions", "--job", "small", "--tags", day)
    with (
        started(*WORKER, log=log) as worker,
        started("dagster", "job", "execute", *job, log=log) as run,
        ExitStack() as later,
    ):

        def die_amid_writes(request, _):
            if request.url.path == UPDATE and not killed:
                killed.append(request)
                kill(worker)

        stand.inventory.hooks.after = die_amid_writes
        eventually(lambda: killed or run.poll() is not None)
        later.enter_context(started(*WORKER, log=log))
        assert run.wait(300) == 0, log.read_text()
    assert killed
    rows = dict(stand.tables.writes().collect().select("host_id", "outcome").iter_rows())
    assert rows.keys() == WRITTEN.keys()
    with redis.from_url(queue) as results:
        names_stay = {0 < results.ttl(key) <= 3600 for key in results.keys("celery-task-meta-*")}
    assert names_stay == {True}, "seconds"
    assert stand.written() == {host: WRITTEN[host] for host, outcome in rows.items() if outcome == "written"}
