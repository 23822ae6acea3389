"""What is a test's own: a home, both services, and a ledger in the file of an instance and in a database."""

from contextlib import contextmanager

import pytest

from resources.ledger.ledger import Ledger
from resources.ledger.postgres import PostgresLedger
from tests.resources.clock import Clock
from tests.resources.fake_search import FakeSearch
from tests.resources.http_stub import Stub, envelope
from tests.resources.inventory_world import ADMIN, client


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
def clock():
    return Clock()


@pytest.fixture
def served(tmp_path, clock):
    """Opens a stub, with its client, that answers as a function says, or gives a reply to all but log-ins."""

    @contextmanager
    def served(answer, account=ADMIN, **changes):
        def reply(request):
            if callable(answer):
                return answer(request)
            return envelope() if request.path.endswith("login") else answer

        with Stub(reply) as stub, client(tmp_path, stub.url, account, clock=clock, **changes) as inventory:
            yield stub, inventory

    return served


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
