"""What the ops of `sink` do, without Dagster: plan, write, carry out a stored plan, undo.

Whoever writes for an instance holds its lock and first settles what a run that was cut off left open.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import polars as pl

from assets_defs.inventory import list_hosts
from assets_defs.progress import Progress
from assets_defs.scan import Scan
from ownership.plan import excess, plan_undo, plan_writes
from ownership.windows import gaps
from resources.errors import AssetOwnersError, ConfigurationError, ServiceError
from resources.journal import Journal, Result
from resources.writeback import Row, Writer, settle_leftovers, write_all


def store_plan(scan: Scan, log: logging.Logger) -> pl.DataFrame:
    """Plan the writes of new owners from what the run decided; store and return rows of owner_writes."""
    planned = plan_writes(
        scan.tables.scan("owner_decisions", run_id=scan.run_id).collect(),
        scan.tables.scan("inventory_hosts", run_id=scan.run_id).collect(),
        scan.tables.scan("inventory_users", run_id=scan.run_id).collect(),
        enrich=scan.options.enrich,
        run_id=scan.run_id,
        target=scan.instance.target,
        intended_at=datetime.now(UTC),
    )
    planned = planned.head(planned.height if scan.options.limit is None else scan.options.limit)
    scan.tables.write("owner_writes", planned, run_id=scan.run_id, publish=False)
    log.info(f"Plan: {planned.height:,} owners to write, {scan.seconds}")
    return planned


def write_planned(scan: Scan, log: logging.Logger) -> pl.DataFrame:
    """Write what the run planned, where it may; return its rows of owner_writes.

    Raises:
        AssetOwnersError: the plan is too large, or the window has gaps; nothing was written.
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    planned = scan.tables.of_run("owner_writes", scan.run_id)
    if not scan.may_write:
        why = "a dry run" if scan.options.dry_run else "its window is past and `force` is off"
        log.info(f"Nothing is written: this is {why}")
        return planned
    _require_complete_window(scan)
    _require_moderate(scan, planned, made_by=scan.run_id, allowed=None)
    with _writing(scan, log) as journal:
        written = _carry_out(scan, log, journal, planned, Writer.write)
    _forget_outdated(scan, log)
    return written


def apply_plan(scan: Scan, log: logging.Logger, plan_id: str, *, allow_writes: int | None) -> None:
    """Carry out the plan that an earlier run stored; it becomes the plan of this run.

    Args:
        scan: this run.
        log: told what is done.
        plan_id: the earlier run.
        allow_writes: hosts that may be written in spite of writes.max_writes and max_write_percent.

    Raises:
        ConfigurationError: the earlier run planned nothing.
        AssetOwnersError: the plan is too large; nothing was written.
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    planned = scan.tables.of_run("owner_writes", plan_id).with_columns(
        run_id=pl.lit(scan.run_id), intended_at=pl.lit(datetime.now(UTC), pl.Datetime("us", "UTC"))
    )
    if planned.is_empty():
        raise ConfigurationError(
            f"Run {plan_id} of {scan.instance.name} stored no plan with anything to write"
        )
    scan.tables.write("owner_writes", planned, run_id=scan.run_id, publish=False)
    _require_moderate(scan, planned, made_by=plan_id, allowed=allow_writes)
    with _writing(scan, log) as journal:
        _carry_out(scan, log, journal, planned, Writer.apply)


def undo_run(scan: Scan, log: logging.Logger, undone_id: str, *, dry_run: bool) -> None:
    """Put back what an earlier run wrote, also one that was cut off.

    Args:
        scan: this run.
        log: told what is done.
        undone_id: the earlier run.
        dry_run: only plan.

    Raises:
        ConfigurationError: the earlier run wrote nothing.
        ServiceError: the writing ended early.
    """
    # Under the lock: what a run wrote is known once it has ended and its leftovers are settled.
    with _writing(scan, log) as journal:
        writes = scan.tables.run_writes(undone_id)
        planned = plan_undo(writes, run_id=scan.run_id, intended_at=datetime.now(UTC))
        if planned.is_empty():
            raise ConfigurationError(
                f"Run {undone_id} of {scan.instance.name} wrote nothing that could be undone"
            )
        scan.tables.write("owner_writes", planned, run_id=scan.run_id, publish=False)
        log.info(f"Plan: {planned.height} hosts to put back")
        if not dry_run:
            _carry_out(scan, log, journal, planned, Writer.undo)


@contextmanager
def _writing(scan: Scan, log: logging.Logger) -> Generator[Journal]:
    """Give the journal while no other run of the instance writes, with nothing open from earlier runs.

    Raises:
        AssetOwnersError: another run does not come to its end.
    """
    with scan.tables.writing(), Journal(scan.tables.journal) as journal:
        if journal.run_ids():
            settled = settle_leftovers(journal, scan.tables, list_hosts(scan))
            if settled:
                log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")
        yield journal


def _carry_out(
    scan: Scan,
    log: logging.Logger,
    journal: Journal,
    planned: pl.DataFrame,
    method: Callable[[Writer, Row], Result],
) -> pl.DataFrame:
    """Write the planned hosts; return the rows of owner_writes.

    Raises:
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    limits = scan.instance.writes
    writer = Writer(scan.inventory(), scan.instance, lambda: list_hosts(scan), journal)
    ended_by = write_all(
        planned,
        lambda row: method(writer, row),
        journal,
        concurrency=limits.concurrency,
        max_failed_writes=limits.max_failed_writes,
        on_progress=Progress(log.info, "Hosts written"),
    )
    written = journal.rows(scan.run_id)
    scan.tables.append_writes(written, run_id=scan.run_id)
    if "intended" not in written["outcome"]:
        journal.forget(scan.run_id)
    outcomes = _outcome_counts(written)
    told = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.items())
    log.info(f"Writes: {told or 'nothing to write'}, {scan.seconds}")
    if "failed" in outcomes:
        log.warning(f"{outcomes['failed']} writes failed; owner_writes has their messages")
    if "intended" in outcomes:
        log.warning(f"{outcomes['intended']} writes have no known outcome; the next run settles them")
    if ended_by:
        raise ServiceError(
            f"{ended_by}; the run ended, the rest is left for the next run. The messages are in owner_writes"
        )
    return written


def _require_complete_window(scan: Scan) -> None:
    """Refuse to write from days that look like lost events; the check `no_gaps` warns of them.

    Raises:
        AssetOwnersError: the window has gaps and scan.require_complete_window is on.
    """
    if not scan.instance.scan.require_complete_window:
        return
    days = gaps(scan.tables.logon_days(scan.window, run_id=scan.run_id), timezone=scan.instance.scan.timezone)
    if days:
        named = ", ".join(map(str, days))
        raise AssetOwnersError(
            f"Nothing was written: these days have no events, or hardly any ({named}), and "
            "scan.require_complete_window is on. Fetch the days again once their events are back, or, when "
            f"there never were any, carry out the plan: asset-owners apply --instance FILE {scan.run_id}"
        )


def _require_moderate(scan: Scan, planned: pl.DataFrame, *, made_by: str, allowed: int | None) -> None:
    """Refuse a plan that is too large to carry out unseen, for the inventory that the run `made_by` listed.

    Raises:
        AssetOwnersError: saying how to look at the plan and how to apply it.
    """
    if allowed is not None and planned.height <= allowed:
        return
    limits = scan.instance.writes
    hosts = scan.tables.scan("inventory_hosts", run_id=made_by).select(pl.len()).collect().item()
    reason = excess(
        planned.height, hosts, max_writes=limits.max_writes, max_write_percent=limits.max_write_percent
    )
    if reason:
        raise AssetOwnersError(
            f"{reason}; nothing was written. Look at the plan ({scan.tables.plan_file(scan.run_id)}), then "
            f"carry it out: asset-owners apply --instance FILE {scan.run_id} --allow-writes {planned.height}"
        )


def _forget_outdated(scan: Scan, log: logging.Logger) -> None:
    """Delete what the instance does not keep, never a day of the run's own window."""
    keep, now = scan.instance.keep, datetime.now(UTC)
    scan.tables.drop_inputs(scan.run_id)
    deleted = scan.tables.forget(
        evidence_before=min(now.date() - timedelta(days=keep.evidence_days), scan.window.first),
        history_before=now - timedelta(days=keep.history_days),
    )
    if deleted:
        log.info(f"Kept long enough: {deleted} files and folders are deleted")


def _outcome_counts(writes: pl.DataFrame) -> dict[str, int]:
    """Count rows of owner_writes by outcome, sorted."""
    return dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
