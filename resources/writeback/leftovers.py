"""Writes that a run left pending when it was cut off, and planned hosts that changed since."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from ownership.codes import reason_of
from resources.errors import AuthenticationError, NotFoundError, ServiceError
from resources.inventory.adapter import Inventory
from resources.ledger.ledger import Ledger, Result
from resources.writeback.decide import (
    Row,
    decide_undo,
    decide_write,
    differences,
    has_name,
    is_undo,
    other_name_message,
    was_done,
)

CUT_OFF = "the run was cut off"


def settle_leftovers(
    ledger: Ledger,
    run_id: str,
    hosts: pl.DataFrame,
    inventory: Inventory,
    writes: pl.LazyFrame,
    *,
    began: pl.Series | None = None,
) -> int:
    """Settle the writes of a run that was cut off from what the inventory holds; return how many (rules 7.3).

    A host to which no request went out was not written, whatever it holds: others set owners as well. `hosts`
    is inventory_hosts, listed after that run had ended; a host that the list lacks is read by itself, and
    what is still not known stays pending. `writes` has the rows of owner_writes of all runs on the target;
    `began` is started_at of that run's row in `runs`, empty where there is none: its plan may be much older.
    """
    listed = {row["host_id"]: row for row in hosts.iter_rows(named=True)}
    never_sent, pending = (
        ledger.never_sent(run_id),
        ledger.rows("owner_writes", run_id).filter(outcome="intended"),
    )
    known = pending["intended_at"] if began is None or began.is_empty() else began
    others, settled = _written_since(known.min(), writes, pending), 0
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
            ledger.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
            settled += 1
    return settled


def _written_since(since: Any, writes: pl.LazyFrame, pending: pl.DataFrame) -> Mapping[str, str]:
    """Return the run that last wrote each host after that one began: it had seen no owner there."""
    written = writes.filter(
        ~pl.col("run_id").is_in(pending["run_id"].implode()),
        pl.col("completed_at") >= pl.lit(since, pl.Datetime("us", "UTC")),
        outcome="written",
    )
    return dict(written.sort("completed_at").select("host_id", "run_id").collect().iter_rows())


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


def without_changed_hosts(
    plan: pl.DataFrame, hosts: pl.DataFrame, decisions: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Skip the hosts of a plan that are gone, changed, have nothing to undo, or are decided otherwise now."""
    # If they were tried and the run cut off, what others did before it began would be settled as its work.
    listed = {host["host_id"]: host for host in hosts.iter_rows(named=True)}
    decided = {} if decisions is None else decisions.rows_by_key("host_id", named=True, unique=True)
    rows = []
    for row in plan.iter_rows(named=True):
        host_id = row["host_id"]
        if row["outcome"] == "planned" and (
            skipped := _changed_host(row, listed.get(host_id))
            or _decided_otherwise(row, decided.get(host_id))
        ):
            row |= {
                "outcome": skipped.outcome,
                "message": skipped.message,
                "old_values": skipped.old_values or row["old_values"],
                "kept": skipped.kept,
                "completed_at": datetime.now(UTC),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=plan.schema)


def _decided_otherwise(row: Row, decision: Row | None) -> Result | None:
    """Return a skipped result with its reason, unless the host is decided as planned."""
    if decision is None:
        return None
    new, detail = row["new_values"], decision["excluded_by"] or decision["problem"]
    if decision["match"] != "matched":
        why = reason_of(decision).removesuffix(".") + (f" ({detail})" if detail else "")
    elif new["owner"] != decision["resolved_owner"]:
        why = "The user has another user asset"
    elif changed := [
        name for name in ("department", "criticality") if new[name] not in (None, decision[name])
    ]:
        why = f"The owner's {differences(decision, new, changed)}"
    else:
        return None
    return Result(row["host_id"], "not_written", f"skipped, as it is decided now: {why}")


def _changed_host(row: Row, host: Row | None) -> Result | None:
    """Return why a host of a stored plan is skipped, by the list; None: it is not."""
    if host is None:
        return Result(row["host_id"], "not_written", "skipped: the inventory no longer lists it")
    if host.get("problem"):
        return None  # reading it right before the write decides
    if not has_name(host, row["hostname"]):
        return Result(row["host_id"], "not_written", other_name_message(row["host_id"]))
    decided = (decide_undo if is_undo(row) else decide_write)(row, host)
    return decided if isinstance(decided, Result) else None
