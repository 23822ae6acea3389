"""What is kept of runs: by whom, how long in Dagster's records, and which of them it executes again."""

import json
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets_defs.dagster_records import runs_of
from assets_defs.record import BY_TAG
from assets_defs.run import window_of
from pipelines.dagster_home import dagster_instance
from pipelines.schedules import launch_tags
from resources.errors import TransientError
from tests.deploy.machine import DEPLOY
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance

NAME = instance().name
pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Job(instance(), tmp_path, LogFile((LAST, "pc-1", "ann")), Shelf(hosts(host("h1", "pc-1"))))


def test_a_run_deletes_dagsters_records_of_runs_that_are_older_than_the_instance_keeps_them(job, tmp_path):
    with dagster_instance(tmp_path) as recorded:
        old, other = (recorded_run(recorded, job) for _ in range(2))
        with sqlite3.connect(tmp_path / "dagster" / "history" / "runs.db") as runs:
            long_ago = datetime.now(UTC) - timedelta(days=91)
            runs.execute("UPDATE runs SET update_timestamp = ? WHERE run_id = ?", (f"{long_ago:%F %T}", old))
        runs.close()
        last = job(recorded=recorded)
        assert set(runs_of(recorded, NAME)) == {other, last.run_id}
        assert recorded.get_run_by_id(old) is None
    left = {path.stem for path in (tmp_path / "dagster").rglob("*-*-*")}
    assert left & {old, other} == {other}


def recorded_run(recorded, job):
    """What Dagster keeps of a run that came to its end, without one."""
    run = recorded.create_run_for_job(
        job.definitions().resolve_job_def(job.instance.slug), tags={"asset_owners/instance": NAME}
    )
    recorded.report_run_failed(run)
    return run.run_id


def unanswered(*_, **__):
    raise TransientError("no answer")


@pytest.mark.parametrize(("service", "method", "again"), [("logons", "logons", "true"), ("", "", "false")])
def test_a_run_is_executed_again_that_a_service_failed_before_the_first_write(
    job, monkeypatch, service, method, again
):
    if service:
        monkeypatch.setattr(getattr(job, service), method, unanswered)
    else:
        monkeypatch.setattr("assets_defs.sink.write_planned", unanswered)
    with dg.DagsterInstance.ephemeral(settings={"run_retries": {"enabled": True}}) as recorded:
        result = job(recorded=recorded)
        (run,) = recorded.get_runs()
    assert not result.success
    assert run.tags.get("dagster/will_retry", "false") == again


def test_a_run_and_its_writes_say_who_started_it(job, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "olga")
    with dg.DagsterInstance.ephemeral() as recorded:
        job(
            recorded=recorded,
            tags={**launch_tags(job.instance, window_of(job.instance, LAST)), BY_TAG: "kim"},
        )
        config = {"run_id": recorded.get_runs()[0].run_id, "reason": "a mistake"}
        undo = {"windows_logons__undo_run": {"config": config}}
        assert job("windows_logons__undo", recorded=recorded, ops=undo).success
    runs, writes = (table.collect() for table in (job.tables.all_runs("runs"), job.tables.writes()))
    assert set(runs.select("kind", "by").iter_rows()) == {("run", "kim"), ("undo", "olga")}
    assert set(writes.select("outcome", "by").iter_rows()) == {("written", "kim"), ("undone", "olga")}
    assert [json.loads(one) for one in runs.filter(kind="undo")["options"]] == [{"reason": "a mistake"}]


def test_a_proxy_says_who_starts_a_run_in_the_ui(tmp_path, monkeypatch):
    shutil.copy(DEPLOY / "dagster" / "user_header.yaml", tmp_path / "dagster.yaml")
    monkeypatch.setenv("ASSET_OWNERS_USER_HEADER", "X-Forwarded-User")

    @dg.job
    def empty():
        pass

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = instance.create_run_for_job(empty)
        asked: Any = SimpleNamespace(dagster_run=run, get_request_header={"X-Forwarded-User": "kim"}.get)
        with pytest.raises(Exception, match="origin"):  # a run that is launched in the UI has one
            instance.run_coordinator.submit_run(asked)
        (run,) = instance.get_runs()
    assert run.tags[BY_TAG] == "kim"
