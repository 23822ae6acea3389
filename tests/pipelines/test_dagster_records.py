"""What is kept of runs: by whom, how long in Dagster's records, and which of them it executes again."""

import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from assets_defs.cleanup import ALL_INSTANCES, delete_old, runs_of
from assets_defs.plans import write_planned
from assets_defs.record import BY_TAG, NAMED_TAG, RETRY_TAG, RunRecord
from assets_defs.run_request import BACKFILL
from ownership.windows import days_of
from pipelines.cli.results import errors
from pipelines.dagster_home import dagster_instance
from pipelines.jobs import maintenance_job
from resources.errors import TransientError
from resources.store.retention import Retention
from resources.store.tables import Tables
from resources.writeback import workers
from tests.assets_defs.scans import LOG, decided
from tests.deploy.machine import DEPLOY
from tests.ownership.builders import PEOPLE, RUN, host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance
from tests.resources.store.test_tables import logons
from tests.resources.writeback.world import plan

NAME = instance().name
pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue", "no_report")]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path, instance())


def test_a_run_deletes_what_is_older_than_the_instance_keeps_it_and_a_dry_run_no_table(job, tmp_path):
    run, long_ago = decided(tmp_path, job.instance, job.inventory), date(2020, 1, 1)
    run.tables.write_days([logons(long_ago)])
    for run_id in ("old", "other"):
        run.tables.write("owner_writes", plan("h-9"), run_id=run_id, publish=False)
    (tmp_path / "reports").symlink_to(tmp_path / "a share that is not mounted")
    folder = tmp_path / "tables" / job.instance.slug / "runs" / "old"
    for path in (folder, *folder.iterdir()):
        os.utime(path, (0, 0))

    def kept():
        days = run.tables.logon_days([long_ago, *days_of(run.window)], run_id=RUN)
        return days.height, [run.tables.holds("owner_writes", run_id) for run_id in ("old", "other")]

    with dagster_instance(tmp_path) as recorded:
        old, other = (recorded_run(recorded) for _ in range(2))
        made_older(tmp_path, old, days=91)
        check = dg.AssetCheckEvaluation(dg.AssetKey("a"), "fits", passed=True, metadata={})
        for run_id in (old, other):
            event = dg.DagsterEvent(
                dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "job", event_specific_data=check
            )
            recorded.report_dagster_event(event, run_id)
        run = replace(run, record=RunRecord(run.tables, RUN, recorded, LOG))
        delete_old(replace(run, why_no_writes="Dry run"))
        assert (kept(), runs_of(recorded, NAME)) == ((2, [True, True]), [other])
        delete_old(run)
        assert (kept(), runs_of(recorded, NAME)) == ((1, [False, True]), [other])
        assert recorded.get_run_by_id(old) is None
        outcomes = recorded.event_log_storage.get_asset_check_execution_history(
            check.asset_check_key, limit=9
        )
        assert [one.run_id for one in outcomes] == [other]
    left = {path.stem for path in (tmp_path / "dagster").rglob("*-*-*")}
    assert left & {old, other} == {other}


def test_each_day_what_is_old_is_deleted_of_all_instances_also_where_no_run_succeeds_any_more(
    tmp_path, monkeypatch
):
    """By the settings that the last run stored: there is no instance file."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    newer = tmp_path / "tables" / "newer" / ".instance"
    newer.parent.mkdir(parents=True)
    newer.write_text('{"name": "Newer", "target": null, "format": 999, "version": "9"}')
    tables = Tables(tmp_path, "gone", name="Gone")
    tables.prepare()
    record = RunRecord(tables, RUN, None, LOG, settings=Retention(evidence_days=3, runs_days=30).model_dump())
    record.begin("run")
    record.fail("the service is away")
    days = [LAST - timedelta(days=age) for age in (9, 1)]
    tables.write_days([logons(day) for day in days])
    tables.write("inventory_users", PEOPLE)
    tables.write("inventory_hosts", hosts(host("h1", "pc-1")))
    report = tmp_path / "reports" / "gone.html"
    report.parent.mkdir()
    report.touch()
    for path in (str(report), str(tables.folder / "inventory_users.parquet")):
        os.utime(path, (1, 1))
    with dagster_instance(tmp_path) as recorded:
        old, other = (recorded_run(recorded, "Gone") for _ in range(2))
        made_older(tmp_path, old, days=31)
        own = [recorded_run(recorded, ALL_INSTANCES) for _ in range(2)]
        made_older(tmp_path, own[0], days=15)
        ran = maintenance_job().execute_in_process(instance=recorded, raise_on_error=False)
        assert next(errors(ran)).startswith("Old data could not be deleted: newer: ")
        assert runs_of(recorded, "Gone") == [other]
        assert runs_of(recorded, ALL_INSTANCES) == [own[1], ran.run_id]
    assert tables.logon_days(days, run_id=None)["day"].to_list() == days[1:]
    assert [tables.read(f"inventory_{kind}").collect().height for kind in ("users", "hosts")] == [0, 1]
    assert not report.exists()


def test_a_clock_that_jumped_ahead_deletes_nothing_at_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    with dagster_instance(tmp_path) as recorded:

        def clean_up():
            ran = maintenance_job().execute_in_process(instance=recorded, raise_on_error=False)
            return next(errors(ran), None)

        assert clean_up() is None
        old = recorded_run(recorded, "Gone")
        made_older(tmp_path, old, days=500)
        with closing(sqlite3.connect(tmp_path / "dagster" / "history" / "runs.db")) as runs, runs:
            runs.execute("UPDATE runs SET end_time = end_time - 99 * 86400")
        assert "99 days ago by this machine's clock" in str(clean_up())
        assert runs_of(recorded, "Gone") == [old]
        assert (clean_up(), runs_of(recorded, "Gone")) == (None, [])


def made_older(home, run_id, days):
    with closing(sqlite3.connect(home / "dagster" / "history" / "runs.db")) as runs, runs:
        before = datetime.now(UTC) - timedelta(days=days)
        runs.execute("UPDATE runs SET update_timestamp = ? WHERE run_id = ?", (f"{before:%F %T}", run_id))


def recorded_run(recorded, name=NAME):
    """What Dagster keeps of a run that came to its end, without one."""
    run = recorded.add_run(dg.DagsterRun("job", tags={"asset_owners/instance": name}))
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
        steps = None
    else:
        monkeypatch.setattr("assets_defs.sink.write_planned", unanswered)
        steps = [dg.AssetKey([job.instance.slug, "owner_writes"])]
    with dg.DagsterInstance.ephemeral(settings={"run_retries": {"enabled": True}}) as recorded:
        result = job(recorded=recorded, asset_selection=steps)
        (run,) = recorded.get_runs()
    assert not result.success
    assert run.tags.get("dagster/will_retry", "false") == again


@pytest.mark.parametrize(
    ("transient", "launched", "announced"),
    [
        (True, True, ["run-3"]),
        (False, True, ["run-1", "run-2", "run-3"]),
        (True, False, ["run-1", "run-2", "run-3"]),
    ],
)
def test_a_failure_is_announced_unless_dagster_executes_the_run_again(job, transient, launched, announced):
    """It does so twice, unless the failure is not a service's, or the run is one of the command line."""
    location = RegisteredCodeLocationOrigin("location")  # ty: ignore  (a field implements its abstract property)
    origin = RemoteRepositoryOrigin(location, "repository")
    told = []
    with dg.DagsterInstance.ephemeral(settings={"run_retries": {"enabled": True}}) as recorded:
        for run_id in ("run-1", "run-2", "run-3"):
            first = None if run_id == "run-1" else "run-1"
            tags = {"dagster/root_run_id": first} if first else {}
            place = RemoteJobOrigin(origin, "job") if launched else None
            run = dg.DagsterRun(
                "job", run_id, tags=tags, root_run_id=first, parent_run_id=first, remote_job_origin=place
            )
            recorded.add_run(run)
            record = RunRecord(job.tables, run_id, recorded, LOG, announce=told.append)
            record.begin("run")
            record.fail("no answer", transient=transient)
    assert [row["run_id"] for row in told] == announced


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("report_run_canceling", "CANCELED", "termination request"),
        ("report_run_canceled", "CANCELED", "canceled from outside"),
        ("report_run_failed", "FAILURE", "failed from outside"),
    ],
)
def test_a_run_that_dagster_ends_while_it_writes_sends_nothing_more_and_stays_as_it_was_ended(
    tmp_path, monkeypatch, end, status, says
):
    """As by *Terminate*, also forced, or by a code server that takes the run for dead."""
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_QUESTIONS", 0.01)
    names = [f"pc-{number}" for number in range(30)]

    class EndedMeanwhile(Shelf):
        def write(self, host_id, values, *, right_before):
            super().write(host_id, values, right_before=right_before)
            if len(self.written) == 3:
                (run,) = recorded.get_runs()
                getattr(recorded, end)(run)
            asked.wait(0.02)

    shelf, asked = EndedMeanwhile(*(host(f"h-{name}", name) for name in names)), threading.Event()
    settings = instance(scan={"lookback_days": 3}, writes={"concurrency": 1})
    job = Job(tmp_path, settings, LogFile(*((LAST, name, "ann") for name in names)), shelf)
    with dagster_instance(tmp_path) as recorded:
        ended = job(recorded=recorded)
        (run,) = recorded.get_runs()
    assert (ended.success, run.status.value) == (False, status)
    assert 3 <= len(shelf.written) < 10
    rows = job.tables.run_writes(run.run_id)
    outcomes = dict(rows["outcome"].value_counts().iter_rows())
    assert outcomes == {"written": len(shelf.written), "not_written": 30 - len(shelf.written)}
    messages = {
        *rows.filter(outcome="not_written")["message"],
        *job.tables.all_runs("runs").collect()["message"],
        *errors(ended),
    }
    assert all(says in message and "writes nothing more" in message for message in messages)


def test_a_run_and_its_writes_say_who_started_it(job, tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "olga")
    write_planned(decided(tmp_path, job.instance, job.inventory, by="olga"))
    undo = {"windows_logons__undo_run": {"config": {"run_id": RUN, "reason": "a mistake"}}}
    assert job("windows_logons__undo", ops=undo, tags={BY_TAG: "kim"}).success
    runs, writes = (table.collect() for table in (job.tables.all_runs("runs"), job.tables.writes()))
    assert set(runs.select("kind", "by").iter_rows()) == {("run", "olga"), ("undo", "user kim")}
    assert set(writes.select("outcome", "by").iter_rows()) == {("written", "olga"), ("undone", "user kim")}
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
    assert (run.tags[BY_TAG], run.tags[NAMED_TAG]) == ("kim", run.run_id)


SCHEDULED = {"dagster/schedule_name": "daily"}
NAMED = {**SCHEDULED, BY_TAG: "kim", NAMED_TAG: "first"}


@pytest.mark.parametrize(
    ("tags", "by"),
    [
        (SCHEDULED, "user olga"),
        (NAMED, "user olga"),
        ({**NAMED, NAMED_TAG: "again"}, "user kim"),
        ({**SCHEDULED, "dagster/retry_number": "1"}, "schedule daily"),
        ({**NAMED, "dagster/retry_number": "1"}, "user kim"),
    ],
)
def test_a_run_that_is_executed_again_is_by_whoever_did_so(job, monkeypatch, tags, by):
    """Also by its tag, which the UI shows, and which a run inherits that Dagster executes again."""
    monkeypatch.setenv("SUDO_USER", "olga")
    with dg.DagsterInstance.ephemeral() as recorded:
        tags = {BACKFILL: "b", **tags}
        again = dg.DagsterRun("job", "again", tags=tags, root_run_id="first", parent_run_id="first")
        recorded.add_run(again)
        record = RunRecord(job.tables, "again", recorded, LOG)
        record.begin("run")
        (run,) = recorded.get_runs()
    assert record.row()["by"] == by
    assert run.tags.get(BY_TAG) == (by.removeprefix("user ") if BY_TAG in tags else None)
    assert run.tags[RETRY_TAG] == "first"
    assert json.loads(record.row()["options"]) == {"retry_of": "first", "backfill": "b"}
