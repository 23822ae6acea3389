"""Whatever may be wrong with settings, services or data is told; nothing is written, nothing is lost."""

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import trustme
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.company import MAPPING
from sandbox.inventory_api import ASSETS_LIST, envelope
from tests.end_to_end.stand import (
    CODED,
    HOSTS,
    SMALL_INDEX,
    TODAY,
    USERS,
    WRITTEN,
    Stand,
    documents,
    logons,
    small_company,
)
from tests.resources.http_stub import Reply, Stub

LOGIN_PAGE = "<!doctype html><title>Sign in</title>"


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


def without_id(payload):
    del payload["data"][-1]["id"]


def a_text_field(stand):
    mapping = copy.deepcopy(MAPPING)
    mapping["mappings"]["properties"]["user"]["properties"]["name"] = {"type": "text"}
    stand.engine.load("logs-bad-text", mapping, documents(small_company()))
    return {"index": "logs-bad-text"}


def text_in_one_index(stand):
    a_text_field(stand)
    stand.engine.load("logs-bad-keyword", MAPPING, documents(small_company()))
    return {"index": "logs-bad-text,logs-bad-keyword"}


def secret(stand, text):
    (stand.home / "a-secret").write_text(text)
    return {"file": "a-secret"}


def account(stand, **changes):
    password = CODED.password if changes.get("email") == CODED.email else "wrong one"
    return {"platform": {"password": secret(stand, password), **changes}}


def coded_with_another_secret(stand):
    (stand.home / "mfa").write_text("GEZDGNBVGY3TQOJQ")
    return account(stand, email=CODED.email, mfa_secret={"file": "mfa"})


CASES = {
    # The search service
    "search: wrong password": Case(
        ["log-in is refused by the search service", "check username and password"],
        arrange=lambda stand: {"password": secret(stand, "wrong")},
    ),
    "search: certificate not trusted": Case(
        ["The search service", "could not prove who it is", "Set ca_file"], {"ca_file": None}
    ),
    "search: nobody listens": Case(
        ["The search service", "did not answer", "check url and the network"], {"url": "https://127.0.0.1:9"}
    ),
    "search: no such index": Case(
        ["index: 'logs-nowhere' names an index", "does not have", "logs-*"], {"index": "logs-nowhere"}
    ),
    "search: an index outside the credential's pattern": Case(
        ["may not search other", "grant read", "view_index_metadata"], {"index": "other"}
    ),
    "search: no user in the documents": Case(
        ["user_field: none of the", "carries the field 'user.nmae'"], {"user_field": "user.nmae"}
    ),
    "search: no host in the documents": Case(
        ["hostname_field: none of the", "carries the field 'agent.host'"], {"hostname_field": "agent.host"}
    ),
    "search: text field": Case(
        ["user_field: 'user.name' is a text field", "'user.name.keyword'"], arrange=a_text_field
    ),
    "search: text field in one index": Case(
        [
            "user_field: 'user.name' is a text field in the index logs-bad-text, ",
            "leave that one out of index",
        ],
        arrange=text_in_one_index,
    ),
    "search: query that does not parse": Case(
        ["query: 'event.code:(4624' is refused"], {"query": "event.code:(4624"}
    ),
    "search: unknown query": Case(["query: ", "is refused", "matchh"], {"query": {"matchh": {"a": "b"}}}),
    # The inventory service
    "inventory: wrong password": Case(
        ["refused the log-in of", "platform.password", "The e-mail address or the password is wrong"],
        arrange=account,
    ),
    "inventory: code needed": Case(
        ["asks coded@corp.example for a verification code", "set platform.mfa_secret"],
        arrange=lambda stand: account(stand, email=CODED.email),
    ),
    "inventory: code refused": Case(
        ["refused two verification codes", "platform.mfa_secret", "clock"], arrange=coded_with_another_secret
    ),
    "inventory: unknown tenant": Case(
        ["tenant t-99", "platform.tenant_id", "You have no role in this tenant"],
        {"platform": {"tenant_id": "t-99"}},
    ),
    "inventory: nobody listens": Case(
        ["The inventory service", "did not answer", "check platform.url and the network"],
        {"platform": {"url": "http://127.0.0.1:9"}},
    ),
    "inventory: HTML": Case(
        ["no envelope", "platform.url must be the service itself", "Sign in"],
        arrange=answering(ASSETS_LIST, lambda _: HTMLResponse(LOGIN_PAGE)),
    ),
    "inventory: status false at 200": Case(
        ["refused /api/v1/assets/list", "Come back tomorrow."],
        arrange=answering(ASSETS_LIST, lambda _: envelope(status=False, message="Come back tomorrow.")),
    ),
    "inventory: a list that never completes": Case(
        ["announced", "distinct ones", "a list with gaps is not used"],
        arrange=with_list(lambda payload: payload.update(size=payload["size"] + 1)),
    ),
    "inventory: an item without id": Case(["an item that has no usable id"], arrange=with_list(without_id)),
    "inventory: no list": Case(
        ["no list of items", "platform.contract"], arrange=answering(ASSETS_LIST, lambda _: envelope([]))
    ),
    "inventory: no such path": Case(
        ["/api/v1/hosts with HTTP status 404; correct platform.contract.hosts.path. It said: "],
        {"platform": {"contract": {"hosts": {"path": "/api/v1/hosts"}}}},
    ),
    "inventory: no such path, HTML": Case(
        ["/api/v1/assets/list with HTTP status 404; correct platform.contract.", "said: <h1>Not Found"],
        arrange=answering(ASSETS_LIST, lambda _: HTMLResponse("<h1>Not Found</h1>", 404)),
    ),
    "inventory: fields elsewhere": Case(
        ["fields in 'attributes'", "platform.contract.fields_in"],
        {"platform": {"contract": {"fields_in": "attributes"}}},
    ),
    "assets: many owners are objects": Case(
        [
            "12 of the 104 hosts",
            "nothing was written",
            "Check platform_user_field, platform_hostname_field",
            "platform.contract",
            "x-0: its field asset_owner holds a dict",
        ],
        arrange=with_assets(
            [{"id": f"x-{n}", "asset_owner": {"id": "hunter2"} if n < 12 else None} for n in range(100)]
        ),
    ),
    "assets: many user values are objects": Case(
        [
            "12 of the 103 users",
            "nothing was written",
            "Check platform_user_value_field and platform.contract",
            "x-0: its field user_email holds a list",
        ],
        arrange=with_assets(
            users=[
                {"id": f"x-{n}", "user_email": [{"work": "hunter2"}] if n < 12 else ""} for n in range(100)
            ]
        ),
    ),
    # The instance file
    "file: unknown key": Case(
        ["lookback_dys: is an unknown key", "'lookback_days'"], {"scan": {"lookback_dys": 3}}, status=2
    ),
    "file: clear-text secret": Case(
        ["password: is not a secret's place", "{env: VARIABLE}", "{file: PATH}"],
        {"password": "hunter2"},
        status=2,
    ),
    "file: a cookie's name with a line break": Case(
        ["cookies: the name of cookie 1 may have letters"],
        {"cookies": {"team\nhunter2": {"env": "PATH"}}},
        status=2,
    ),
    "file: no time zone": Case(
        ["scan.timezone: 'Mars/Olympus' is no time zone", "Europe/Berlin"],
        {"scan": {"timezone": "Mars/Olympus"}},
        status=2,
    ),
    "file: secret not set": Case(
        ["password: the environment variable NOT_SET is not set"], {"password": {"env": "NOT_SET"}}, status=2
    ),
    "file: no TOTP secret": Case(
        ["platform.mfa_secret: is not a TOTP secret in base32"],
        arrange=lambda stand: {"platform": {"mfa_secret": secret(stand, "1808!")}},
    ),
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


@pytest.fixture
def certified_url(seeded, start):
    """An inventory service with a certificate, which `ca.pem` beside the instance file vouches for."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    pem, key = (seeded.home / name for name in ("server.pem", "server.key"))
    certificate.cert_chain_pems[0].write_to_path(pem)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(seeded.home / "ca.pem")
    return start(certificate=pem, private_key=key).url


def test_certificate_of_the_inventory_that_is_not_trusted(seeded, certified_url):
    before = seeded.published()
    ran = seeded.run({"platform": {"url": certified_url}})
    assert ran.status == 1
    assert "Set platform.ca_file to the authority that signed its certificate" in ran.report["error"]
    assert_nothing_happened(seeded, before)
    ran = seeded.run({"platform": {"url": certified_url, "ca_file": "ca.pem"}})
    assert (ran.status, seeded.written()) == (0, WRITTEN), ran.stderr


def test_certificates_go_unchecked_on_request_and_the_log_says_so(seeded, certified_url):
    platform = {"url": certified_url, "ignore_ssl": True}
    ran = seeded.run({"ca_file": None, "ignore_ssl": True, "platform": platform})
    assert (ran.status, seeded.written()) == (0, WRITTEN), ran.stderr
    for setting in (" ignore_ssl is on", " platform.ignore_ssl is on"):
        assert f"warning:{setting}" in ran.stderr


def test_a_dashboard_in_place_of_the_search_service(seeded):
    before = seeded.published()
    with Stub(lambda _: Reply(LOGIN_PAGE.encode(), headers={"Content-Type": "text/html"})) as dashboard:
        ran = seeded.run({"url": dashboard.url})
    assert ran.status == 1
    assert "url must be the search service itself, not its dashboard" in ran.report["error"]
    assert "Sign in" in ran.report["error"]
    assert_nothing_happened(seeded, before)


@pytest.mark.parametrize("fault", ["no documents", "2^63 documents", "deep"])
def test_an_answer_to_a_search_that_cannot_be_is_told_without_names(seeded, fault):
    count = {"no documents": 0, "2^63 documents": 2**63, "deep": 1}[fault]
    carried = {"doc_count": 1, "absent": {"doc_count": 0}}
    pair = {"key": {"hostname": "pc-secret", "username": "ann-secret"}, "doc_count": count}
    body = json.dumps(
        {
            "timed_out": False,
            "_shards": {"failed": 0},
            "hits": {"total": {"value": 1}},
            "aggregations": {
                "days": {"buckets": [{"key": TODAY.isoformat(), "doc_count": 1}]},
                "hostname": carried,
                "username": carried,
                "pairs": {"buckets": [pair]},
            },
        }
    )
    if fault == "deep":
        body = body[:-1] + ', "more": ' + "[" * 100_000
    before = seeded.published()
    with Stub(lambda _: Reply(body.encode())) as service:
        ran = seeded.run({"url": service.url})
    assert ran.status == 1
    assert (
        f"The search service at {service.url} gave a response that is no search result" in ran.report["error"]
    )
    assert "secret" not in ran.stdout + ran.stderr
    assert_nothing_happened(seeded, before)


def test_mended_settings_go_on_from_what_there_was(seeded):
    """A field that no document carries must not replace stored days: their index may be gone by now."""
    assert seeded.run({"user_field": "user.nmae"}).status == 1
    ran = seeded.run()
    assert ran.status == 0
    assert "Logons: 3 of 4 days fetched" in ran.stderr


def test_an_index_without_events_resolves_nobody(seeded):
    for settings in ({"index": seeded.load([], "logs-bad-empty")}, {"index": "logs-bad-no-such-*"}):
        ran = seeded.run(settings)
        assert (ran.status, ran.report["writes"]) == (0, {}), ran.stderr
        assert ran.report["decisions"] == {"no_logons/null/keep": 1, "no_logons/null/none": 3}
    assert seeded.inventory.state.journal() == []


def test_an_inventory_without_users_resolves_nobody(seeded):
    seeded.begin(HOSTS, [])
    ran = seeded.run()
    assert (ran.status, ran.report["writes"]) == (0, {}), ran.stderr
    assert ran.report["decisions"] == {
        "majority/no_user_asset/none": 1,
        "no_majority/null/none": 1,
        "single_user/no_user_asset/keep": 1,
        "single_user/no_user_asset/none": 1,
    }
    assert seeded.inventory.state.journal() == []


def test_an_inventory_without_hosts_leaves_names_without_assets(seeded):
    seeded.begin([], USERS)
    ran = seeded.run()
    assert (ran.status, ran.report["writes"]) == (0, {}), ran.stderr
    assert {action for _, _, action in seeded.decisions(ran).values()} == {"no_host"}


ODD_NAMES = [
    "o'brien",
    'quo"te',
    "semi;colon--",
    "{{7*7}} %s %n",
    "zero\u200bwidth",
    "right\u202eleft",
    "tab\tand\nline",
    "🦊",
    "١٢٣",
    "a" * 1_000,
    "\N{FULLWIDTH LATIN CAPITAL LETTER A}b",
    "*",
    "null",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a&b=c",
]


def test_names_of_odd_characters_are_names_like_any_other(seeded):
    people = [{"id": f"u {name[:9]}", "directory_user_sam_account_name": name} for name in ODD_NAMES]
    machines = [{"id": f"h {name[:9]}", "search_agent_name": name} for name in ODD_NAMES]
    seeded.begin(machines, people)
    day = small_company()[0].at
    events = [event for name in ODD_NAMES for event in logons(name, name, 2, at=day)]
    ran = seeded.run({"index": seeded.load(events, "logs-bad-names")})
    assert (ran.status, ran.report["writes"]) == (0, {"written": len(ODD_NAMES)}), ran.stderr
    assert seeded.written() == {f"h {name[:9]}": {"asset_owner": f"u {name[:9]}"} for name in ODD_NAMES}


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

    def explained(host):
        return seeded.call("explain", "--instance", seeded.instance_file(changes), host).stdout

    assert "The asset cannot be read: its field asset_owner holds a dict" in explained("pc-5")
    assert "Correct host asset h-6 in the inventory" in explained("h-6")
    assert "eve fits the user asset dan, which cannot be read" in explained("pc-8")


def test_an_asset_without_fields_stops_nothing(seeded):
    def nest(payload):
        payload["data"] = [
            {"id": item["id"], "attributes": None if item["id"] in {"h-1", "cyd"} else item}
            for item in payload["data"]
        ]

    with_list(nest)(seeded)
    contract = {"platform": {"contract": {"fields_in": "attributes", "read": None}}}
    ran = seeded.run(contract, "--dry-run")
    assert (ran.status, ran.report["writes"]) == (0, {"planned": 1}), ran.stderr
    assert ran.report["decisions"]["unreadable_asset/null/none"] == 1
    checked = seeded.call("check", "--instance", seeded.instance_file(contract))
    told = " ".join(checked.stdout.split())
    assert checked.exit_code == 0, told
    assert "warning hosts: 1 of the first 4 hosts cannot be read" in told
    assert "Asset h-1: it has no fields where platform.contract.fields_in says they are" in told


def test_an_asset_that_is_mended_gets_its_owner(seeded):
    changes = odd_company(seeded)
    assert seeded.run(changes).status == 0
    seeded.inventory.state.set_field("h-5", "asset_owner", None)
    seeded.inventory.state.set_field("dan", "user_email", "dan@corp.example")
    ran = seeded.run(changes)
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    owners = {host: fields["asset_owner"] for host, fields in seeded.written().items()}
    assert owners == {"h-1": "ann", "h-2": 17, "h-5": "ann", "h-8": "dan"}


def test_owners_that_do_not_stay_are_told_by_the_next_run(stand):
    assert stand.run().report["writes"] == {"written": 2}
    assert "written_owners_hold" not in stand.run().stderr
    stand.inventory.state.set_field("h-1", "asset_owner", "cyd")
    stand.inventory.state.set_field("h-2", "asset_owner", "")
    ran = stand.run()
    assert ran.status == 0, ran.stderr
    assert "written_owners_hold: Of the hosts whose owner an earlier run wrote, 1 have none" in ran.stderr
    assert "now and 1 have another" in ran.stderr


def test_the_small_company_is_what_the_other_tests_start_from(seeded):
    assert seeded.instance()["index"] == SMALL_INDEX
    assert seeded.run().report["writes"] == {"written": len(WRITTEN)}
