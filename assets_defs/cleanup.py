"""Deletes data past its retention time: at the end of a run, and each day of all instances in the home."""

import logging
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable

from assets_defs.run import ScanRun
from assets_defs.run_request import INSTANCE_TAG
from ownership.names import printable
from resources.errors import AssetOwnersError
from resources.failures import operator_message
from resources.settings import Instance, analysts_group, home, is_slug, tables_location
from resources.store.files import delete_file, remove_leftovers
from resources.store.retention import (
    KEEP,
    Retention,
    What,
    delete_inputs,
    delete_outdated,
    empty_outdated_snapshots,
    is_older,
    stored_files,
)
from resources.store.tables import Tables

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
IN_PROGRESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
"""The states of a run that is not finished."""
MAX_AT_ONCE = 200  # runs deleted at the end of one run: where years were kept so far, several nights do it


def runs_of(
    dagster: dg.DagsterInstance,
    name: str,
    *,
    finished: bool = True,
    before: datetime | None = None,
    limit: int | None = None,
) -> Sequence[str]:
    """Return the ids of the finished runs of the instance with that name, or of the others, oldest first."""
    statuses = [status for status in dg.DagsterRunStatus if (status in FINISHED) == finished]
    chosen = dg.RunsFilter(tags={INSTANCE_TAG: name}, statuses=statuses, updated_before=before)
    records = dagster.get_run_records(chosen, limit=limit, ascending=True)
    return [record.dagster_run.run_id for record in records]


def names_in_records(dagster: dg.DagsterInstance, run_ids: Sequence[str], name: str) -> bool:
    """Return whether records of these runs hold a name with its domain, as a whole word."""
    escaped = re.escape(name).replace(r"\\", r"\\+")  # they are doubled in what is printed of an event
    word = re.compile(rf"(?<![\w.@-]){escaped}(?![\w@-])", re.IGNORECASE)
    runs = filter(None, map(dagster.get_run_by_id, run_ids))
    texts = ("\n".join([*run.tags.values(), *map(repr, dagster.all_logs(run.run_id))]) for run in runs)
    return bool(re.search(r"\w@\w|\w\\\w", name)) and any(map(word.search, texts))


def overwrite_deleted(dagster: dg.DagsterInstance) -> None:
    """Overwrite what was deleted from Dagster's files of SQLite, which only mark it as free."""
    for file in _files(dagster, "*/*.db", "history/runs/index.db"):
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
    files = _files(dagster, "history/runs/*.db*")  # a run is listed first
    with_events = {file.name.partition(".db")[0] for file in files}
    for run_id in with_events - {*dagster.get_run_ids(), "index"}:
        _delete_events(dagster, run_id)


def _delete_events(dagster: dg.DagsterInstance, run_id: str) -> None:
    """Delete what Dagster leaves of a run's events: the file of SQLite, and outcomes of checks."""
    storage, checks = dagster.event_log_storage, AssetCheckExecutionsTable
    if isinstance(storage, SqlEventLogStorage):
        with storage.index_connection() as connection:
            storage.delete_events_for_run(connection, run_id)
            connection.execute(checks.delete().where(checks.c.run_id == run_id))
    for file in _files(dagster, f"history/runs/{run_id}.db*"):
        file.unlink()


def _files(dagster: dg.DagsterInstance, *patterns: str) -> list[Path]:
    """Return the files of Dagster's home that fit a pattern; none where it keeps nothing on a disk."""
    root = Path(dagster.root_directory) if dagster.is_persistent else None
    return [file for pattern in patterns for file in sorted(root.glob(pattern))] if root else []


MAX_PAUSE_DAYS = 60
"""Between two clean-ups, unless the clock has jumped or the service was off; some call them once a month."""
ALL_INSTANCES = "all instances"  # what the tag of an instance says of a clean-up, in the place of a name
CLEAN_UPS_DAYS = 14
"""How long Dagster's records of clean-ups are kept: they hold nothing but when one ran, and 130 kB each."""


def delete_old(run: ScanRun) -> None:
    """Delete stored rows and Dagster's records that are older than the instance keeps them.

    Days of the run's own window stay, and what a plan rests on that may still be applied. A run that does not
    write deletes no table that analysts see. Nor does any look beside the tables, as the daily clean-up does:
    a link or share that is broken there must not fail a run whose owners are written.
    """
    retention = Retention.of_instance(run.instance)
    if run.may_write:
        delete_inputs(run.tables, of_run=run.run_id)
        _delete_tables(run.tables, retention, run.log, kept=run.window.first)
    else:
        _delete_old_inputs(run.tables, retention)
    if dagster := run.record.recorded:
        _delete_records(dagster, run.instance.name, retention.runs_days, run.log)


def require_plausible_clock(dagster: dg.DagsterInstance, job: str) -> None:
    """Fail if the last clean-up was long ago by this machine's clock; the next one then goes on."""
    for last in dagster.get_run_records(dg.RunsFilter(job_name=job, statuses=FINISHED), limit=1):
        days = (time.time() - (last.end_time or 0)) // 86400
        if last.end_time and days > MAX_PAUSE_DAYS:
            raise AssetOwnersError(
                f"The last clean-up was {days:.0f} days ago by this machine's clock, so nothing was deleted: "
                "if the clock is wrong, what is fresh seems old. Check it; tomorrow the next clean-up goes on"
            )


def delete_old_of_all(
    instances: Iterable[Instance], dagster: dg.DagsterInstance, log: logging.Logger
) -> None:
    """Delete what is old of each instance whose tables lie in the home, also where no run succeeds any more.

    Of one without a valid instance file it keeps what the settings say that its last run stored. What the
    last run left is emptied once it is older than keep.history_days. An instance that a run works on waits
    for the next time.

    Raises:
        AssetOwnersError: something of an instance could not be deleted; that of the others is.
    """
    by_slug, failures = {instance.slug: instance for instance in instances}, []
    busy = {run.tags.get(INSTANCE_TAG) for run in dagster.get_runs(dg.RunsFilter(statuses=IN_PROGRESS))}
    kept = {
        name: Retention().runs_days for _, names in dagster.get_run_tags([INSTANCE_TAG]) for name in names
    }
    kept[ALL_INSTANCES] = CLEAN_UPS_DAYS
    kept |= {instance.name: instance.keep.runs_days for instance in by_slug.values()}
    location = tables_location()
    for slug in sorted(path.name for path in location.glob("*") if is_slug(path.name)):
        tables = Tables(home(), slug, location=location, analysts=analysts_group())
        try:
            name = tables.require_own().get("name")
            instance = by_slug.get(slug)
            if instance and instance.name == name:
                retention = Retention.of_instance(instance)
            else:
                # By what the settings said when its last run ended.
                retention = _stored(tables)
            kept[name or slug] = retention.runs_days
            # One that a run works on waits for the next time.
            if name not in busy:
                _delete_tables(tables, retention, log)
        except Exception as error:
            if (message := operator_message(error)) is None:
                raise
            failures.append(f"{slug}: {message}")
    for name, days in kept.items():
        _delete_records(dagster, name, days, log)
    delete_unlisted(dagster)
    if failures:
        raise AssetOwnersError(f"What is old could not be deleted of {'; of '.join(failures)}")


def _stored(tables: Tables) -> Retention:
    """Return what the settings said that the last run stored; the defaults where that is unknown."""
    if not tables.reads_ledger():
        return Retention()
    with tables.ledger() as ledger:
        return Retention(**(ledger.setting(KEEP) or {}))


def _delete_old_inputs(tables: Tables, retention: Retention) -> None:
    """Delete what plans rest on that are not applied any more: each copy is as large as the tables."""
    delete_inputs(tables, before=datetime.now(UTC) - timedelta(days=retention.plan_days))


def _delete_tables(
    tables: Tables, retention: Retention, log: logging.Logger, *, kept: date | None = None
) -> None:
    """Delete what is old of an instance; of a run, which keeps days since `kept`, rows and days only."""
    _delete_old_inputs(tables, retention)
    history_before = datetime.now(UTC) - timedelta(days=retention.history_days)
    oldest = datetime.now(ZoneInfo(retention.timezone)).date() - timedelta(days=retention.evidence_days)
    evidence_before = min(oldest, kept or oldest)
    deleted = delete_outdated(tables, evidence_before=evidence_before, history_before=history_before)
    if kept is None:
        deleted += empty_outdated_snapshots(tables, before=history_before)
        for file in stored_files(tables):
            if file.what is What.REPORT and is_older(file.path, history_before):
                delete_file(file.path)
                deleted += 1
        remove_leftovers(tables.home, tables.home / "reports", below=tables.disk)
    if deleted:
        log.info(f"{tables.slug}: deleted {deleted} files and rows that are older than keep allows")


def _delete_records(dagster: dg.DagsterInstance, name: str, days: int, log: logging.Logger) -> None:
    before = datetime.now(UTC) - timedelta(days=days)
    if runs := runs_of(dagster, name, before=before, limit=MAX_AT_ONCE):
        delete_runs(dagster, runs)
        log.info(
            f"{printable(name)}: deleted Dagster's records of {len(runs)} runs, older than keep.runs_days"
        )
