"""What the runs of an instance tell of themselves: `asset-owners runs`, and the conflicts in the log."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets_defs.run_request import PARTITION
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import define
from resources.settings import load_instance
from tests.end_to_end.stand import TODAY

pytestmark = pytest.mark.slow

COUNTS = ("hosts", "to_write", "written", "owned_before", "owned_after", "new_conflicts")


def test_each_kind_of_run_is_listed_with_what_came_of_it(stand):
    planned = stand.run(None, "--dry-run", "--no-enrich").report["run_id"]
    wrote = stand.run().report["run_id"]
    stand.inventory.state.set_field("h-1", "department", "by hand")
    undo = stand.follow_up("undo", wrote).report
    undone, left = undo["run_id"], {row["host_id"]: row["message"] for row in undo["left_alone"]}
    assert left == {"h-1": "left unchanged: department is by hand now"}
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
    assert f", 1 of 2 undone and 1 in part by run {undone[:8]}" in shown
    assert [line.split()[0] for line in shown.splitlines()[1:]] == [row["run_id"][:8] for row in rows[:3]]


# Runs that Dagster executes again

LATEST = {PARTITION: TODAY.isoformat()}


def build_job(instance_file):
    return define(load_instance(Path(instance_file))).resolve_job_def("small")


def test_a_run_that_is_executed_again_from_failure_only_plans_and_says_so(engine_stand):
    """The brake ended the first one. A whole run lists hosts and users anew, this one would not.

    The second one's steps work in processes of their own; Dagster builds the job there from its file.
    """
    stand = engine_stand

    def small_job(max_writes):
        file = stand.instance_file({"writes": {"max_writes": max_writes}})
        return dg.build_reconstructable_job(__name__, "build_job", (str(file),))

    with dagster_instance(stand.home) as recorded:
        with dg.execute_job(small_job(1), recorded, tags=LATEST, raise_on_error=False) as first:
            assert not first.success
        stand.environment.setenv("ASSET_OWNERS_EXECUTOR", "multiprocess")
        again = dg.ReexecutionOptions.from_failure(first.run_id, recorded)
        with dg.execute_job(small_job(2), recorded, tags=LATEST, reexecution_options=again) as second:
            assert second.success
    rows = stand.tables.run_writes(second.run_id)
    assert set(rows.select("host_id", "outcome").iter_rows()) == {("h-1", "planned"), ("h-2", "planned")}
    assert stand.written() == {}
    (row,) = stand.tables.rows("runs", second.run_id).to_dicts()
    assert row["kind"] == "dry_run"
    assert "does not execute logons" in row["message"]
    assert " run --instance " in row["message"]
    shown = stand.call("runs", "--instance", stand.instance_file()).stdout
    assert f"repeats run {first.run_id[:8]}" in shown
