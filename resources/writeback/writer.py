"""Guarded writes of single hosts: look, write at once, journal; and what an answer of "yes" is worth.

Whoever writes to the inventory does it through here. What is to be written is planned in `ownership.plan`.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

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
from resources.writeback.decide import (
    Decide,
    Row,
    decide_write,
    has_name,
    is_undo,
    kept_fields,
    kept_message,
    other_name_message,
    values_of,
    was_done,
)
from resources.writeback.journal import Journal, Result
from resources.writeback.pace import GIVE_UP_SECONDS, Pace

MAX_READ_TO_WRITE_SECONDS = 1.0  # an older look is made again before the request goes out (rules 7.2)
# The age of a host's first looks counts from their request: a process that is stopped while the answer is on
# its way does not know it. Then it counts from the answer, for the service itself may be that slow.
STRICT_LOOKS = 2
LOOKS = 10  # at one host, each too old when its request could go out, until the host is given up
OWNED_HOSTS_READ = 3  # before the first write, to see that the look shows owners
READ_BACK = 3  # of a run's writes, the first ones, although the service said yes (rules 7.4)
READ_BACK_WAITS_SECONDS = (0.0, 0.5, 1.5)  # some services show a change a moment later


def seconds_since_boot() -> float:
    """A clock that also goes on while the machine is suspended, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WritingEndedError(AssetOwnersError):
    """No further write would go better; `result` is what became of the last one."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


class _LookTooOldError(Exception):
    """The look at a host is too old to write by; nothing was sent."""


@dataclass
class _Attempt:
    """A write under way: the last look at the host and what was sent after it.

    `sent` stays, whatever the service says: it may have done what it turned away.
    """

    row: Row
    decide: Decide
    turn: float = 0.0
    held: Values | None = None
    sent: Values | None = None
    turned_away_at: float | None = None
    sessions_ended: int = 0
    looks_too_old: int = 0

    def was_done(self, host: Row) -> bool:
        """Return whether the host holds what was sent."""
        return bool(self.sent) and was_done({"old_values": self.held, "new_values": self.sent}, host)

    def success(self, message: str | None = None) -> Result:
        return self.result("undone" if is_undo(self.row) else "written", message)

    def result(self, outcome: str, message: str | None = None) -> Result:
        if outcome == "undone" and self.held and self.sent:
            left = kept_message(self.kept, self.held)
            message = "; ".join(filter(None, [message, left])) or None
        kept = self.kept if outcome in {"undone", "intended"} else None
        return Result(self.row["host_id"], outcome, message, self.held, self.sent, kept)

    @property
    def kept(self) -> list[str] | None:
        """The fields that an undo left unchanged."""
        return kept_fields(self.row, self.sent) if self.sent else None

    def given_up(self, message: str, outcome: str = "failed") -> Result:
        """Where something was sent before, the outcome is open: the inventory has the last word."""
        return self.result("intended" if self.sent else outcome, message)


class Writer:
    """Writes host assets of one instance, each guarded by a look at what it holds.

    Only after 401 and 429 is a write sent again, and only after another look. After any other answer that is
    no clear refusal the host is read back; while it does not hold the new value the outcome stays `intended`,
    not yet known, and the next run settles it (rules 7.3). Without `contract.read` the look is the list made
    before the writing, and the time between them as long as the writing.

    Every method raises WritingEndedError when no session is to be had any more, when the service has refused
    all writes for long, or when it says yes and sets nothing.
    """

    def __init__(
        self,
        inventory: Inventory,
        journal: Journal,
        *,
        clock: Callable[[], float] = seconds_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inventory = inventory
        self._journal = journal
        self.pace = Pace(clock=clock, sleep=sleep)
        self._clock = clock
        self._sleep = sleep
        self._readable = inventory.reads_single_hosts
        self._listed: dict[str, Row] = {}
        self._listed_at = 0.0
        self._lock = Lock()
        self._read_back = self._denied = 0
        self.stopped_by: str | None = None
        """Why no further request may begin; None: they may."""
        self._abandoned = False
        self.longest_read_to_write_seconds: float | None = None
        """The longest time between the answer of a look and the write that followed it; None: none did."""
        if not self._readable:
            self._relist()

    def write(self, row: Row, decide: Decide = decide_write) -> Result:
        """Look at the host, let `decide` say what to send or why nothing is sent, and send it at once.

        Whoever had to wait (for a session, for the service, for its turn) looks again.
        """
        attempt = _Attempt(row, decide)
        while True:
            turn = self.pace.wait()
            if turn is None:
                return attempt.given_up(self.before_its_turn(), "not_written")
            attempt.turn = turn
            self._journal.mark_attempted(row["run_id"], row["host_id"])
            try:
                return self._once(attempt)
            except _LookTooOldError:
                attempt.looks_too_old += 1
                if attempt.looks_too_old >= LOOKS:
                    return attempt.given_up(
                        f"{LOOKS} looks at the host were each older than {MAX_READ_TO_WRITE_SECONDS:g} s "
                        "when the request could go out, so it was not sent; this machine or its disk is "
                        "too slow"
                    )
            except SessionExpiredError as error:
                attempt.sessions_ended += 1
                if attempt.sessions_ended > 1:
                    message = f"{error} (twice for one host: sessions do not last)"
                    raise WritingEndedError(message, attempt.given_up(message)) from error
            except AuthenticationError as error:
                raise WritingEndedError(str(error), attempt.given_up(str(error))) from error
            except TransientError as error:
                if not error.asks_to_wait:
                    return attempt.given_up(str(error))
                self._slow_down(attempt, error)
            except ServiceError as error:
                return attempt.given_up(str(error))

    def stop(self, reason: str) -> None:
        """Let no further request begin, not even of hosts that wait for their turn."""
        self.stopped_by = self.stopped_by or reason
        self.pace.stop()

    def before_its_turn(self) -> str:
        """Say of a host to which nothing was sent why its turn never came."""
        return f"the run ended before this host's turn: {self.stopped_by}"

    def abandon(self) -> None:
        """Let nothing go out any more, not even to hosts that were looked at: nobody waits for an answer."""
        self._abandoned = True

    def shows_an_owner(self, host_ids: Iterable[str]) -> bool:
        """Return whether the look that guards a write shows an owner on any of these hosts, listed as owned.

        Where none of them can be read it counts as shown, for then no write gets past its look.
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

    def _once(self, attempt: _Attempt) -> Result:
        """Look and send once; raises what may mean to look and send again."""
        row = attempt.row
        asked_at = self._clock()
        host = self._look(row, not_before=attempt.turned_away_at)
        answered_at = self._clock() if self._readable else self._listed_at
        held = values_of(host)
        if attempt.was_done(host):  # what it held before the sending stays known
            return attempt.success("confirmed by looking again: the host holds what was sent")
        attempt.held = held
        decided = attempt.decide(row, host)
        if isinstance(decided, Result):
            return decided
        values = {field: value for field, value in decided.items() if field in self._inventory.takes}
        new = {field: values.get(field) for field in held}
        kept = kept_fields(row, new)
        self._journal.mark_sent(row["run_id"], row["host_id"], old_values=held, new_values=new, kept=kept)

        def right_before() -> None:
            if self._abandoned:
                message = "the run was interrupted before the request went out"
                raise WritingEndedError(message, attempt.given_up(message))
            self._journal.require_lock()
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
        except ServiceError as error:
            return self._after_no(attempt, error)
        self.pace.taken()
        return self._after_yes(attempt)

    def _slow_down(self, attempt: _Attempt, error: TransientError, result: Result | None = None) -> None:
        """Let all writers wait as the service asks, or end the writing where that makes no sense any more."""
        if not self.pace.refused(turn=attempt.turn, retry_after=error.retry_after):
            message = f"the service asks to wait for longer than {GIVE_UP_SECONDS:g} s: {error}"
            raise WritingEndedError(message, result or attempt.given_up(message, "not_written")) from error

    def _after_no(self, attempt: _Attempt, error: ServiceError) -> Result:
        """Return what became of a write that was not taken; raises `error` where it may be sent again.

        Where the answer was lost the host is read back; if it holds something else, the request may still be
        on its way, and the next run finds out.
        """
        sent_before = attempt.turned_away_at is not None
        attempt.turned_away_at = self._clock()
        transient = error if isinstance(error, TransientError) else None
        signed_out = isinstance(error, SessionExpiredError | AuthenticationError)
        if attempt.sent is None or signed_out or (transient and transient.not_done):
            raise error
        if not transient and not sent_before:
            return attempt.result("failed", str(error))
        result = attempt.result("intended", str(error))
        with suppress(ServiceError):
            if self._readable and attempt.was_done(self._look(attempt.row)):
                self.pace.taken()
                result = attempt.success(f"confirmed by reading back; the answer was lost: {error}")
        if transient and transient.asks_to_wait:
            self._slow_down(attempt, transient, result)
        return result

    def _after_yes(self, attempt: _Attempt) -> Result:
        """Read the first writes back: a service may say yes and set nothing.

        Where it cannot read one asset, hosts are listed again for it, until one write is confirmed.
        """
        result = attempt.success()
        if self.confirmed and (self._read_back >= READ_BACK or not self._readable):
            return result
        host: Row = {}
        try:
            for seconds in READ_BACK_WAITS_SECONDS:
                if seconds:
                    self._sleep(seconds)
                host = self._look(attempt.row, not_before=self._clock())
                if attempt.was_done(host):
                    break
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
            return result  # somebody has changed it since, which says nothing about the service
        with self._lock:
            self._read_back += 1
            self._denied += denied
            ineffective = self._read_back >= READ_BACK and not self.confirmed
        if not denied:
            return result
        result = attempt.result(
            "intended", "the service said that it was done, and the host holds what it held"
        )
        if ineffective:
            raise WritingEndedError(self._ineffective(self._denied), result)
        return result

    @property
    def confirmed(self) -> bool:
        """Whether a host was seen to hold what the service said that it had set."""
        return self._denied < self._read_back

    def in_vain(self) -> str | None:
        """Say at the end that the service said yes and set nothing; None where that is not known."""
        return self._ineffective(self._denied) if self._denied and not self.confirmed else None

    def _ineffective(self, writes: int) -> str:
        return (
            f"{self._inventory.where} said yes to {writes} writes, and none of the hosts holds the value; "
            f"check {self._inventory.how_written}"
        )

    def _look(self, row: Row, *, not_before: float | None = None) -> Row:
        """The host as it is now, under the name that was planned: a host is its id and its name.

        Where the service cannot read one asset, a list older than `not_before` is made anew.
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
