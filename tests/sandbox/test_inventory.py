"""The sandbox inventory as a running service: what the tests of clients and the checker of chaos rely on."""

import pytest
import requests

from sandbox.inventory import InventoryService, InventoryState, totp_code
from tests.resources.inventory_world import ADMIN, TENANT

USERS = [{"id": "u-1", "user_email": "jörg@corp.example"}, {"id": 17, "user_department": "IT"}]
HOSTS = [{"id": "h-1", "asset_owner": None, "department": None}, {"id": "h-2", "asset_owner": "u-1"}]


@pytest.fixture
def state(tmp_path):
    with InventoryState(tmp_path / "state.json") as state:
        state.reset([ADMIN], HOSTS, USERS, TENANT)
        yield state


@pytest.fixture
def call(state):
    """Calls the service as an administrator: path below /api/v1 and form; gives the envelope."""
    with InventoryService(state) as service, requests.Session() as session:

        def call(path, **form):
            answer = session.post(f"{service.url}/api/v1/{path}", data=form, timeout=10)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert call("auth/login", email=ADMIN.email, password=ADMIN.password)["status"]
        yield call


def test_the_code_is_the_one_of_the_standard():
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B, its last six digits
    assert [totp_code(secret, at) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]


def test_the_journal_holds_every_change_and_nothing_else(call, state):
    for owner in ("u-1", "u-1", "nobody"):
        call("assets/update", tenant_id=TENANT, id="h-1", asset_owner=owner, department="Sales")
    state.set_field("h-2", "asset_owner", "u-1", by="helpdesk")
    entries = state.journal()
    assert [(one.seq, one.account, one.asset_id, one.field, one.old, one.new) for one in entries] == [
        (1, ADMIN.email, "h-1", "asset_owner", None, "u-1"),
        (2, ADMIN.email, "h-1", "department", None, "Sales"),
        (3, ADMIN.email, "h-1", "asset_owner", "u-1", "u-1"),
        (4, ADMIN.email, "h-1", "department", "Sales", "Sales"),
        (5, "helpdesk", "h-2", "asset_owner", "u-1", "u-1"),
    ]
    first, same, second, _, by_hand = (one.request_id for one in entries)
    assert first == same != second
    assert by_hand is None
