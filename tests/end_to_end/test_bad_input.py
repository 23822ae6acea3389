"""Whatever may be wrong with settings, services or data is told; nothing is written, nothing is lost."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory_api import ASSETS_LIST, envelope
from tests.end_to_end.stand import (
    HOSTS,
    USERS,
    WRITTEN,
    Stand,
    logons,
    small_company,
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """What is wrong: changes of the instance file, and what else has to be arranged; words of the message."""

    words: list[str]
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arrange: Callable[[Stand], Mapping[str, Any] | None] = lambda _: None
    status: int = 1


def answering(path: str, answer: Callable[[Any], Any]) -> Callable[[Stand], None]:
    """Let the inventory service give the answers of one path as `answer` makes them of the envelope."""

    def arrange(stand):
        def changed(request, response):
            if request.url.path != path:
                return None
            made = answer(json.loads(response.body))
            return made if isinstance(made, HTMLResponse) else JSONResponse(made)

        stand.inventory.hooks.after = changed

    return arrange


def with_list(change: Callable[[dict[str, Any]], None]) -> Callable[[Stand], None]:
    def answer(body):
        change(body["data"])
        return body

    return answering(ASSETS_LIST, answer)


def with_assets(hosts=(), users=()) -> Callable[[Stand], None]:
    return lambda stand: stand.begin([*HOSTS, *hosts], [*USERS, *users])


def wrong_password(stand):
    (stand.home / "a-secret").write_text("wrong one")
    return {"platform": {"password": {"file": "a-secret"}}}


CASES = {
    "inventory: wrong password": Case(["platform.password"], arrange=wrong_password),
    "inventory: nobody listens": Case(["platform.url"], {"platform": {"url": "http://127.0.0.1:9"}}),
    "inventory: HTML": Case(
        ["platform.url", "Sign in"],
        arrange=answering(ASSETS_LIST, lambda _: HTMLResponse("<title>Sign in</title>")),
    ),
    "inventory: status false at 200": Case(
        [ASSETS_LIST, "Come back tomorrow."],
        arrange=answering(ASSETS_LIST, lambda _: envelope(status=False, message="Come back tomorrow.")),
    ),
    "inventory: a list that never completes": Case(
        ["a list with gaps"], arrange=with_list(lambda payload: payload.update(size=payload["size"] + 1))
    ),
    "inventory: no such path": Case(
        ["404", "platform.contract.hosts.path"], {"platform": {"contract": {"hosts": {"path": "/nowhere"}}}}
    ),
    "assets: many owners are objects": Case(
        ["12 of the 104 hosts", "platform_user_field", "platform.contract", "x-0"],
        arrange=with_assets(
            [{"id": f"x-{n}", "asset_owner": {"id": "hunter2"} if n < 12 else None} for n in range(100)]
        ),
    ),
    "file: unknown key": Case(["lookback_dys", "'lookback_days'"], {"scan": {"lookback_dys": 3}}, status=2),
    "file: clear-text secret": Case(["password", "{env: VARIABLE}"], {"password": "hunter2"}, status=2),
    "file: secret not set": Case(["password", "NOT_SET"], {"password": {"env": "NOT_SET"}}, status=2),
}


def assert_nothing_happened(stand, before):
    assert stand.inventory.state.journal() == []
    assert stand.published() == before


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_is_told_and_changes_nothing(seeded, case):
    before = seeded.published()
    changes = {**case.changes, **(case.arrange(seeded) or {})}
    ran = seeded.run(changes)
    assert ran.status == case.status, ran.stderr
    error = ran.report["error"]
    assert [word for word in case.words if word not in error] == [], error
    assert f"asset-owners: {error}" in ran.stderr
    assert "hunter2" not in ran.stdout + ran.stderr
    assert ran.report["writes"] == {}
    assert_nothing_happened(seeded, before)


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


def test_owners_that_do_not_stay_are_told_by_the_next_run(stand):
    assert stand.run().report["writes"] == {"written": 2}
    assert "written_owners_hold" not in stand.run().stderr
    stand.inventory.state.set_field("h-1", "asset_owner", "cyd")
    stand.inventory.state.set_field("h-2", "asset_owner", "")
    ran = stand.run()
    assert ran.status == 0, ran.stderr
    assert "written_owners_hold: Of the hosts whose owner an earlier run wrote, 1 have none" in ran.stderr
    assert "now and 1 have another" in ran.stderr
