"""Writes that a run left pending when it was cut off, and planned hosts that changed since."""

import logging
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import polars as pl

from resources.errors import AuthenticationError, NotFoundError, ServiceError
from resources.inventory.adapter import Inventory
from resources.settings import Instance, journal_url
from resources.store.tables import Tables
from resources.writeback.decide import (
    Row,
    decide_undo,
    decide_write,
    has_name,
    is_undo,
    other_name_message,
    was_done,
)
from resources.writeback.journal import Journal, Result
from resources.writeback.open_journal import has_shared_journal, import_file_journal
from resources.writeback.target_lock import locked_journal

CUT_OFF = "the run was cut off"


@contextmanager
def settled_journal(
    tables: Tables,
    instance: Instance,
    run_id: str,
    inventory: Callable[[], Inventory] | None,
    log: logging.Logger,
) -> Generator[tuple[Journal, Collection[str]]]:
    """Open the journal while nobody else writes, with nothing pending of earlier runs on the target.

    Yields the journal, and the runs that were settled. Nothing is settled without an `inventory`: a dry run
    changes no table that analysts look at.
    """
    with locked_journal(tables, instance.platform, run_id) as journal:
        if not journal_url() and has_shared_journal(tables):
            log.warning(
                "ASSET_OWNERS_JOURNAL is not set, and earlier runs of this instance kept their journal in a "
                "database: writes that are pending there are not settled, and other machines are not kept "
                "from writing at the same time"
            )
        cut_off: Collection[str] = ()
        if inventory:
            import_file_journal(journal, tables)
            cut_off = runs_on_target(journal, instance.target)
            if elsewhere := journal.targets().keys() - cut_off:
                log.warning(
                    f"Writes of the runs {', '.join(sorted(elsewhere))} to another target have no known "
                    f"outcome, and stay pending until {instance.name} points there again"
                )
        if inventory and cut_off:
            service = inventory()
            if settled := settle_leftovers(journal, tables, service.hosts(), instance.target, service):
                log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")
        yield journal, cut_off


def settle_leftovers(
    journal: Journal, tables: Tables, hosts: pl.DataFrame, target: str, inventory: Inventory
) -> int:
    """Settle the writes of runs that were cut off from what the inventory holds; return how many (rules 7.3).

    Those of another target stay pending. A host to which no request went out was not written, whatever it
    holds: others set owners as well. `hosts` is inventory_hosts, listed after those runs had ended; a host
    that the list lacks is read by itself, and what is still not known stays pending.
    """
    listed = {row["host_id"]: row for row in hosts.iter_rows(named=True)}
    settled = 0
    for run_id in runs_on_target(journal, target):
        never_sent, pending = journal.never_sent(run_id), journal.rows(run_id).filter(outcome="intended")
        others = _written_since(tables, target, pending)
        for row in pending.iter_rows(named=True):
            host_id, said = row["host_id"], row["message"] or CUT_OFF
            if host_id in never_sent:
                result = Result(host_id, "not_written", f"{CUT_OFF} before this host's turn")
            elif (other := others.get(host_id)) and not is_undo(row):
                result = Result(host_id, "not_written", f"{said}; run {other} has written the host since")
            elif host := listed.get(host_id):
                result = None if host.get("problem") else _settled(row, host)  # its owner cannot be read
            else:
                result = _missing(row, inventory)
            if result:
                journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
                settled += 1
        rows = journal.rows(run_id)
        tables.append_writes(rows, run_id=run_id)
        if "intended" not in rows["outcome"]:
            journal.delete(run_id)
    return settled


def _written_since(tables: Tables, target: str, pending: pl.DataFrame) -> Mapping[str, str]:
    """Return the run that last wrote each host after that plan: it had seen no owner there."""
    written = tables.writes_to(target).filter(
        ~pl.col("run_id").is_in(pending["run_id"].implode()),
        pl.col("completed_at") >= pl.lit(pending["intended_at"].min(), pl.Datetime("us", "UTC")),
        outcome="written",
    )
    return dict(written.sort("completed_at").select("host_id", "run_id").collect().iter_rows())


def runs_on_target(journal: Journal, target: str) -> list[str]:
    """Return the runs with rows in the journal that wrote to this target, the oldest first."""
    return [run_id for run_id, other in journal.targets().items() if other == target]


def _missing(row: Row, inventory: Inventory) -> Result | None:
    """Return what became of a write on a host that the list lacks; None: not known."""
    if not inventory.reads_single_hosts:
        return None
    try:
        return _settled(row, inventory.host(row["host_id"]))
    except NotFoundError:
        message = f"{row['message'] or CUT_OFF}; the inventory no longer has the host"
        return Result(row["host_id"], "not_written", message)
    except AuthenticationError:
        raise
    except ServiceError:
        return None


def _settled(row: Row, host: Row) -> Result:
    """Return what became of a write whose answer was lost, from what its host holds."""
    renamed = not has_name(host, row["hostname"])
    # A new machine under the id holds nothing of what was written: no sign of an undo. Our owner is a sign.
    done = was_done(row, host) and not (renamed and is_undo(row))
    outcome = ("undone" if is_undo(row) else "written") if done else "not_written"
    message = f"{row['message'] or CUT_OFF}; the inventory {'holds' if done else 'does not hold'} the value"
    if renamed:
        message += ", and another name: the id may belong to another machine now"
    return Result(row["host_id"], outcome, message, kept=row["kept"] if done else None)


def without_changed_hosts(plan: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Skip the hosts of a plan that are gone, have another name or an owner, or have nothing to undo.

    If they were tried and the run cut off, what others did before it began would be settled as its work.
    """
    listed = {host["host_id"]: host for host in hosts.iter_rows(named=True)}
    rows = []
    for row in plan.iter_rows(named=True):
        if row["outcome"] == "planned" and (skipped := _skipped(row, listed.get(row["host_id"]))):
            row |= {
                "outcome": skipped.outcome,
                "message": skipped.message,
                "old_values": skipped.old_values or row["old_values"],
                "kept": skipped.kept,
                "completed_at": datetime.now(UTC),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=plan.schema)


def _skipped(row: Row, host: Row | None) -> Result | None:
    """Return why the list says that a host of a stored plan is skipped; None: it is not."""
    if host is None:
        return Result(row["host_id"], "not_written", "skipped: the inventory no longer lists it")
    if host.get("problem"):
        return None  # reading it right before the write decides
    if not has_name(host, row["hostname"]):
        return Result(row["host_id"], "failed", other_name_message(row["host_id"]))
    decided = (decide_undo if is_undo(row) else decide_write)(row, host)
    return decided if isinstance(decided, Result) else None
