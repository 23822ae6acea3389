"""A writer in memory, and a ledger in both of its places: the file of an instance, and a database."""

import pytest

from resources.ledger.ledger import Ledger
from resources.ledger.postgres import PostgresLedger
from resources.writeback.writer import Writer
from tests.resources.clock import Clock
from tests.resources.writeback.world import FakeInventory


@pytest.fixture
def inventory():
    return FakeInventory()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def writer(inventory, ledger, clock):
    return Writer(inventory, ledger, clock=clock, sleep=clock.sleep)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "instance" / "ledger.sqlite"


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.slow)])
def opened(request, path):
    """Opens the ledger, each time the same one."""
    if request.param == "file":
        return lambda: Ledger(path)
    url = request.getfixturevalue("postgres").new_database()
    return lambda: PostgresLedger(url, lambda: "corp")


@pytest.fixture
def ledger(opened):
    with opened() as ledger:
        yield ledger
