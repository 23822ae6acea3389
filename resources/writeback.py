"""Guarded writes of single hosts: read again, write, journal.

Whoever writes to the inventory does it through here. What is to be written is planned in `ownership.plan`.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import polars as pl

from resources.errors import AuthenticationError, NotFoundError, ServiceError, TransientError
from resources.inventory import InventoryClient
from resources.journal import Journal, Result, Values
from resources.records import host_rows
from resources.settings import Instance
from resources.tables import Tables

_FAILURES = frozenset({"failed", "intended"})
_SUCCESSES = frozenset({"written", "undone"})
Row = Mapping[str, Any]
"""A row of owner_writes."""


class Writer:
    """Writes host assets of one instance, each guarded by a look at what it holds.

    A write whose answer is lost is never sent again: the host is read back to see what it holds. While it
    holds nothing new the request may still be on its way, so the outcome stays `intended`, not yet known, and
    the next run settles it (readings §7).

    Every method raises AuthenticationError when no session is to be had any more; then nothing was written.

    Args:
        inventory: the client to read and write with.
        instance: its field names and limits.
        list_hosts: lists inventory_hosts anew. Used where the service cannot read one asset (readings §2.5).
        journal: told of each request right before it goes out.
    """

    def __init__(
        self,
        inventory: InventoryClient,
        instance: Instance,
        list_hosts: Callable[[], pl.DataFrame],
        journal: Journal,
    ) -> None:
        self._inventory = inventory
        self._instance = instance
        self._journal = journal
        self._readable = instance.platform.contract.read is not None
        hosts = [] if self._readable else list_hosts().iter_rows(named=True)
        self._listed = {row["host_id"]: row for row in hosts}

    def write(self, row: Row) -> Result:
        """Give a host its owner, unless it has one by now; all fields in one request (§1 rules 5, 7, 10)."""
        return self._guarded(row, lambda held: self._unless_owned(row, held), done="written")

    def apply(self, row: Row) -> Result:
        """Carry out a plan made earlier: as `undo` where it is one, otherwise as `write`.

        Then a host whose other fields changed since is left alone, too.
        """
        if _is_undo(row):
            return self.undo(row)

        def unless_changed(held: Values) -> Values | Result:
            changed = [
                field
                for field, value in row["new_values"].items()
                if value is not None and held[field] != row["old_values"][field]
            ]
            if changed and held["owner"] is None:
                message = f"changed since the plan was made: {', '.join(changed)}"
                return Result(row["host_id"], "not_written", message, held)
            return self._unless_owned(row, held)

        return self._guarded(row, unless_changed, done="written")

    def undo(self, row: Row) -> Result:
        """Put back, field by field, what the host still holds of what a run wrote."""

        def still_held(held: Values) -> Values | Result:
            kept = {field for field in _changed(row) if held[field] == row["old_values"][field]}
            if not kept:
                return Result(
                    row["host_id"], "not_written", "holds nothing any more of what was written", held
                )
            return {field: row["new_values"][field] for field in kept}

        return self._guarded(row, still_held, done="undone")

    def _unless_owned(self, row: Row, held: Values) -> Values | Result:
        if held["owner"] is not None:
            return Result(row["host_id"], "owned_meanwhile", f"owned by {held['owner']} meanwhile", held)
        return {field: value for field, value in row["new_values"].items() if value is not None}

    def _guarded(self, row: Row, decide: Callable[[Values], Values | Result], *, done: str) -> Result:
        """Read the host, let `decide` say what to send or why nothing is sent, and send it."""
        host_id = row["host_id"]
        held: Values | None = None
        try:
            held = self._held(host_id)
            values = decide(held)
            if isinstance(values, Result):
                return values
        except AuthenticationError:
            raise
        except ServiceError as error:
            return Result(host_id, "failed", str(error), held)
        sent = {field: values.get(field) for field in held}
        self._journal.sending(row["run_id"], host_id, old_values=held, new_values=sent)
        try:
            self._inventory.update(host_id, self._form(values))
        except TransientError as error:
            result = self._read_back(host_id, values, held, lost=str(error), done=done)
        except AuthenticationError:
            raise
        except ServiceError as error:
            result = Result(host_id, "failed", str(error), held)
        else:
            result = Result(host_id, done, None, held)
        return replace(result, new_values=sent)

    def _read_back(self, host_id: str, values: Values, held: Values, *, lost: str, done: str) -> Result:
        """Tell from what the host holds now whether a write with a lost answer was done."""
        try:
            now = self._held(host_id) if self._readable else None
        except ServiceError:
            now = None
        if now is None:
            return Result(host_id, "intended", lost, held)
        # The owner tells by itself: the service may spell other values in its own way.
        telling = {"owner"} & values.keys() or values.keys()
        if all(now[field] == (values[field] or None) for field in telling):
            return Result(host_id, done, f"confirmed by reading back; the answer was lost: {lost}", held)
        if now["owner"] != held["owner"]:
            return Result(host_id, "owned_meanwhile", f"owned by {now['owner']} meanwhile", now)
        return Result(host_id, "intended", lost, held)

    def _held(self, host_id: str) -> Values:
        if self._readable:
            row = host_rows(self._instance).record(host_id, self._inventory.read(host_id))
        elif host_id in self._listed:
            row = self._listed[host_id]
        else:
            raise NotFoundError(f"Host {host_id} is no longer in the inventory")
        return _values_of(row)

    def _form(self, values: Values) -> dict[str, str]:
        """The fields to send, by the inventory's names."""
        enriched = self._instance.platform.contract.enrich_fields
        names = {
            "owner": self._instance.platform_user_field,
            "department": enriched.user_department,
            "criticality": enriched.criticality,
        }
        return {name: values[field] or "" for field, name in names.items() if name and field in values}


def write_all(
    plan: pl.DataFrame,
    attempt: Callable[[Row], Result],
    journal: Journal,
    *,
    concurrency: int,
    max_failed_writes: int,
    on_progress: Callable[[int, int], None],
) -> str | None:
    """Write the planned hosts, several at a time; each row and each outcome goes into the journal.

    Args:
        plan: rows of owner_writes of one run, with outcome `planned`.
        attempt: writes one host, a method of `Writer`.
        journal: stores the whole plan as `intended` before the first request goes out.
        concurrency: hosts at a time.
        max_failed_writes: so many failures without a success between them, in order of completion, end the
            writing, and so does a session that is not to be had; what was not tried by then is `not_written`
            and left for the next run.
        on_progress: told how many of how many hosts are done.

    Returns:
        Why the writing ended early; None when it came to its end.
    """
    intended = plan.with_columns(outcome=pl.lit("intended"))
    journal.intend(intended)
    lock = Lock()
    failures_in_a_row = 0
    ended_by: str | None = None

    def end(reason: str) -> None:
        nonlocal ended_by
        ended_by = ended_by or reason

    def attempt_unless_stopped(row: Row) -> Result:
        nonlocal failures_in_a_row
        if ended_by:
            return Result(row["host_id"], "not_written", f"the run ended before this host's turn: {ended_by}")
        try:
            result = attempt(row)
        except AuthenticationError as error:
            end(str(error))  # each further host would only hear the same
            return Result(row["host_id"], "failed", str(error))
        # Counted here: by the time the journal hears of it, the pool has tried some more.
        with lock:
            if result.outcome in _FAILURES:
                failures_in_a_row += 1
            elif result.outcome in _SUCCESSES:
                failures_in_a_row = 0
            if failures_in_a_row >= max_failed_writes:
                end(f"{max_failed_writes} writes failed one after another")
        return result

    with ThreadPoolExecutor(concurrency) as pool:
        try:
            tasks = [pool.submit(attempt_unless_stopped, row) for row in intended.iter_rows(named=True)]
            for done, task in enumerate(as_completed(tasks), start=1):
                result = task.result()
                journal.complete(result, run_id=plan["run_id"][0], completed_at=datetime.now(UTC))
                on_progress(done, len(tasks))
        except BaseException:
            end("it was interrupted")  # the pool must not write on
            raise
    return ended_by


def settle_leftovers(journal: Journal, tables: Tables, hosts: pl.DataFrame) -> int:
    """Settle the writes of runs that were cut off, from what the inventory holds now (readings §7).

    A host to which no request went out was not written, whatever it holds: others set owners as well.

    Args:
        journal: its rows move into owner_writes.
        tables: where owner_writes lies.
        hosts: inventory_hosts, listed after those runs had ended.

    Returns:
        How many writes were still unknown.
    """
    listed = {row["host_id"]: row for row in hosts.iter_rows(named=True)}
    settled = 0
    for run_id in journal.run_ids():
        unsent = journal.unsent(run_id)
        for row in journal.rows(run_id).filter(outcome="intended").iter_rows(named=True):
            if row["host_id"] in unsent:
                result = Result(row["host_id"], "not_written", "the run was cut off before this host's turn")
            else:
                result = _settled(row, listed.get(row["host_id"]))
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
            settled += 1
        tables.append_writes(journal.rows(run_id), run_id=run_id)
        journal.forget(run_id)
    return settled


def _settled(row: Row, host: Row | None) -> Result:
    """Tell from what a host holds what became of a write that nobody saw the end of."""
    done = host is not None and _was_done(row, host)
    outcome = ("undone" if _is_undo(row) else "written") if done else "not_written"
    known = row["message"] or "the run was cut off"  # a write whose answer was lost has a message
    message = f"{known}; the inventory {'holds' if done else 'does not hold'} the value"
    return Result(row["host_id"], outcome, message)


def _was_done(row: Row, host: Row) -> bool:
    """Tell from what a host holds whether a write reached it.

    A write gives an owner. An undo puts back, in one request, each field that still holds what was written:
    after it none does, though somebody else may have set some of them.
    """
    if not _is_undo(row):
        return row["new_values"]["owner"] in host["owner_ids"]
    held = _values_of(host)
    changed = _changed(row)
    put_back = [field for field in changed if held[field] == (row["new_values"][field] or None)]
    return bool(put_back) and not any(held[field] == row["old_values"][field] for field in changed)


def _is_undo(row: Row) -> bool:
    """A write gives an owner; an undo clears it, or leaves it to somebody else."""
    return not row["new_values"]["owner"]


def _changed(row: Row) -> list[str]:
    """The fields that a write sets to something else than what it found."""
    return [
        field
        for field, value in row["new_values"].items()
        if value is not None and (value or None) != row["old_values"][field]
    ]


def _values_of(host: Row) -> Values:
    """What a row of inventory_hosts holds, as owner_writes has it."""
    owner = ",".join(host["owner_ids"]) or None
    return {"owner": owner, "department": host["department"], "criticality": host["criticality"]}
