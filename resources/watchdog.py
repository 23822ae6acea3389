"""Ends a process that makes no progress, such as one that hangs in a library while it holds a lock.

This frees its locks, Dagster notices that the run has died, and the next run settles its pending writes.
"""

import faulthandler
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from resources.settings.environment import stuck_seconds

_lock = Lock()
_watched = 0


@contextmanager
def watched() -> Generator[None]:
    """End this process, and log all stacks, if the work makes no progress for `stuck_seconds`."""
    made_progress(entered=1)
    try:
        yield
    finally:
        made_progress(entered=-1)


def made_progress(*, entered: int = 0) -> None:
    """Restart the timer of watched work, if there is any; only `watched` sets `entered`."""
    global _watched  # noqa: PLW0603  (a process has one such timer)
    with _lock:
        watched = _watched + entered
        if watched:  # in a thread outside Python, which works while the interpreter is locked
            faulthandler.dump_traceback_later(stuck_seconds(), exit=True, file=2)
        elif entered:
            faulthandler.cancel_dump_traceback_later()
        _watched = watched
