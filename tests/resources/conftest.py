"""A home of their own, and a ledger in both of its places: the file of an instance, and a database."""

import pytest

from resources.ledger.ledger import Ledger
from resources.ledger.postgres import PostgresLedger
from tests.resources.fake_search import FakeSearch


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    """Codes that were used are remembered in the home; the search service's password is not ASCII."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SEARCH_PASSWORD", "pass wörd")


@pytest.fixture
def search_service():
    """A search service over documents in memory."""
    with FakeSearch() as service:
        yield service


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
