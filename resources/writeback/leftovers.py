"""Writes that another run left open, and plans that the inventory has overtaken."""

from collections.abc import Mapping
from datetime import UTC, datetime

import polars as pl

from resources.errors import AuthenticationError, NotFoundError, ServiceError
from resources.inventory.adapter import Inventory
from resources.store.tables import Tables
from resources.writeback.journal import Journal, Result
from resources.writeback.outcomes import (
    Row,
    has_name,
    is_undo,
    other_name_message,
    still_held,
    unless_owned,
    was_done,
)

CUT_OFF = "the run was cut off"


def settle_leftovers(
    journal: Journal, tables: Tables, hosts: pl.DataFrame, target: str, inventory: Inventory
) -> int:
    """Settle the writes of runs that were cut off, from what the inventory holds now (rules 7.3).

    Those of another target stay open. A host to which no request went out was not written, whatever it holds:
    others set owners as well. `hosts` is inventory_hosts, listed after those runs had ended; as a list may
    lack a host for a moment, the inventory is asked for it, and what is still not known stays open.
    Returns how many writes were unknown and are settled.
    """
    listed = {row["host_id"]: row for row in hosts.iter_rows(named=True)}
    settled = 0
    for run_id in runs_on_target(journal, target):
        unsent, open_writes = journal.unsent(run_id), journal.rows(run_id).filter(outcome="intended")
        others = _written_since(tables, target, open_writes)
        for row in open_writes.iter_rows(named=True):
            host = listed.get(row["host_id"])
            if row["host_id"] in unsent:
                result = Result(row["host_id"], "not_written", f"{CUT_OFF} before this host's turn")
            elif (other := others.get(row["host_id"])) and not is_undo(row):
                message = f"{row['message'] or CUT_OFF}; run {other} has written the host since"
                result = Result(row["host_id"], "not_written", message)
            elif host and host.get("problem"):
                continue  # its owner cannot be read
            else:
                result = _settled(row, host) if host else _missing(row, inventory)
            if result is None:
                continue
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
            settled += 1
        rows = journal.rows(run_id)
        tables.append_writes(rows, run_id=run_id)
        if "intended" not in rows["outcome"]:
            journal.delete(run_id)
    return settled


def _written_since(tables: Tables, target: str, open_writes: pl.DataFrame) -> Mapping[str, str]:
    """The run that last wrote each host after the plan of another run: it looked, and saw nothing of that."""
    written = tables.writes_to(target).filter(
        ~pl.col("run_id").is_in(open_writes["run_id"].implode()),
        pl.col("completed_at") >= pl.lit(open_writes["intended_at"].min(), pl.Datetime("us", "UTC")),
        outcome="written",
    )
    return dict(written.sort("completed_at").select("host_id", "run_id").collect().iter_rows())


def runs_on_target(journal: Journal, target: str) -> list[str]:
    """Runs with rows in the journal that wrote to this target, the oldest first."""
    return [run_id for run_id, other in journal.targets().items() if other == target]


def _missing(row: Row, inventory: Inventory) -> Result | None:
    """What became of a write on a host that the list lacks; None where that is not known."""
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
    """Infer from what a host holds what became of a write whose end nobody saw."""
    renamed = not has_name(host, row["hostname"])
    # A new machine under the id holds nothing of what was written: no sign of an undo. Our owner is a sign.
    done = was_done(row, host) and not (renamed and is_undo(row))
    outcome = ("undone" if is_undo(row) else "written") if done else "not_written"
    message = f"{row['message'] or CUT_OFF}; the inventory {'holds' if done else 'does not hold'} the value"
    if renamed:
        message += ", and another name: the id may belong to another machine by now"
    return Result(row["host_id"], outcome, message, kept=row["kept"] if done else None)


def without_changed_hosts(plan: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Leave hosts alone that are gone, are others by now, have an owner, or hold nothing to put back.

    Were they tried and the run cut off, what others did before it began would pass for its work when it is
    settled.
    """
    listed = {host["host_id"]: host for host in hosts.iter_rows(named=True)}
    rows = []
    for row in plan.iter_rows(named=True):
        if row["outcome"] == "planned" and (left := _left_alone(row, listed.get(row["host_id"]))):
            row |= {
                "outcome": left.outcome,
                "message": left.message,
                "old_values": left.old_values or row["old_values"],
                "kept": left.kept,
                "completed_at": datetime.now(UTC),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=plan.schema)


def _left_alone(row: Row, host: Row | None) -> Result | None:
    """Why a host of a stored plan is left alone, by the list; None where there is no reason."""
    if host is None:
        return Result(row["host_id"], "not_written", "left alone: the inventory no longer lists it")
    if host.get("problem"):
        return None  # the look right before the write decides
    if not has_name(host, row["hostname"]):
        return Result(row["host_id"], "failed", other_name_message(row["host_id"]))
    left = (still_held if is_undo(row) else unless_owned)(row, host)
    return left if isinstance(left, Result) else None
