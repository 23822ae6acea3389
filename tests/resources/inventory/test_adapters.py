"""What a run needs of any inventory: ours, and the one of the recipe. Add another one to `INVENTORIES`."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from ownership.declaration import validated
from ownership.tables import InventoryHosts, InventoryUsers
from resources.errors import ServiceError, TransientError
from resources.inventory.adapter import Inventory
from resources.inventory.try_inventory import check_inventory
from tests.recipes import recipe
from tests.resources.http_stub import Reply, Stub
from tests.resources.inventory_world import ADMIN, TENANT

HOSTS = {"h-1": ("PC-1", None), "h/2": ("PC-2", "u-2"), "h-3": ("PC-3", None)}
OWNED = {"owner": "u-1"}


@contextmanager
def asset_inventory(request):
    service, log_in = (request.getfixturevalue(name) for name in ("service", "log_in"))
    hosts = [{"id": key, "search_agent_name": name, "asset_owner": who} for key, (name, who) in HOSTS.items()]
    users = [{"id": key, "user_email": f"{key}@corp.example"} for key in ("u-1", "u-2")]
    service.state.reset([ADMIN], hosts, users, TENANT)
    with log_in(ADMIN) as inventory:
        yield inventory


@contextmanager
def cmdb(_):
    hosts: dict[str, Any] = {key: {"id": key, "name": one[0], "owner": one[1]} for key, one in HOSTS.items()}
    users = [{"id": key, "mail": f"{key}@corp.example"} for key in ("u-1", "u-2")]

    def answer(request):
        if request.path in {"/hosts", "/users"}:
            return Reply(json.dumps([*hosts.values()] if request.path == "/hosts" else users).encode())
        found = hosts.get(request.path.removeprefix("/hosts/").replace("%2F", "/"))
        if found and request.method == "PATCH":
            found |= json.loads(request.body)
        return Reply(json.dumps(found).encode(), 200 if found else 404)

    with Stub(answer) as stub, recipe("Cmdb")(stub.url, "token") as inventory:
        yield inventory


INVENTORIES = [asset_inventory, cmdb]


@pytest.fixture(params=INVENTORIES, ids=lambda inventory: inventory.__name__)
def any_inventory(request):
    """An inventory with the hosts of `HOSTS` and some users, u-1 and u-2 among them."""
    with request.param(request) as inventory:
        yield inventory


def owners(inventory):
    return {row["host_id"]: row["owner_ids"] for row in inventory.hosts().iter_rows(named=True)}


def test_lists_are_whole_tables_and_a_host_is_read_as_it_is_listed(any_inventory: Inventory):
    began = datetime.now(UTC)
    any_inventory.probe()
    assert {one.what: one.state for one in check_inventory(any_inventory)}["connection"] == "ok"
    hosts = validated(InventoryHosts, any_inventory.hosts())
    users = validated(InventoryUsers, any_inventory.users())
    assert all((listed["listed_at"] >= began).all() for listed in (hosts, users))
    assert hosts["host_id"].to_list() == list(HOSTS)
    assert hosts.select("hostnames", "owner_ids").rows() == [
        ([name], [who] if who else []) for name, who in HOSTS.values()
    ]
    assert users.height == len(set(users["user_id"])) >= 2
    assert any_inventory.reads_single_hosts
    for row in hosts.drop("listed_at").iter_rows(named=True):
        read, listed = any_inventory.host(row["host_id"]), any_inventory.listed_hosts()[row["host_id"]]
        assert read.get("others") == listed.get("others")
        assert {name: (read[name], listed[name]) for name in row} == {name: (row[name],) * 2 for name in row}


def test_messages_can_name_the_inventory_and_its_settings(any_inventory: Inventory):
    named = any_inventory.where, any_inventory.how_read, any_inventory.how_written
    assert all(isinstance(text, str) and text for text in named)
    assert "owner" in any_inventory.takes
    assert {*any_inventory.takes} <= {"owner", "department", "criticality"}


def test_a_write_asks_right_before_sets_what_is_named_and_nothing_else(any_inventory: Inventory):
    asked = []
    for owner, shown in (("u-1", ["u-1"]), (None, []), ("u-2", ["u-2"]), ("", [])):
        before = dict(any_inventory.host("h-1"))
        any_inventory.write("h-1", {"owner": owner}, right_before=lambda: asked.append(owners(any_inventory)))
        assert dict(any_inventory.host("h-1")) == before | {"owner_ids": shown}
        assert owners(any_inventory) == {"h-1": shown, "h/2": ["u-2"], "h-3": []}
        assert asked.pop()["h-1"] == before["owner_ids"]
        assert asked == []


def test_what_is_raised_right_before_keeps_a_write_from_being_sent(any_inventory: Inventory):
    def refuse():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        any_inventory.write("h-1", OWNED, right_before=refuse)
    assert owners(any_inventory)["h-1"] == []


@pytest.mark.parametrize("method", ["host", "write"])
def test_a_host_that_does_not_exist_is_an_error_that_says_so(any_inventory: Inventory, method):
    arguments = {"values": OWNED, "right_before": lambda: None} if method == "write" else {}
    with pytest.raises(ServiceError) as raised:
        getattr(any_inventory, method)("h-404", **arguments)
    assert not isinstance(raised.value, TransientError)


def test_threads_share_an_inventory(any_inventory: Inventory):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda key: any_inventory.write(key, OWNED, right_before=lambda: None), ["h-1", "h-3"]))
    assert owners(any_inventory) == {"h-1": ["u-1"], "h/2": ["u-2"], "h-3": ["u-1"]}
