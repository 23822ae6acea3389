"""What the runs of an instance tell of themselves: `asset-owners runs`, and the conflicts in the log."""

import json

import pytest

pytestmark = pytest.mark.slow

COUNTS = ("hosts", "to_write", "written", "owned_before", "owned_after", "new_conflicts")


def test_each_kind_of_run_is_listed_with_what_came_of_it(stand):
    planned = stand.run(None, "--dry-run", "--no-enrich").report["run_id"]
    wrote = stand.run().report["run_id"]
    undone = stand.follow_up("undo", wrote).report["run_id"]
    applied = stand.follow_up("apply", planned).report["run_id"]
    of_it = ("runs", "--instance", stand.instance_file())
    rows = json.loads(stand.call(*of_it, "--json").stdout)["runs"]
    assert [(row["run_id"], row["kind"], row["of_run"], row["undone_by"]) for row in rows] == [
        (applied, "apply", planned, None),
        (undone, "undo", wrote, None),
        (wrote, "run", None, undone),
        (planned, "dry_run", None, None),
    ]
    assert rows[-1]["options"] == {"dry_run": True, "enrich": False}
    assert (rows[-1]["rules"]["min_events"], len(rows[-1]["seconds_by_step"]) > 5) == (1, True)
    counts = [tuple(row[name] for name in COUNTS) for row in rows[1:]]
    assert counts == [(4, 2, 2, 3, 1, None), (4, 2, 2, 1, 3, 1), (4, 2, 0, 1, 1, 1)]
    shown = stand.call(*of_it, "--limit", "3").stdout
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [row["run_id"][:8] for row in rows[:3]]
