"""Guarded writes of single hosts: read the host, write immediately, store the outcome, read the first back.

All writes to the inventory go through here. What is to be written is planned in `ownership.plan`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
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
from resources.ledger.ledger import Ledger, Result
from resources.writeback.decide import (
    Decide,
    Lost,
    ReadBack,
    Row,
    compare,
    decide_write,
    has_name,
    is_undo,
    kept_fields,
    other_name_message,
    values_of,
    was_done,
)

MIN_WAIT_SECONDS = 1.0  # where the service does not say how long; doubled until a write is accepted
MAX_WAIT_SECONDS = 60.0  # where the service does not say how long, and between two writes
MIN_INTERVAL_SECONDS = 0.02  # between two writes, after the first refusal; doubled with each further one
FASTER = 0.97  # of the interval, with each write that is accepted
GIVE_UP_SECONDS = 600.0
MAX_SLEEP_SECONDS = 1.0  # so that `stop` is heard


class Pace:
    """Says when the next write may begin; threads share it. Nothing waits before the first refusal."""

    def __init__(self, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self.stopped = False  # no further turn begins
        self._interval = 0.0
        self._wait = MIN_WAIT_SECONDS
        self._next = self._slowed_down_at = clock()
        self._refused_since: float | None = None

    def wait(self) -> float | None:
        """Wait for this writer's turn; returns when it began, None when the writing has ended."""
        while True:
            with self._lock:
                if self.stopped:
                    return None
                now = self._clock()
                if now >= self._next:
                    self._next = now + self._interval
                    return now
                left = self._next - now
            self._sleep(min(left, MAX_SLEEP_SECONDS))

    def speed_up(self) -> None:
        """Go on a little faster: the service accepted a write."""
        with self._lock:
            self._refused_since = None
            self._wait = MIN_WAIT_SECONDS
            self._interval *= FASTER

    def slow_down(self, *, turn: float, retry_after: float | None) -> bool:
        """Let all writers wait as asked, in seconds, and go on more slowly; returns False to give up.

        `turn` is when the refused writer's turn began: one from before the last refusal says nothing new.
        """
        with self._lock:
            now = self._clock()
            self._refused_since = now if self._refused_since is None else self._refused_since
            if turn >= self._slowed_down_at:
                self._slowed_down_at = now
                self._next = max(self._next, now + self._wait)
                self._wait = min(2 * self._wait, MAX_WAIT_SECONDS)
                self._interval = min(max(2 * self._interval, MIN_INTERVAL_SECONDS), MAX_WAIT_SECONDS)
            asked = retry_after or 0.0
            self._next = max(self._next, now + min(asked, GIVE_UP_SECONDS))
            return now + asked - self._refused_since < GIVE_UP_SECONDS


MAX_READ_TO_WRITE_SECONDS = 1.0  # after so long the host is read again before the request (rules 7.2)
# The age of a host's first reads counts from their request: a process that is stopped while the answer is on
# its way does not notice. Later ones count from the answer, for the service itself may be that slow.
STRICT_READS = 2
MAX_READS = 10  # of one host, each too old when its request could go out
OWNED_HOSTS_READ = 3  # before the first write, to see that reading a host shows its owner
READ_BACK = 3  # of a run's writes, the first ones, although the service accepted them (rules 7.4)
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0  # between two readings of a write that is read back

log = logging.getLogger(__name__)


def seconds_since_boot() -> float:
    """Return the time of a clock that also goes on while the machine is suspended, if it has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WritingEndedError(AssetOwnersError):
    """Further writes would fail, too; `result` is that of the last one."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


class _ReadTooOldError(Exception):
    """The host was read too long ago to write by; nothing was sent."""


@dataclass
class _Attempt:
    """A write under way: the host as it was last read, what it held, and what was sent after that."""

    row: Row
    decide: Decide
    turn: float = 0.0
    host: Row | None = None
    held: Values | None = None
    sent: Values | None = None  # stays after a refusal: the service may have done what it refused
    refused_at: float | None = None
    sessions_ended: int = 0
    reads_too_old: int = 0

    def was_done(self, host: Row) -> bool:
        """Return whether the host, under the planned name, has the values that were sent."""
        sent = {"old_values": self.held, "new_values": self.sent}
        return bool(self.sent) and has_name(host, self.row["hostname"]) and was_done(sent, host)

    def success(self, message: str | None = None) -> Result:
        return self.result("undone" if is_undo(self.row) else "written", message)

    def result(self, outcome: str, message: str | None = None) -> Result:
        kept = kept_fields(self.row, self.sent) if self.sent and outcome in {"undone", "intended"} else None
        if outcome == "undone" and self.held and kept:
            values = {**self.held, "owner": "another"}  # messages name no person
            left = ", ".join(f"{field} is {values[field] or 'none'} now" for field in kept)
            message = "; ".join(filter(None, [message, f"left unchanged: {left}"]))
        return Result(self.row["host_id"], outcome, message, self.held, self.sent, kept)

    def given_up(self, message: str, outcome: str = "failed") -> Result:
        """Give up; if something was sent before, the write is pending."""
        return self.result("intended" if self.sent else outcome, message)


class Writer:
    """Writes host assets of one instance; reads each right before its write.

    Only after 401 and 429 is a write sent again, and only after reading the host again. After any other
    answer that does not clearly refuse, the host is read back; until it holds the new value the outcome is
    `intended`, and the next run settles it (rules 7.3). Without `contract.read` the hosts are listed once
    before the writing instead, and the time between list and write is as long as the writing.
    """

    def __init__(
        self,
        inventory: Inventory,
        ledger: Ledger,
        read_back_seconds: float = 10,
        *,
        clock: Callable[[], float] = seconds_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inventory = inventory
        self._ledger = ledger
        self.pace = Pace(clock=clock, sleep=sleep)
        self._clock = clock
        self._sleep = sleep
        self._readable = inventory.reads_single_hosts
        self._listed: Mapping[str, Row] = {}
        self._listed_at = 0.0
        self._lock = Lock()
        self._read_back_seconds = read_back_seconds
        self._first: list[tuple[str, ReadBack]] = []
        self.stopped_by: str | None = None
        """Why no further request may begin; None while they may."""
        self.abandoned = False
        """Whether nothing more is sent, also to hosts that were just read: no thread waits for an answer."""
        self.longest_read_to_write_seconds: float | None = None
        """The longest time between reading a host and its write; None before the first write."""
        if not self._readable:
            self._relist()

    def write(self, row: Row, decide: Decide = decide_write) -> Result:
        """Read the host, let `decide` say what to send or why nothing is sent, and send it immediately."""
        attempt = _Attempt(row, decide)
        while True:
            turn = self.pace.wait()
            if turn is None:
                return attempt.given_up(self.not_reached_message(), "not_written")
            attempt.turn = turn
            # After any wait (for a session, for the service, for its turn) the host is read again.
            self._ledger.mark_attempted(row["run_id"], row["host_id"])
            try:
                return self._once(attempt)
            except _ReadTooOldError:
                attempt.reads_too_old += 1
                if attempt.reads_too_old >= MAX_READS:
                    return attempt.given_up(
                        f"the host was read {MAX_READS} times, each over {MAX_READ_TO_WRITE_SECONDS:g} s "
                        "before the request could go out, so it was not sent; this machine or its disk is "
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

    @property
    def is_trusted(self) -> bool:
        """Whether the first writes were read back, and nothing was found that stops the writing."""
        return len(self._first) >= READ_BACK and not self.reason_to_stop()

    def stop(self, reason: str | None) -> None:
        """Stop: no further request begins, also for hosts that wait for their turn. None: interrupted."""
        self.stopped_by = self.stopped_by or reason or "it was interrupted"
        self.pace.stopped = True

    def not_reached_message(self) -> str:
        """Return why nothing was sent to a host that was not attempted."""
        return f"the run ended before this host's turn: {self.stopped_by}"

    def shows_an_owner(self, host_ids: Iterable[str]) -> bool:
        """Return whether reading these hosts, listed as owned, shows an owner; True if none is readable."""
        hosts = []
        for host_id in host_ids:
            try:
                hosts.append(self._inventory.host(host_id))
            except (AuthenticationError, TransientError):
                raise
            except ServiceError:
                continue
        return not hosts or any(host["owner_ids"] for host in hosts)

    def _once(self, attempt: _Attempt) -> Result:
        """Read the host and send once; raises errors after which it may be read and sent again."""
        row = attempt.row
        asked_at = self._clock()
        host = self._read(row, not_before=attempt.refused_at)
        answered_at = self._clock() if self._readable else self._listed_at
        if not has_name(host, row["hostname"]):
            return attempt.given_up(other_name_message(row["host_id"]), "not_written")
        held = values_of(host)
        if attempt.was_done(host):  # what it held before the sending stays known
            confirmed = "confirmed by reading the host again: it has the values that were sent"
            return self._after_success(attempt, host, confirmed)
        attempt.held, attempt.host = held, host
        decided = attempt.decide(row, host)
        if isinstance(decided, Result):
            return decided
        values = {field: value for field, value in decided.items() if field in self._inventory.takes}
        new = {field: values.get(field) for field in held}
        pending = Result(row["host_id"], "intended", None, held, new, kept_fields(row, new))
        self._ledger.complete(pending, run_id=row["run_id"])

        def right_before() -> None:
            if self.abandoned:
                message = "the run was interrupted before the request went out"
                raise WritingEndedError(message, attempt.given_up(message))
            self._ledger.require_lock()
            with self._lock:
                now = self._clock()
                read_at = asked_at if attempt.reads_too_old < STRICT_READS else answered_at
                if self._readable and now - read_at > MAX_READ_TO_WRITE_SECONDS:
                    raise _ReadTooOldError
                window = now - answered_at
                self.longest_read_to_write_seconds = max(self.longest_read_to_write_seconds or 0.0, window)
            attempt.sent = new

        try:
            self._inventory.write(row["host_id"], values, right_before=right_before)
        except ServiceError as error:
            return self._after_refusal(attempt, error)
        self.pace.speed_up()
        return self._after_success(attempt)

    def _slow_down(self, attempt: _Attempt, error: TransientError, result: Result | None = None) -> None:
        """Let all writers wait as the service asks; stop the writing if it has asked for too long."""
        if not self.pace.slow_down(turn=attempt.turn, retry_after=error.retry_after):
            message = f"the service asks to wait for longer than {GIVE_UP_SECONDS:g} s: {error}"
            raise WritingEndedError(message, result or attempt.given_up(message, "not_written")) from error

    def _after_refusal(self, attempt: _Attempt, error: ServiceError) -> Result:
        """Return the outcome of a write that was not accepted; raises `error` if it may be sent again."""
        sent_before = attempt.refused_at is not None
        attempt.refused_at = self._clock()
        transient = error if isinstance(error, TransientError) else None
        signed_out = isinstance(error, SessionExpiredError | AuthenticationError)
        if attempt.sent is None or signed_out or (transient and transient.not_done):
            raise error
        if not transient and not sent_before:
            return attempt.result("failed", str(error))
        result = attempt.result("intended", str(error))
        # If it holds something else, the request may still be on its way: the next run settles it.
        with suppress(ServiceError):
            if self._readable and attempt.was_done(host := self._read(attempt.row)):
                self.pace.speed_up()
                confirmed = f"confirmed by reading back; the answer was lost: {error}"
                result = self._after_success(attempt, host, confirmed)
        if transient and transient.asks_to_wait:
            self._slow_down(attempt, transient, result)
        return result

    def _after_success(self, attempt: _Attempt, host: Row | None = None, text: str | None = None) -> Result:
        """Read the first writes back: a service may accept a write and change nothing, or too much."""
        lost = self._compare(attempt, host).lost if host else {}
        if self.is_trusted or (host and not lost):
            return attempt.success(text)
        try:
            found = self._read_back(attempt, lost)
        except AuthenticationError as error:
            raise WritingEndedError(str(error), attempt.result("intended", str(error))) from error
        row = attempt.row
        self._first.append((f"{row['host_id']} ({row['hostname']})", found))
        if not str(found):
            return attempt.success(text)
        message = f"the service accepted the write, and then {found}"
        log.warning(f"Host {row['host_id']}: {message}")
        pending = found.unseen and not host
        result = attempt.result("intended", message) if pending else attempt.success(message)
        ended_by = self.reason_to_stop()
        if ended_by and (found.lost or len(self._first) >= READ_BACK):
            raise WritingEndedError(ended_by, result)
        return result

    def _read_back(self, attempt: _Attempt, last: Lost) -> ReadBack:
        """Read a host back until it shows the write and nothing else, or for as long as that may take."""
        deadline, pause = self._clock() + self._read_back_seconds, FIRST_PAUSE_SECONDS
        while True:
            try:
                found = self._compare(attempt, self._read(attempt.row, not_before=self._clock()))
            except AuthenticationError:
                raise
            except ServiceError as error:
                found = ReadBack(f"the host could not be read back: {error}", [], last)
            # A field with another value again than before is not lost: it changes without a write.
            lost = {field: value for field, value in found.lost.items() if last.get(field, value) == value}
            left = deadline - self._clock()
            is_final = self.stopped_by or (left <= 0 and (last or not lost))
            last, found = found.lost, found._replace(lost=lost)
            if is_final or not str(found):
                return found
            self._sleep(min(pause, max(left, FIRST_PAUSE_SECONDS)))
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _compare(self, attempt: _Attempt, host: Row) -> ReadBack:
        before, sent = attempt.host or host, attempt.sent or {}
        return compare(attempt.row["hostname"], before, host, sent, self._inventory.account)

    def reason_to_stop(self) -> str | None:
        """Return what is wrong with the first writes, so that the run stops; None if nothing is."""
        found = [one for _, one in self._first]
        if any(one.lost for one in found):
            what = "one lost fields that were not sent"
        elif found and all(one.unseen for one in found):
            what = f"none was confirmed within {self._read_back_seconds:g} s (writes.read_back_seconds)"
        elif len(found) >= READ_BACK and all(one.ignored for one in found):
            what = "none set all that was sent"
        else:
            return None
        hosts = "; ".join(f"{host}: {one}" for host, one in self._first if str(one))
        return (
            f"{self._inventory.where} accepted {len(found)} writes, and {what}. Check these hosts there, "
            f"which may have lost fields: {hosts}. Check {self._inventory.how_written}"
        )

    def _read(self, row: Row, *, not_before: float | None = None) -> Row:
        """Read a host; if only lists can be read, list again if that was before `not_before`."""
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
        return host

    def _relist(self) -> None:
        began = self._clock()
        self._listed = self._inventory.listed_hosts()
        self._listed_at = began
