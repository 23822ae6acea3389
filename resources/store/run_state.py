"""What the last runs of an instance came to: one small file beside its tables, whatever the history.

Each run stores it as it ends. Metrics read it, and what is deleted of an instance whose file is gone.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from resources.store.files import replacing
from resources.store.tables import Tables

OVERDUE_AFTER = timedelta(hours=2)
"""How long after a tick of its schedule a run has to have succeeded: it may wait for others."""
STATE = ".state.json"
_MAX_AHEAD = timedelta(hours=1)
"""By how much the clocks of machines may differ; what is dated later was stored by a clock that was wrong."""
_NO_RUNS: dict[str, Any] = {
    "succeeded": {},
    "last_run": None,
    "failing_since": None,
    "plans_only_since": None,
}
_COUNTS = ("hosts", "owned_after", "conflicts", "new_conflicts", "written", "failed", "left_alone")
"""Columns of `runs` that the state keeps of the last run."""


def store_run_state(
    tables: Tables, row: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> None:
    """Store what follows from the row of a run that has ended; call it within `tables.changing()`.

    `settings` are those by which old rows are deleted, should the instance file be gone one day.
    """
    before = _stored(tables)
    state = computed_run_state(tables) if before is None else state_after(before, row)
    state |= {"name": tables.name, "settings": settings or (before or {}).get("settings")}
    with replacing(tables.folder / STATE) as file:
        file.write_text(json.dumps(state), encoding="utf-8")


def read_run_state(tables: Tables) -> dict[str, Any] | None:
    """Return what the last runs came to, as `state_after` does, by one request.

    None: no run stored it yet, or one whose clock was ahead, beside which no later run would count.

    Raises:
        ConfigurationError: the tables are another instance's.
    """
    state = _stored(tables)
    if state is not None and tables.name not in {None, state["name"]}:
        tables.require_own()
    return state


def computed_run_state(tables: Tables) -> dict[str, Any]:
    """Return the same from the rows of all runs, as for tables that an earlier version stored."""
    state = dict(_NO_RUNS)
    runs = tables.all_runs("runs").filter(pl.col("started_at") <= latest_time())
    for row in runs.collect().sort("started_at").iter_rows(named=True):
        state = state_after(state, row)
    return state


def state_after(state: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state once a run has ended, also if its row is given twice. Times are Unix seconds.

    - `succeeded`: when a run of each kind last succeeded
    - `last_run`: the last run or dry run that ended
    - `failing_since`: when the first of the consecutive runs failed that have failed up to now, or null
    - `plans_only_since`: when the first of the consecutive dry runs began, or null
    """
    after = {**_NO_RUNS, **state}
    if row["ended_at"] is None:
        return after
    began, ended_at = row["started_at"].timestamp(), row["ended_at"].timestamp()
    kind, succeeded = row["kind"], row["status"] == "succeeded"
    if succeeded:
        last = after["succeeded"].get(kind, ended_at)
        after["succeeded"] = {**after["succeeded"], kind: max(last, ended_at)}
    if kind not in {"run", "dry_run"} or (after["last_run"] and began < after["last_run"]["started_at"]):
        return after
    after["last_run"] = {
        "kind": kind,
        "succeeded": succeeded,
        "started_at": began,
        "ended_at": ended_at,
        "seconds_by_step": json.loads(row["seconds_by_step"] or "{}"),
        **{column: row[column] for column in _COUNTS},
    }
    after["failing_since"] = None if succeeded else after["failing_since"] or ended_at
    if succeeded:
        after["plans_only_since"] = None if kind == "run" else after["plans_only_since"] or began
    return after


def latest_time() -> datetime:
    """Return the latest time that a stored row may have, unless a wrong clock gave it."""
    return datetime.now(UTC) + _MAX_AHEAD


def _stored(tables: Tables) -> dict[str, Any] | None:
    place = tables.folder / STATE
    try:
        state = json.loads(place.fs.cat_file(place.path))
        began = (state["last_run"] or {}).get("started_at", 0)
        last = max(began, *state["succeeded"].values(), 0)
    except (FileNotFoundError, ValueError, LookupError, TypeError):  # of an earlier version, or damaged
        return None
    return state if last <= latest_time().timestamp() else None
