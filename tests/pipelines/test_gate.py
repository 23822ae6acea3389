"""Whichever way Dagster knows to the sink: what is written rests on what the same run has made."""

import json
import uuid
from datetime import timedelta

import dagster as dg
import polars as pl
import pytest

from assets_defs.run import BACKFILL, RANGE_END, RANGE_START, window_of
from assets_defs.writing import SNAPSHOTS
from pipelines.schedules import launch_tags
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf, rebuildable
from tests.resources.samples import instance

WRITTEN = {"h1": {"owner": "u1"}}


TABLES = ["logon_counts", "logon_days", *SNAPSHOTS, "owner_writes"]


@pytest.fixture
def job(tmp_path):
    settings = instance(scan={"lookback_days": 3, "timezone": "UTC"})
    return Job(settings, tmp_path, LogFile((LAST, "pc-1", "ann")), Shelf(hosts(host("h1", "pc-1"))))


def record(job, result):
    return job.tables.appended("runs", result.run_id).row(0, named=True)


def assets(job, *tables):
    return [dg.AssetKey([job.instance.slug, table]) for table in tables]


@pytest.mark.parametrize(
    "chosen",
    [
        ["owner_writes"],
        ["owner_decisions", "owner_writes"],
        [table for table in TABLES if table != "inventory_users"],
    ],
    ids=["writes", "decisions and writes", "all but users"],
)
def test_some_tables_alone_are_no_reason_to_write(job, chosen):
    """Owners, hosts and people may have changed since the other tables were made."""
    job()
    job.inventory = Shelf(hosts(host("h1", "pc-1")))
    job(asset_selection=assets(job, *chosen))
    assert job.inventory.written == {}


def test_a_run_of_some_tables_says_that_it_only_plans_and_its_plan_is_not_carried_out(job):
    job()
    job.inventory = Shelf(hosts(host("h1", "pc-1")))
    chosen = assets(job, "inventory_hosts", "owner_decisions", "owner_writes")
    with dg.DagsterInstance.ephemeral() as recorded:
        result = job(asset_selection=chosen, recorded=recorded)
        tags = recorded.get_runs()[0].tags
    row = record(job, result)
    assert (row["kind"], row["status"], row["to_write"]) == ("dry_run", "succeeded", 1)
    assert "lacks the steps logons, inventory_users" in row["message"]
    assert tags["asset_owners/kind"] == "dry_run"
    op = f"{job.instance.slug}__apply_plan"
    applied = job(
        f"{job.instance.slug}__apply", ops={op: {"config": {"run_id": result.run_id}}}, tags={"a": "b"}
    )
    assert not applied.success
    assert "lacked the steps logons, inventory_users" in record(job, applied)["message"]
    assert job.inventory.written == {}


def test_a_run_without_the_check_that_blocks_does_not_write(job):
    result = job(asset_selection=assets(job, *TABLES), checks=())
    assert result.success
    assert job.inventory.written == {}
    assert json.loads(record(job, result)["options"]) == {"left_out": ["blocking_check"]}


def test_days_that_an_earlier_run_fetched_before_they_were_settled_are_no_reason_to_write(job, monkeypatch):
    """Whatever lets a run go so far: the sink looks at what is stored."""
    job()
    job.inventory = Shelf(hosts(host("h1", "pc-1")))
    monkeypatch.setattr("assets_defs.run.INPUTS", ())
    monkeypatch.setattr("assets_defs.writing.CLOCK_SKEW", timedelta())
    result = job(asset_selection=assets(job, *TABLES[2:]))
    assert not result.success
    assert "did not make logon_counts (3 days" in record(job, result)["message"]
    assert job.inventory.written == {}


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


def test_one_run_for_each_day_of_a_backfill_only_plans_as_well(job):
    tags = launch_tags(job.instance, window_of(job.instance, LAST)) | {BACKFILL: "abc"}
    result = job(tags=tags)
    assert (record(job, result)["kind"], job.inventory.written) == ("backfill", {})


class Collector(LogFile):
    """Sends the events of three hosts."""

    def senders(self, day):  # noqa: ARG002
        row = {"document_hostname": "pc-1", "events": 9, "host_names": ["pc-1", "pc-2", "pc-3"]}
        return 9, pl.DataFrame([row])


@pytest.fixture
def again(job):
    """Runs the job, then its last steps anew, as "Re-execute selected" does."""

    def again(between=lambda: None):
        tags = launch_tags(job.instance, window_of(job.instance, LAST))
        slug = job.instance.slug
        steps = [f"{slug}__owner_writes.{slug}__{step}" for step in ("plan", "sink")]
        with dg.instance_for_test() as recorded:
            with dg.execute_job(rebuildable(job), recorded, tags=tags) as first:
                pass
            between()
            chosen = dg.ReexecutionOptions(first.run_id, step_selection=steps)
            with dg.execute_job(rebuildable(job), recorded, tags=tags, reexecution_options=chosen) as second:
                return first, second

    return again


def test_what_the_blocking_check_has_stopped_is_not_written_by_the_last_steps_alone(job, again):
    job.logons = Collector((LAST, "pc-1", "ann"))
    first, second = again()
    assert not first.success
    assert not second.success
    assert "did not make blocking_check" in record(job, second)["message"]
    assert job.inventory.written == {}


def test_what_was_decided_by_other_rules_is_not_written_by_the_last_steps_alone(job, again):
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
