"""The sandbox inventory as a running service: what the tests of clients and the checker of chaos rely on."""

import pytest

from resources.errors import ServiceError
from sandbox.inventory import InventoryService, InventoryState, totp_code
from tests.resources.inventory_world import ADMIN, HOSTS, TENANT, USERS, client


def test_the_code_is_the_one_of_the_standard():
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # RFC 6238, appendix B, its last six digits
    assert [totp_code(secret, at) for at in (59, 1111111109, 20000000000)] == ["287082", "081804", "353130"]


def test_the_journal_holds_every_change_and_nothing_else(tmp_path):
    with InventoryState(tmp_path / "state.json") as state, InventoryService(state) as service:
        state.reset([ADMIN], HOSTS, USERS, TENANT)
        with client(tmp_path, service.url) as inventory:
            for _ in range(2):
                inventory.write("h-1", {"owner": "u-1", "department": "Sales"})
            with pytest.raises(ServiceError):
                inventory.write("h-1", {"owner": "nobody", "department": "Sales"})
        state.set_field("h-1", "asset_owner", "u-1", by="helpdesk")
        entries = state.journal()
    assert [(one.seq, one.account, one.asset_id, one.field, one.old, one.new) for one in entries] == [
        (1, ADMIN.email, "h-1", "asset_owner", None, "u-1"),
        (2, ADMIN.email, "h-1", "department", None, "Sales"),
        (3, ADMIN.email, "h-1", "asset_owner", "u-1", "u-1"),
        (4, ADMIN.email, "h-1", "department", "Sales", "Sales"),
        (5, "helpdesk", "h-1", "asset_owner", "u-1", "u-1"),
    ]
    first, same, second, _, by_hand = (one.request_id for one in entries)
    assert first == same != second
    assert by_hand is None
