"""Whichever way Dagster knows to the sink: what is written rests on what the same run has made."""

import json
from datetime import timedelta

import dagster as dg
import pytest

from assets_defs.run import RANGE_END, RANGE_START
from assets_defs.writing import SNAPSHOTS
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
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
    assert record(job, result)["to_write"] == 1
