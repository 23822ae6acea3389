"""`asset-owners check`: what is found of each service, and how the command ends."""

import copy
import json
import socket
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
import yaml
from starlette.responses import HTMLResponse, JSONResponse

from assets_defs.run import today_of, window_of
from pipelines.cli.check import check
from resources.errors import ConfigurationError
from resources.findings import Finding
from resources.inventory.adapter import open_inventory
from resources.search.client import SearchClient
from resources.settings import load_instance
from resources.store.tables import Tables
from sandbox.inventory import InventoryService, InventoryState, ServiceOptions
from sandbox.inventory_api import envelope
from sandbox.logons import MAPPING
from tests.resources.inventory_world import ADMIN, CODED, TENANT

HOSTS = [
    {
        "id": f"h-{number}",
        "search_agent_name": f"PC-{number}",
        "asset_owner": "u-1" if number == 1 else None,
        "department": None,
        "criticality": None,
        "network": {"ip": "10.0.0.1"},
    }
    for number in range(6)
]
USERS = [
    {"id": "u-1", "user_email": "ann@corp.example", "user_department": "Sales", "badge": {"no": 7}},
    {"id": "u-2", "user_email": "ben@corp.example", "user_department": "Sales"},
]
READS = {"/profile/me", "/auth/login", "/auth/mfa", "/assets/list", "/assets/get", "/hosts", "/assets/one"}
HOST_LIST, USER_LIST = "platform.contract.hosts", "platform.contract.users"
READ, UPDATE = "platform.contract.read", "platform.contract.update"
LIST = "/api/v1/assets/list"


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


NOWHERE = f"127.0.0.1:{closed_port()}"


@pytest.fixture(scope="module")
def running_inventory(tmp_path_factory):
    path = tmp_path_factory.mktemp("inventory") / "state.sqlite"
    options = ServiceOptions(page_size_cap=4, page_base={LIST: 1})
    with InventoryState(path) as state, InventoryService(state, options) as service:
        yield service


@pytest.fixture
def inventory(running_inventory):
    """The inventory service; `hooks.faults` may be set. Nothing but log-ins, lists and reads may reach it."""
    running_inventory.hooks.faults = None
    calls = set()
    running_inventory.hooks.after = lambda request, _: calls.add(request.url.path.removeprefix("/api/v1"))
    running_inventory.state.reset([ADMIN, CODED], HOSTS, USERS, TENANT)
    yield running_inventory
    assert running_inventory.state.journal() == []
    assert calls <= READS


@pytest.fixture
def instance_file(inventory, tmp_path, monkeypatch):
    """Writes an instance file under which all is well, with changes by dotted key."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)

    def write(changes=None, **search):
        (tmp_path / "password").write_text(ADMIN.password)
        secret = {"file": "password"}
        settings: dict[str, Any] = {
            "name": "Check",
            "url": f"https://{NOWHERE}",
            "username": "reader",
            "password": secret,
            "sensor": "test",
            "platform": {
                "url": inventory.url,
                "email": ADMIN.email,
                "password": secret,
                "tenant_id": TENANT,
            },
        }
        for key, value in (search | (changes or {})).items():
            *sections, last = key.split(".")
            section = settings
            for name in sections:
                section = section.setdefault(name, {})
            section[last] = copy.copy(value)
        path = tmp_path / "instance.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


def states(findings):
    return {(finding.what, finding.state): finding.text for finding in findings}


@pytest.fixture
def found(instance_file):
    """What is found of the inventory with changes to the instance file, by what it is about and its state."""

    def try_all(changes=None):
        with open_inventory(load_instance(instance_file(changes))) as inventory:
            return states(inventory.findings())

    return try_all


def test_an_inventory_that_does_what_a_run_needs_is_well(found):
    told = found()
    not_tried = {what for what, state in told if state != "ok"}
    assert not_tried == {UPDATE}, "only a write can show it"
    assert "lists 6" in told[HOST_LIST, "ok"]
    assert {READ, USER_LIST, "log-in", "platform_hostname_field", "platform_user_field"} <= {
        what for what, _ in told
    }
    assert ADMIN.password not in str(told)


def contract(**changes):
    return {"platform.contract": changes}


WRONG = {
    "connection": ({"platform.url": f"http://{NOWHERE}"}, "connection", "platform.url"),
    "account": ({"platform.email": "eve@corp.example"}, "log-in", "platform.email"),
    "tenant": ({"platform.tenant_id": "t-9"}, HOST_LIST, "platform.tenant_id"),
    "hosts": (contract(hosts={"path": "/api/v1/hosts"}), HOST_LIST, "/api/v1/hosts"),
    "users": (contract(users={"path": LIST}), USER_LIST, "type: This field is required"),
    "alike": (contract(users={"path": LIST, "params": {"type": "host"}}), f"{HOST_LIST}.params", "h-0"),
    "fields_in": (contract(fields_in="asset"), HOST_LIST, "'asset'"),
    "host name": ({"platform_hostname_field": "agent"}, "platform_hostname_field", "asset_owner"),
    "host type": ({"platform_hostname_field": "network"}, "hosts", "h-0"),
    "read": (contract(read={"path": "/api/v1/assets/one"}), READ, "/api/v1/assets/one"),
}


@pytest.mark.parametrize(("changes", "what", "words"), WRONG.values(), ids=WRONG)
def test_a_fault_of_the_inventory_is_wrong_and_names_what_to_fix(found, changes, what, words):
    told = found(changes)
    assert words in told[what, "wrong"]
    assert (UPDATE, "not tried") in told


def test_a_code_that_is_asked_for_needs_its_secret(found, monkeypatch):
    monkeypatch.setenv("CODED_PASSWORD", CODED.password)
    monkeypatch.setenv("CODED_SECRET", CODED.mfa_secret)
    account = {"platform.email": CODED.email, "platform.password": {"env": "CODED_PASSWORD"}}
    assert "platform.mfa_secret" in found(account)["log-in", "wrong"]
    told = found(account | {"platform.mfa_secret": {"env": "CODED_SECRET"}})
    assert ("log-in", "ok") in told
    assert str(CODED.mfa_secret) not in str(told)


ODD = {
    "HTML": ("auth/login", HTMLResponse("<h1>Hi</h1>"), "log-in"),
    "permission": ("assets/list", JSONResponse(envelope(status=False, message="Not you."), 403), HOST_LIST),
    "no list": ("assets/list", JSONResponse(envelope([])), HOST_LIST),
    "no id": ("assets/list", JSONResponse(envelope({"size": 1, "data": [{"n": 1}]})), HOST_LIST),
    "no items": ("assets/list", JSONResponse(envelope({"size": 1, "data": []})), HOST_LIST),
    "no owner": ("assets/get", JSONResponse(envelope({**HOSTS[1], "asset_owner": None})), READ),
    "other host": ("assets/get", JSONResponse(envelope(HOSTS[5])), READ),
}


@pytest.mark.parametrize(("path", "answer", "what"), ODD.values(), ids=ODD)
def test_an_odd_answer_of_the_inventory_is_wrong(found, inventory, path, answer, what):
    inventory.hooks.faults = lambda request: answer if request.url.path == f"/api/v1/{path}" else None
    assert (what, "wrong") in found()


DEPARTMENT = "platform.contract.enrich_fields.user_department"
ODD_HOST = {**HOSTS[0], "asset_owner": {"id": "u-1"}}
WARNED = {
    "owner": ({"platform_user_field": "owned_by"}, HOSTS, USERS, "platform_user_field"),
    "department": ({DEPARTMENT: "user_department"}, HOSTS, USERS, DEPARTMENT),
    "value": ({"platform_user_value_field": "login"}, HOSTS, USERS, "platform_user_value_field"),
    "type": ({"platform_user_value_field": "badge"}, HOSTS, USERS, "users"),
    "unreadable": ({}, [ODD_HOST, *HOSTS[1:]], USERS, "hosts"),
    "no hosts": ({}, [], USERS, HOST_LIST),
}


@pytest.mark.parametrize(("changes", "hosts", "users", "what"), WARNED.values(), ids=WARNED)
def test_what_does_not_stop_a_run_is_a_warning(found, inventory, changes, hosts, users, what):
    inventory.state.reset([ADMIN], hosts, users, TENANT)
    told = found(changes)
    assert (what, "warning") in told
    assert not [what for what, state in told if state == "wrong"]


def test_users_that_nobody_can_be_matched_with_are_wrong(found, inventory):
    inventory.state.reset([ADMIN], HOSTS, [{"id": "u-1", "login": "ann", "user_email": ""}], TENANT)
    assert ("platform_user_value_field", "wrong") in found()


def test_a_certificate_that_nobody_knows_needs_its_authority(found, inventory, tmp_path):
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    options = ServiceOptions(certificate=tmp_path / "server.pem", private_key=tmp_path / "server.pem")
    with InventoryService(inventory.state, options) as service:
        told = found({"platform.url": service.url})
        assert "platform.ca_file" in told["connection", "wrong"]
        assert ("log-in", "not tried") in told
        assert ("connection", "ok") in found(
            {"platform.url": service.url, "platform.ca_file": "authority.pem"}
        )
        told = found({"platform.url": service.url, "platform.ignore_ssl": True})
        assert {("platform.ignore_ssl", "warning"), ("log-in", "ok")} <= told.keys()


# The search service


@pytest.fixture(scope="module")
def search_service(engine):
    """The engine with indices of this module's own."""
    event = {
        "@timestamp": datetime.now(UTC).isoformat(),
        "event": {"code": "4624", "outcome": "success"},
        "process": {"name": "svchost.exe"},
    }
    agent, user = {"agent": {"name": "PC-1"}}, {"user": {"name": "ann"}}
    kinds = [{"winlog": {"event_data": {"LogonType": kind}}} for kind in ("3", "3", "7")]
    whole = [event | agent | user | kind for kind in kinds] * 8
    engine.load("logs-check", MAPPING, [*whole, event | agent])
    engine.load("logs-check-lacking", MAPPING, [event | agent | user] * 8 + [event | agent] * 2)
    hosts = [{"host": {"name": f"PC-{number}"}} for number in range(4)]
    engine.load("logs-check-collector", MAPPING, [event | agent | user | host for host in hosts])
    properties = MAPPING["mappings"]["properties"] | {"user": {"properties": {"name": {"type": "text"}}}}
    engine.load("logs-check-text", {"mappings": {"properties": properties}}, [event | agent | user])
    for empty in ("other-check", "logs-check-empty"):
        engine.load(empty, MAPPING, [])
    return engine


@pytest.fixture
def searched(search_service, instance_file, tmp_path):
    """What is found of the search service with changes to the instance file."""

    def try_all(changes=None):
        (tmp_path / "search-password").write_text(search_service.reader.password)
        where = {"url": search_service.url, "ca_file": str(search_service.ca_file), "index": "logs-check"}
        instance = load_instance(instance_file(changes, **where, password={"file": "search-password"}))
        with SearchClient(instance) as search:
            return states(search.findings(window_of(instance, today_of(instance))))

    return try_all


SEARCHED = {
    "well": ({}, "query", "ok", "25"),
    "connection": ({"url": f"https://{NOWHERE}"}, "connection", "wrong", "url"),
    "certificate": ({"ca_file": None}, "connection", "wrong", "ca_file"),
    "user": ({"username": "nobody"}, "search", "wrong", "username"),
    "privilege": ({"index": "other-check"}, "search", "wrong", "grant read"),
    "index": ({"index": "logs-check-typo"}, "search", "wrong", "'logs-check-typo'"),
    "pattern": ({"index": "logs-check-no-*"}, "index", "wrong", "'logs-check-no-*'"),
    "query": ({"query": "event.code:("}, "search", "wrong", "query"),
    "text": ({"index": "logs-check-text"}, "search", "wrong", "keyword"),
    "user field": ({"user_field": "user.nick"}, "user_field", "wrong", "user.nick"),
    "host field": ({"hostname_field": "host.nick"}, "hostname_field", "wrong", "host.nick"),
    "time": ({"time_field": "event.created"}, "time_field", "wrong", "event.created"),
    "collector": ({"index": "logs-check-collector"}, "hostname_field", "wrong", "100%"),
    "kind": ({"logon_type_field": "winlog.kind"}, "logon_type_field", "wrong", "winlog.kind"),
    "kinds": ({"logon_type_field": "winlog.event_data.LogonType"}, "logon_type_field", "ok", "24 of 25"),
    "empty": ({"index": "logs-check-empty*"}, "query", "warning", "index"),
    "none": ({"query": "event.code:9999"}, "query", "warning", "query"),
    "lacking": ({"index": "logs-check-lacking"}, "user_field", "warning", "8 of 10"),
    "no TLS": ({"ca_file": None, "ignore_ssl": True}, "ignore_ssl", "warning", "ca_file"),
    "in the clear": ({"url": "http://search.invalid"}, "url", "warning", "https://"),
}


@pytest.mark.parametrize(("changes", "what", "state", "words"), SEARCHED.values(), ids=SEARCHED)
def test_what_the_search_service_answers_is_told_with_the_setting(searched, changes, what, state, words):
    assert words in searched(changes)[what, state]


# The command


@pytest.fixture
def services(monkeypatch):
    """Both services find these."""
    findings = [Finding("ok", "search", "searched"), Finding("not tried", UPDATE, "no [red]\x1b write")]
    monkeypatch.setattr(SearchClient, "findings", lambda *_: iter(findings))
    return findings


@pytest.mark.parametrize("state", ["ok", "warning", "wrong"])
def test_what_is_wrong_decides_the_exit_status(call, services, instance_file, state):
    services.append(Finding(state, "query", "x" * 300))
    status, out, _ = call("check", "--instance", instance_file())
    assert status == (state == "wrong")
    assert f"query: {'x' * 300}" in out, "no line is folded in a pipe"
    assert "\x1b" not in out
    status, out, _ = call("check", "--instance", instance_file(), "--json")
    told = json.loads(out)
    assert (status, told["wrong"]) == (state == "wrong", int(state == "wrong"))
    own = [finding for finding in told["findings"] if finding["section"].startswith("Search")]
    assert {"state": state, "what": "query"}.items() <= own[-1].items()
    assert told["warnings"] == [finding["state"] for finding in told["findings"]].count("warning")


@pytest.mark.usefixtures("services")
def test_the_home_is_tried_and_nothing_is_left_there(call, instance_file, monkeypatch, tmp_path):
    assert call("check", "--instance", instance_file())[0] == 0
    assert not (tmp_path / "home").exists()
    for home in (tmp_path / "password", tmp_path / "password" / "below", "/proc/no-home"):
        monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
        status, out, _ = call("check", "--instance", instance_file(), "--json")
        wrong = [finding["what"] for finding in json.loads(out)["findings"] if finding["state"] == "wrong"]
        assert (status, wrong) == (1, ["ASSET_OWNERS_HOME"])


@pytest.mark.usefixtures("services")
def test_two_files_with_one_slug_are_wrong(call, instance_file, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    path = instance_file()
    (tmp_path / "other.yaml").write_text(path.read_text().replace("name: Check", "name: CHECK"))
    assert call("check", "--instance", path)[0] == 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [("ASSET_OWNERS_ANALYSTS", "nosuch"), ("ASSET_OWNERS_LOG", "xml"), ("DAGSTER_HOME", "relative")],
)
def test_a_setting_that_a_run_refuses_is_refused_with_the_same_words(
    call, instance_file, monkeypatch, setting, value
):
    monkeypatch.setenv(setting, value)
    ended = [call(command, "--instance", instance_file()) for command in ("run", "check")]
    assert ended[0] == ended[1]
    assert (ended[0][0], ended[0][2].startswith(f"asset-owners: {setting}: ")) == (2, True)


def test_tables_of_another_instance_are_refused_as_a_run_refuses_them(call, instance_file, tmp_path):
    Tables(tmp_path / "home", "check", name="CHECK").claim()
    ended = [call(command, "--instance", instance_file()) for command in ("run", "check")]
    assert ended[0] == ended[1]
    assert (ended[0][0], "'CHECK'" in ended[0][2]) == (2, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"password": {"env": "NOT_SET"}, "platform.password": {"env": "NOR_THIS"}}, "NOT_SET.*NOR_THIS"),
        ({"platform.password": {"file": "gone"}}, "platform.password: "),
        ({"ca_file": "gone.pem"}, "ca_file: "),
        ({"scan.first_day": "2999-01-01"}, "scan.first_day"),
        ({"idnex": "logs-*"}, "idnex"),
    ],
)
def test_a_wrong_instance_file_or_secret_is_no_finding(instance_file, changes, words):
    with pytest.raises(ConfigurationError, match=words):
        check(instance_file(changes))
