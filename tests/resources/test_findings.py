"""What `check` finds, by state and setting, with services in memory."""

import re

import pytest

from ownership.windows import Window
from resources.inventory.try_inventory import check_inventory, compare_names
from resources.search import open_source
from resources.search.source import Logs, check_logs
from tests.resources.http_stub import Reply, envelope
from tests.resources.inventory_world import client
from tests.resources.samples import instance
from tests.resources.search.documents import DAY, event


@pytest.fixture
def search(search_service):
    """Opens the logs of an instance on these documents."""

    def opened(documents, **changes):
        search_service.documents = documents
        query = {} if "logs" in changes else {"query": "*"}
        return Logs(instance(url=search_service.url, **query | changes), open_source)

    return opened


def inventory_of(hosts, users=(), read=None):
    """Answers an inventory service gives that lists these assets, and reads that one."""

    def answer(request):
        if request.path.endswith("get"):
            return envelope(read)
        items = {"host": hosts, "user": users}.get(request.form.get("type", ""), [])
        return envelope(None if items is None else {"size": len(items), "data": [*items]})

    return answer


SOUND = [event("PC", "ann", kind="2")] * 9
FIELDS = {"user_field": "ok", "hostname_field": "ok"}
REACHED = {"connection": "ok", "search": "ok"}
NOTHING = dict.fromkeys(FIELDS) | REACHED


@pytest.mark.parametrize(
    ("documents", "changes", "states"),
    [
        (SOUND, {}, REACHED | FIELDS | {"query": "ok"}),
        (SOUND, {"logon_type_field": "winlog.type"}, {"logon_type_field": "ok"}),
        (SOUND, {"logon_type_field": "nowhere"}, {"logon_type_field": "wrong"}),
        ([*SOUND, event("PC", None)], {}, {"user_field": "ok"}),
        ([*SOUND, *[event("PC", None)] * 2], {}, {"user_field": "warning"}),
        ([*SOUND, *[event("PC", None)] * 9], {}, {"user_field": "warning"}),
        ([*SOUND, *[event("PC", None)] * 10], {}, {"user_field": "wrong"}),
        ([event("PC", None)] * 9, {}, {"user_field": "wrong", "hostname_field": "ok"}),
        (
            [event("PC", f"{10**37 + number:032X}") for number in range(3)],
            {},
            {"user_field": "wrong", "hostname_field": "ok"},
        ),
        ([event(f"PC-{number}", "***") for number in range(3)], {}, {"user_field": "wrong"}),
        ([event(f"pc{number}", "ann", sender="wec") for number in range(3)], {}, {"hostname_field": "wrong"}),
        ([event(None, "ann")] * 9, {}, {"user_field": "ok", "hostname_field": "wrong"}),
        (None, {}, NOTHING | {"index": "wrong"}),
        ([], {}, NOTHING | {"query": "warning"}),
        (SOUND, {"query": "user.name:eve"}, NOTHING | {"query": "warning"}),
        (SOUND, {"time_field": "created"}, NOTHING | {"time_field": "wrong"}),
    ],
)
def test_a_search_service(search, documents, changes, states):
    with search(documents, **changes) as logs:
        found = {one.what: one.state for one in check_logs(logs, Window(DAY, DAY), exclude_hosts=())}
    assert {what: found.get(what) for what in states} == states


def test_a_question_about_collectors_that_is_refused_is_one_finding_of_the_others(search, search_service):
    answer = search_service.answer
    search_service.answer = lambda asked: Reply(b"{}", 400) if b"top_hits" in asked.body else answer(asked)
    with search(SOUND) as logs:
        found = [*check_logs(logs, Window(DAY, DAY), exclude_hosts=())]
    assert [one.state for one in found] == ["ok"] * (len(found) - 1) + ["wrong"]


HOST = {"id": "h-1", "search_agent_name": "PC", "asset_owner": "u-1", "department": None, "criticality": None}
USER = {"id": "u-1", "user_email": "ann@corp.example"}
READ = "platform.contract.read"
LISTS = {"platform.contract.hosts": "ok", "platform.contract.users": "ok"}
ALL = LISTS | {
    "connection": "ok",
    "log-in": "ok",
    "platform_hostname_field": "ok",
    "platform_user_field": "ok",
    READ: "ok",
    "platform_user_value_field": "ok",
    "platform.contract.update": "not tried",
}
DEPARTMENT = "platform.contract.enrich_fields.user_department"


@pytest.mark.parametrize(
    ("hosts", "users", "read", "states"),
    [
        ([HOST], [USER], HOST, ALL | {DEPARTMENT: "ok"}),
        ([{**HOST, "asset_owner": None}, HOST], [USER], HOST, ALL),
        ([HOST], [USER], {**HOST, "asset_owner": None}, {READ: "wrong"}),
        ([HOST], [USER], None, {READ: "wrong"}),
        ([], [USER], HOST, {"platform.contract.hosts": "warning", READ: None}),
        ([HOST], [], HOST, {"platform.contract.users": "warning", "platform_user_value_field": None}),
        ([{"id": "h-1"}], [USER], {"id": "h-1"}, {"platform_hostname_field": "wrong", DEPARTMENT: "warning"}),
        ([HOST], [{"id": "u-1"}], HOST, {"platform_user_value_field": "wrong"}),
        ([HOST], [{"id": "u", "directory_user_surname": "a"}], HOST,
         {"platform_user_value_field": "warning"}),
        ([{**HOST, "asset_owner": {}}], [USER], HOST, {"hosts": "wrong", READ: None}),
        ([{**HOST, "asset_owner": {}}, {**HOST, "id": "h-2"}], [USER], {**HOST, "id": "h-2"},
         {"hosts": "warning", READ: "ok"}),
        ([HOST], [{**USER, "user_email": {}}], HOST, {"users": "wrong"}),
        ([HOST], [USER], {**HOST, "id": "h-9"}, {READ: "wrong"}),
        (None, [USER], HOST, {"platform.contract.hosts": "wrong", "platform.contract.users": "ok"}),
    ],
)  # fmt: skip
def test_an_inventory_service(served, hosts, users, read, states):
    with served(inventory_of(hosts, users, read)) as (_, inventory):
        found = states_of(inventory)
    assert {what: found.get(what) for what in states} == states


def states_of(inventory):
    return {one.what: one.state for one in check_inventory(inventory)}


NAMED = [
    event("WS1.corp", r"CORP\ann"),
    event("ws2.corp", "zoe"),
    event("WS2.corp", "SYSTEM"),
    event("x", "PC$"),
]
SHORT, EXACT = {"rules": {"hostname_match": "short"}}, {}


@pytest.mark.parametrize(
    ("names", "email", "changes", "states", "text"),
    [
        (["ws1"], "ann", EXACT, ("warning", "ok"), "3 hosts .* 0 are .* 1 if .*hostname_match: short"),
        (["WS1.CORP", "ws2.lab"], "ann", EXACT, ("warning", "ok"), "1 are in .* 2 if"),
        (["WS1.CORP", "X"], "ann", EXACT, ("ok", "ok"), r"2 if .* \(short\)$"),
        (["ws1"], "zoe", SHORT, ("ok", "ok"), "0 are .* 1 if"),
        (["pc"], "bob", SHORT, ("warning", "warning"), "check hostname_field and platform_hostname_field"),
        ([], "ann", EXACT, (None, "ok"), ""),
    ],
)
def test_the_names_of_both_services(search, served, names, email, changes, states, text):
    hosts = [{"id": str(n), "search_agent_name": name} for n, name in enumerate(names)]
    listed = inventory_of(hosts, [{"id": "u", "user_email": f"{email}@corp.example"}])
    with search(NAMED, **changes) as logs, served(listed, **changes) as (_, inventory):
        found = {one.what: one for one in compare_names(inventory, logs, Window(DAY, DAY))}
    hosts = found.get("rules.hostname_match")
    assert (hosts and hosts.state, found["user_field"].state) == states
    assert re.search(text, hosts.text if hosts else "")
    assert "of 2 logon events belong to users" in found["user_field"].text, "SYSTEM and PC$ are nobody"


def test_domains_that_one_host_has_and_domains_that_nobody_has(search, served):
    documents = [event(f"asset-{n}", r"CORP\ann") for n in range(3)]
    documents.append(event("asset-4711", r"WKS-77\miller"))
    listed, said = inventory_of([{"id": "1", "search_agent_name": "asset-4711"}]), {}
    for domains in ([], ["CORP"], ["LAB"]):
        rules = {"domains": domains}
        with search(documents, rules=rules) as logs, served(listed, rules=rules) as (_, inventory):
            findings = compare_names(inventory, logs, Window(DAY, DAY))
            said[*domains] = [one.text for one in findings if one.what == "rules.domains"]
    assert "wks-77 on asset-4711" in said[()][0]
    assert "name the directory's domains in rules.domains" in said[()][0]
    assert said["CORP",] == []
    assert "the logons have corp, wks-77" in said["LAB",][0]


def test_of_several_logs_each_is_named_and_their_names_are_compared_together(search, served):
    """One log holds 60 events of a small collector, the other 600 of the hosts themselves."""
    documents = [event(f"pc{n % 3}", "ann", sender="wec") | {"of": "few"} for n in range(60)]
    documents += [event("pc1", "ann") | {"of": "most"} for _ in range(600)]
    several = {"logs": [{"query": "of:few"}, {"query": "of:most", "index": "own-*"}]}
    listed = inventory_of([{"id": "1", "search_agent_name": "pc1"}])
    with search(documents, **several) as logs, served(listed) as (_, inventory):
        found = [*check_logs(logs, Window(DAY, DAY), exclude_hosts=())]
        names = [*compare_names(inventory, logs, Window(DAY, DAY))]
    (warning,) = (one for one in found if one.state != "ok")
    assert (warning.state, warning.what) == ("warning", "logs.0 (logs-*): hostname_field")
    assert "1 collector sends events for several hosts, 9% of all events" in warning.text
    assert "set hostname_field to host.name" in warning.text
    assert next(one.text for one in names if one.what == "rules.hostname_match").startswith("2 hosts have")


@pytest.mark.parametrize("fields_in", ["", "attributes"])
def test_a_field_that_excludes_assets_and_that_none_has(served, fields_in):
    item = ({"id": HOST["id"], fields_in: HOST} if fields_in else HOST) | {"group": "x"}  # beside the fields
    rules = {
        setting: {"group": ["y"], "grop": ["kiosk*"]} for setting in ("exclude_assets", "exclude_user_assets")
    }
    contract, listed = {"fields_in": fields_in}, inventory_of([item], [item], item)
    with served(listed, contract=contract, rules=rules) as (_, inventory):
        states = {one.what: one for one in check_inventory(inventory)}
    assert states["platform.contract.read"].state == "ok"
    found = [one for what, one in states.items() if what.startswith("rules.exclude")]
    assert [(one.state, one.what) for one in found] == [("warning", f"rules.{setting}") for setting in rules]
    assert all("a value in grop, " in one.text and ", group, " in one.text for one in found)


def test_what_cannot_be_reached_or_refuses_the_log_in_ends_the_tries(served, tmp_path):
    with client(tmp_path, "http://127.0.0.1:1") as inventory:
        assert states_of(inventory) == {"connection": "wrong"}
    with served(lambda _: envelope(status=False, message="No.")) as (_, inventory):
        assert states_of(inventory) == {"connection": "ok", "log-in": "wrong"}
