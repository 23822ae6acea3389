"""Dagster's records of runs, and how they are deleted: a row, its events, and what its process printed."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import dagster as dg

INSTANCE_TAG = "asset_owners/instance"
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
MAX_AT_ONCE = 200
"""Runs deleted at the end of one run: where years were kept so far, several nights do it."""


def runs_of(
    dagster: dg.DagsterInstance, name: str, *, before: datetime | None = None, limit: int | None = None
) -> Sequence[str]:
    """The ids of the finished runs of the instance with that name, the oldest first."""
    chosen = dg.RunsFilter(tags={INSTANCE_TAG: name}, statuses=FINISHED, updated_before=before)
    records = dagster.get_run_records(chosen, limit=limit, ascending=True)
    return [record.dagster_run.run_id for record in records]


def delete_runs(dagster: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """Delete what Dagster has of these runs; the outcomes of asset checks stay: it offers no way to them."""
    for run_id in run_ids:
        dagster.compute_log_manager.delete_logs(prefix=[run_id])
        dagster.delete_run(run_id)
        if dagster.is_persistent:
            history = Path(dagster.root_directory) / "history" / "runs"
            for file in history.glob(f"{run_id}.db*"):  # of SQLite, from which Dagster takes the rows alone
                file.unlink()
