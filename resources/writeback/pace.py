"""How fast the writers of a run go.

If the service asks to wait (HTTP status 429, or any other with Retry-After), all writers of the run wait, go
on more slowly, and speed up a little with each accepted write.
"""

import time
from collections.abc import Callable
from threading import Lock

MIN_WAIT_SECONDS = 1.0  # where the service does not say how long; doubled until a write is accepted
MAX_WAIT_SECONDS = 60.0  # where the service does not say how long, and between two writes
MIN_INTERVAL_SECONDS = 0.02  # between two writes, after the first refusal; doubled with each further one
FASTER = 0.97  # of the interval, with each write that is accepted
GIVE_UP_SECONDS = 600.0
MAX_SLEEP_SECONDS = 1.0  # so that `stop` is heard


class Pace:
    """Says when the next write may begin; threads share it. Nothing waits before the first refusal."""

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
        self._interval = 0.0
        self._wait = MIN_WAIT_SECONDS
        self._next = self._slowed_down_at = clock()
        self._refused_since: float | None = None

    def wait(self) -> float | None:
        """Wait for this writer's turn; returns when it began, None when the writing has ended."""
        while True:
            with self._lock:
                if self._stopped:
                    return None
                now = self._clock()
                if now >= self._next:
                    self._next = now + self._interval
                    return now
                left = self._next - now
            self._sleep(min(left, MAX_SLEEP_SECONDS))

    def stop(self) -> None:
        """Stop: no further turn begins."""
        self._stopped = True

    def taken(self) -> None:
        """Go on a little faster: the service accepted a write."""
        with self._lock:
            self._refused_since = None
            self._wait = MIN_WAIT_SECONDS
            self._interval *= FASTER

    def refused(self, *, turn: float, retry_after: float | None) -> bool:
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
