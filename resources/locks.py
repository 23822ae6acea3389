"""Locks between processes. A process that waits logs who holds the lock, and times out."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from resources.errors import AssetOwnersError
from resources.watchdog import made_progress

TIMEOUT_SECONDS = 600
WARN_SECONDS = 5
SECONDS_BETWEEN_TRIES = 0.05

log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, what: str, *, run_id: str | None = None) -> Generator[None]:
    """Hold the lock of a file, whose text names the holder; a process that dies frees it."""
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
