"""One writer at a time for each target, whatever the instance, the home or the user (rules 7.9)."""

import errno
import hashlib
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from resources.errors import AssetOwnersError
from resources.settings import Platform
from resources.writeback.journal import Journal

TIMEOUT_SECONDS = 600
SECONDS_BETWEEN_TRIES = 0.2


@contextmanager
def one_writer(
    platform: Platform, journal: Journal, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Generator[None]:
    """Keep other writers from the platform's tenant; a process that dies lets them in.

    Those of this machine are kept away, and until the journal is closed those of machines that share it.

    Raises:
        AssetOwnersError: somebody else has been writing for `timeout_seconds`.
    """
    name = hashlib.sha256(f"{platform.address} {platform.tenant_id}".encode()).hexdigest()[:32]
    deadline = time.monotonic() + timeout_seconds

    def wait_until(claimed: Callable[[], bool]) -> None:
        while not claimed():
            if time.monotonic() > deadline:
                holder = journal.holder(name)
                raise AssetOwnersError(
                    f"Another run{f', {holder},' if holder else ''} has been writing to {platform.address}, "
                    f"tenant {platform.tenant_id}, for {timeout_seconds:g} s; wait for its end and run again"
                )
            time.sleep(SECONDS_BETWEEN_TRIES)

    with ExitStack() as held:
        # Everybody waits for the machine first, then for the others, so that no two wait for each other.
        wait_until(lambda: _claimed(f"asset-owners-{name}", held))
        wait_until(lambda: journal.claim(name))
        yield


def _claimed(name: str, held: ExitStack) -> bool:
    """Take the name for this process unless another one has it."""
    if sys.platform == "linux":
        # A socket's name without a file: all users and homes of the machine share the names, no rights and no
        # leftovers are in the way, and the kernel gives the name back when the process ends.
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0{name}")
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        held.enter_context(claim)
        return True
    lock = FileLock(Path(tempfile.gettempdir()) / f"{name}.lock", timeout=0)
    try:
        held.enter_context(lock)
    except Timeout:
        return False
    return True
