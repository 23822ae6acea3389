"""What the runs of an instance tell of themselves: table `runs`, tags in the UI, `asset-owners runs`."""

import json
import shlex
from datetime import timedelta

import dagster as dg
import pytest

from pipelines.dagster_home import dagster_instance
from tests.end_to_end.stand import HOSTS, TODAY, USERS

pytestmark = pytest.mark.slow

COUNTS = ("hosts", "to_write", "written", "failed", "left_alone", "conflicts", "new_conflicts")


def test_each_kind_of_run_tells_what_came_of_it(recorded_stand):
    stand = recorded_stand
    planned = stand.run(None, "--dry-run", "--no-enrich").report["run_id"]
    wrote = stand.run().report["run_id"]
    again = stand.run().report["run_id"]
    would_put_back = stand.follow_up("undo", wrote, "--dry-run").report["run_id"]
    undone = stand.follow_up("undo", wrote).report["run_id"]
    would_write = stand.follow_up("apply", planned, "--dry-run").report["run_id"]
    applied = stand.follow_up("apply", planned).report["run_id"]
    listed = {row["run_id"]: row for row in stand.tables.all_runs("runs").collect().to_dicts()}
    assert {run: (row["kind"], row["of_run"]) for run, row in listed.items()} == {
        planned: ("dry_run", None),
        wrote: ("run", None),
        again: ("run", None),
        would_put_back: ("dry_run_of_undo", wrote),
        undone: ("undo", wrote),
        would_write: ("dry_run_of_apply", planned),
        applied: ("apply", planned),
    }
    assert {row["status"] for row in listed.values()} == {"succeeded"}
    assert json.loads(listed[planned]["options"]) == {"dry_run": True, "enrich": False}
    counts = {run: tuple(listed[run][name] for name in COUNTS) for run in listed}
    assert counts[planned] == (4, 2, 0, 0, 0, 1, 1)
    assert counts[wrote] == (4, 2, 2, 0, 0, 1, 1)
    assert counts[again] == (4, 0, 0, 0, 0, 1, 0), "its conflict is not new any more"
    assert counts[undone] == (4, 2, 2, 0, 0, None, None)
    owned = {run: (listed[run]["owned_before"], listed[run]["owned_after"]) for run in (wrote, undone)}
    assert owned == {wrote: (1, 3), undone: (3, 1)}
    assert (listed[wrote]["window_from"], listed[wrote]["window_to"]) == (TODAY - timedelta(days=3), TODAY)
    with dagster_instance(stand.home) as recorded:
        tags = {run.run_id: run.tags for run in recorded.get_runs()}
        last = recorded.get_latest_materialization_event(dg.AssetKey(["small", "owner_writes"]))
    assert tags[planned]["asset_owners/kind"] == "dry_run"
    assert tags[wrote]["asset_owners/result"] == "2 written"
    assert tags[wrote]["dagster/will_retry"] == "false", "who called the command decides, no daemon"
    assert last
    assert last.run_id == applied, "and no dry run of it"

    shown = stand.call("runs", "--instance", stand.instance_file(), "--limit", "3")
    assert shown.exit_code == 0
    newest_first = [applied, would_write, undone]
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == [run[:8] for run in newest_first]
    as_json = json.loads(stand.call("runs", "--instance", stand.instance_file(), "--json").stdout)
    assert [row["run_id"] for row in as_json["runs"][:3]] == newest_first
    assert as_json["runs"][-1]["options"] == {"dry_run": True, "enrich": False}
    assert {row["run_id"]: row["undone_by"] for row in as_json["runs"] if row["undone_by"]} == {wrote: undone}


def test_only_new_conflicts_warn_and_the_first_ten_of_them(stand):
    """The run's log keeps all of them."""
    taken = [{**HOSTS[2], "id": f"taken-{number}"} for number in range(11)]
    stand.begin([*HOSTS, *taken], USERS)
    first = stand.run()
    assert len([line for line in first.stderr.splitlines() if "warning: Conflict: " in line]) == 10
    assert len(listed_conflicts(stand, first)) == 12

    stand.inventory.state.add_assets("t-1", "host", [{**HOSTS[2], "id": "taken-later"}])
    second = stand.run()
    assert listed_conflicts(stand, second) == ["taken-later"]
    assert len(listed_conflicts(stand, first)) == 12, "what was new then stays so"
    assert "onflict: " not in stand.run().stderr


def listed_conflicts(stand, ran):
    """The ids of the new conflicts that the query in the run's log lists."""
    query = next(line for line in ran.stderr.splitlines() if "New conflicts: " in line)
    shown = stand.call(*shlex.split(query.split("asset-owners ")[1]), "--format", "json")
    return sorted(row["host_id"] for row in json.loads(shown.stdout))
