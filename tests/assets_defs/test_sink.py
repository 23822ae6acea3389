import time
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest

from assets_defs.run_request import BACKFILL
from assets_defs.sink import WRITTEN_IN_TIME, _written_in_time
from tests.assets_defs.scans import ONE_DAY, scan
from tests.ownership.builders import host
from tests.pipelines.in_memory import Job, Shelf
from tests.resources.samples import instance
from tests.resources.writeback.world import plan

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue", "no_report")]


WRITES = dg.AssetKey(["windows_logons", "owner_writes"])


def numbers(event):
    """What the plots and the funnel of owner_writes show."""
    shown: Any = event.materialization.metadata
    stages = {row.data["stage"]: row.data["hosts"] for row in shown["funnel"].records}
    wanted = {stage: stages[stage] for stage in ("in the inventory", "to write", "written")}
    return shown["hosts_written"].value, shown["hosts_owned_percent"].value, wanted


def written_last(events):
    """What owner_writes says of the last run that wrote, without its time."""
    (event,) = events
    event = (
        event.materialization
        if event.is_step_materialization
        else event.asset_observation_data.asset_observation
    )
    run, number = (event.metadata[name].value for name in ("written_last", "hosts_with_written_owner"))
    return run.partition(", ")[0], number


def test_a_plan_that_the_brake_stops_is_shown_as_that_of_a_dry_run_is_with_each_host_asked_for(tmp_path):
    job = Job(tmp_path, instance(writes={"max_writes": 0}))
    job.inventory = Shelf(host("h1", "pc-1"), host("h2", "pc-2", owners=("u2",)))
    stopped = job(options={"hosts": ["pc-1", "pc-2"]})
    (event,) = stopped.get_asset_observation_events()
    shown: Any = event.asset_observation_data.asset_observation.metadata
    assert (stopped.success, job.inventory.written) == (False, {})
    assert shown["to_apply"].value.endswith(f"{stopped.run_id[:8]} --allow-writes 1")
    assert "allow_writes" in shown["open_in_launchpad"].value
    records = [record.data for record in shown["hosts"].records]
    assert [(row["Host"], row["Status"], row["Owner"]) for row in records] == [
        ("pc-1", "planned: only one user", "ann@corp.example"),
        ("pc-2", "set by hand: no logons", "bob@corp.example"),
    ]
    assert shown["result"].value == "Stopped: 1 of 2 hosts asked for would be written"
    assert "funnel" not in shown, "it is that of all hosts"


def test_an_undo_marks_the_apply_that_it_took_back_and_shows_why_the_hosts_had_their_owners(tmp_path):
    job = Job(tmp_path, instance())
    recorded = dg.DagsterInstance.ephemeral()
    runs = [job(options={"dry_run": True}, recorded=recorded)]
    assert written_last(runs[0].get_asset_observation_events()) == ("nothing yet", 0)
    (planned,) = runs[0].get_asset_observation_events()
    planned = planned.asset_observation_data.asset_observation.metadata
    assert planned["result"].value == "Plan only: 1 host would be written"
    (decided,) = runs[0].asset_materializations_for_node("windows_logons__owner_decisions")
    assert [name for name in decided.metadata if "/" not in name][:3] == ["as_of", "published", "funnel"]
    assert str(decided.metadata["as_of"].value).endswith(": this page shows the plan of this dry run")
    shown = "the tables and the report show this plan until a run may write"
    assert decided.metadata["published"].value == shown
    for follow_up, more in (("apply_plan", {}), ("undo_run", {"hosts": ["h1"], "wrong": True})):
        ops = {f"windows_logons__{follow_up}": {"config": {"run_id": runs[-1].run_id, **more}}}
        runs.append(job(f"windows_logons__{follow_up.partition('_')[0]}", ops=ops, recorded=recorded))
    results = [run.tags["asset_owners/result"] for run in recorded.get_runs()]
    assert results[:2] == ["1 undone", "1 written, undone"]
    shown_again, event = runs[1].get_asset_materialization_events()
    assert shown_again.asset_key == dg.AssetKey(["windows_logons", "owner_decisions"])
    shown = shown_again.materialization.metadata
    assert "published" not in shown
    assert shown["as_of"].value == f"after run {runs[1].run_id[:8]} applied this plan: 1 written"
    assert [shown[name].value for name in ("hosts_to_write", "hosts_owned_percent")] == [0, 100.0]
    of_plan, again = (
        [
            one.check_name
            for one in run.get_asset_check_evaluations()
            if one.asset_key == shown_again.asset_key
        ]
        for run in runs[:2]
    )
    assert of_plan == again != [], "the page shows the plan's checks beside the entry"
    assert runs[1].run_id[:8] in str(event.materialization.metadata["to_undo"].value)
    assert numbers(event) == (1, 100, {"in the inventory": 1, "to write": 0, "written": 1})
    assert written_last([event]) == (f"1 host by run {runs[1].run_id[:8]}", 1)
    shown_again, answers, event = runs[2].get_asset_materialization_events()
    assert answers.asset_key == dg.AssetKey(["windows_logons", "audit_sample"]), (
        "the answer no is a row of it"
    )
    shown = shown_again.materialization.metadata
    assert shown["as_of"].value == f"after run {runs[2].run_id[:8]} undid this plan: 0 written"
    assert shown["hosts_owned_percent"].value == 0
    shown: Any = event.materialization.metadata
    first = ["result", "written_last", "hosts_with_written_owner", "run", "report", "outcomes"]
    assert [*shown][: len(first)] == first
    assert "funnel" not in shown, "that of the plan"
    assert shown["result"].value == f"1 undone; this run followed run {runs[1].run_id[:8]}"
    assert written_last([event]) == (f"1 host by run {runs[1].run_id[:8]}", 0)
    host = shown["hosts"].records[0].data
    assert host["Status"] == "no owner: undone"
    assert "the owner that asset-owners wrote was undone on" in host["In words"]
    last = job()
    assert last.success
    (event,) = [one for one in last.get_asset_materialization_events() if one.asset_key == WRITES]
    assert numbers(event)[:2] == (0, 0)
    said = event.materialization.metadata["result"].value
    assert said == "This run may write, but there is no host to write"
    some: Any = {"asset_selection": [dg.AssetKey(["windows_logons", "owner_decisions"])]}
    for what, run in {
        "dry run": job(options={"dry_run": True}),
        "backfill": job(tags={BACKFILL: "b"}),
        "run of some assets": job(**some),
    }.items():
        plans = [one.asset_key for one in run.get_asset_materialization_events() if one.asset_key == WRITES]
        assert plans == [WRITES] * (what == "backfill"), "the page goes on opening with what was written"
        (decided,) = run.asset_materializations_for_node("windows_logons__owner_decisions")
        shown = f"the tables and the report still show run {last.run_id[:8]}"
        assert decided.metadata["published"].value == shown
        assert str(decided.metadata["as_of"].value).endswith(f": this page shows the plan of this {what}")
    assert job.inventory.written == {"h1": {"owner": ""}}, "the undo said that the owner is wrong"


def test_a_check_fails_where_plans_are_made_and_none_is_written_also_by_a_backfill(tmp_path, monkeypatch):
    """Dagster's freshness takes the plan of a backfill, which it wants materialized, for a write."""
    job, recorded = Job(tmp_path, instance(scan={"schedule": "0 5 * * *"})), dg.DagsterInstance.ephemeral()
    to_write = plan("h1")

    def at(days_later):
        then = time.time() + timedelta(days=days_later).total_seconds()
        monkeypatch.setattr("assets_defs.sink.time", Mock(time=lambda: then))

    def in_time(rows):
        return _written_in_time(scan(job.tables, job.instance, ONE_DAY), rows).passed

    def in_time_by(name="", **more):
        ran = job(name, recorded=recorded, **more)
        (found,) = [one for one in ran.get_asset_check_evaluations() if one.check_name == WRITTEN_IN_TIME]
        return found.passed, ran, found.description

    job.tables.prepare()
    at(9)
    assert in_time(to_write), "nothing was ever written"
    at(0)
    assert in_time_by()[0]
    at(1)
    assert in_time(to_write), "a night has not passed"
    at(9)
    assert in_time(to_write.clear()), "there is nothing to write"
    assert not in_time(to_write)
    job.inventory.assets["h1"]["owner_ids"] = []
    passed, ran, said = in_time_by(tags={BACKFILL: "b"})
    assert not passed
    assert said.startswith("1 owner to write, and no run has written since 20")
    job.instance = instance(scan={"schedule": "0 5 * * *"}, writes={"max_writes": 0})
    assert not in_time_by()[0], "the brake stops it each night"
    ops = {"windows_logons__apply_plan": {"config": {"run_id": ran.run_id, "allow_writes": 1}}}
    assert in_time_by("windows_logons__apply", ops=ops)[0]
