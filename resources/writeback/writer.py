"""Guarded writes of single hosts: look, write at once, journal; and what an answer of "yes" is worth.

Whoever writes to the inventory does it through here. What is to be written is planned in `ownership.plan`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import polars as pl

from ownership.names import normalise_hostname
from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    NotFoundError,
    ProtocolError,
    ServiceError,
    SessionExpiredError,
    TransientError,
)
from resources.inventory.adapter import Inventory
from resources.store.tables import Tables
from resources.writeback.journal import Journal, Result, Values
from resources.writeback.pace import GIVE_UP_SECONDS, Pace

LONGEST_WINDOW_SECONDS = 1.0
"""A look whose answer came earlier than this before the request goes out is made again (rules 7.2)."""

STRICT_LOOKS = 2
"""First looks at a host whose age counts from their request: a process that is stopped, or a machine that is
suspended, while the answer is on its way has an old look and does not know it. Of further ones it counts from
the answer, for the service itself may be that slow."""

LOOKS = 10
"""Looks at one host, each too old when its request could go out, until the host is given up."""

OWNED_HOSTS_READ = 3
"""Hosts with an owner that are read before the first write, to see that the look shows owners."""

READ_BACK = 3
"""Writes of a run that are read back although the service said yes, the first ones (rules 7.4)."""

READ_BACK_WAITS_SECONDS = (0.0, 0.5, 1.5)
"""Waits before each look for what was written: some services show it a moment later."""

_FAILURES = frozenset({"failed", "intended"})
_SUCCESSES = frozenset({"written", "undone"})
Row = Mapping[str, Any]
"""A row of owner_writes."""
Decide = Callable[[Values], Values | Result]
"""Told what a host holds, gives what to send to it, or the result where nothing is to be sent."""


class WritingEndedError(AssetOwnersError):
    """No further write would go better; `result` is what became of the last one."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


class _LookTooOldError(Exception):
    """The look at a host is too old to write by; nothing was sent."""


@dataclass
class _Attempt:
    """A write under way: the last look at the host, what was sent after it, and when that was turned away.

    `sent` is None again where the service said that it has not acted. `stored`: the journal knows that a
    request may go out; `noted`: the old and new values that it knows, where they are not the planned ones.
    """

    row: Row
    held: Values | None = None
    sent: Values | None = None
    stored: bool = False
    noted: tuple[Values, Values] | None = None
    turned_away_at: float | None = None
    sessions_ended: int = 0
    looks_too_old: int = 0

    def result(self, outcome: str, message: str | None = None) -> Result:
        return Result(self.row["host_id"], outcome, message, self.held, self.sent)

    def broken_off(self, message: str) -> Result:
        """Failed; where something was sent before, the inventory has the last word."""
        return self.result("intended" if self.sent else "failed", message)

    def left(self, message: str) -> Result:
        """Left for the next run; where something was sent before, the inventory has the last word."""
        return self.result("intended" if self.sent else "not_written", message)


class Writer:
    """Writes host assets of one instance, each guarded by a look at what it holds.

    The request goes out within `LONGEST_WINDOW_SECONDS` of the look's answer, otherwise the host is looked at
    again; so it is when the session had ended or the service asked to wait. Without `contract.read` the look
    is the list made before the writing, and the window as long as the writing.

    A write whose answer is lost is never sent again: the host is read back to see what it holds. While it
    does not hold the new value the outcome stays `intended`, not yet known, and the next run settles it
    (rules 7.3).

    Every method raises WritingEndedError when no session is to be had any more, when the service has refused
    all writes for long, or when it says yes and sets nothing.

    Args:
        inventory: to read and write with.
        journal: told before each look that a request may follow.
        pace: how fast the service lets us write.
        clock: seconds that only go forward.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        inventory: Inventory,
        journal: Journal,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self._pace = pace or Pace(clock=clock, sleep=sleep)
        self._clock = clock
        self._sleep = sleep
        self._readable = inventory.reads_single_hosts
        self._listed: dict[str, Row] = {}
        self._listed_at = 0.0
        self._lock = Lock()
        self._read_back = self._denied = 0
        self._stopped_by: str | None = None
        self.longest_window_seconds: float | None = None
        """The longest time between the answer of a look and the write that followed it; None: none did."""
        if not self._readable:
            self._relist()

    def write(self, row: Row) -> Result:
        """Give a host its owner, unless it has one by now, in one request (rules 2.2, 2.5, 2.6)."""
        return self._guarded(row, lambda held: _unless_owned(row, held), done="written")

    def apply(self, row: Row) -> Result:
        """Carry out a plan made earlier: as `undo` where it is one, otherwise as `write`.

        Then a host whose other fields changed since is left alone, too.
        """
        if is_undo(row):
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
            return _unless_owned(row, held)

        return self._guarded(row, unless_changed, done="written")

    def undo(self, row: Row) -> Result:
        """Put back, field by field, what the host still holds of what a run wrote."""
        return self._guarded(row, lambda held: _still_held(row, held), done="undone")

    def stop(self, reason: str) -> None:
        """Let no further request begin, not even of hosts that wait for their turn."""
        self._stopped_by = self._stopped_by or reason
        self._pace.stop()

    def shows_an_owner(self, host_ids: Iterable[str]) -> bool:
        """Tell whether the look that guards a write shows an owner on any of these hosts, listed as owned.

        A host that is refused, gone or cannot be read tells nothing; where none tells anything, it counts as
        shown, for then no write gets past its look.

        Raises:
            AuthenticationError, TransientError: as from `Inventory.host`.
        """
        looks = []
        for host_id in host_ids:
            try:
                looks.append(self._inventory.host(host_id))
            except (AuthenticationError, TransientError):
                raise
            except ServiceError:
                continue
        return not looks or any(look["owner_ids"] for look in looks)

    def _guarded(self, row: Row, decide: Decide, *, done: str) -> Result:
        """Look at the host, let `decide` say what to send or why nothing is sent, and send it at once.

        No wait lies between look and request: whoever waited (for a session, for the service, for its turn)
        looks again.
        """
        attempt = _Attempt(row)
        while True:
            turn = self._pace.wait()
            if turn is None:
                return attempt.left(f"the run ended before this host's turn: {self._stopped_by}")
            if not attempt.stored:
                self._journal.attempting(row["run_id"], row["host_id"])
                attempt.stored = True
            try:
                return self._once(attempt, decide, done=done)
            except _LookTooOldError:
                attempt.looks_too_old += 1
                if attempt.looks_too_old >= LOOKS:
                    return attempt.broken_off(
                        f"{LOOKS} looks at the host were each older than {LONGEST_WINDOW_SECONDS:g} s when "
                        "the request could go out, so it was not sent; this machine or its disk is too slow"
                    )
            except SessionExpiredError as error:
                attempt.sessions_ended += 1
                if attempt.sessions_ended > 1:
                    message = f"{error} (twice for one host: sessions do not last)"
                    raise WritingEndedError(message, attempt.broken_off(message)) from error
            except AuthenticationError as error:
                raise WritingEndedError(str(error), attempt.broken_off(str(error))) from error
            except TransientError as error:
                if not error.not_done:
                    return attempt.broken_off(str(error))
                if not self._pace.refused(turn=turn, retry_after=error.retry_after):
                    message = f"the service asks to wait for longer than {GIVE_UP_SECONDS:g} s: {error}"
                    raise WritingEndedError(message, attempt.left(message)) from error
            except ServiceError as error:
                return attempt.broken_off(str(error))

    def _once(self, attempt: _Attempt, decide: Decide, *, done: str) -> Result:
        """Look and send once; raises what may mean to look and send again."""
        row = attempt.row
        asked_at = self._clock()
        host = self._look(row, not_before=attempt.turned_away_at)
        answered_at = self._clock() if self._readable else self._listed_at
        held = _values_of(host)
        if attempt.sent and _holds(held, attempt.sent):  # what it held before the sending stays known
            return attempt.result(done, "confirmed by looking again: the host holds what was sent")
        attempt.held = held
        values = decide(held)
        if isinstance(values, Result):
            return values
        new = {field: values.get(field) for field in held}
        if (held, new) != (attempt.noted or (row["old_values"], row["new_values"])):
            self._journal.sending(row["run_id"], row["host_id"], old_values=held, new_values=new)
            attempt.noted = held, new

        sent_before = attempt.sent

        def right_before() -> None:
            with self._lock:
                now = self._clock()
                looked_at = asked_at if attempt.looks_too_old < STRICT_LOOKS else answered_at
                if self._readable and now - looked_at > LONGEST_WINDOW_SECONDS:
                    raise _LookTooOldError
                window = now - answered_at
                self.longest_window_seconds = max(self.longest_window_seconds or 0.0, window)
            attempt.sent = new

        try:
            self._inventory.write(row["host_id"], values, right_before=right_before)
        except (SessionExpiredError, AuthenticationError):
            attempt.turned_away_at = self._clock()
            raise
        except TransientError as error:
            attempt.turned_away_at = self._clock()
            if error.not_done:
                attempt.sent = sent_before
                raise
            if attempt.sent is None:
                raise
            return self._after_lost_answer(attempt, lost=str(error), done=done)
        except ServiceError as error:
            return attempt.result("failed", str(error))
        self._pace.taken()
        return self._after_yes(attempt, done=done)

    def _after_lost_answer(self, attempt: _Attempt, *, lost: str, done: str) -> Result:
        """Tell from what the host holds now whether a write with a lost answer was done.

        Where it holds something else the request may still be on its way, or somebody may have been faster:
        the outcome stays open until the next run has listed the inventory.
        """
        try:
            holds = self._readable and _holds(_values_of(self._look(attempt.row)), attempt.sent or {})
        except ServiceError:
            holds = False
        if holds:
            return attempt.result(done, f"confirmed by reading back; the answer was lost: {lost}")
        return attempt.result("intended", lost)

    def _after_yes(self, attempt: _Attempt, *, done: str) -> Result:
        """Read the first writes back: a service may say yes and set nothing.

        Raises:
            WritingEndedError: none of the first writes is there.
        """
        result = attempt.result(done)
        with self._lock:
            if not self._readable or (self._read_back >= READ_BACK and self._denied < self._read_back):
                return result
        try:
            now = self._read_back_values(attempt)
        except AuthenticationError as error:
            raise WritingEndedError(str(error), result) from error
        except ServiceError:
            return result  # the service said yes, and nothing says no
        sent = [field for field, value in (attempt.sent or {}).items() if value is not None]
        unchanged = all(now[field] == (attempt.held or {}).get(field) for field in sent)
        held = _holds(now, attempt.sent or {})
        denied = unchanged and not held
        if not held and not denied:
            return result  # somebody has changed it since, which tells nothing of the service
        with self._lock:
            self._read_back += 1
            self._denied += denied
            in_vain = self._denied == self._read_back >= READ_BACK
        if not denied:
            return result
        result = attempt.result(
            "intended", "the service said that it was done, and the host holds what it held"
        )
        if in_vain:
            raise WritingEndedError(self._in_vain(self._denied), result)
        return result

    def _read_back_values(self, attempt: _Attempt) -> Values:
        """What the host holds after a yes; some services show a change a moment later."""
        now: Values = {}
        for seconds in READ_BACK_WAITS_SECONDS:
            if seconds:
                self._sleep(seconds)
            now = _values_of(self._look(attempt.row))
            if _holds(now, attempt.sent or {}):
                break
        return now

    def in_vain(self, written: pl.DataFrame) -> tuple[str | None, list[Result]]:
        """Tell at the end whether the service said yes and set nothing.

        Without `contract.read` the first writes are looked for in a list that is made now.

        Args:
            written: the run's rows of owner_writes.

        Returns:
            The reason to end the run as failed, None where there is none; and results that correct those of
            rows whose value is not there.
        """
        successes = written.filter(pl.col("outcome").is_in(_SUCCESSES)).sort("completed_at")
        if self._readable or successes.is_empty():
            all_denied = self._read_back and self._denied == self._read_back
            return (self._in_vain(self._denied) if all_denied else None), []
        try:
            self._relist()
        except ServiceError:
            return None, []  # the service said yes, and nothing says no
        denied = [
            row["host_id"]
            for row in successes.iter_rows(named=True)
            if (host := self._listed.get(row["host_id"]))
            and not host.get("problem")
            and not _was_done(row, host)
        ]
        if not set(successes["host_id"][:READ_BACK]) <= set(denied):
            return None, []
        message = "the service said that it was done, and the list does not show it"
        return self._in_vain(len(denied)), [Result(host_id, "intended", message) for host_id in denied]

    def _in_vain(self, writes: int) -> str:
        return (
            f"{self._inventory.where} said yes to {writes} writes, and none of the hosts holds the value; "
            f"check {self._inventory.how_written}"
        )

    def _look(self, row: Row, *, not_before: float | None = None) -> Row:
        """The host as it is now, under the name that was planned: a host is its id and its name.

        Args:
            row: the planned write.
            not_before: an older list is not looked at where the service cannot read one asset.

        Raises:
            NotFoundError: there is no such host.
            ProtocolError: its fields cannot be read, or it bears another name.
        """
        host_id = row["host_id"]
        if self._readable:
            host = self._inventory.host(host_id)
        else:
            with self._lock:
                if not_before is not None and self._listed_at <= not_before:
                    self._relist()
            if host_id not in self._listed:
                raise NotFoundError(f"Host {host_id} is no longer in the inventory")
            host = self._listed[host_id]
        if host.get("problem"):
            raise ProtocolError(host["problem"])
        if not _has_name(host, row["hostname"]):
            raise ProtocolError(_other_name(host_id))
        return host

    def _relist(self) -> None:
        began = self._clock()
        self._listed = {row["host_id"]: row for row in self._inventory.hosts().iter_rows(named=True)}
        self._listed_at = began


def write_all(
    plan: pl.DataFrame,
    writer: Writer,
    attempt: Callable[[Writer, Row], Result],
    journal: Journal,
    *,
    concurrency: int,
    max_failed_writes: int,
    on_progress: Callable[[int, int], None],
) -> str | None:
    """Write the planned hosts, several at a time; each row and each outcome goes into the journal.

    Args:
        plan: rows of owner_writes of one run; those with outcome `planned` are tried, others only kept.
        writer: writes one host.
        attempt: how, a method of `Writer`.
        journal: stores the whole plan as `intended` before the first request goes out.
        concurrency: hosts at a time.
        max_failed_writes: so many failures without a success between them, in order of completion, end the
            writing, and so does what `Writer` ends it for; what was not tried by then is `not_written` and
            left for the next run.
        on_progress: told how many of how many hosts are done.

    Returns:
        Why the writing ended early, or was in vain; None when it came to its end.
    """
    to_try = pl.col("outcome") == "planned"
    intended = plan.with_columns(outcome=pl.when(to_try).then(pl.lit("intended")).otherwise("outcome"))
    journal.intend(intended)
    run_id = plan["run_id"][0] if plan.height else ""
    lock = Lock()
    failures_in_a_row = 0
    ended_by: str | None = None

    def end(reason: str) -> None:
        nonlocal ended_by
        ended_by = ended_by or reason
        writer.stop(reason)

    def attempt_unless_stopped(row: Row) -> Result:
        nonlocal failures_in_a_row
        if ended_by:
            return Result(row["host_id"], "not_written", f"the run ended before this host's turn: {ended_by}")
        try:
            result = attempt(writer, row)
        except WritingEndedError as error:
            end(str(error))
            return error.result
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
            rows = intended.filter(outcome="intended").iter_rows(named=True)
            tasks = [pool.submit(attempt_unless_stopped, row) for row in rows]
            for done, task in enumerate(as_completed(tasks), start=1):
                journal.complete(task.result(), run_id=run_id, completed_at=datetime.now(UTC))
                on_progress(done, len(tasks))
        except BaseException:
            end("it was interrupted")  # the pool must not write on
            raise
    if ended_by is None:
        ended_by, corrected = writer.in_vain(journal.rows(run_id))
        for result in corrected:
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
    return ended_by


def without_changed_hosts(plan: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Leave hosts alone that are gone, are others by now, have an owner, or hold nothing to put back.

    A plan made earlier does not know of them. Were they tried and the run cut off, what others did before it
    began would pass for its work when it is settled.

    Args:
        plan: rows of owner_writes, as planned.
        hosts: inventory_hosts, listed for this run.
    """
    listed = {host["host_id"]: host for host in hosts.iter_rows(named=True)}
    rows = []
    for row in plan.iter_rows(named=True):
        if row["outcome"] == "planned" and (told := _left_alone(row, listed.get(row["host_id"]))):
            row |= {
                "outcome": told.outcome,
                "message": told.message,
                "old_values": told.old_values or row["old_values"],
                "completed_at": datetime.now(UTC),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=plan.schema)


def _left_alone(row: Row, host: Row | None) -> Result | None:
    """Why a host of a stored plan is left alone, by the list; None where there is no reason."""
    if host is None:
        return Result(row["host_id"], "not_written", "left alone: the inventory lists it no more")
    if host.get("problem"):
        return None  # the look right before the write tells
    if not _has_name(host, row["hostname"]):
        return Result(row["host_id"], "failed", _other_name(row["host_id"]))
    told = (_still_held if is_undo(row) else _unless_owned)(row, _values_of(host))
    return told if isinstance(told, Result) else None


def settle_leftovers(journal: Journal, tables: Tables, hosts: pl.DataFrame, target: str) -> int:
    """Settle the writes of runs that were cut off, from what the inventory holds now (rules 7.3).

    Those of another target stay open. A host to which no request went out was not written, whatever it holds:
    others set owners as well.

    Args:
        journal: its rows move into owner_writes.
        tables: where owner_writes lies.
        hosts: inventory_hosts, listed after those runs had ended.
        target: of the instance (`Instance.target`); rows of before 0.2.0 count as its own.

    Returns:
        How many writes were still unknown and are settled.
    """
    listed = {row["host_id"]: row for row in hosts.iter_rows(named=True)}
    settled = 0
    for run_id in runs_on_target(journal, target):
        unsent = journal.unsent(run_id)
        for row in journal.rows(run_id).filter(outcome="intended").iter_rows(named=True):
            host = listed.get(row["host_id"])
            if row["host_id"] in unsent:
                result = Result(row["host_id"], "not_written", "the run was cut off before this host's turn")
            elif host and host.get("problem"):
                continue  # its owner cannot be read
            else:
                result = _settled(row, host)
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
            settled += 1
        rows = journal.rows(run_id)
        tables.append("owner_writes", rows, run_id=run_id)
        if "intended" not in rows["outcome"]:
            journal.delete(run_id)
    return settled


def runs_on_target(journal: Journal, target: str) -> list[str]:
    """Runs with rows in the journal that wrote to this target, the oldest first."""
    return [run_id for run_id, other in journal.targets().items() if other in {None, target}]


def _settled(row: Row, host: Row | None) -> Result:
    """Tell from what a host holds what became of a write that nobody saw the end of."""
    known = row["message"] or "the run was cut off"  # a write whose answer was lost has a message
    renamed = host is not None and not _has_name(host, row["hostname"])
    # A new machine under the id holds nothing of what was written: no sign of an undo. Our owner is a sign.
    done = host is not None and _was_done(row, host) and not (renamed and is_undo(row))
    outcome = ("undone" if is_undo(row) else "written") if done else "not_written"
    message = f"{known}; the inventory {'holds' if done else 'does not hold'} the value"
    if renamed:
        message += ", and another name: the id may belong to another machine by now"
    return Result(row["host_id"], outcome, message)


def _was_done(row: Row, host: Row) -> bool:
    """Tell from what a host holds whether a write reached it.

    A write gives an owner. An undo puts back, in one request, each field that still holds what was written:
    after it none does, though somebody else may have set some of them.
    """
    if not is_undo(row):
        return row["new_values"]["owner"] in host["owner_ids"]
    held = _values_of(host)
    changed = _changed(row)
    put_back = [field for field in changed if held[field] == (row["new_values"][field] or None)]
    return bool(put_back) and not any(held[field] == row["old_values"][field] for field in changed)


def _unless_owned(row: Row, held: Values) -> Values | Result:
    """What to send to give a host its owner, unless it has one."""
    if held["owner"] is not None:
        return Result(row["host_id"], "owned_meanwhile", f"owned by {held['owner']} meanwhile", held)
    return {field: value for field, value in row["new_values"].items() if value is not None}


def _still_held(row: Row, held: Values) -> Values | Result:
    """What to send to put back, field by field, what a host still holds of what was written."""
    kept = {field for field in _changed(row) if held[field] == row["old_values"][field]}
    if not kept:
        return Result(row["host_id"], "not_written", "holds nothing any more of what was written", held)
    return {field: row["new_values"][field] for field in kept}


def is_undo(row: Row) -> bool:
    """A write gives an owner; an undo clears it, or leaves it to somebody else."""
    return not row["new_values"]["owner"]


def _changed(row: Row) -> list[str]:
    """The fields that a write sets to something else than what it found."""
    return [
        field
        for field, value in row["new_values"].items()
        if value is not None and (value or None) != row["old_values"][field]
    ]


def _holds(held: Values, sent: Values) -> bool:
    """Tell whether a host holds what was sent to it.

    An owner who was given tells by itself: the service may spell other values in its own way. What is put
    back is spelled as the service had it.
    """
    values = {field: value for field, value in sent.items() if value is not None}
    telling = {"owner"} if values.get("owner") else values.keys()
    return all(held[field] == (values[field] or None) for field in telling)


def _has_name(host: Row, hostname: str) -> bool:
    """Tell whether one of the host's names is the one that was planned.

    Compared whole and shortened: hostname_match may have been changed since.
    """
    names = pl.lit(pl.Series(host["hostnames"], dtype=pl.String))
    normalised = pl.select(normalise_hostname(names), short=normalise_hostname(names, short=True))
    return any(hostname in column for column in normalised)


def _other_name(host_id: str) -> str:
    return (
        f"Host {host_id} has another name now than planned (column hostname): its id may belong to another "
        "machine; nothing was sent"
    )


def _values_of(host: Row) -> Values:
    """What a row of inventory_hosts holds, as owner_writes has it."""
    owner = ",".join(host["owner_ids"]) or None
    return {"owner": owner, "department": host["department"], "criticality": host["criticality"]}
