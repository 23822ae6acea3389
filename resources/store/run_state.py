"""What the last runs of an instance came to: metrics show it, and an overdue run is told by it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from resources.store.tables import Tables

OVERDUE_AFTER = timedelta(hours=2)
"""How long after a tick of its schedule a run has to have succeeded: it may wait for others."""
_MAX_AHEAD = timedelta(hours=1)
"""By how much the clocks of machines may differ; what is dated later was stored by a clock that was wrong."""
_COUNTS = ("hosts", "owned_after", "conflicts", "new_conflicts", "written", "failed", "left_alone")
"""Columns of `runs` that the state has of the last run."""


def read_run_state(tables: Tables) -> dict[str, Any]:
    """Return what the last runs came to (`run_state`), but for those of a clock that was ahead.

    Raises:
        ConfigurationError: the tables are another instance's.
    """
    tables.require_own()
    return run_state(tables.all_runs("runs").filter(pl.col("started_at") <= latest_time()).collect())


def run_state(runs: pl.DataFrame) -> dict[str, Any]:
    """Return what rows of `runs` come to; times are Unix seconds.

    - `succeeded`: when a run of each kind last succeeded
    - `last_run`: the last run or dry run that ended
    - `failing_since`: when the first of the consecutive runs failed that have failed up to now, or null
    - `plans_only_since`: when the first of the consecutive dry runs began, or null
    """
    ended = runs.filter(pl.col("ended_at").is_not_null()).sort("started_at")
    succeeded = ended.filter(status="succeeded").group_by("kind").agg(pl.col("ended_at").max().dt.epoch("us"))
    scans = ended.filter(pl.col("kind").is_in(["run", "dry_run"]))
    wrote_or_planned, failing, planning = scans.filter(status="succeeded"), scans, scans.clear()
    if not wrote_or_planned.is_empty():
        failing = scans.filter(pl.col("started_at") > wrote_or_planned["started_at"].max())
        wrote = wrote_or_planned.filter(kind="run")["started_at"].max()
        planning = wrote_or_planned.filter(pl.col("started_at") > wrote) if wrote else wrote_or_planned
    return {
        "succeeded": {kind: end / 1e6 for kind, end in succeeded.iter_rows()},
        "last_run": next(map(_last_run, scans.tail(1).iter_rows(named=True)), None),
        "failing_since": next((end.timestamp() for end in failing["ended_at"]), None),
        "plans_only_since": next((began.timestamp() for began in planning["started_at"]), None),
    }


def _last_run(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "succeeded": row["status"] == "succeeded",
        "started_at": row["started_at"].timestamp(),
        "ended_at": row["ended_at"].timestamp(),
        "seconds_by_step": json.loads(row["seconds_by_step"] or "{}"),
        **{column: row[column] for column in _COUNTS},
    }


def latest_time() -> datetime:
    """Return the latest time that a stored row may have, unless a wrong clock gave it."""
    return datetime.now(UTC) + _MAX_AHEAD
