"""One run at a time writes to a target, whatever its instance, home or user (rules 7.9)."""

import errno
import hashlib
import logging
import socket
import struct
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from resources.ledger import has_shared_ledger
from resources.ledger.ledger import Ledger
from resources.locks import hold_lock, wait_until
from resources.settings import Platform, home, journal_url
from resources.store.tables import Tables

log = logging.getLogger(__name__)
MOST_WAITING = 4096


@contextmanager
def locked_ledger(tables: Tables, platform: Platform, run_id: str | None = None) -> Generator[Ledger]:
    """Open the ledger while nobody else writes for the instance, or to its inventory, on any machine."""
    # Everybody takes the locks in this order, so that no two wait for each other.
    with tables.writing(run_id), tables.ledger() as ledger, target_lock(platform, ledger):
        tables.require_own()  # again: another machine may have recorded its inventory meanwhile
        if not journal_url() and has_shared_ledger(tables.folder):
            log.warning(
                "ASSET_OWNERS_JOURNAL is not set, and earlier runs of this instance kept their ledger in a "
                "database: writes that are pending there are not settled, and other machines are not kept "
                "from writing at the same time"
            )
        yield ledger


@contextmanager
def target_lock(platform: Platform, ledger: Ledger) -> Generator[None]:
    """Keep out other runs on the tenant: on this machine, with this home, and on those with this ledger."""
    # To many services a UUID or path has no case.
    key = hashlib.sha256(platform.key.lower().encode()).hexdigest()[:32]
    name, what = f"asset-owners-{key}", f"The writing to {platform.place}"
    with ExitStack() as held:
        # All users see a socket without a file; a service has its own /tmp, and a file has its rights.
        if sys.platform == "linux":
            wait_until(lambda: _is_bound(name, held), lambda: _holder(name), what)
        else:
            held.enter_context(hold_lock(Path(tempfile.gettempdir()) / f"{name}.lock", what))
        ledger.lock(key, what)
        with suppress(OSError):  # a home that this user may not write, or none
            held.enter_context(hold_lock(home() / f".{name}.lock", what))  # also in another container
        yield


def _is_bound(name: str, held: ExitStack) -> bool:
    """Bind the name to this process, unless another one has it; it listens, so that `_holder` can ask."""
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(f"\0{name}")
        bound.listen(MOST_WAITING)
    except OSError as error:
        bound.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    held.enter_context(bound)
    return True


def _holder(name: str) -> str:
    """Return which process has the name, by the kernel's records."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1)
        try:
            asking.connect(f"\0{name}")
        except OSError:
            return f"another program, or another version of this one (`sudo ss -xap | grep {name}` shows it)"
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return f"process {pid} of user {uid}"
