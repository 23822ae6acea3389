"""A run on another source of logons and another inventory: the two protocols name all that it needs."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl
import pytest

from assets_defs.run import PLAN
from assets_defs.run_request import RANGE_END, RANGE_START, WINDOW_TAG
from ownership import data_checks, resolution
from pipelines.cli.results import errors
from resources.errors import TransientError
from resources.findings import Finding
from resources.settings import part_name
from resources.store.tables import SNAPSHOTS
from tests.ownership.builders import host
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf, records
from tests.resources.samples import instance

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue", "no_report")]


def test_owners_come_from_another_source_into_another_inventory_and_odd_assets_stop_nothing(tmp_path):
    yesterday = LAST - timedelta(days=1)
    used = [(LAST, "pc-1", "ann")] * 2 + [(LAST, pc, "bob") for pc in ("pc-2", "pc-3")]
    unreadable = {"owner_ids": None, "problem": "its field asset_owner holds a dict"}
    inventory = Shelf(host("h1", "pc-1"), host("h2", "pc-2", owners=("u1",)), host("h3", "pc-3") | unreadable)
    job = Job(tmp_path, logons=LogFile(*used, (yesterday, "pc-1", "bob")), inventory=inventory)
    assert job(tags={"started": "by hand"}).success, "a run of all tables needs no day that it names"
    assert inventory.written == {"h1": {"owner": "u1"}}
    decisions = job.tables.read("owner_decisions").collect()
    found = decisions.select("host_id", "action", "evidence").sort("host_id").rows()
    assert [row[:2] for row in found] == [("h1", "write"), ("h2", "conflict"), ("h3", "none")]
    assert found[2][2] == "unreadable_asset"
    write = job.tables.writes().collect().row(0, named=True)
    sent = {"owner": "u1", "department": None, "criticality": None}
    assert (write["outcome"], write["new_values"]) == ("written", sent)
    owners = job.tables.read("current_owners").select("host_id", "owner_ids", "source").collect().rows()
    assert owners == [("h1", ["u1"], "asset-owners"), ("h2", ["u1"], "inventory"), ("h3", None, "inventory")]


def test_each_run_that_may_write_adds_the_coverage_of_each_department_as_it_is_then(tmp_path, monkeypatch):
    """The first run moves its host to the department of its owner, and an undo moves it back."""
    monkeypatch.setattr(Shelf, "takes", ("owner", "department"))
    job = Job(tmp_path, inventory=Shelf(host("h1", "pc-1", department="Lab"), host("h2", "pc-2")))
    wrote = job().run_id
    ops = {part_name(job.instance, "undo_run"): {"config": {"run_id": wrote}}}
    undone = job(part_name(job.instance, "undo"), ops=ops).run_id
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": True})
    assert job().success
    found, ended = (
        job.tables.read("coverage").collect(),
        dict(job.tables.rows("runs").select("run_id", "ended_at").rows()),
    )
    assert {*found.select("run_id", "ended_at").rows()} == {(run, ended[run]) for run in (wrote, undone)}
    counted = found.drop("ended_at").rows_by_key("run_id")
    assert counted == {wrote: [(None, 1, 0), ("Sales", 1, 1)], undone: [(None, 1, 0), ("Lab", 1, 0)]}


def test_counts_are_collected_by_the_streaming_engine_and_all_else_in_memory(tmp_path, monkeypatch):
    collect, engines = pl.LazyFrame.collect, {True: Counter(), False: Counter()}

    def recorded(frame, *arguments, engine="auto", **named):
        engines["/logon_counts/" in frame.explain()][engine] += 1
        return collect(frame, *arguments, engine=engine, **named)

    monkeypatch.setattr(pl.LazyFrame, "collect", recorded)
    assert Job(tmp_path)().success
    assert engines[True].keys() == {"streaming"}
    assert engines[False].keys() == {"streaming", "auto"}
    assert pl.Config.state()["POLARS_ENGINE_AFFINITY"] == "in-memory"


def test_an_error_in_a_check_is_told_with_what_was_written(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("wrong")

    monkeypatch.setattr(data_checks, "missing_owners", fails)
    job = Job(tmp_path)
    assert [*errors(job())] == ["an error in the program: ZeroDivisionError: wrong"]
    assert len(job.inventory.written) == 1
    (row,) = job.tables.all_runs("runs").collect().to_dicts()
    assert (row["status"], row["to_write"], row["written"], row["owned_after"]) == ("failed", 1, 1, 1)
    assert "wrong" in row["message"]


def test_what_the_blocking_check_says_is_why_a_run_fails(tmp_path, monkeypatch):
    found = [Finding("wrong", "hostname_field", "collectors")]
    monkeypatch.setattr("assets_defs.checks.check_senders", lambda *_, **__: found)
    job = Job(tmp_path)
    assert ([*errors(job())], job.inventory.written) == (["hostname_field: collectors"], {})


@pytest.mark.parametrize("hanging", ["logons", "hosts"])
def test_the_first_step_that_fails_ends_the_others(tmp_path, monkeypatch, hanging):
    asked = []

    def asks(name, answer):
        def call(*given, **named):
            asked.append(name)
            if name == hanging:
                raise TransientError(f"no answer for {name}")
            return answer(*given, **named)

        return call

    job = Job(tmp_path)
    for service, name in ((job.logons, "logons"), (job.inventory, "hosts"), (job.inventory, "users")):
        monkeypatch.setattr(service, name, asks(name, getattr(service, name)))
    assert set(errors(job())) == {f"no answer for {hanging}"}
    assert asked[-1] == hanging
    if hanging == "hosts":  # as with a wrong tenant: no later run is held to it
        replace(job.tables, target="the right tenant").require_own()


@pytest.mark.parametrize(
    ("counting", "by_others"),
    [("host_user_shares", True), ("owner_decisions", True), ("owner_decisions", False)],
)
def test_days_that_another_run_replaces_by_other_settings_while_they_are_counted_are_not_evidence(
    tmp_path, monkeypatch, counting, by_others
):
    job = Job(tmp_path)
    usual = getattr(resolution, counting)

    def meanwhile(*given, **named):
        day = job.tables.logon_days([LAST], run_id=None).with_columns(fetched_at=datetime.now(UTC))
        if by_others:
            day = day.with_columns(settings_fingerprint=pl.lit("of another index"))
        job.tables.write_days([(day, job.tables.logon_counts([LAST], run_id=None).collect())])
        return usual(*given, **named)

    monkeypatch.setattr(resolution, counting, meanwhile)
    messages = errors(job())
    assert ["other settings replaced days" in one for one in messages] == [True] * by_others
    assert bool(job.inventory.written) != by_others


def record(job, result):
    return job.tables.rows("runs", result.run_id).row(0, named=True)


def test_what_a_run_makes_that_may_not_write_is_kept_from_analysts(tmp_path):
    """They see the last run that was allowed to, in all tables; none without the sink, no dry run."""
    following, days_tables = (
        ("current_owners", "unmatched_users", "owner_writes"),
        ("logon_days", "logon_counts"),
    )
    job = Job(tmp_path)
    assert job().success
    published = {table: job.tables.read(table).collect() for table in (*SNAPSHOTS, *following)}
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": True})
    job.inventory = Shelf(host("h1", "pc-1"), host("h2", "pc-2"))
    lists = job(asset_selection=[dg.AssetKey([job.instance.slug, "inventory_hosts"])])
    row = record(job, lists)
    assert (row["kind"], row["status"]) == ("backfill", "succeeded")
    assert job.tables.holds("inventory_hosts", lists.run_id)
    days = job(asset_selection=[dg.AssetKey([job.instance.slug, each]) for each in days_tables])
    recorded = records().get_run_by_id(days.run_id)
    assert recorded
    assert recorded.tags[WINDOW_TAG] == f"{LAST}/{LAST}", "not its look-back window"
    plans = job(options={"dry_run": False, "hosts": None})
    row = record(job, plans)
    assert (row["kind"], row["to_write"], job.inventory.written) == ("dry_run", 1, {})
    assert "writes.dry_run is on" in row["message"], "whatever the launchpad says"
    plan = job.tables.read_own("owner_writes", plans.run_id)
    assert plan.select("host_id", "outcome").rows() == [("h1", "planned")]
    assert all(job.tables.holds(table, plans.run_id) for table in following)
    assert all(job.tables.read(table).collect().equals(frame) for table, frame in published.items())


def test_the_job_that_plans_never_writes_whatever_is_chosen(tmp_path):
    job = Job(tmp_path)
    plan = part_name(job.instance, PLAN)
    options = {"dry_run": False, "force": True}
    row = record(job, job(plan, options=options))
    assert (row["kind"], row["status"], row["to_write"]) == ("dry_run", "succeeded", 1)
    assert (job.inventory.written, f"the job {plan} only plans" in row["message"]) == ({}, True)
    assert job.tables.published_run() is None
    assert job(options=options).success
    assert job.inventory.written, "the instance's own job does"


@pytest.mark.parametrize("is_dry", [True, False])
def test_days_that_are_fetched_by_themselves_are_published_except_by_a_dry_run(tmp_path, is_dry):
    job = Job(tmp_path)
    assert job().success
    published = job.tables.logon_days([LAST], run_id=None)
    job.instance = instance(scan={"lookback_days": 3}, writes={"dry_run": is_dry})
    job.logons = LogFile((LAST, "pc-1", "bob"), (LAST, "pc-2", "bob"))
    keys = [dg.AssetKey([job.instance.slug, table]) for table in ("logon_counts", "logon_days")]
    assert job(asset_selection=keys, options={"refetch": True}).success
    now = job.tables.logon_days([LAST], run_id=None)
    assert now.equals(published) == is_dry
    assert is_dry or now["matching"].to_list() == [2]


def test_a_backfill_of_the_past_writes_with_force(tmp_path):
    past = LAST - timedelta(days=60)
    settings = instance(scan={"lookback_days": 3, "first_day": past - timedelta(days=9)})
    job = Job(tmp_path, settings, LogFile((past, "pc-1", "ann")))
    tags = {RANGE_START: str(past - timedelta(days=1)), RANGE_END: str(past)}
    options = {"force": True, "limit": 2**70, "lookback_days": 2}
    row = record(job, job(tags=tags, options=options))
    assert (row["kind"], row["message"], job.inventory.written) == ("run", None, {"h1": {"owner": "u1"}})
    assert json.loads(row["options"]) == options
