"""Whichever way Dagster knows to the sink: what is written rests on what the same run has made."""

import json
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from assets_defs.run import RANGE_END, RANGE_START, SNAPSHOTS, as_dagster_failure
from assets_defs.writing import write_planned
from resources.errors import AssetOwnersError, ServiceError
from tests.assets_defs.scans import decided
from tests.ownership.builders import NOW, RUN, host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")
WRITTEN = {"h1": {"owner": "u1"}}


def record(job, result):
    return job.tables.appended("runs", result.run_id).row(0, named=True)


def test_what_a_run_makes_that_may_not_write_is_kept_from_analysts(tmp_path):
    """They see the last run that was allowed to, in all tables; none without the sink, no dry run."""
    job = Job(tmp_path)
    assert job().success
    published = {table: job.tables.read(table).collect() for table in (*SNAPSHOTS, "owner_writes")}
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": True})
    job.inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2")))
    lists = job(asset_selection=[dg.AssetKey([job.instance.slug, "inventory_hosts"])])
    row = record(job, lists)
    assert (row["kind"], row["status"]) == ("backfill", "succeeded")
    assert job.tables.holds("inventory_hosts", lists.run_id)
    plans = job(options={"dry_run": False})
    row = record(job, plans)
    assert (row["kind"], row["to_write"], job.inventory.written) == ("dry_run", 1, {})
    assert "writes.dry_run is on" in row["message"], "whatever the launchpad says"
    plan = job.tables.of_run("owner_writes", plans.run_id)
    assert plan.select("host_id", "outcome").rows() == [("h1", "planned")]
    assert all(job.tables.read(table).collect().equals(frame) for table, frame in published.items())


def test_a_backfill_of_the_past_writes_with_force(tmp_path):
    past = LAST - timedelta(days=60)
    settings = instance(scan={"lookback_days": 3, "first_day": past - timedelta(days=9)})
    job = Job(tmp_path, settings, LogFile((past, "pc-1", "ann")))
    tags = {RANGE_START: str(past - timedelta(days=1)), RANGE_END: str(past)}
    options = {"force": True, "limit": 2**70, "lookback_days": 2}
    row = record(job, job(tags=tags, options=options))
    assert (row["kind"], row["message"], job.inventory.written) == ("run", None, {"h1": {"owner": "u1"}})
    assert json.loads(row["options"]) == options


class Refusing(Shelf):
    """Refuses each write."""

    def write(self, host_id, values, *, right_before):  # noqa: ARG002
        right_before()
        raise ServiceError("The inventory refuses it")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"started_at": datetime.now(UTC) - timedelta(hours=13)}, "12 hours ago"),
        ({"checked_at": None}, "did not make blocking_check"),
        ({"fetched_at": NOW}, r"did not make logon_counts \(1 days"),
    ],
    ids=["old", "not checked", "days fetched before they were settled"],
)
def test_what_is_old_or_was_not_checked_is_not_written(tmp_path, changed, says):
    """Whatever lets a run go so far: the sink looks at what is stored."""
    inventory = Shelf(hosts(host("h1", "pc-1")))
    run = decided(tmp_path, instance(), inventory, **changed)
    with pytest.raises(AssetOwnersError, match=says):
        write_planned(run)
    assert inventory.written == {}


@pytest.mark.parametrize(("owners", "written"), [((), ["h1"]), (("u1",), [])])
def test_a_sink_that_is_started_again_under_its_id_writes_nothing_more_and_loses_no_row(
    tmp_path, owners, written
):
    """As a queue delivers a step twice, or a run is resumed; also where there is nothing to write."""
    first = decided(tmp_path, instance(), Shelf(hosts(host("h1", "pc-1", owners=owners))))
    write_planned(first)
    rows = first.tables.run_writes(RUN)
    inventory = Shelf(hosts(host("h1", "pc-1")))
    write_planned(decided(tmp_path, instance(), inventory))
    assert inventory.written == {}
    assert first.tables.run_writes(RUN).equals(rows)
    assert rows.filter(outcome="written")["host_id"].to_list() == written


def test_a_run_that_is_delivered_again_while_it_writes_sends_nothing_more(tmp_path):
    sent, again = [], []

    class Redelivering(Shelf):
        def write(self, host_id, values, *, right_before):
            super().write(host_id, values, right_before=right_before)
            sent.append(host_id)
            again.append(pool.submit(write_planned, run))
            wait(again, timeout=0.5)

    run = decided(tmp_path, instance(), Redelivering(hosts(host("h1", "pc-1"))))
    with ThreadPoolExecutor(1) as pool:
        write_planned(run)
    (rows,) = (one.result() for one in again)
    assert (sent, rows["outcome"].to_list()) == (["h1"], ["written"])


def test_a_sink_that_is_started_again_after_too_many_failures_fails_as_its_row_says(tmp_path):
    settings = instance(writes={"max_failed_writes": 1})
    inventory = Shelf(hosts(host("h1", "pc-1")))
    for shelf in (Refusing(hosts(host("h1", "pc-1"))), inventory):
        run = decided(tmp_path, settings, shelf)
        with pytest.raises(dg.DagsterUserCodeExecutionError), as_dagster_failure(run, last=True):
            write_planned(run)
        assert run.record.get("status") == "failed"
        assert "the rest is left for the next run" in run.record.get("message")
    assert inventory.written == {}
