"""What Dagster keeps of runs: how long, and which of them it executes again."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from assets_defs.dagster_records import runs_of
from pipelines.dagster_home import dagster_instance
from resources.errors import TransientError
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance

NAME = instance().name


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Job(instance(), tmp_path, LogFile((LAST, "pc-1", "ann")), Shelf(hosts(host("h1", "pc-1"))))


def test_a_run_deletes_dagsters_records_of_runs_that_are_older_than_the_instance_keeps_them(job, tmp_path):
    with dagster_instance(tmp_path) as recorded:
        old, other = (job(recorded=recorded).run_id for _ in range(2))
        with sqlite3.connect(tmp_path / "dagster" / "history" / "runs.db") as runs:
            long_ago = datetime.now(UTC) - timedelta(days=91)
            runs.execute("UPDATE runs SET update_timestamp = ? WHERE run_id = ?", (f"{long_ago:%F %T}", old))
        runs.close()
        last = job(recorded=recorded)
        assert set(runs_of(recorded, NAME)) == {other, last.run_id}
        assert recorded.get_run_by_id(old) is None
    left = {path.stem for path in (tmp_path / "dagster").rglob("*-*-*")}
    assert left & {old, other} == {other}


def unanswered(*_, **__):
    raise TransientError("no answer")


@pytest.mark.parametrize(("service", "method", "again"), [("logons", "logons", "true"), ("", "", "false")])
def test_a_run_is_executed_again_that_a_service_failed_before_the_first_write(
    job, tmp_path, monkeypatch, service, method, again
):
    if service:
        monkeypatch.setattr(getattr(job, service), method, unanswered)
    else:
        monkeypatch.setattr("assets_defs.sink.write_planned", unanswered)
    with dagster_instance(tmp_path) as recorded:
        result = job(recorded=recorded)
        (run,) = recorded.get_runs()
    assert not result.success
    assert run.tags.get("dagster/will_retry", "false") == again
