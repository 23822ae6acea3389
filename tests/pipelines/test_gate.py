"""Whichever way Dagster knows to the sink: what is written rests on what the same run has made."""

import json
import logging
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import dagster as dg
import polars as pl
import pytest

from assets_defs.evidence import unsettled
from assets_defs.record import RunRecord
from assets_defs.run import (
    BACKFILL,
    LEFT_OUT,
    RANGE_END,
    RANGE_START,
    SNAPSHOTS,
    failure_message,
    window_of,
)
from pipelines.schedules import launch_tags
from resources.errors import ServiceError, TransientError
from resources.settings import named
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf, rebuildable
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")
WRITTEN = {"h1": {"owner": "u1"}}
TABLES = ["logon_counts", "logon_days", *SNAPSHOTS, "owner_writes"]


def in_home(home):
    settings = instance(scan={"lookback_days": 3, "timezone": "UTC"})
    return Job(settings, home, LogFile((LAST, "pc-1", "ann")), Shelf(hosts(host("h1", "pc-1"))))


@pytest.fixture
def job(tmp_path):
    return in_home(tmp_path)


@pytest.fixture(scope="module")
def home_after_a_run(tmp_path_factory):
    home = tmp_path_factory.mktemp("earlier")
    assert in_home(home)().success
    return home


@pytest.fixture
def ran(job, home_after_a_run):
    """The job after a run, whose owner somebody has cleared since."""
    shutil.copytree(home_after_a_run, job.home, dirs_exist_ok=True)
    return job


def record(job, result):
    return job.tables.appended("runs", result.run_id).row(0, named=True)


def assets(job, *tables):
    return [dg.AssetKey([job.instance.slug, table]) for table in tables]


@pytest.mark.parametrize(
    "chosen",
    [
        ["owner_writes"],
        [table for table in TABLES if table != "inventory_users"],
    ],
    ids=["writes", "all but users"],
)
def test_some_tables_alone_are_no_reason_to_write(ran, chosen):
    """Owners, hosts and people may have changed since the other tables were made."""
    ran(asset_selection=assets(ran, *chosen))
    assert ran.inventory.written == {}


def test_a_run_of_some_tables_says_that_it_only_plans_and_its_plan_is_not_carried_out(ran):
    chosen = assets(ran, "inventory_hosts", "owner_decisions", "owner_writes")
    with dg.DagsterInstance.ephemeral() as recorded:
        result = ran(asset_selection=chosen, recorded=recorded)
        tags = recorded.get_runs()[0].tags
    row = record(ran, result)
    assert (row["kind"], row["status"], row["to_write"]) == ("dry_run", "succeeded", 1)
    assert "lacks the steps logons, inventory_users" in row["message"]
    assert tags["asset_owners/kind"] == "dry_run"
    op = f"{ran.instance.slug}__apply_plan"
    applied = ran(
        f"{ran.instance.slug}__apply", ops={op: {"config": {"run_id": result.run_id}}}, tags={"a": "b"}
    )
    assert not applied.success
    assert "lacked the steps logons, inventory_users" in record(ran, applied)["message"]
    assert ran.inventory.written == {}


@pytest.mark.parametrize("command", ["apply_plan", "undo_run"])
@pytest.mark.parametrize("run_id", ["", " "])
def test_a_launchpad_without_a_run_id_ends_at_once_with_a_sentence(job, command, run_id):
    """Dagster's launchpad takes any text; the run says what is missing before it asks a service."""
    job.inventory = None
    name = f"{job.instance.slug}__{command}"
    result = job(name.rpartition("_")[0], ops={name: {"config": {"run_id": run_id}}})
    (failed,) = result.get_step_failure_events()
    assert f"RUN_ID: {run_id!r} is no run id" in failure_message(failed.step_failure_data.error)


@pytest.mark.parametrize("chosen", [["inventory_hosts"], TABLES[:-1]], ids=len)
def test_what_a_run_without_the_sink_has_made_is_kept_from_analysts(ran, chosen):
    """They see the last run that was allowed to write, in all tables."""
    published = {table: ran.tables.read(table).collect() for table in SNAPSHOTS}
    ran.inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2")))
    result = ran(asset_selection=assets(ran, *chosen))
    assert result.success
    assert ran.tables.holds(chosen[-1], result.run_id)
    assert all(ran.tables.read(table).collect().equals(frame) for table, frame in published.items())
    row = record(ran, result)
    assert (row["kind"], row["status"]) == ("backfill", "succeeded")
    assert "owner_writes" in row["message"]


def test_a_run_without_the_check_that_blocks_does_not_write(job):
    result = job(asset_selection=assets(job, *TABLES), checks=())
    assert result.success
    assert job.inventory.written == {}
    assert json.loads(record(job, result)["options"]) == {"left_out": ["blocking_check"]}


def test_days_that_an_earlier_run_fetched_before_they_were_settled_are_no_reason_to_write(ran, monkeypatch):
    """Whatever lets a run go so far: the sink looks at what is stored."""
    monkeypatch.setattr("assets_defs.run.INPUTS", ())
    monkeypatch.setattr("assets_defs.writing.CLOCK_SKEW", timedelta())
    result = ran(asset_selection=assets(ran, *TABLES[2:]))
    assert not result.success
    assert "did not make logon_counts (3 days" in record(ran, result)["message"]
    assert ran.inventory.written == {}


@pytest.mark.parametrize("force", [False, True])
def test_a_backfill_plans_and_writes_only_with_force(job, force):
    span = {RANGE_START: str(LAST - timedelta(days=1)), RANGE_END: str(LAST)}
    with dg.DagsterInstance.ephemeral() as recorded:
        result = job(tags=span, options={"force": force}, recorded=recorded)
        tags = recorded.get_runs()[0].tags
    row = record(job, result)
    assert result.success
    assert job.inventory.written == (WRITTEN if force else {})
    assert row["kind"] == tags["asset_owners/kind"] == ("run" if force else "backfill")
    assert row["to_write"] == 1
    assert ("Backfill of 2 days" in (row["message"] or "")) == (not force)


def test_what_is_old_is_not_written(job, monkeypatch):
    monkeypatch.setattr("assets_defs.writing.MAX_RUN_TIME", timedelta())
    result = job()
    assert not result.success
    assert job.inventory.written == {}
    assert "hours ago" in record(job, result)["message"]


def test_runs_only_plan_while_the_instance_says_so(job):
    """Whatever a launchpad was filled with before, or the run that is executed again."""
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": True})
    result = job(options={"dry_run": False})
    row = record(job, result)
    assert (row["kind"], row["to_write"], job.inventory.written) == ("dry_run", 1, {})
    assert "writes.dry_run is on" in row["message"]


def test_one_run_for_each_day_of_a_backfill_only_plans_as_well(job):
    tags = launch_tags(job.instance, window_of(job.instance, LAST)) | {BACKFILL: "abc"}
    result = job(tags=tags)
    assert (record(job, result)["kind"], job.inventory.written) == ("backfill", {})


class Collector(LogFile):
    """Sends the events of three hosts."""

    def senders(self, day):  # noqa: ARG002
        row = {"document_hostname": "pc-1", "events": 9, "host_names": ["pc-1", "pc-2", "pc-3"]}
        return 9, pl.DataFrame([row])


class Silent(LogFile):
    """Does not say who sends."""

    def senders(self, day):  # noqa: ARG002
        raise TransientError("The search service timed out")


def test_a_blocking_check_that_could_not_be_carried_out_stops_the_sink(job):
    job.logons = Silent((LAST, "pc-1", "ann"))
    result = job()
    assert not result.success
    assert job.inventory.written == {}
    row = record(job, result)
    assert (row["status"], row["written"]) == ("failed", 0)
    assert "timed out" in row["message"]


LAST_STEPS = ["owner_writes"]


@pytest.fixture
def again(job):
    """Runs the job, then some steps of the last run anew, as "Re-execute selected" does."""

    def again(between=lambda: None, *chosen):
        tags = launch_tags(job.instance, window_of(job.instance, LAST))
        with dg.instance_for_test() as recorded:
            with dg.execute_job(rebuildable(job), recorded, tags=tags) as first:
                results = [first]
            between()
            for steps in chosen or [LAST_STEPS]:
                keys = [named(job.instance, step) for step in steps]
                options = dg.ReexecutionOptions(results[-1].run_id, step_selection=keys)
                with dg.execute_job(
                    rebuildable(job), recorded, tags=tags, reexecution_options=options
                ) as result:
                    results.append(result)
        return results

    return again


@pytest.mark.slow
def test_what_the_blocking_check_has_stopped_is_not_written_by_the_last_step_alone(job, again):
    job.logons = Collector((LAST, "pc-1", "ann"))
    first, second = again()
    assert not first.success
    assert not second.success
    assert "did not make blocking_check" in record(job, second)["message"]
    assert job.inventory.written == {}


class Refusing(Shelf):
    """Refuses each write."""

    def write(self, host_id, values, *, right_before):  # noqa: ARG002
        right_before()
        raise ServiceError("The inventory refuses it")


@pytest.mark.slow
def test_what_the_check_has_stopped_when_it_was_done_again_is_not_written_by_the_last_step_alone(job, again):
    job.instance = instance(scan={"lookback_days": 3}, writes={"max_failed_writes": 1})
    job.inventory = Refusing(hosts(host("h1", "pc-1")))  # a run that came to its end keeps no inputs

    def becomes_a_collector():
        job.logons = Collector((LAST, "pc-1", "ann"))
        job.inventory = Shelf(hosts(host("h1", "pc-1")))

    first, second, third = again(becomes_a_collector, ["blocking_check"], LAST_STEPS)
    assert not any(result.success for result in (first, second, third))
    assert "did not make blocking_check" in record(job, third)["message"]
    assert job.inventory.written == {}


@pytest.mark.slow
def test_a_step_that_is_done_again_alone_goes_on_from_nothing_that_another_run_made(job, again):
    """What it made would pass for the run's own, once the other steps are done again, too."""
    first, second = again(lambda: None, ["username_matches"])
    assert first.success
    assert "did not make host_user_shares" in record(job, second)["message"]


@pytest.mark.slow
def test_what_a_run_of_some_tables_has_made_is_not_taken_over(job, again):
    """Whoever executes it again, with all steps, by Dagster's API."""

    def lacked_a_step():
        job.inventory = Shelf(hosts(host("h1", "pc-1")))
        (run_id,) = job.tables.all_runs("runs").collect()["run_id"]
        record = RunRecord(job.tables, run_id, None, logging.getLogger())
        record.add(options=json.dumps({LEFT_OUT: ["logons"]}))

    job.inventory = Refusing(hosts(host("h1", "pc-1")))
    job.instance = instance(scan={"lookback_days": 3}, writes={"max_failed_writes": 1})
    _, second = again(lacked_a_step)
    assert "did not make inventory_hosts" in record(job, second)["message"]
    assert job.inventory.written == {}


@pytest.mark.slow
def test_what_was_decided_by_other_rules_is_not_written_by_the_last_step_alone(job, again):
    def exclude_ann():
        job.instance = instance(scan={"lookback_days": 3}, rules={"exclude_users": ["ann"]})
        job.inventory = Shelf(hosts(host("h1", "pc-1")))

    first, second = again(exclude_ann)
    assert first.success
    assert not second.success
    assert job.inventory.written == {}


def test_a_sink_that_is_started_again_under_its_id_writes_nothing_more_and_loses_no_row(job):
    """As a queue delivers a step twice, or a run is resumed; also where there is nothing to write."""
    for owners, written in ((), 1), (("u1",), 0):
        job.inventory = Shelf(hosts(host("h1", "pc-1", owners=owners)))
        run_id = str(uuid.uuid4())
        result = job(run_id=run_id)
        rows = job.tables.run_writes(result.run_id)
        job.inventory = Shelf(hosts(host("h1", "pc-1")))
        assert job(run_id=run_id).success
        assert job.inventory.written == {}
        assert job.tables.run_writes(result.run_id).equals(rows)
        assert (rows.height, record(job, result)["written"]) == (written, written)


def test_a_run_that_is_delivered_again_while_it_writes_sends_nothing_more(job):
    run_id, sent, again = str(uuid.uuid4()), [], []

    class Redelivering(Shelf):
        def write(self, host_id, values, *, right_before):
            super().write(host_id, values, right_before=right_before)
            sent.append(host_id)
            again.append(pool.submit(job, run_id=run_id))
            wait(again, timeout=1)

    job.inventory = Redelivering(hosts(host("h1", "pc-1")))
    with ThreadPoolExecutor(1) as pool:
        assert job(run_id=run_id).success
    wait(again)
    assert sent == ["h1"]
    assert dict(job.tables.run_writes(run_id).select("host_id", "outcome").iter_rows()) == {"h1": "written"}


def test_a_sink_that_is_started_again_after_too_many_failures_fails_as_its_row_says(job):
    job.instance = instance(scan={"lookback_days": 3}, writes={"max_failed_writes": 1})
    job.inventory = Refusing(hosts(host("h1", "pc-1")))
    run_id = str(uuid.uuid4())
    results = [job(run_id=run_id), job(run_id=run_id)]
    assert [result.success for result in results] == [False, False]
    assert record(job, results[0])["status"] == "failed"


def test_the_stored_counts_of_the_window_are_added_up_once_for_plan_and_sink(job, monkeypatch):
    looks = []
    monkeypatch.setattr(
        "assets_defs.writing.unsettled", lambda *given, **named: looks.append(1) or unsettled(*given, **named)
    )
    assert job().success
    assert (len(looks), job.inventory.written) == (1, WRITTEN)
