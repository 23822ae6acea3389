"""Ends a process that makes no progress, such as one that hangs inside a library while it holds a lock.

The operating system frees its locks, Dagster notices that the run has died, and the next run settles what it
left pending.
"""

import faulthandler
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from resources.settings.environment import stuck_seconds

_STANDARD_ERROR = 2

_lock = Lock()
_watched = 0


@contextmanager
def watched() -> Generator[None]:
    """End this process, with all stacks in its log, if the work makes no progress for `stuck_seconds`."""
    _restart(entered=1)
    try:
        yield
    finally:
        _restart(entered=-1)


def made_progress() -> None:
    """Start the time of watched work anew; does nothing where none is watched."""
    _restart()


def _restart(*, entered: int = 0) -> None:
    global _watched  # noqa: PLW0603  (a process has one such timer)
    with _lock:
        watched = _watched + entered
        if watched:
            # By a thread of its own, outside Python: it needs no lock of the interpreter.
            faulthandler.dump_traceback_later(stuck_seconds(), exit=True, file=_STANDARD_ERROR)
        elif entered:
            faulthandler.cancel_dump_traceback_later()
        _watched = watched
