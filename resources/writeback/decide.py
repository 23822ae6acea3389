"""Decide about one host by its values: what to send, or why nothing, and whether a write was done."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pydantic

from ownership.codes import reason_of
from ownership.names import joined_ids, normalise_hostname, printable
from resources.errors import AuthenticationError, NotFoundError, ServiceError
from resources.inventory.adapter import Inventory, Values
from resources.ledger.ledger import Ledger, Result
from resources.search.asking import leaves

Row = Mapping[str, Any]  # a row of owner_writes, or of inventory_hosts

Decide = Callable[[Row, Row], Values | Result]
"""Takes a planned write and its host; returns what to send, or the result where nothing is sent."""


def was_done(row: Row, host: Row) -> bool:
    """Return whether a host has the values that a write was to set."""
    # The service may spell other values in its own way.
    if not is_undo(row):
        return row["new_values"]["owner"] in host["owner_ids"]
    held, changed = values_of(host), changed_fields(row)
    # One request resets each field that still holds what was written; others may have set some.
    is_reset = any(held[field] == (row["new_values"][field] or None) for field in changed)
    return is_reset and not any(held[field] == row["old_values"][field] for field in changed)


def decide_write(row: Row, host: Row) -> Values | Result:
    """Return what to send to give a host its owner, unless it has one."""
    held = values_of(host)
    if held["owner"] is not None:
        return Result(row["host_id"], "owned_meanwhile", None, held)
    return {field: value for field, value in row["new_values"].items() if value is not None}


def decide_apply(row: Row, host: Row) -> Values | Result:
    """Decide as `decide_write`, and skip a host whose other fields changed since the plan was made."""
    held = values_of(host)
    changed = [
        field
        for field, value in row["new_values"].items()
        if value is not None and held[field] != row["old_values"][field]
    ]
    if changed and held["owner"] is None:
        message = f"skipped: the host's {differences(held, row['old_values'], changed)}"
        return Result(row["host_id"], "not_written", message, held)
    return decide_write(row, host)


def decide_undo(row: Row, host: Row) -> Values | Result:
    """Return what to send to undo, field by field, what a host still holds of what was written."""
    held, changed = values_of(host), changed_fields(row)
    unchanged = {field for field in changed if held[field] == row["old_values"][field]}
    if len(host["owner_ids"]) > 1:  # never what was written, even if one id reads like several
        unchanged -= {"owner"}
    if not unchanged:
        message = "skipped: the host no longer has any value that the run wrote"
        return Result(row["host_id"], "not_written", message, held, kept=changed)
    return {field: row["new_values"][field] for field in unchanged}


def kept_fields(row: Row, sent: Values) -> list[str] | None:
    """Return the fields that an undo leaves unchanged, by what it sends; None if there are none."""
    return [field for field in changed_fields(row) if is_undo(row) and sent[field] is None] or None


def is_undo(row: Row) -> bool:
    """Return whether a row undoes a write: it clears the owner, or sends none."""
    return not row["new_values"]["owner"]


def changed_fields(row: Row) -> list[str]:
    """Return the fields that a write sets to another value than it found."""
    return [
        field
        for field, value in row["new_values"].items()
        if value is not None and (value or None) != row["old_values"][field]
    ]


def differences(now: Mapping[str, Any], planned: Mapping[str, Any], fields: Iterable[str]) -> str:
    """Say which values some fields have now, and which they had when a plan was made."""
    return " and ".join(
        f"{name} is {now[name] or 'none'} now, not {planned[name] or 'none'}" for name in fields
    )


def has_name(host: Row, hostname: str) -> bool:
    """Return whether one of the host's names is the planned one, whole or short: rules may have changed."""
    if any(name.isascii() and name.lower() == hostname for name in host["hostnames"]):
        return True  # nearly always; Polars takes as long for one name as the request does
    names = pl.lit(pl.Series(host["hostnames"], dtype=pl.String))
    normalised = pl.select(normalise_hostname(names), short=normalise_hostname(names, short=True))
    return any(hostname in column for column in normalised)


def other_name_message(host_id: str) -> str:
    """Return the message for a host whose name changed since the plan."""
    why = "its id may belong to another host; nothing was sent"
    return f"Host {host_id} has another name now than planned: {why}"


def values_of(host: Row) -> Values:
    """Return the values of a row of inventory_hosts, as owner_writes has them."""
    owner = joined_ids(host["owner_ids"]) or None
    return {"owner": owner, "department": host["department"], "criticality": host["criticality"]}


Lost = dict[str, list[str]]  # fields that were not sent and lost a value, with what they got instead

MAX_STEP = 3  # of a counter: a write sets up to three fields
_TIME = pydantic.TypeAdapter(datetime)


class ReadBack(NamedTuple):
    """What is wrong with a host after a write that the service accepted; as a text, all of it."""

    unseen: str | None  # why it does not show the write
    ignored: list[str]  # fields that were sent and still have their old value
    lost: Lost

    def __str__(self) -> str:
        texts = [self.unseen] if self.unseen else []
        if self.ignored:
            texts.append(f"fields that were sent still had their old value: {', '.join(self.ignored)}")
        if self.lost:
            texts.append(f"fields that were not sent were gone or changed: {', '.join(self.lost)}")
        return "; ".join(texts)


def compare(hostname: str, before: Row, now: Row, sent: Values, account: str) -> ReadBack:
    """Compare a host before and after a write."""
    held, holds, unseen = values_of(before), values_of(now), None
    same = [field for field, value in sent.items() if value is not None and holds[field] == held[field]]
    ignored = [field for field in same if (sent[field] or "").lower() != (held[field] or "").lower()]
    taken = {"old_values": held, "new_values": {**sent, **dict.fromkeys(same)}}
    if not has_name(now, hostname):
        unseen = "the host no longer had its name"
    elif "owner" in same or not was_done(taken, now):
        unseen = "the host did not have the values that were sent"
    # Another order, a further value, a value in an empty field, a mark or a copy is not a loss.
    copies = {(held[field] or "", value) for field, value in sent.items()}
    old, new, lost = _unsent(before, sent), _unsent(now, sent), {}
    for field, texts in sorted(old.items()):
        gone, instead = (sorted(left.elements()) for left in (texts - new[field], new[field] - texts))
        pairs = [*zip_longest(gone, instead, fillvalue="")][: len(gone)]
        if not all(pair in copies or _is_mark(*pair, account) for pair in pairs):
            lost[printable(field)] = instead
    return ReadBack(unseen, ignored, lost)


def _unsent(host: Row, sent: Values) -> defaultdict[str, Counter[str]]:
    """Count the values that a host holds beside what was sent, by field."""
    known = {**values_of(host), "owner": host["owner_ids"]}
    unsent = {field: value for field, value in known.items() if sent.get(field) is None}
    others = (
        msgspec.json.decode(host["others"]) if "others" in host else leaves({"hostnames": host["hostnames"]})
    )
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for field, text in (*leaves(unsent), *others):
        found[field][text] += 1
    return found


def _is_mark(old: str, new: str, account: str) -> bool:
    """Return whether a changed value only marks that a write happened (docs/decisions/0010)."""
    if new and new.lower() in {account.lower(), account.lower().partition("@")[0]}:
        return True
    with suppress(ValueError):
        if 0 < int(new) - int(old) <= MAX_STEP:
            return True
    with suppress(ValueError):
        _, when = map(_TIME.validate_python, (old, new))
        # Give or take a day for zones and clocks; a day without a time is rarely that of a change.
        apart = abs(when.replace(tzinfo=UTC) - datetime.now(UTC))
        return when.time() > time() and apart < timedelta(days=1)
    return False


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

    `hosts` is inventory_hosts, listed after that run had ended; what is still not known stays pending.
    `writes` are rows of all runs on the target; `began` is started_at of that run, empty where it has no row.
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
        if host_id in never_sent:  # whatever the host holds: others set owners as well
            result = Result(host_id, "not_written", f"{CUT_OFF} before this host's turn")
        elif (other := others.get(host_id)) and not is_undo(row):
            result = Result(host_id, "not_written", f"{said}; run {other} has written the host since")
        elif host := listed.get(host_id):
            result = None if host.get("problem") else _settled(row, host)  # its owner cannot be read
        else:
            result = _missing(row, inventory)
        if result:
            ledger.complete(result, run_id=run_id)
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
    """Return the outcome of a write on a host that the list lacks; None: not known."""
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
    renamed = not has_name(host, row["hostname"])
    # A new machine under the id holds nothing of what was written: no sign of an undo. Our owner is a sign.
    done = was_done(row, host) and not (renamed and is_undo(row))
    outcome = ("undone" if is_undo(row) else "written") if done else "not_written"
    message = f"{row['message'] or CUT_OFF}; the inventory {'has' if done else 'does not have'} the value"
    if renamed:
        message += ", and another name: the id may belong to another machine now"
    return Result(row["host_id"], outcome, message, kept=row["kept"] if done else None)


def without_changed_hosts(
    plan: pl.DataFrame, hosts: pl.DataFrame, decisions: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Skip the hosts of a plan that are gone, changed, have nothing to undo, or are decided otherwise now."""
    # If they were tried and the run cut off, what others did before it began would be settled as its work.
    listed = {host["host_id"]: host for host in hosts.iter_rows(named=True)}
    decided = {} if decisions is None else {one["host_id"]: one for one in decisions.iter_rows(named=True)}
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
