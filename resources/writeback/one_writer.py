"""One writer at a time for each target, whatever the instance, the home or the user (rules 7.9)."""

import errno
import hashlib
import socket
import struct
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from resources.locks import locked, wait_until
from resources.settings import Platform
from resources.store.tables import Tables
from resources.writeback.journal import Journal
from resources.writeback.journals import open_journal

MOST_WAITING = 4096


@contextmanager
def only_writer(tables: Tables, platform: Platform, run_id: str | None = None) -> Generator[Journal]:
    """Open the journal while nobody else writes for the instance, or to its inventory, on any machine."""
    # Everybody waits for the instance first, then for the target, so that no two wait for each other.
    with tables.writing(run_id), open_journal(tables) as journal, one_writer(platform, journal):
        tables.require_own()  # again: another machine may have recorded its inventory meanwhile
        yield journal


@contextmanager
def one_writer(platform: Platform, journal: Journal) -> Generator[None]:
    """Keep other writers from the platform's tenant; a process that dies lets them in.

    Those of this machine are kept away, and until the journal is closed those of machines that share it.
    """
    place = f"{platform.address} {platform.tenant_id}".lower()  # to many services a UUID or path has no case
    key = hashlib.sha256(place.encode()).hexdigest()[:32]
    name, what = f"asset-owners-{key}", f"The writing to {platform.place}"
    with ExitStack() as held:
        # Everybody waits for the machine first, then for the others, so that no two wait for each other.
        if sys.platform == "linux":
            wait_until(lambda: _claimed(name, held), lambda: _holder(name), what)
        else:
            held.enter_context(locked(Path(tempfile.gettempdir()) / f"{name}.lock", what))
        wait_until(lambda: journal.claim(key), lambda: journal.holder(key), what)
        yield


def _claimed(name: str, held: ExitStack) -> bool:
    """Take the name for this process unless another one has it.

    A socket's name without a file: all users and homes of the machine share the names, no rights and no
    leftovers are in the way, and the kernel gives the name back when the process ends. Who listens is known.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0{name}")
        claim.listen(MOST_WAITING)
    except OSError as error:
        claim.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    held.enter_context(claim)
    return True


def _holder(name: str) -> str:
    """Who has the name, by the kernel's records."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1)
        try:
            asking.connect(f"\0{name}")
        except OSError:
            return (
                "a process that is no run of this version of asset-owners, and may be none at all "
                f"(`sudo ss -xap | grep {name}` shows it)"
            )
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return f"process {pid} of user {uid}"
