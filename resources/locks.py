"""Locks between processes, and the end of a process that makes no progress, such as while it holds one.

A process that waits for a lock logs who holds it, and times out. One that hangs in a library ends itself: its
locks become free, Dagster notices that the run has died, and the next run settles its pending writes.
"""

import faulthandler
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from resources.errors import AssetOwnersError
from resources.settings.environment import stuck_seconds

_lock = Lock()
_watched = 0


@contextmanager
def end_if_stuck() -> Generator[None]:
    """End this process, and log all stacks, if the work makes no progress for `stuck_seconds`."""
    made_progress(entered=1)
    try:
        yield
    finally:
        made_progress(entered=-1)


def made_progress(*, entered: int = 0) -> None:
    """Restart the timer of watched work, if there is any; only `end_if_stuck` sets `entered`."""
    global _watched  # noqa: PLW0603  (a process has one such timer)
    with _lock:
        watched = _watched + entered
        if watched:  # in a thread outside Python, which works while the interpreter is locked
            faulthandler.dump_traceback_later(stuck_seconds(), exit=True, file=2)
        elif entered:
            faulthandler.cancel_dump_traceback_later()
        _watched = watched


TIMEOUT_SECONDS = 600
WARN_SECONDS = 5
SECONDS_BETWEEN_TRIES = 0.05

log = logging.getLogger(__name__)


@contextmanager
def hold_lock(path: Path, what: str, *, run_id: str | None = None) -> Generator[None]:
    """Hold the lock of a file of its own, whose text becomes the holder; a process that dies frees it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        wait_until(lambda: _try_lock(descriptor), lambda: path.read_text("utf-8", "replace"), what)
        if not os.fstat(descriptor).st_nlink:
            raise AssetOwnersError(f"{what}: deleted meanwhile, such as by `remove`; nothing was done")
        run = f", run {run_id}" if run_id else ""
        holder = f"process {os.getpid()} of user {os.geteuid()} on {socket.gethostname()}{run}"
        with suppress(OSError):  # on a full disk the lock still works
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder}, since {datetime.now(UTC):%F %T} UTC".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def wait_until(taken: Callable[[], bool], holder: Callable[[], str | None], what: str) -> None:
    """Call `taken` until it returns True; warn once who holds the lock, and fail after the time-out."""
    began, warned = time.monotonic(), False
    while not taken():
        waited = time.monotonic() - began
        if waited >= TIMEOUT_SECONDS:
            raise AssetOwnersError(
                f"{what}: held by {holder() or 'another process'}, and this process has waited for "
                f"{TIMEOUT_SECONDS:g} s. Wait until that one ends, or stop it if it hangs, and run again"
            )
        if waited >= WARN_SECONDS and not warned:
            warned = True
            text = f"{what}: waiting for {holder() or 'another process'}, for {TIMEOUT_SECONDS:g} s at most"
            log.warning(text, extra={"waits": True})
        time.sleep(SECONDS_BETWEEN_TRIES)
    made_progress()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
