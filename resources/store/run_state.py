"""What the last runs of an instance came to: metrics show it, and an overdue run is told by it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from resources.store.tables import Tables

OVERDUE_AFTER = timedelta(hours=2)
"""How long after a tick of its schedule a run has to have succeeded: it may wait for others."""
_MAX_AHEAD = timedelta(hours=1)
"""By how much the clocks of machines may differ; what is dated later was stored by a clock that was wrong."""
_TIMES = ["started_at", "ended_at"]
_COUNTS = ("hosts", "owned_after", "conflicts", "new_conflicts", "written", "failed", "left_alone")
"""Columns of `runs` that the state has of the last run."""
_COLUMNS = [*_TIMES, "kind", "status", "seconds_by_step", *_COUNTS]


def read_run_state(tables: Tables) -> dict[str, Any]:
    """Return what the last runs came to (`run_state`), but for those of a clock that was ahead.

    Raises:
        ConfigurationError: the tables are another instance's.
    """
    tables.require_own()
    runs = tables.rows("runs", columns=_COLUMNS).lazy()
    return run_state(runs.filter(pl.col("started_at") <= latest_time()))


def run_state(runs: pl.LazyFrame) -> dict[str, Any]:
    """Return what rows of `runs` come to; times are Unix seconds.

    - `succeeded`: when a run of each kind last succeeded
    - `last_run`: the last run or dry run that ended
    - `failing_since`: when the first of the consecutive runs failed that have failed up to now, or null
    - `plans_only_since`: when the first of the consecutive dry runs began, or null
    """
    state: dict[str, Any] = {
        "succeeded": {},
        "last_run": None,
        "failing_since": None,
        "plans_only_since": None,
    }
    ended = (
        runs.select(_COLUMNS)
        .drop_nulls("ended_at")
        .sort("started_at")
        .with_columns(pl.col(_TIMES).dt.epoch("us") / 1e6)
    )
    for row in ended.collect().rows(named=True):
        kind, end, succeeded = row["kind"], row["ended_at"], row["status"] == "succeeded"
        if succeeded:
            state["succeeded"][kind] = max(state["succeeded"].get(kind, end), end)
        if kind not in {"run", "dry_run"}:
            continue
        state["last_run"] = row | {"succeeded": succeeded}
        state["failing_since"] = None if succeeded else state["failing_since"] or end
        if succeeded:
            state["plans_only_since"] = state["plans_only_since"] or row["started_at"]
        if succeeded and kind == "run":
            state["plans_only_since"] = None
    if last := state["last_run"]:
        last["seconds_by_step"] = json.loads(last["seconds_by_step"] or "{}")
    return state


def latest_time() -> datetime:
    """Return the latest time that a stored row may have, unless a wrong clock gave it."""
    return datetime.now(UTC) + _MAX_AHEAD
