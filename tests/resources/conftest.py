"""A home of their own, and a ledger in both of its places: the file of an instance, and a database."""

import pytest

from resources.ledger.ledger import Ledger
from resources.ledger.postgres import PostgresLedger


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    """Codes that were used are remembered in the home."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))


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
