"""What the runs of an instance tell of themselves: table `runs`, tags in the UI, `asset-owners runs`."""

import json
import re
import shlex
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from assets_defs.record import RunRecord
from assets_defs.run import RANGE_END, RANGE_START
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from resources.settings import load_instance
from tests.end_to_end.stand import HOSTS, TODAY, USERS, at_noon, logons, small_company

COUNTS = (
    "hosts",
    "to_write",
    "written",
    "failed",
    "left_alone",
    "conflicts",
    "new_conflicts",
    "owned_before",
    "owned_after",
)


def row_of(stand, run_id):
    return stand.tables.appended("runs", run_id).row(0, named=True)


def counts_of(stand, run_id):
    row = row_of(stand, run_id)
    return tuple(row[name] for name in COUNTS)


def run_ids(stand):
    return stand.tables.all_runs("runs").collect().sort("started_at")["run_id"].to_list()


def tags_of(stand, run_id):
    with dagster_instance(stand.home) as recorded:
        run = recorded.get_run_by_id(run_id)
    assert run is not None
    return run.tags


def events_of(stand, ran) -> list[Any]:
    with dagster_instance(stand.home) as recorded:
        records = recorded.all_logs(ran.report["run_id"])
    return [record.dagster_event for record in records if record.dagster_event]


def test_dry_run_run_and_undo_tell_what_came_of_them(recorded_stand):
    stand = recorded_stand
    planned = stand.run(None, "--dry-run", "--no-enrich").report["run_id"]
    wrote = stand.run().report["run_id"]
    again = stand.run().report["run_id"]
    assert stand.call("undo", "--instance", stand.instance_file(), wrote).exit_code == 0
    undone = run_ids(stand)[-1]
    listed = {row["run_id"]: row for row in stand.tables.all_runs("runs").collect().to_dicts()}
    assert {(listed[run]["kind"], listed[run]["status"], listed[run]["of_run"]) for run in listed} == {
        ("dry_run", "succeeded", None),
        ("run", "succeeded", None),
        ("undo", "succeeded", wrote),
    }
    assert json.loads(listed[planned]["options"]) == {"dry_run": True, "enrich": False}
    assert json.loads(listed[wrote]["options"]) == {}
    assert counts_of(stand, planned) == (4, 2, 0, 0, 0, 1, 1, 1, 1)
    assert counts_of(stand, wrote) == (4, 2, 2, 0, 0, 1, 1, 1, 3)
    assert counts_of(stand, again) == (4, 0, 0, 0, 0, 1, 0, 3, 3), "its conflict is not new any more"
    assert counts_of(stand, undone) == (4, 2, 2, 0, 0, None, None, 3, 1)
    assert (listed[wrote]["window_from"], listed[wrote]["window_to"]) == (TODAY - timedelta(days=3), TODAY)
    assert listed[wrote]["ended_at"] >= listed[wrote]["started_at"]
    results = {run: tags_of(stand, run)["asset_owners/result"] for run in (planned, wrote, again, undone)}
    assert results == {
        planned: "2 to write",
        wrote: "2 written",
        again: "0 written",
        undone: "2 put back",
    }
    assert tags_of(stand, planned)["asset_owners/kind"] == "dry_run"

    shown = stand.call("runs", "--instance", stand.instance_file(), "--limit", "3")
    assert shown.exit_code == 0
    heading, *lines = shown.stdout.splitlines()
    assert heading.split() == ["run", "kind", "started", "(UTC)", "took", "days,", "or", "run", "result"]
    assert [line[:8] for line in lines] == [run[:8] for run in (undone, again, wrote)], "the newest first"
    assert "undo" in lines[0]
    assert wrote[:8] in lines[0]
    assert lines[2].split()[-6:] == ["2", "written,", "1", "conflict", "(1", "new)"]
    as_json = json.loads(stand.call("runs", "--instance", stand.instance_file(), "--json").stdout)
    assert [row["run_id"] for row in as_json] == [undone, again, wrote, planned]
    assert as_json[-1]["options"] == {"dry_run": True, "enrich": False}


def test_dry_runs_of_apply_and_undo_are_told_from_those_that_write(recorded_stand):
    stand = recorded_stand
    plan = stand.run(None, "--dry-run").report["run_id"]

    def follow_up(*words):
        assert stand.call(words[0], "--instance", stand.instance_file(), *words[1:]).exit_code == 0
        return run_ids(stand)[-1]

    would_write = follow_up("apply", plan, "--dry-run")
    wrote = follow_up("apply", plan[:8])
    nothing = follow_up("apply", plan, "--dry-run")
    stand.inventory.state.set_field("h-1", "asset_owner", "cyd")
    for name in ("department", "criticality"):
        stand.inventory.state.set_field("h-1", name, "by hand")
    would_put_back = follow_up("undo", wrote, "--dry-run")
    told = {run: row_of(stand, run) for run in run_ids(stand)}
    assert {run: (row["kind"], row["of_run"]) for run, row in told.items() if run != plan} == {
        would_write: ("dry_run_of_apply", plan),
        wrote: ("apply", plan),
        nothing: ("dry_run_of_apply", plan),
        would_put_back: ("dry_run_of_undo", wrote),
    }
    words = ("to_write", "written", "left_alone")
    assert [told[run]["to_write"] for run in (would_write, wrote, nothing, would_put_back)] == [2, 2, 0, 1]
    assert {name: told[nothing][name] for name in words} == {"to_write": 0, "written": 0, "left_alone": 2}
    shown = stand.call("runs", "--instance", stand.instance_file()).stdout.splitlines()
    assert re.search(r"dry run of undo .* 1 to put back, 1 left alone *$", shown[1])
    assert re.search(r"dry run of apply .* 0 to write, 2 left alone *$", shown[2])
    assert re.search(r"  apply .* 2 written *$", shown[3])
    assert tags_of(stand, would_put_back)["asset_owners/kind"] == "dry_run_of_undo"


def test_what_ends_a_run_is_told_with_what_it_had_done_by_then(recorded_stand):
    """A limit, a service that refuses, an instance file that names no index."""
    stand = recorded_stand
    ran = stand.run({"writes": {"max_writes": 1}})
    row = row_of(stand, ran.report["run_id"])
    assert (row["status"], row["to_write"], row["written"], row["left_alone"]) == ("failed", 2, 0, 0)
    assert row["message"] in ran.report["error"]
    assert tags_of(stand, ran.report["run_id"])["asset_owners/result"].startswith("failed, 0 written")

    ran = stand.run({"index": "no-such-index"})
    row = row_of(stand, ran.report["run_id"])
    assert (row["kind"], row["status"], row["hosts"]) == ("run", "failed", None)
    assert row["message"] in ran.report["error"]
    shown = stand.call("runs", "--instance", stand.instance_file()).stdout
    assert "failed" in shown
    assert "no-such-index" in shown.replace("\n", "")


@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_refused_follow_up_prints_its_reason_only_and_is_one_line_among_the_runs(recorded_stand, what):
    """Its run id was printed as if something had been done, and its message took several lines."""
    stand = recorded_stand
    wrote = stand.run().report["run_id"]
    assert stand.call("undo", "--instance", stand.instance_file(), wrote, "--dry-run").exit_code == 0
    refused = stand.call(what, "--instance", stand.instance_file(), run_ids(stand)[-1])
    assert (refused.exit_code, refused.stdout) == (1, "")
    message = row_of(stand, run_ids(stand)[-1])["message"]
    assert "that put nothing back. There is nothing in it to apply or to undo" in message
    assert message in refused.stderr
    shown = stand.call("runs", "--instance", stand.instance_file()).stdout.splitlines()
    assert len(shown) == 1 + len(run_ids(stand))
    assert shown[1].rstrip().endswith(f": {message[:99].rstrip()}…")


def test_a_run_that_ends_between_its_steps_is_no_run_that_goes_on(stand, monkeypatch):
    """An interrupt may come while Dagster is at work, and no step records it."""

    class Silent(RunRecord):
        def fail(self, message):
            del message

    monkeypatch.setattr("assets_defs.run.RunRecord", Silent)
    ran = stand.run({"platform": {"email": "nobody@corp.example"}})
    row = row_of(stand, ran.report["run_id"])
    assert (ran.status, row["status"], row["message"]) == (1, "failed", "it ended early; its log says why")
    assert row["ended_at"]


def test_a_home_without_a_run_says_so(stand):
    with pytest.raises(Exception, match="has no runs yet; run it first: asset-owners run --instance"):
        stand.call("runs", "--instance", stand.instance_file())


def test_a_step_that_fails_with_a_message_shows_no_stack_trace(recorded_stand):
    """Dagster's UI shows the stack of an error, and of its cause where the error is the step's own."""
    ran = recorded_stand.run({"index": "no-such-index"})
    (failure,) = (
        event.step_failure_data for event in events_of(recorded_stand, ran) if event.is_step_failure
    )
    assert "no-such-index" in failure.error.message
    assert failure.error_source.value == "USER_CODE_ERROR", "the stack of the outer error is left out"
    assert (failure.error.cause.stack, failure.error.cause.cause) == ([], None)
    assert 'File "' not in failure.error_display_string
    assert "Not executing" not in ran.stderr


def test_dry_and_real_runs_look_different_where_writes_are_shown(recorded_stand):
    dry, real = recorded_stand.run(None, "--dry-run"), recorded_stand.run()
    assert "Dry run: nothing is sent to the inventory\n" in dry.stderr
    assert f"Owners are written to {recorded_stand.inventory.url}" in real.stderr
    again = recorded_stand.run()
    told = []
    for ran in (dry, real, again):
        (metadata,) = (
            event.step_materialization_data.materialization.metadata
            for event in events_of(recorded_stand, ran)
            if event.is_step_materialization and event.asset_key.path[-1] == "owner_writes"
        )
        told.append(
            tuple(metadata[name].value for name in ("result", "dagster/row_count", "rows_of_this_run"))
        )
    assert told == [
        ("Dry run: nothing is sent, 2 hosts to write", 0, 2),
        ("2 hosts written", 2, 2),
        ("0 hosts written", 2, 0),
    ]


def test_only_new_conflicts_warn_and_the_first_ten_of_them(stand):
    """The run's log keeps all of them."""
    taken = [{**HOSTS[2], "id": f"taken-{number}"} for number in range(11)]
    stand.begin([*HOSTS, *taken], USERS)
    first = stand.run()
    assert len([line for line in first.stderr.splitlines() if "warning: Conflict: " in line]) == 10
    assert "New conflicts: the first 10 of 12 are shown by id; all, with names: " in first.stderr
    assert len(listed_conflicts(stand, first)) == 12

    stand.inventory.state.add_assets("t-1", "host", [{**HOSTS[2], "id": "taken-later"}])
    planned = stand.run(None, "--dry-run")
    assert listed_conflicts(stand, planned) == ["taken-later"]
    second = stand.run()
    assert "New conflicts: these are shown by id; all, with names: " in second.stderr
    assert "Conflicts: 12 were there in the last run, too: " in second.stderr
    assert listed_conflicts(stand, second) == ["taken-later"]
    assert len(listed_conflicts(stand, first)) == 12, "what was new then stays so"

    third = stand.run()
    assert "onflict: " not in third.stderr
    assert "Conflicts: 13 were there in the last run, too: " in third.stderr


def listed_conflicts(stand, ran):
    """The ids of the new conflicts that the query in the run's log lists."""
    query = next(line for line in ran.stderr.splitlines() if "New conflicts: " in line).split(
        "asset-owners "
    )[1]
    shown = stand.call(*shlex.split(query), "--format", "json")
    return sorted(row["host_id"] for row in json.loads(shown.stdout))


def test_a_backfill_is_told_from_a_run(recorded_stand):
    instance = load_instance(recorded_stand.instance_file())
    span = {RANGE_START: str(TODAY - timedelta(days=1)), RANGE_END: str(TODAY)}
    with dagster_instance(recorded_stand.home) as recorded:
        job = build_definitions([instance], recorded_stand.home).resolve_job_def(instance.slug)
        selected = [dg.AssetKey(["small", table]) for table in ("logon_counts", "logon_days")]
        result = job.execute_in_process(instance=recorded, tags=span, asset_selection=selected)
    row = row_of(recorded_stand, result.run_id)
    assert (row["kind"], row["status"], row["window_from"]) == (
        "backfill",
        "succeeded",
        TODAY - timedelta(days=1),
    )
    assert tags_of(recorded_stand, result.run_id)["asset_owners/result"] == "2 days"


def test_kinds_that_are_skipped_and_days_that_count_lead_to_other_owners(stand):
    """Rules 1.7, 1.8: the same logons, of which pc-4's are a scanner's for the greater part."""
    noon = at_noon(TODAY)
    scanned = logons("pc-4", "svc_scan", 9, at=noon) + logons("pc-1", "svc_scan", 1, at=noon)
    index = stand.load([*small_company(), *scanned], "logs-with-scanner")

    def decided(**rules):
        ran = stand.run({"index": index, "rules": rules}, "--dry-run")
        assert ran.status == 0, ran.stderr
        frame = stand.tables.of_run("owner_decisions", ran.report["run_id"]).sort("hostname")
        columns = ("username", "evidence", "excluded_by")
        told = {row["hostname"]: tuple(row[name] for name in columns) for row in frame.iter_rows(named=True)}
        return told, ran

    by_default, _ = decided()
    assert by_default["pc-4"] == ("svc_scan", "majority", None)
    assert by_default["pc-2"] == ("bob", "majority", None)
    without_services, ran = decided(skip_account_kinds=["service"])
    assert without_services["pc-4"] == ("ann", "no_majority", None)
    assert without_services["pc-1"] == ("ann", "single_user", None)
    assert "Left out by rules.skip_account_kinds: 1 of kind service; to list them: " in ran.stderr
    assert "svc_scan" not in ran.stderr
    by_days, _ = decided(evidence_metric="days")
    assert by_days["pc-2"] == ("ann", "no_majority", None)  # each of both on one day
    by_kind, _ = decided(skip_host_kinds=["shared"])
    assert by_kind["pc-4"][1:] == ("excluded_host", "skip_host_kinds: shared")
    explained = stand.call("explain", "--instance", stand.instance_file({"index": index}), "pc-4")
    assert "The host is left out by skip_host_kinds: shared." in explained.stdout
