"""Death at a chosen instant, within this process: what would follow is left undone.

Instants are the moments before and after each step by which a run changes something or looks at a host:
storing a plan, intending, reading and writing a host, keeping an outcome, storing the rows, forgetting them.
What a process loses beside that (open files, locks, half a file) only a real kill shows.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import wraps

import pytest

from resources.inventory.client import AssetInventory
from resources.store.tables import Tables
from resources.writeback.journal import Journal

STEPS = [
    (Tables, "write"),
    (Tables, "append"),
    (Journal, "intend"),
    (Journal, "attempting"),
    (Journal, "sending"),
    (Journal, "complete"),
    (Journal, "delete"),
    (AssetInventory, "host"),
    (AssetInventory, "write"),
]


class KilledError(BaseException):
    """The end of the run; not an Exception, so that nothing takes it for a failure it could handle."""


class Lifetime:
    """Counts instants; from the last one on, each is a death: no thread of a dead process goes on."""

    def __init__(self, last: int | None) -> None:
        self.over = False
        self._left = last
        self._lock = threading.Lock()

    def pass_instant(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left -= 1
                self.over = self._left < 0
        if self.over:
            raise KilledError


@contextmanager
def dying_at(last: int | None) -> Generator[Lifetime]:
    """Whatever runs in the block dies after so many instants; None: not at all."""
    lifetime = Lifetime(last)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, _mortal(getattr(owner, name), lifetime))
        yield lifetime


def _mortal(step, lifetime):
    @wraps(step)
    def mortal(*args, **kwargs):
        lifetime.pass_instant()
        result = step(*args, **kwargs)
        lifetime.pass_instant()
        return result

    return mortal
