"""How fast writers go: together, as fast as the inventory lets them.

The service says that it is asked too much (HTTP status 429, or 503 with Retry-After). Then all writers of the
run wait, go on more slowly, and speed up again a little with each write that is taken.
"""

import time
from collections.abc import Callable
from threading import Lock

SLOWEST_SECONDS = 60.0  # between two writes, and the longest wait that is kept
FIRST_SECONDS = 0.05  # between two writes after the first refusal
SPEED_UP = 0.95  # of the time between two writes, after each write that was taken
GIVE_UP_SECONDS = 600.0


class Pace:
    """When the next write may begin; several threads share it.

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
        self._seconds_between = 0.0
        self._next = clock()
        self._slowed_down_at = clock()
        self._refused_since: float | None = None

    def wait(self) -> float:
        """Wait for this writer's turn; return when it began."""
        with self._lock:
            now = self._clock()
            begin = max(now, self._next)
            self._next = begin + self._seconds_between
        if begin > now:
            self._sleep(begin - now)
        return begin

    def taken(self) -> None:
        """Go on a little faster: the service did what it was asked."""
        with self._lock:
            self._refused_since = None
            faster = self._seconds_between * SPEED_UP
            self._seconds_between = faster if faster >= FIRST_SECONDS / 4 else 0.0

    def refused(self, *, turn: float, retry_after: float | None) -> bool:
        """Let all writers wait and go on more slowly; return whether it is worth while to go on at all.

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
                self._seconds_between = min(max(2 * self._seconds_between, FIRST_SECONDS), SLOWEST_SECONDS)
            wait = max(1.0, self._seconds_between) if retry_after is None else retry_after
            self._next = max(self._next, now + min(wait, SLOWEST_SECONDS))
            return now - self._refused_since < GIVE_UP_SECONDS
