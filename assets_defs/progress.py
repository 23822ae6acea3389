"""Log lines of a long step: how far it is, how fast, and how long it still takes."""

import time
from collections.abc import Callable
from datetime import timedelta

SECONDS_BETWEEN_LINES = 10


class Progress:
    """Call it with how many are done and how many there are; it logs every ten seconds, a short step never.

    `what` is counted, as the line begins: "Hosts written".
    """

    def __init__(
        self, log: Callable[[str], None], what: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._started = self._logged_at = clock()

    def __call__(self, done: int, total: int) -> None:
        """Log the progress, when it is time to."""
        now = self._clock()
        if now - self._logged_at < SECONDS_BETWEEN_LINES or not done:
            return
        self._logged_at = now
        rate = done / (now - self._started)
        self._log(
            f"{self._what}: {done:,} of {total:,} ({done / total:.0%}), {rate:,.1f} a second, "
            f"about {timedelta(seconds=round((total - done) / rate))} left"
        )
