"""What the sink deletes at the end of its run: what the instance does not keep any longer."""

from datetime import UTC, datetime, timedelta

from assets_defs.dagster_records import MAX_AT_ONCE, delete_runs, runs_of
from assets_defs.launch import today_of
from assets_defs.run import ScanRun
from resources.store.retention import delete_inputs, delete_outdated


def delete_old(run: ScanRun) -> None:
    """Delete stored rows and Dagster's records that are older than the instance keeps them.

    Days of the run's own window stay, and what a plan rests on that may still be applied. A run that does not
    write deletes no table that analysts see.
    """
    instance, now = run.instance, datetime.now(UTC)
    # Each copy of what a plan rests on is as large as the tables.
    delete_inputs(run.tables, before=now - timedelta(days=instance.writes.plan_days))
    if run.may_write:
        delete_inputs(run.tables, of_run=run.run_id)
        oldest = today_of(instance) - timedelta(days=instance.keep.evidence_days)
        deleted = delete_outdated(
            run.tables,
            evidence_before=min(oldest, run.window.first),
            history_before=now - timedelta(days=instance.keep.history_days),
        )
        if deleted:
            run.log.info(f"Deleted {deleted} files and folders that are older than keep allows")
    if dagster := run.record.recorded:  # records may name people
        before = now - timedelta(days=instance.keep.runs_days)
        if runs := runs_of(dagster, instance.name, before=before, limit=MAX_AT_ONCE):
            delete_runs(dagster, runs)
            run.log.info(f"Deleted Dagster's records of {len(runs)} runs that are older than keep.runs_days")
