"""Changes of the sandbox inventory's assets, and the journal of them, over real HTTP."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import requests

from sandbox.inventory import InventoryState
from tests.sandbox.inventory_samples import ADMIN, CODED, HOSTS, NOON, READER, SECRET, TENANT, Client


@pytest.mark.parametrize(
    ("asset_id", "form", "expected"),
    [
        ("h-1", {"asset_owner": "u-1"}, {"asset_owner": "u-1"}),
        ("h-1", {"asset_owner": "17"}, {"asset_owner": 17}),
        ("h-7", {"asset_owner": ""}, {"asset_owner": None}),
        ("h-1", {"asset_owner": ["u-1", "17"]}, {"asset_owner": ["u-1", 17]}),
        (
            "h-1",
            {"criticality": "high", "department": "Förderung & Co"},
            {"criticality": "high", "department": "Förderung & Co"},
        ),
        ("h-1", {"search_agent_name": ["A", "B"]}, {"search_agent_name": ["A", "B"]}),
        ("h-1", {"os": "Linux"}, {"os": "Linux"}),
        (
            "17",
            {"user_department": "", "criticality": "low"},
            {"user_department": None, "criticality": "low"},
        ),
    ],
)
def test_an_update_sets_what_was_sent_and_leaves_the_rest(admin, state, asset_id, form, expected):
    before = state.asset(asset_id)
    answer = admin.call("assets/update", tenant_id=TENANT, id=asset_id, **form)
    assert answer == {"status": True, "message": None, "data": before | expected}
    assert state.asset(asset_id) == before | expected
    assert admin.call("assets/get", tenant_id=TENANT, id=asset_id)["data"] == before | expected


def test_the_journal_holds_every_change_and_nothing_else(service, state, state_path):
    client = Client(service).log_in(ADMIN)
    update = {"tenant_id": TENANT, "id": "h-1", "asset_owner": "u-1", "department": "Sales"}
    request_ids = [client.post("assets/update", data=update).headers["X-Request-ID"] for _ in range(2)]
    client.call("assets/get", tenant_id=TENANT, id="h-1")
    client.call("assets/update", tenant_id=TENANT, id="h-1", asset_owner="nobody")
    Client(service).log_in(READER).call("assets/update", **update)
    state.set_field("h-2", "asset_owner", "u-1", by="helpdesk")
    path = "/api/v1/assets/update"
    assert [
        (
            entry.seq,
            entry.account,
            entry.path,
            entry.asset_id,
            entry.field,
            entry.old,
            entry.new,
            entry.request_id,
        )
        for entry in state.journal()
    ] == [
        (1, ADMIN.email, path, "h-1", "asset_owner", None, "u-1", request_ids[0]),
        (2, ADMIN.email, path, "h-1", "department", None, "Sales", request_ids[0]),
        (3, ADMIN.email, path, "h-1", "asset_owner", "u-1", "u-1", request_ids[1]),
        (4, ADMIN.email, path, "h-1", "department", "Sales", "Sales", request_ids[1]),
        (5, "helpdesk", None, "h-2", "asset_owner", None, "u-1", None),
    ]
    assert request_ids[0] != request_ids[1]
    assert {entry.at for entry in state.journal()} == {datetime.fromtimestamp(NOON, UTC)}
    with contextlib.closing(sqlite3.connect(state_path)) as file:
        assert file.execute("select count(*), max(seq) from journal").fetchone() == (5, 5)


def test_eight_clients_at_once_lose_no_change(service, state):
    state.add_assets(TENANT, "host", [{"id": f"n-{number}", "asset_owner": None} for number in range(200)])
    client = Client(service).log_in(ADMIN)
    cookies = client.session.cookies.get_dict()

    def own(number):
        form = {"tenant_id": TENANT, "id": f"n-{number}", "asset_owner": "u-1"}
        return requests.post(client.base + "assets/update", data=form, cookies=cookies, timeout=10).json()[
            "status"
        ]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(own, range(200)))
    assert sorted(entry.asset_id for entry in state.journal()) == sorted(
        f"n-{number}" for number in range(200)
    )
    assert all(host["asset_owner"] == "u-1" for host in state.assets("host") if host["id"].startswith("n-"))


def test_a_change_made_through_another_connection_is_seen_at_once(admin, state_path):
    with InventoryState(state_path) as other:
        other.set_field("h-3", "asset_owner", "u-1")
    assert admin.call("assets/get", tenant_id=TENANT, id="h-3")["data"]["asset_owner"] == "u-1"


def test_changes_through_two_connections_at_once_follow_one_another(state, state_path):
    def rename(which, number):
        which.set_field("h-1", "department", f"{id(which)}-{number}")

    with InventoryState(state_path) as other, ThreadPoolExecutor(2) as pool:
        list(pool.map(rename, [state, other] * 50, range(100)))
    values = [(entry.old, entry.new) for entry in state.journal()]
    assert len(values) == 100
    assert [old for old, _ in values] == [None] + [new for _, new in values[:-1]]


def test_an_asset_that_does_not_exist_cannot_be_set_by_hand(state):
    with pytest.raises(KeyError, match="h-99"):
        state.set_field("h-99", "asset_owner", "u-1")
    assert state.journal() == []


def test_a_removed_asset_is_gone_and_the_others_keep_their_order(admin, state):
    state.remove_asset("h-2")
    with pytest.raises(KeyError, match="h-2"):
        state.asset("h-2")
    listed = admin.call("assets/list", tenant_id=TENANT, type="host")["data"]
    left = [host["id"] for host in HOSTS if host["id"] != "h-2"]
    assert listed["size"] == len(left)
    assert [host["id"] for host in listed["data"]] == left
    state.add_assets(TENANT, "host", [{"id": "h-new"}])
    assert [host["id"] for host in state.assets("host")] == [*left, "h-new"]
    with pytest.raises(KeyError, match="h-99"):
        state.remove_asset("h-99")


def test_a_reset_forgets_what_was_before(admin, state):
    admin.call("assets/update", tenant_id=TENANT, id="h-1", asset_owner="u-1")
    state.reset([ADMIN], HOSTS[:2], [], TENANT)
    assert (state.assets("host"), state.assets("user"), state.journal()) == (HOSTS[:2], [], [])
    assert admin.get("profile/me").status_code == 401


@pytest.mark.usefixtures("state")
def test_no_password_lies_in_the_file_or_in_an_accounts_text(state_path):
    kept = b"".join(path.read_bytes() for path in state_path.parent.iterdir())
    assert ADMIN.email.encode() in kept
    assert ADMIN.password.encode() not in kept
    assert CODED.password not in repr(CODED)
    assert SECRET not in repr(CODED)
