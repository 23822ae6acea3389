"""A writer in memory."""

import pytest

from resources.writeback.writer import Writer
from tests.resources.writeback.world import FakeInventory


@pytest.fixture
def inventory():
    return FakeInventory()


@pytest.fixture
def writer(inventory, ledger, clock):
    return Writer(inventory, ledger, clock=clock, sleep=clock.sleep)
