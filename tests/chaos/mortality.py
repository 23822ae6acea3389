"""Death at a chosen instant, within this process: what would follow is left undone.

Instants are the moments before and after each step by which a run changes something or reads a host:
storing a plan, intending, reading and writing a host, keeping an outcome, storing the rows, forgetting them.
What a process loses beside that (open files, locks, half a file) only a real kill shows.
"""

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from functools import wraps

import pytest

from resources.inventory.client import AssetInventory
from resources.ledger.ledger import Ledger
from resources.store.tables import Tables

STEPS = [
    (Tables, "write"),
    (Tables, "append"),
    (Ledger, "intend"),
    (Ledger, "mark_attempted"),
    (Ledger, "complete"),
    (AssetInventory, "host"),
    (AssetInventory, "write"),
]


class KilledError(BaseException):
    """The end of the run; not an Exception, so that nothing takes it for a failure it could handle."""


@contextmanager
def dying_at(last: int | None) -> Generator[None]:
    """Whatever runs in the block dies after so many instants, all its threads; None: not at all."""
    passed = itertools.count()

    def pass_instant():
        if last is not None and next(passed) >= last:
            raise KilledError

    def mortal(step):
        @wraps(step)
        def called(*args, **kwargs):
            pass_instant()
            result = step(*args, **kwargs)
            pass_instant()
            return result

        return called

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, mortal(getattr(owner, name)))
        yield
