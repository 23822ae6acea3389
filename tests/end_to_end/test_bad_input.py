"""Whatever may be wrong with settings, services or data is told; nothing is written, nothing is lost."""

import json

import pytest
from starlette.responses import JSONResponse

from sandbox.inventory_api import ASSETS_LIST
from tests.end_to_end.stand import (
    HOSTS,
    USERS,
    WRITTEN,
    logons,
    small_company,
)

pytestmark = pytest.mark.slow


def wrong_password(stand):
    (stand.home / "a-secret").write_text("hunter2")
    return {"platform": {"password": {"file": "a-secret"}}}


def a_list_with_gaps(stand):
    def lengthen(request, response):
        if request.url.path != ASSETS_LIST:
            return None
        body = json.loads(response.body)
        body["data"]["size"] += 1
        return JSONResponse(body)

    stand.inventory.hooks.after = lengthen
    return {}


def many_odd_owners(stand):
    odd = [{"id": f"x-{n}", "asset_owner": {"id": "hunter2"} if n < 12 else None} for n in range(100)]
    stand.begin([*HOSTS, *odd], USERS)
    return {}


@pytest.mark.parametrize(
    ("arrange", "words", "status"),
    [
        (wrong_password, ["platform.password"], 1),
        (a_list_with_gaps, ["a list with gaps"], 1),
        (many_odd_owners, ["12 of the 104 hosts", "platform_user_field", "platform.contract", "x-0"], 1),
        (lambda _: {"password": "hunter2"}, ["password", "{env: VARIABLE}"], 2),
        (lambda _: {"scan": {"lookback_dys": 3}}, ["lookback_dys", "'lookback_days'"], 2),
    ],
)
def test_is_told_and_changes_nothing(seeded, arrange, words, status):
    before = seeded.published()
    ran = seeded.run(arrange(seeded))
    error = ran.report["error"]
    assert ran.status == status, ran.stderr
    assert [word for word in words if word not in error] == [], error
    assert f"asset-owners: {error}" in ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr
    keys = {"run_id", "instance", "window", "decisions", "writes", "conflicts", "dry_run", "error"}
    assert (ran.report["writes"], set(ran.report) - keys) == ({}, set())
    assert seeded.inventory.state.journal() == []
    assert seeded.published() == before


def odd_company(stand):
    """The small company with an owner, a name and a user that cannot be read."""
    stand.begin(
        [
            *HOSTS,
            {"id": "h-5", "search_agent_name": "PC-5", "asset_owner": {"id": "ann", "note": "hunter2"}},
            {"id": "h-6", "search_agent_name": {"name": "hunter2"}, "asset_owner": "cyd"},
            {"id": "h-7", "search_agent_name": "PC-7", "department": ["hunter2", "b"]},
            {"id": "h-8", "search_agent_name": "PC-8"},
        ],
        [
            *USERS,
            {"id": "dan", "user_email": [{"work": "hunter2"}], "directory_user_sam_account_name": "eve"},
        ],
    )
    day = small_company()[0].at
    odd = [
        *logons("pc-5", "ann", 3, at=day),
        *logons("pc-7", "ann", 3, at=day),
        *logons("pc-8", "eve", at=day),
    ]
    return {"index": stand.load([*small_company(), *odd], "logs-odd-assets")}


@pytest.mark.parametrize("contract", [{}, {"read": None}], ids=["read", "list"])
def test_odd_assets_stop_nothing_and_nothing_is_written_to_them(seeded, contract):
    changes = odd_company(seeded) | {"platform": {"contract": contract}}
    ran = seeded.run(changes)
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert seeded.written() == WRITTEN
    rows = {row["host_id"]: row for row in seeded.tables.read("owner_decisions").collect().to_dicts()}
    told = ("hostname", "evidence", "match", "action", "existing_owner", "total_events")
    assert {
        host_id: tuple(rows[host_id][name] for name in told) for host_id in ("h-5", "h-6", "h-7", "h-8")
    } == {
        "h-5": ("pc-5", "unreadable_asset", None, "none", None, 3),
        "h-6": (None, "unreadable_asset", None, "none", "cyd", 0),
        "h-7": ("pc-7", "unreadable_asset", None, "none", None, 3),
        "h-8": ("pc-8", "single_user", "ambiguous_user", "none", None, 1),
    }
    assert None not in rows, "no logon is without a host"
    assert rows["h-8"]["candidate_ids"] == ["dan"]
    assert "asset_owner holds a dict" in rows["h-5"]["problem"]
    assert "search_agent_name holds a dict" in rows["h-6"]["problem"]
    assert "department holds a list" in rows["h-7"]["problem"]
    assert rows["h-1"]["problem"] is None
    assert "hosts_are_readable: 3 of 8 host assets cannot be read" in ran.stderr
    assert "users_are_readable: 1 of 4 user assets cannot be read" in ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr + json.dumps(rows, default=str)
