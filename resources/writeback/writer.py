"""Guarded writes of single hosts: look, write at once, journal; and what an answer of "yes" is worth.

Whoever writes to the inventory does it through here. What is to be written is planned in `ownership.plan`.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

import polars as pl

from ownership.codes import SUCCESSES
from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    NotFoundError,
    ProtocolError,
    ServiceError,
    SessionExpiredError,
    TransientError,
)
from resources.inventory.adapter import Inventory, Values
from resources.writeback.journal import Journal, Result
from resources.writeback.outcomes import (
    Row,
    has_name,
    other_name_message,
    still_held,
    unless_owned,
    values_of,
    was_done,
)
from resources.writeback.pace import GIVE_UP_SECONDS, Pace

MAX_READ_TO_WRITE_SECONDS = 1.0
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

Decide = Callable[[Values], Values | Result]
"""Called with what a host holds, gives what to send to it, or the result where nothing is to be sent."""


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

    `sent` stays, whatever the service says: it may have done what it turned away. `turn` is when the writer's
    turn began. `stored`: the journal knows that a request may go out; `noted`: the old and new values that it
    knows, where they are not the planned ones.
    """

    row: Row
    turn: float = 0.0
    held: Values | None = None
    sent: Values | None = None
    stored: bool = False
    noted: tuple[Values, Values] | None = None
    turned_away_at: float | None = None
    sessions_ended: int = 0
    looks_too_old: int = 0

    def was_done(self, host: Row) -> bool:
        """Tell from what a host holds whether what was sent has reached it."""
        return bool(self.sent) and was_done({"old_values": self.held, "new_values": self.sent}, host)

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

    The request goes out within `MAX_READ_TO_WRITE_SECONDS` of the look's answer, otherwise the host is looked
    at again; so it is when the session had ended or the service asked to wait. Without `contract.read` the
    look is the list made before the writing, and the time between them as long as the writing.

    Only after 401 and 429 is a write sent again, and only after another look. After any other answer that is
    no clear refusal the host is read back to see what it holds. While it does not hold the new value the
    outcome stays `intended`, not yet known, and the next run settles it (rules 7.3).

    Every method raises WritingEndedError when no session is to be had any more, when the service has refused
    all writes for long, or when it says yes and sets nothing.

    Args:
        inventory: to read and write with.
        journal: notes before each look that a request may follow.
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
        self._abandoned = False
        self.longest_read_to_write_seconds: float | None = None
        """The longest time between the answer of a look and the write that followed it; None: none did."""
        if not self._readable:
            self._relist()

    def write(self, row: Row) -> Result:
        """Give a host its owner, unless it has one by now, in one request (rules 2.2, 2.5, 2.6)."""
        return self._guarded(row, lambda held: unless_owned(row, held), done="written")

    def apply(self, row: Row) -> Result:
        """Carry out a plan made earlier: as `write`, and a host whose other fields changed is left alone."""

        def unless_changed(held: Values) -> Values | Result:
            changed = [
                field
                for field, value in row["new_values"].items()
                if value is not None and held[field] != row["old_values"][field]
            ]
            if changed and held["owner"] is None:
                message = f"changed since the plan was made: {', '.join(changed)}"
                return Result(row["host_id"], "not_written", message, held)
            return unless_owned(row, held)

        return self._guarded(row, unless_changed, done="written")

    def undo(self, row: Row) -> Result:
        """Put back, field by field, what the host still holds of what a run wrote."""
        return self._guarded(row, lambda held: still_held(row, held), done="undone")

    def stop(self, reason: str) -> None:
        """Let no further request begin, not even of hosts that wait for their turn."""
        self._stopped_by = self._stopped_by or reason
        self._pace.stop()

    def abandon(self) -> None:
        """Let nothing go out any more, not even to hosts that were looked at: nobody waits for an answer."""
        self._abandoned = True

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
            attempt.turn = turn
            if not attempt.stored:
                self._journal.attempting(row["run_id"], row["host_id"])
                attempt.stored = True
            try:
                return self._once(attempt, decide, done=done)
            except _LookTooOldError:
                attempt.looks_too_old += 1
                if attempt.looks_too_old >= LOOKS:
                    return attempt.broken_off(
                        f"{LOOKS} looks at the host were each older than {MAX_READ_TO_WRITE_SECONDS:g} s "
                        "when the request could go out, so it was not sent; this machine or its disk is "
                        "too slow"
                    )
            except SessionExpiredError as error:
                attempt.sessions_ended += 1
                if attempt.sessions_ended > 1:
                    message = f"{error} (twice for one host: sessions do not last)"
                    raise WritingEndedError(message, attempt.broken_off(message)) from error
            except AuthenticationError as error:
                raise WritingEndedError(str(error), attempt.broken_off(str(error))) from error
            except TransientError as error:
                if not error.asks_to_wait:
                    return attempt.broken_off(str(error))
                if asked_too_long := self._slow_down(attempt, error):
                    raise WritingEndedError(asked_too_long, attempt.left(asked_too_long)) from error
            except ServiceError as error:
                return attempt.broken_off(str(error))

    def _once(self, attempt: _Attempt, decide: Decide, *, done: str) -> Result:
        """Look and send once; raises what may mean to look and send again."""
        row = attempt.row
        asked_at = self._clock()
        host = self._look(row, not_before=attempt.turned_away_at)
        answered_at = self._clock() if self._readable else self._listed_at
        held = values_of(host)
        if attempt.was_done(host):  # what it held before the sending stays known
            return attempt.result(done, "confirmed by looking again: the host holds what was sent")
        attempt.held = held
        decided = decide(held)
        if isinstance(decided, Result):
            return decided
        values = {field: value for field, value in decided.items() if field in self._inventory.takes}
        new = {field: values.get(field) for field in held}
        if (held, new) != (attempt.noted or (row["old_values"], row["new_values"])):
            self._journal.sending(row["run_id"], row["host_id"], old_values=held, new_values=new)
            attempt.noted = held, new

        def right_before() -> None:
            if self._abandoned:
                message = "the run was interrupted before the request went out"
                raise WritingEndedError(message, attempt.broken_off(message))
            self._journal.require_claim()
            with self._lock:
                now = self._clock()
                looked_at = asked_at if attempt.looks_too_old < STRICT_LOOKS else answered_at
                if self._readable and now - looked_at > MAX_READ_TO_WRITE_SECONDS:
                    raise _LookTooOldError
                window = now - answered_at
                self.longest_read_to_write_seconds = max(self.longest_read_to_write_seconds or 0.0, window)
            attempt.sent = new

        try:
            self._inventory.write(row["host_id"], values, right_before=right_before)
        except (SessionExpiredError, AuthenticationError):
            attempt.turned_away_at = self._clock()
            raise
        except TransientError as error:
            attempt.turned_away_at = self._clock()
            if error.not_done or attempt.sent is None:
                raise
            result = self._after_lost_answer(attempt, lost=str(error), done=done)
            if error.asks_to_wait and (asked_too_long := self._slow_down(attempt, error)):
                raise WritingEndedError(asked_too_long, result) from error
            return result
        except ServiceError as error:
            if attempt.turned_away_at is None:
                return attempt.result("failed", str(error))
            return self._after_lost_answer(attempt, lost=str(error), done=done)  # the one before may be done
        self._pace.taken()
        return self._after_yes(attempt, done=done)

    def _slow_down(self, attempt: _Attempt, error: TransientError) -> str | None:
        """Let all writers wait as the service asks; return why that makes no sense any more."""
        if self._pace.refused(turn=attempt.turn, retry_after=error.retry_after):
            return None
        return f"the service asks to wait for longer than {GIVE_UP_SECONDS:g} s: {error}"

    def _after_lost_answer(self, attempt: _Attempt, *, lost: str, done: str) -> Result:
        """Tell from what the host holds now whether a write with a lost answer was done.

        Where it holds something else the request may still be on its way, or somebody may have been faster:
        the outcome stays open until the next run has listed the inventory.
        """
        try:
            done_all_the_same = self._readable and attempt.was_done(self._look(attempt.row))
        except ServiceError:
            done_all_the_same = False
        if done_all_the_same:
            self._pace.taken()
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
            host = self._look_for_what_was_sent(attempt)
        except AuthenticationError as error:
            raise WritingEndedError(str(error), result) from error
        except ServiceError:
            return result  # the service said yes, and nothing says no
        sent = [field for field, value in (attempt.sent or {}).items() if value is not None]
        sent = ["owner"] if "owner" in sent else sent  # a service may set the other fields and not the owner
        now, held = values_of(host), attempt.was_done(host)
        unchanged = all(now[field] == (attempt.held or {}).get(field) for field in sent)
        denied = unchanged and not held
        if not held and not denied:
            return result  # somebody has changed it since, which tells nothing of the service
        with self._lock:
            self._read_back += 1
            self._denied += denied
            ineffective = self._denied == self._read_back >= READ_BACK
        if not denied:
            return result
        result = attempt.result(
            "intended", "the service said that it was done, and the host holds what it held"
        )
        if ineffective:
            raise WritingEndedError(self._ineffective(self._denied), result)
        return result

    def _look_for_what_was_sent(self, attempt: _Attempt) -> Row:
        """The host after a yes; some services show a change a moment later."""
        host: Row = {}
        for seconds in READ_BACK_WAITS_SECONDS:
            if seconds:
                self._sleep(seconds)
            host = self._look(attempt.row)
            if attempt.was_done(host):
                break
        return host

    def check_effect(self, written: pl.DataFrame) -> tuple[str | None, list[Result]]:
        """Tell at the end whether the service said yes and set nothing.

        Without `contract.read` the first writes are looked for in a list that is made now.

        Args:
            written: the run's rows of owner_writes.

        Returns:
            The reason to end the run as failed, None where there is none; and results that correct those of
            rows whose value is not there.
        """
        successes = written.filter(pl.col("outcome").is_in(SUCCESSES)).sort("completed_at")
        if self._readable or successes.is_empty():
            all_denied = self._read_back and self._denied == self._read_back
            return (self._ineffective(self._denied) if all_denied else None), []
        try:
            self._relist()
        except ServiceError:
            return None, []  # the service said yes, and nothing says no
        denied = [
            row["host_id"]
            for row in successes.iter_rows(named=True)
            if (host := self._listed.get(row["host_id"]))
            and not host.get("problem")
            and not was_done(row, host)
        ]
        if not set(successes["host_id"][:READ_BACK]) <= set(denied):
            return None, []
        message = "the service said that it was done, and the list does not show it"
        return self._ineffective(len(denied)), [Result(host_id, "intended", message) for host_id in denied]

    def _ineffective(self, writes: int) -> str:
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
        if not has_name(host, row["hostname"]):
            raise ProtocolError(other_name_message(host_id))
        return host

    def _relist(self) -> None:
        began = self._clock()
        self._listed = {row["host_id"]: row for row in self._inventory.hosts().iter_rows(named=True)}
        self._listed_at = began
