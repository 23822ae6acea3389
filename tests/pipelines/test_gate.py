"""Whichever way Dagster knows to the sink: what is written rests on what the same run has made."""

import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from functools import partial

import dagster as dg
import polars as pl
import pytest

from assets_defs.record import RunRecord
from assets_defs.run import (
    BACKFILL,
    LEFT_OUT,
    PARTITION,
    RANGE_END,
    RANGE_START,
    SNAPSHOTS,
    as_dagster_failure,
    window_of,
)
from assets_defs.writing import write_planned
from pipelines.cli.run import errors
from pipelines.schedules import launch_tags
from resources.errors import AssetOwnersError, ServiceError
from resources.settings import named
from resources.writeback.journals import open_journal
from tests.assets_defs.scans import decided
from tests.ownership.builders import NOW, RUN, host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf, rebuildable, records
from tests.resources.clock import set_clock
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")
WRITTEN = {"h1": {"owner": "u1"}}
TABLES = ["logon_counts", "logon_days", *SNAPSHOTS, "owner_writes"]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture(scope="module")
def home_after_a_run(tmp_path_factory):
    home = tmp_path_factory.mktemp("earlier")
    assert Job(home)().success
    return home


@pytest.fixture
def ran(job, home_after_a_run):
    """The job after a run, whose owner somebody has cleared since."""
    shutil.copytree(home_after_a_run, job.home, dirs_exist_ok=True)
    return job


def record(job, result):
    return job.tables.appended("runs", result.run_id).row(0, named=True)


def kind_told(result):
    """What the UI shows of a run."""
    run = records().get_run_by_id(result.run_id)
    return run and run.tags["asset_owners/kind"]


def assets(job, *tables):
    return [dg.AssetKey([job.instance.slug, table]) for table in tables]


def test_a_run_of_some_tables_says_that_it_only_plans_and_its_plan_is_not_carried_out(ran):
    chosen = assets(ran, "inventory_hosts", "owner_decisions", "owner_writes")
    result = ran(asset_selection=chosen)
    row = record(ran, result)
    assert (row["kind"], row["status"], row["to_write"]) == ("dry_run", "succeeded", 1)
    assert "lacks the steps logons, inventory_users" in row["message"]
    assert kind_told(result) == "dry_run"
    op = f"{ran.instance.slug}__apply_plan"
    applied = ran(f"{ran.instance.slug}__apply", ops={op: {"config": {"run_id": result.run_id}}})
    assert not applied.success
    assert "lacked the steps logons, inventory_users" in record(ran, applied)["message"]
    assert ran.inventory.written == {}


def test_what_a_run_without_the_sink_has_made_is_kept_from_analysts(ran):
    """They see the last run that was allowed to write, in all tables."""
    published = {table: ran.tables.read(table).collect() for table in SNAPSHOTS}
    ran.inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2")))
    result = ran(asset_selection=assets(ran, "inventory_hosts"))
    assert result.success
    assert ran.tables.holds("inventory_hosts", result.run_id)
    assert all(ran.tables.read(table).collect().equals(frame) for table, frame in published.items())
    row = record(ran, result)
    assert (row["kind"], row["status"]) == ("backfill", "succeeded")
    assert "owner_writes" in row["message"]


def test_what_a_dead_run_left_open_is_settled_by_a_run_and_not_by_a_dry_undo(ran):
    left = ran.tables.writes().collect().with_columns(run_id=pl.lit("dead-run"), outcome=pl.lit("intended"))
    (run_id,) = ran.tables.all_runs("runs").collect()["run_id"]
    with open_journal(ran.tables) as journal:
        journal.intend(left)
    op = named(ran.instance, "undo_run")
    dry = ran(named(ran.instance, "undo"), ops={op: {"config": {"run_id": run_id, "dry_run": True}}})
    with open_journal(ran.tables) as journal:
        assert (dry.success, dry.get_asset_materialization_events()) == (True, [])
        assert journal.rows("dead-run")["outcome"].to_list() == ["intended"]
    assert ran().success
    with open_journal(ran.tables) as journal:
        assert journal.targets() == {}
    assert ran.tables.appended("owner_writes", "dead-run")["outcome"].to_list() == ["not_written"]


def test_a_run_without_the_check_that_blocks_does_not_write(job):
    result = job(asset_selection=assets(job, *TABLES), checks=())
    assert result.success
    assert job.inventory.written == {}
    assert json.loads(record(job, result)["options"]) == {"left_out": ["blocking_check"]}


BACKFILLS = [
    ({RANGE_START: str(LAST - timedelta(days=1)), RANGE_END: str(LAST)}, "of 2 days"),
    ({BACKFILL: "abc"}, "with a run for each day"),
]


@pytest.mark.parametrize(("tags", "days"), BACKFILLS, ids=["one run", "a run for each day"])
def test_a_backfill_only_plans(job, tags, days):
    result = job(tags=tags)
    row = record(job, result)
    assert result.success
    assert row["kind"] == kind_told(result) == "backfill"
    assert (row["to_write"], job.inventory.written) == (1, {})
    assert f"Backfill {days}" in row["message"]


def test_days_without_usual_events_stop_the_writing_where_that_is_asked_for(job):
    job.instance = instance(scan={"lookback_days": 3, "require_complete_window": True})
    job.logons = LogFile(*((LAST - timedelta(days=age), "pc-1", "ann") for age in (0, 2)))
    row = record(job, job())
    assert (row["status"], row["to_write"], job.inventory.written) == ("failed", 1, {})
    for words in (f"({LAST - timedelta(days=1)})", "scan.require_complete_window", "apply"):
        assert words in row["message"]


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({PARTITION: str(LAST + timedelta(days=2))}, "is in the future"),
        ({RANGE_START: str(LAST), RANGE_END: str(LAST - timedelta(days=1))}, "is later than"),
    ],
)
def test_a_run_of_days_to_come_or_of_none_fetches_and_writes_nothing(job, tags, says):
    assert says in next(errors(job(tags=tags)))
    assert job.inventory.written == {}


def test_a_limit_may_be_any_number(job):
    assert job(options={"limit": 2**70}).success
    assert job.inventory.written == WRITTEN


@pytest.mark.slow
def test_what_executes_a_run_of_a_backfill_again_only_plans(job):
    """Dagster leaves the backfill's tag out once the backfill has ended."""
    with dg.instance_for_test() as recorded:
        with dg.execute_job(rebuildable(job), recorded, tags={BACKFILL: "abc"}) as first:
            options = dg.ReexecutionOptions(first.run_id)
        with dg.execute_job(rebuildable(job), recorded, reexecution_options=options) as again:
            assert again.success
    row = record(job, again)
    assert (row["kind"], row["to_write"], job.inventory.written) == ("backfill", 1, {})


def test_a_run_goes_on_by_no_other_settings_than_it_began_by(job):
    """Each step may read the instance file anew: in a process of its own, or when it is delivered again."""
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": True})
    first = job()
    job.instance = instance(scan={"lookback_days": 3})
    second = job(run_id=first.run_id)
    assert not second.success
    row = record(job, second)
    assert (row["kind"], row["written"], job.inventory.written) == ("dry_run", 0, {})


def of_the_past(**settings):
    first_day = LAST - timedelta(days=90)
    return instance(scan={"lookback_days": 3, "first_day": first_day}, **settings)


def test_a_backfill_of_the_past_writes_with_force(job):
    job.instance, past = of_the_past(), LAST - timedelta(days=60)
    job.logons = LogFile((past, "pc-1", "ann"))
    tags = {RANGE_START: str(past - timedelta(days=1)), RANGE_END: str(past)}
    options = {"force": True, "lookback_days": 2}
    row = record(job, job(tags=tags, options=options))
    assert (row["kind"], row["message"], job.inventory.written) == ("run", None, WRITTEN)
    assert json.loads(row["options"]) == options


@pytest.mark.parametrize(
    ("age", "dry_run", "says"), [(0, True, "writes.dry_run is on"), (60, False, "the window ended on")]
)
def test_runs_that_only_plan_whatever_a_launchpad_says_change_nothing_that_analysts_see(
    ran, age, dry_run, says
):
    last = LAST - timedelta(days=age)
    ran.instance = of_the_past(writes={"dry_run": dry_run})
    ran.logons = LogFile((last, "pc-1", "ann"))
    ran.inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2")))
    published = {table: ran.tables.read(table).collect() for table in (*SNAPSHOTS, "owner_writes")}
    tags = launch_tags(ran.instance, window_of(ran.instance, last))
    result = ran(tags=tags, options={"dry_run": False})
    row = record(ran, result)
    assert (row["kind"], row["to_write"], ran.inventory.written) == ("dry_run", 1, {})
    assert says in row["message"]
    plan = ran.tables.of_run("owner_writes", result.run_id)
    assert plan.select("host_id", "outcome").rows() == [("h1", "planned")]
    assert all(ran.tables.read(table).collect().equals(frame) for table, frame in published.items())


def test_a_run_that_works_past_midnight_writes_what_it_began_to(job, monkeypatch):
    """Its first step decides which day is today, and with it whether the window is one of the past."""
    monkeypatch.setattr("assets_defs.writing.MAX_RUN_TIME", timedelta(days=2))
    job.instance = instance(scan={"lookback_days": 3, "late_days": 0})
    listed, now = job.inventory.hosts, datetime.now(UTC)

    def midnight_passes(*given):
        set_clock(monkeypatch, now + timedelta(days=1))
        return listed(*given)

    job.inventory.hosts = midnight_passes
    assert job(tags=launch_tags(job.instance, window_of(job.instance, now.date()))).success
    assert job.inventory.written == WRITTEN


class Collector(LogFile):
    """Sends the events of three hosts."""

    def senders(self, day):  # noqa: ARG002
        row = {"document_hostname": "pc-1", "events": 9, "host_names": ["pc-1", "pc-2", "pc-3"]}
        return 9, pl.DataFrame([row])


class Refusing(Shelf):
    """Refuses each write."""

    def write(self, host_id, values, *, right_before):  # noqa: ARG002
        right_before()
        raise ServiceError("The inventory refuses it")


ONE_HOST = hosts(host("h1", "pc-1"))
FAILING = {  # such a run keeps what it has made
    "instance": instance(scan={"lookback_days": 3}, writes={"max_failed_writes": 1}),
    "inventory": Refusing(ONE_HOST),
}
COLLECTED = {"logons": Collector((LAST, "pc-1", "ann"))}
WRITES = {"instance": instance(scan={"lookback_days": 3})}
ONLY_PLANS = {"instance": instance(scan={"lookback_days": 3}, writes={"dry_run": True})}
OTHER_RULES = {"instance": instance(scan={"lookback_days": 3}, rules={"exclude_users": ["ann"]})}


def becomes(job, **attributes):
    job.__dict__.update(attributes)


def lacked_a_step(job):
    """The run was one of some tables, and is executed again with all steps, by Dagster's API."""
    (run_id,) = job.tables.all_runs("runs").collect()["run_id"]
    record = RunRecord(job.tables, run_id, None, logging.getLogger())
    record.add(options=json.dumps({LEFT_OUT: ["logons"]}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "between", "chosen", "lacks"),
    [
        ({}, becomes, ["username_matches"], "host_user_shares"),
        (COLLECTED, becomes, ["owner_writes"], "blocking_check"),
        (FAILING, partial(becomes, **COLLECTED), ["blocking_check", "owner_writes"], "blocking_check"),
        (FAILING, partial(becomes, **COLLECTED), ["logons owner_decisions owner_writes"], "blocking_check"),
        (FAILING, lacked_a_step, ["owner_writes"], "inventory_hosts"),
        (ONLY_PLANS, partial(becomes, **WRITES), ["owner_writes"], "inventory_hosts"),
        (WRITES, partial(becomes, **OTHER_RULES), ["owner_writes"], "inventory_hosts"),
    ],
    ids=["table", "check stopped it", "check stops it now", "unchecked", "some tables", "dry", "other rules"],
)
def test_a_step_that_is_done_again_alone_goes_on_from_nothing_that_another_run_made(
    job, first, between, chosen, lacks
):
    """As "Re-execute selected" does it: what a step made would pass for that of the run that writes."""
    becomes(job, **first)
    tags = launch_tags(job.instance, window_of(job.instance, LAST))
    with dg.instance_for_test() as recorded:
        with dg.execute_job(rebuildable(job), recorded, tags=tags) as result:
            pass
        between(job)
        job.inventory = Shelf(ONE_HOST)
        for steps in chosen:
            named_steps = [named(job.instance, step) for step in steps.split()]
            options = dg.ReexecutionOptions(result.run_id, step_selection=named_steps)
            with dg.execute_job(rebuildable(job), recorded, tags=tags, reexecution_options=options) as result:
                pass
    assert not result.success
    assert f"did not make {lacks}" in record(job, result)["message"]
    assert job.inventory.written == {}


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
