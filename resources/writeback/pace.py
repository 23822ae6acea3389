"""How fast writers go: together, as fast as the inventory lets them.

The service says that it is asked too much (HTTP status 429, or any other with Retry-After). Then all writers
of the run wait, go on more slowly, and speed up again a little with each write that is taken.
"""

import time
from collections.abc import Callable
from threading import Lock

MIN_WAIT_SECONDS = 1.0  # where the service does not say how long; doubled until a write is taken
MAX_WAIT_SECONDS = 60.0  # where the service does not say how long, and between two writes
SLOWER = 0.8  # of the rate, after a refusal
FASTER = 0.005  # of the rate, with each write that is taken
GIVE_UP_SECONDS = 600.0
MAX_SLEEP_SECONDS = 1.0  # so that `stop` is heard


class Pace:
    """When the next write may begin; several threads share it.

    Nothing is held back before the first refusal, which tells how much is too much: as many writes a second
    as were taken so far. From then on the rate is lowered with each refusal and raised with each write taken.

    Args:
        clock: seconds that only go forward.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._stopped = False
        self._began: float | None = None
        self._taken = self._taken_before = 0
        self._rate: float | None = None
        self._wait = MIN_WAIT_SECONDS
        self._next = self._slowed_down_at = clock()
        self._refused_since: float | None = None

    def wait(self) -> float | None:
        """Wait for this writer's turn; return when it began, None when there is none any more."""
        while True:
            with self._lock:
                if self._stopped:
                    return None
                now = self._clock()
                if now >= self._next:
                    self._began = now if self._began is None else self._began
                    self._next = now + (1 / self._rate if self._rate else 0.0)
                    return now
                left = self._next - now
            self._sleep(min(left, MAX_SLEEP_SECONDS))

    def stop(self) -> None:
        """Give nobody a turn any more."""
        self._stopped = True

    def taken(self) -> None:
        """Go on a little faster: the service did what it was asked."""
        with self._lock:
            self._refused_since = None
            self._wait = MIN_WAIT_SECONDS
            self._taken += 1
            if self._rate:
                self._rate *= 1 + FASTER

    def refused(self, *, turn: float, retry_after: float | None) -> bool:
        """Let all writers wait as asked and go on more slowly; return whether to go on makes sense at all.

        Args:
            turn: when the refused writer's turn began, from `wait`. Refusals of turns before the last slowing
                down say nothing new.
            retry_after: the wait that the service asked for, in seconds.
        """
        with self._lock:
            now = self._clock()
            self._refused_since = now if self._refused_since is None else self._refused_since
            if turn >= self._slowed_down_at:
                self._slowed_down_at = now
                self._slow_down(now)
                self._next = max(self._next, now + self._wait)
            asked = retry_after or 0.0
            self._next = max(self._next, now + min(asked, GIVE_UP_SECONDS))
            return now + asked - self._refused_since < GIVE_UP_SECONDS

    def _slow_down(self, now: float) -> None:
        if self._rate is None:
            began = now if self._began is None else self._began
            self._rate = max(self._taken, 1) / max(now - began, 1.0)
        elif self._taken > self._taken_before:
            self._rate = max(SLOWER * self._rate, 1 / MAX_WAIT_SECONDS)
        else:  # the wait was too short; that says nothing about the rate
            self._wait = min(2 * self._wait, MAX_WAIT_SECONDS)
        self._taken_before = self._taken
