"""The soak's own checker finds what it is there to find."""

import pytest

from resources.store.tables import Tables
from sandbox.inventory import InventoryState
from sandbox.inventory_database import Origin
from tests.chaos.books import Books
from tests.chaos.surroundings import UPDATE
from tests.end_to_end.stand import ADMIN, TENANT
from tests.resources.store.test_tables import writes


@pytest.fixture
def books(tmp_path):
    tables = Tables(tmp_path, "small")
    tables.prepare()
    with InventoryState(tmp_path / "inventory.sqlite") as state:
        state.reset(
            [ADMIN], [{"id": "a", "asset_owner": None}, {"id": "b", "asset_owner": "bob"}], [], TENANT
        )
        yield Books(state, tables, frozenset({"earlier"}))


def send(books, host, owner, number=1):
    books.state.update_asset(host, {"asset_owner": owner}, Origin("us", UPDATE, f"request-{number}"))


def found(books):
    books.look_at_requests(1)
    books.compare(1)
    return len(books.overwritten), len(books.repeated), len(books.unaccounted)


def test_a_request_and_its_row_balance(books):
    send(books, "a", "u-1")
    books.tables.append("owner_writes", writes("a", "written", "run"), run_id="run")
    books.tables.append("owner_writes", writes("b", "written", "earlier"), run_id="earlier")
    assert found(books) == (0, 0, 0)
    assert found(books) == (0, 0, 0), "each is compared once"


def test_what_a_person_sets_is_no_request(books):
    books.state.set_field("b", "asset_owner", "ann")
    assert found(books) == (0, 0, 0)


def test_a_request_without_a_row_and_a_row_without_a_request_are_unaccounted(books):
    send(books, "a", "u-1")
    assert found(books) == (0, 0, 1)
    books.tables.append("owner_writes", writes("a", "written", "run"), run_id="run")
    assert found(books) == (0, 0, 2)


def test_a_row_that_stays_open_is_unaccounted(books):
    books.tables.append("owner_writes", writes("a", "intended", "run"), run_id="run")
    assert found(books) == (0, 0, 1)


def test_an_owner_who_is_replaced_or_sent_again_is_found(books):
    send(books, "b", "u-1")
    assert found(books)[:2] == (1, 0)
    send(books, "b", "u-1", 2)
    assert found(books)[:2] == (1, 1)
