"""What is deleted because it is old: at the end of a run, and each day of all instances in the home."""

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.dagster_records import (
    FINISHED,
    IN_PROGRESS,
    MAX_AT_ONCE,
    delete_runs,
    delete_unlisted,
    runs_of,
)
from assets_defs.launch import INSTANCE_TAG, today_of
from assets_defs.run import ScanRun
from ownership.names import printable
from resources.errors import AssetOwnersError
from resources.failures import operator_message
from resources.settings import Instance, analysts_group, home, is_slug, tables_location
from resources.store.files import delete_file, remove_leftovers
from resources.store.retention import (
    KEEP,
    Retention,
    delete_inputs,
    delete_outdated,
    empty_outdated_snapshots,
)
from resources.store.stored_files import What, stored_files
from resources.store.tables import Tables

MAX_PAUSE_DAYS = 60
"""Between two clean-ups, unless the clock has jumped or the service was off; some call them once a month."""
ALL_INSTANCES = "all instances"
"""What the tag of an instance says of a clean-up, in the place of a name."""
CLEAN_UPS_DAYS = 14
"""How long Dagster's records of clean-ups are kept: they hold nothing but when one ran, and 130 kB each."""


def delete_old(run: ScanRun) -> None:
    """Delete stored rows and Dagster's records that are older than the instance keeps them.

    Days of the run's own window stay, and what a plan rests on that may still be applied. A run that does not
    write deletes no table that analysts see.
    """
    instance, retention, now = run.instance, Retention.of_instance(run.instance), datetime.now(UTC)
    # Each copy of what a plan rests on is as large as the tables.
    delete_inputs(run.tables, before=now - timedelta(days=retention.plan_days))
    if run.may_write:
        delete_inputs(run.tables, of_run=run.run_id)
        oldest = today_of(instance) - timedelta(days=retention.evidence_days)
        deleted = delete_outdated(
            run.tables,
            evidence_before=min(oldest, run.window.first),
            history_before=now - timedelta(days=retention.history_days),
        )
        if deleted:
            run.log.info(f"Deleted {deleted} files and rows that are older than keep allows")
    if dagster := run.record.recorded:
        _delete_records(dagster, instance.name, retention.runs_days, run.log)


def require_plausible_clock(dagster: dg.DagsterInstance, job: str) -> None:
    """Fail if the last clean-up was long ago by this machine's clock, which may have jumped ahead.

    Of that failure the next clean-up knows, and goes on.
    """
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
                retention = _stored(tables)
            kept[name or slug] = retention.runs_days
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


def _delete_tables(tables: Tables, retention: Retention, log: logging.Logger) -> None:
    now, today = datetime.now(UTC), datetime.now(ZoneInfo(retention.timezone)).date()
    history_before = now - timedelta(days=retention.history_days)
    delete_inputs(tables, before=now - timedelta(days=retention.plan_days))
    evidence_before = today - timedelta(days=retention.evidence_days)
    deleted = delete_outdated(tables, evidence_before=evidence_before, history_before=history_before)
    deleted += empty_outdated_snapshots(tables, before=history_before)
    for file in stored_files(tables):
        if file.what is What.REPORT and file.path.stat().st_mtime < history_before.timestamp():
            delete_file(file.path)
            deleted += 1
    remove_leftovers(tables.home, tables.home / "reports", below=tables.disk)
    if deleted:
        log.info(f"{tables.slug}: deleted {deleted} files and rows that are older than keep allows")


def _delete_records(dagster: dg.DagsterInstance, name: str, days: int, log: logging.Logger) -> None:
    """Delete Dagster's records of old runs of the instance with that name: they may name people."""
    before = datetime.now(UTC) - timedelta(days=days)
    if runs := runs_of(dagster, name, before=before, limit=MAX_AT_ONCE):
        delete_runs(dagster, runs)
        log.info(
            f"{printable(name)}: deleted Dagster's records of {len(runs)} runs, older than keep.runs_days"
        )
