"""Dagster's records of runs, and how they are deleted: a row, its events, and what its process printed."""

import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

from assets_defs.launch import INSTANCE_TAG

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
IN_PROGRESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
"""Of a run that may store something yet."""
MAX_AT_ONCE = 200
"""Runs deleted at the end of one run: where years were kept so far, several nights do it."""


def runs_of(
    dagster: dg.DagsterInstance, name: str, *, before: datetime | None = None, limit: int | None = None
) -> Sequence[str]:
    """The ids of the finished runs of the instance with that name, the oldest first."""
    chosen = dg.RunsFilter(tags={INSTANCE_TAG: name}, statuses=FINISHED, updated_before=before)
    records = dagster.get_run_records(chosen, limit=limit, ascending=True)
    return [record.dagster_run.run_id for record in records]


def runs_in_progress(dagster: dg.DagsterInstance, name: str) -> list[str]:
    """Return the ids of the runs of the instance with that name that are not finished, queued ones too."""
    statuses = [status for status in dg.DagsterRunStatus if status not in FINISHED]
    chosen = dg.RunsFilter(tags={INSTANCE_TAG: name}, statuses=statuses)
    return [run.run_id for run in dagster.get_runs(chosen)]


def names_in_records(dagster: dg.DagsterInstance, run_ids: Sequence[str], name: str) -> bool:
    """Return whether records of these runs hold a name with its domain, as a whole word."""
    escaped = re.escape(name).replace(r"\\", r"\\+")  # they are doubled in what is printed of an event
    word = re.compile(rf"(?<![\w.@-]){escaped}(?![\w@-])", re.IGNORECASE)
    runs = filter(None, map(dagster.get_run_by_id, run_ids))
    texts = ("\n".join([*run.tags.values(), *map(repr, dagster.all_logs(run.run_id))]) for run in runs)
    return bool(re.search(r"\w@\w|\w\\\w", name)) and any(map(word.search, texts))


def overwrite_deleted(dagster: dg.DagsterInstance) -> None:
    """Overwrite what was deleted from Dagster's files of SQLite, which only mark it as free."""
    root = Path(dagster.root_directory) if dagster.is_persistent else None
    for file in sorted(root.glob("*/*.db")) + sorted(root.glob("history/runs/index.db")) if root else ():
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as database:
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def delete_runs(dagster: dg.DagsterInstance, run_ids: Iterable[str]) -> None:
    """Delete what Dagster has of these runs, their rows last: what is cut off can be repeated by them."""
    for run_id in run_ids:
        dagster.compute_log_manager.delete_logs(prefix=[run_id])
        dagster.event_log_storage.delete_events(run_id)
        _delete_events(dagster, run_id)
        dagster.run_storage.delete_run(run_id)


def delete_unlisted(dagster: dg.DagsterInstance) -> None:
    """Delete the events of runs that Dagster does not list: of a deletion that was cut off."""
    with_events = {file.name.partition(".db")[0] for file in _event_files(dagster)}  # a run is listed first
    for run_id in with_events - {*dagster.get_run_ids(), "index"}:
        _delete_events(dagster, run_id)


def _delete_events(dagster: dg.DagsterInstance, run_id: str) -> None:
    """Delete what Dagster leaves of a run's events: the file of SQLite, and outcomes of checks."""
    storage, checks = dagster.event_log_storage, AssetCheckExecutionsTable
    if isinstance(storage, SqlEventLogStorage):
        with storage.index_connection() as connection:
            storage.delete_events_for_run(connection, run_id)
            connection.execute(checks.delete().where(checks.c.run_id == run_id))
    for file in _event_files(dagster, run_id):
        file.unlink()


def _event_files(dagster: dg.DagsterInstance, run_id: str = "*") -> list[Path]:
    """Return the files with the events of a run, or of all runs, where Dagster keeps them on a disk."""
    root = Path(dagster.root_directory) if dagster.is_persistent else None
    return [*root.glob(f"history/runs/{run_id}.db*")] if root else []
