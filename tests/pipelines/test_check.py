import copy
import json
import re
import socket
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
import trustme
import yaml
from starlette.responses import HTMLResponse, JSONResponse

from pipelines import cli
from pipelines.cli.check import check
from resources.errors import ConfigurationError
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
    {"id": "u-1", "user_email": "ann@corp.example", "directory_user_surname": "Ölmann", "badge": {"no": 7}},
    {"id": "u-2", "user_email": "ben@corp.example", "directory_user_surname": None},
]
for _user in USERS:
    _user["user_department"] = "Sales"
READS = {
    ("GET", "/profile/me"),
    *(("POST", path) for path in ("/auth/login", "/auth/mfa", "/assets/list", "/assets/get")),
}
HOST_LIST, USER_LIST = "platform.contract.hosts", "platform.contract.users"
READ = "platform.contract.read"
LIST = "/api/v1/assets/list"


@pytest.fixture(scope="module")
def search_service(engine):
    """The engine with indices of this module's own."""
    event = {
        "@timestamp": datetime.now(UTC).isoformat(),
        "event": {"code": "4624", "outcome": "success"},
        "process": {"name": "svchost.exe"},
    }
    agent, user = {"agent": {"name": "PC-1"}}, {"user": {"name": "ann"}}
    log_off = {**event, "event": {"code": "4634", "outcome": "success"}}
    network, unlock = ({"winlog": {"event_data": {"LogonType": number}}} for number in ("3", "7"))
    whole = [event | agent | user | network] * 15 + [event | agent | user | unlock] * 3
    engine.load("logs-check", MAPPING, [*whole, event | agent, event | user, log_off])
    hosts = [{"host": {"name": f"PC-{number}"}} for number in range(4)]
    engine.load("logs-check-lacking", MAPPING, [event | agent | user] * 8 + [event | agent] * 2)
    collected = [event | agent | user | host for host in hosts]
    engine.load("logs-check-collector", MAPPING, collected)
    properties = MAPPING["mappings"]["properties"] | {"user": {"properties": {"name": {"type": "text"}}}}
    text = {"mappings": {"properties": properties}}
    engine.load("logs-check-text", text, [event | agent | user])
    for empty in ("other-check", "logs-check-empty"):
        engine.load(empty, MAPPING, [])
    return engine


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

    def note(request, _):
        calls.add((request.method, request.url.path.removeprefix("/api/v1")))

    running_inventory.hooks.after = note
    running_inventory.state.reset([ADMIN, CODED], HOSTS, USERS, TENANT)
    yield running_inventory
    assert running_inventory.state.journal() == []
    unknown = {("POST", "/hosts"), ("POST", "/assets/one")}  # where some tests' contracts look
    assert calls <= READS | unknown


@pytest.fixture
def instance_file(search_service, inventory, tmp_path):
    """Writes an instance file under which all is well, with changes by dotted key; None takes a key out."""

    def write(changes=None):
        (tmp_path / "search-password").write_text(search_service.reader.password)
        (tmp_path / "password").write_text(ADMIN.password)
        settings: dict[str, Any] = {
            "name": "Check",
            "url": search_service.url,
            "username": "reader",
            "password": {"file": "search-password"},
            "ca_file": str(search_service.ca_file),
            "index": "logs-check",
            "sensor": "test",
            "platform": {
                "url": inventory.url,
                "email": ADMIN.email,
                "password": {"file": "password"},
                "tenant_id": TENANT,
            },
        }
        for key, value in (changes or {}).items():
            *sections, last = key.split(".")
            section = settings
            for name in sections:
                section = section.setdefault(name, {})
            section[last] = copy.copy(value)
        path = tmp_path / "instance.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


@pytest.fixture
def checked(instance_file, capsys):
    """Runs the check with changes to the instance file; gives exit status and what was printed."""

    def run(changes=None):
        status = check(instance_file(changes))
        return status, " ".join(capsys.readouterr().out.split())

    return run


def findings(printed):
    """What was told, by state and what it is about."""
    parts = iter(re.split(r"(ok|warning|wrong|not tried) (\S+): ", printed)[1:])
    return {(state, what): text for state, what, text in zip(parts, parts, parts, strict=True)}


def told(printed, state, what, words):
    return all(text in findings(printed).get((state, what), "") for text in words)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_all_is_well(checked, search_service):
    status, printed = checked()
    assert status == 0
    ok = {
        "search": "reader may search logs-check",
        "query": "matches 20 logon events",
        "user_field": "user.name is in 19 of 20 logon events",
        "hostname_field": "agent.name is in 19 of 20 logon events",
        "log-in": "admin@corp.example is signed in, without a verification code",
        HOST_LIST: f"{LIST} lists 6 of tenant t-1; its first page is number 1 and holds 4, the most",
        "platform_hostname_field": "search_agent_name is on 4 of the first 4 hosts",
        "platform_user_field": "asset_owner is a field of 4 of the first 4 hosts",
        "platform.contract.enrich_fields.user_department": "department is a field of 4",
        "platform.contract.enrich_fields.criticality": "criticality is a field of 4",
        READ: "host h-1 is read as the list shows it",
        USER_LIST: f"{LIST} lists 2 of tenant t-1; its first page is number 1 and holds 2",
        "platform_user_value_field": "user_email is on 2, directory_user_sam_account_name is on 0",
    }
    for what, words in ok.items():
        assert words in findings(printed)["ok", what]
    untried = findings(printed)["not tried", "platform.contract.update"]
    assert "only a write can show that /api/v1/assets/update is right, that admin@corp.example may" in untried
    assert "asset_owner, department, criticality can be set; try asset-owners run --dry-run" in untried
    assert printed.count("ok connection: answers") == 2
    assert "ok connection: answers, and its certificate is trusted" in printed
    assert printed.endswith("Nothing to fix, no warnings.")
    assert ADMIN.password not in printed
    assert search_service.reader.password not in printed


def cases(*rows):
    """Parametrizes with rows of: id, what is done, what is told about, words of the text."""
    parameters = [pytest.param(done, what, words, id=name) for name, done, what, *words in rows]
    return pytest.mark.parametrize(("done", "what", "words"), parameters)


NOWHERE = f"127.0.0.1:{closed_port()}"


@cases(
    ("connection", {"url": f"https://{NOWHERE}"}, "connection", "did not answer", "check url"),
    ("certificate", {"ca_file": None}, "connection", "could not prove who it is", "Set ca_file"),
    ("user", {"username": "nobody"}, "search", "log-in is refused", "check username and password"),
    ("privilege", {"index": "other-check"}, "search", "reader may not search other-check", "grant read"),
    ("index", {"index": "logs-check-typo"}, "search", "index: 'logs-check-typo' names an index", "not have"),
    ("pattern", {"index": "logs-check-no-*"}, "index", "'logs-check-no-*' matches no index", "correct the"),
    ("query", {"query": "event.code:("}, "search", "query: 'event.code:(' is refused"),
    ("text", {"index": "logs-check-text"}, "search", "user_field: 'user.name' is a text field", "keyword"),
    ("user field", {"user_field": "user.nick"}, "user_field", "none of the logon events carries user.nick"),
    ("host field", {"hostname_field": "host.nick"}, "hostname_field", "none of", "carries host.nick"),
    ("time", {"time_field": "event.created"}, "time_field", "none of the", "carries event.created; name"),
    ("kind", {"logon_type_field": "winlog.kind"}, "logon_type_field", "none of", "carries winlog.kind; name"),
)
def test_a_fault_of_the_search_is_told_and_the_inventory_tried_all_the_same(checked, done, what, words):
    status, printed = checked(done)
    assert status == 1
    assert told(printed, "wrong", what, words), printed
    assert "1 to fix, no warnings." in printed
    assert "ok log-in: admin@corp.example is signed in" in printed


def test_no_line_is_folded_in_a_pipe(instance_file, capsys):
    check(instance_file({"index": f"logs-check-no-{'x' * 200}"}))
    assert max(map(len, capsys.readouterr().out.splitlines())) > 400


def test_kinds_of_logon_are_told_and_weights_of_none_of_them_warned_of(checked):
    weights = {"rules.logon_type_weights": {7: 10, "Interactive": 5}}
    status, printed = checked({"logon_type_field": "winlog.event_data.LogonType", **weights})
    assert status == 0
    text = findings(printed)["ok", "logon_type_field"]
    assert "winlog.event_data.LogonType is in 18 of 20 logon events, the others count 1" in text
    assert "most frequent: 3 (15), 7 (3)" in text
    unknown = findings(printed)["warning", "rules.logon_type_weights"]
    assert "no logon event has Interactive in winlog.event_data.LogonType; write the values as" in unknown
    _, printed = checked({"logon_type_field": "winlog.event_data.LogonType", "username": "nobody"})
    assert "not tried logon_type_field: " in printed


def contract(**changes):
    return {"platform.contract": changes}


ANOTHER_ACCOUNT = {"platform.email": CODED.email, "platform.password": {"env": "CODED_PASSWORD"}}


@cases(
    ("connection", {"platform.url": f"http://{NOWHERE}"}, "connection", "did not answer", "platform.url"),
    ("account", {"platform.email": "eve@corp.example"}, "log-in", "check platform.email"),
    ("code", ANOTHER_ACCOUNT, "log-in", "asks coded@corp.example for a", "code; set platform.mfa_secret"),
    ("tenant", {"platform.tenant_id": "t-9"}, HOST_LIST, "t-9 (platform.tenant_id)", "You have no role"),
    ("tenant's name", contract(tenant_param="realm"), HOST_LIST, "(platform.tenant_id)", "No tenant"),
    ("hosts", contract(hosts={"path": "/api/v1/hosts"}), HOST_LIST, "/api/v1/hosts", "Not Found"),
    ("users", contract(users={"path": LIST}), USER_LIST, "type: This field is required"),
    ("alike", contract(users={"path": LIST, "params": {"type": "host"}}), f"{HOST_LIST}.params",
     "both lists hold asset h-0", "not told apart"),
    ("fields_in", contract(fields_in="asset"), HOST_LIST, "without fields in 'asset'", "check"),
    ("host name", {"platform_hostname_field": "agent"}, "platform_hostname_field",
     "none of the first 4 hosts carries agent", "asset_owner, criticality, department"),
    ("host type", {"platform_hostname_field": "network"}, "hosts", "4 of the first 4 hosts cannot be read",
     "Asset h-0: its field network holds a dict", "must name"),
    ("read", contract(read={"path": "/api/v1/assets/one"}), READ, "/api/v1/assets/one", "Not Found"),
    ("read's id", contract(read={"path": "/api/v1/assets/get", "id_param": "no"}), READ, "id: This field is"),
)  # fmt: skip
def test_a_fault_of_the_inventory_is_told(checked, monkeypatch, done, what, words):
    monkeypatch.setenv("CODED_PASSWORD", CODED.password)
    status, printed = checked(done)
    assert status == 1
    assert told(printed, "wrong", what, words), printed
    assert "not tried platform.contract.update: only a write can show" in printed


def answer(path, response):
    """A fault: calls of a path get this answer."""
    return lambda request: response if request.url.path == f"/api/v1/{path}" else None


def data(payload, **members):
    return JSONResponse(envelope(payload, **members))


REFUSED = JSONResponse(envelope(status=False, message="Not you."), 403)
UNPRINTABLE = data(None, status=False, message="\x1b[2J[red]No\n")


@cases(
    ("HTML", answer("auth/login", HTMLResponse("<h1>Hi</h1>")), "log-in", "no envelope; platform.url"),
    ("permission", answer("assets/list", REFUSED), HOST_LIST, "refused /api/v1/assets/list", "Not you."),
    ("no list", answer("assets/list", data([])), HOST_LIST, "no list of items", "platform.contract"),
    ("no id", answer("assets/list", data({"size": 1, "data": [{"n": 1}]})), HOST_LIST, "has no usable id"),
    ("no items", answer("assets/list", data({"size": 1, "data": []})), HOST_LIST, "announced 1", "gave 0"),
    ("no owner", answer("assets/get", data({**HOSTS[1], "asset_owner": None})), READ,
     "host h-1 has other owner_ids when read by itself", "decided on wrong values"),
    ("no host", answer("assets/get", data(HOSTS[5])), READ, "something else than asset h-1"),
    ("unprintable", answer("profile/me", UNPRINTABLE), "log-in", "refused /api/v1/profile/me: [2J[red]No"),
)  # fmt: skip
def test_an_odd_answer_of_the_inventory_is_told(checked, inventory, done, what, words):
    inventory.hooks.faults = done
    status, printed = checked()
    assert status == 1
    assert told(printed, "wrong", what, words), printed
    assert "\x1b" not in printed


def test_what_a_failure_makes_impossible_is_named_as_not_tried(checked):
    _, printed = checked({"username": "nobody", "platform.tenant_id": "t-9"})
    for what in ("user_field", "hostname_field", "platform_hostname_field", "platform.contract.read"):
        assert f"not tried {what}: " in printed
    assert "3 to fix, no warnings." in printed  # the search, and each list


def test_users_that_nobody_can_be_matched_with_are_told(checked, inventory):
    inventory.state.reset([ADMIN], HOSTS, [{"id": "u-1", "login": "ann", "user_email": ""}], TENANT)
    status, printed = checked()
    assert status == 1
    assert (
        "wrong platform_user_value_field: none of the first 1 users carries user_email or directory"
        in printed
    )
    assert "they have id, login, user_email" in printed


DEPARTMENT = "platform.contract.enrich_fields.user_department"


@cases(
    ("empty", {"index": "logs-check-empty*"}, "query", "found; there is no document at all", "check index"),
    ("query", {"query": "event.code:9999"}, "query", "so no owner is found; 21 documents", "check query"),
    ("certificate", {"ignore_ssl": True}, "ignore_ssl", "is on", "better set ca_file"),
    ("owner", {"platform_user_field": "owned_by"}, "platform_user_field", "has owned_by", "check the name"),
    ("department", {DEPARTMENT: "user_department"}, DEPARTMENT, "has user_department", "check the name"),
    ("user value", {"platform_user_value_field": "login"}, "platform_user_value_field", "login is on 0"),
    ("user type", {"platform_user_value_field": "badge"}, "users", "1 of the first 2 users cannot be read",
     "Asset u-1: its field badge holds a dict", "must name"),
)  # fmt: skip
def test_what_does_not_stop_a_run_is_a_warning(checked, done, what, words):
    status, printed = checked(done)
    assert status == 0, printed
    assert told(printed, "warning", what, words), printed
    assert "No error, 1 warning." in printed
    assert "Nothing to fix" not in printed


SAME_NAME = [{**HOSTS[0], "id": f"h-{number}"} for number in range(2)]


@pytest.mark.parametrize(
    ("changes", "hosts", "users", "warned"),
    [
        ({"index": "logs-check-lacking"}, HOSTS, USERS, "user_field: user.name is in 8 of 10 logon events"),
        ({}, SAME_NAME, USERS, "platform_hostname_field: 1 host names stand for several host assets"),
        ({}, HOSTS, [*USERS, {**USERS[0], "id": "u-3"}], "1 account names or addresses stand for several"),
        ({}, HOSTS, [*USERS, {"id": "u-3", "user_email": "x@y"}], "1 of the first 3 user assets have no"),
    ],
)
def test_what_the_checks_of_a_run_warn_of_is_a_warning_before_it(
    checked, inventory, changes, hosts, users, warned
):
    inventory.state.reset([ADMIN], hosts, users, TENANT)
    status, printed = checked(changes)
    assert status == 0, printed
    assert warned in printed
    assert "No error, 1 warning." in printed


def test_names_that_stand_for_collectors_are_told_before_a_run_blocks(checked):
    status, printed = checked({"index": "logs-check-collector"})
    assert status == 1
    assert (
        "wrong hostname_field: 1 value of agent.name sends for several hosts, 100% of the events" in printed
    )


@pytest.fixture
def run_refuses(instance_file, monkeypatch, capsys):
    """Tells whether `run` ends with 2, and `check` says the same; gives the message."""

    def refused():
        said = []
        for command in ("run", "check"):
            monkeypatch.setattr(sys, "argv", ["asset-owners", command, "--instance", str(instance_file())])
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert ended.value.code == 2
            said.append(capsys.readouterr().err)
        assert said[0] == said[1]
        return said[1]

    return refused


@pytest.mark.parametrize(
    ("setting", "value"),
    [("ASSET_OWNERS_ANALYSTS", "nosuch"), ("ASSET_OWNERS_LOG", "xml"), ("DAGSTER_HOME", "relative")],
)
def test_a_setting_that_a_run_refuses_is_refused_with_the_same_words(
    run_refuses, monkeypatch, tmp_path, setting, value
):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(setting, value)
    assert run_refuses().startswith(f"asset-owners: {setting}: ")


def test_tables_of_another_instance_are_refused_as_a_run_refuses_them(run_refuses, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    Tables(tmp_path / "home", "check", name="CHECK").claim()
    assert "are those of the instance 'CHECK'" in run_refuses()


def test_two_files_with_one_slug_are_told(checked, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    status, printed = checked()
    assert (status, "name:" in printed) == (0, False)
    text = (tmp_path / "instance.yaml").read_text()
    (tmp_path / "other.yaml").write_text(text.replace("name: Check", "name: CHECK"))
    status, printed = checked()
    assert status == 1
    words = ("'Check' gives the identifier 'check', as does", "give each instance its own name")
    assert told(printed, "wrong", "name", words), printed


@pytest.mark.parametrize("home", ["file", "file/below", "/proc/no-home"])
def test_a_home_that_cannot_be_written_is_told(checked, monkeypatch, tmp_path, home):
    (tmp_path / "file").touch()
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / home))
    status, printed = checked()
    assert status == 1
    assert told(printed, "wrong", "ASSET_OWNERS_HOME", (str(tmp_path / home).removesuffix("/below"),)), (
        printed
    )


def test_a_home_that_is_not_there_yet_can_be_made_and_is_not(checked, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "new" / "home"))
    status, printed = checked()
    assert status == 0
    assert told(printed, "ok", "ASSET_OWNERS_HOME", (f"files can be stored in {tmp_path / 'new'}",)), printed
    assert not (tmp_path / "new").exists()


def test_all_secrets_that_are_missing_are_named_at_once(instance_file):
    path = instance_file({"password": {"env": "NOT_SET"}, "platform.password": {"env": "NOR_THIS"}})
    with pytest.raises(
        ConfigurationError, match=r"password: .* NOT_SET is not .*platform.password: .* NOR_THIS"
    ):
        check(path)


def test_an_unreadable_host_is_a_warning_and_the_others_are_tried(checked, inventory):
    odd = {**HOSTS[1], "asset_owner": {"id": "u-1"}}
    inventory.state.reset([ADMIN], [odd, *HOSTS[2:], {**HOSTS[0], "asset_owner": "u-1"}], USERS, TENANT)
    status, printed = checked()
    assert status == 0, printed
    words = (
        "1 of the first 4 hosts cannot be read, so they are left alone. Asset h-1: its field asset_owner",
    )
    assert told(printed, "warning", "hosts", words), printed
    assert "ok platform.contract.read: host h-2 is read as the list shows it" in printed


def test_many_unreadable_hosts_are_wrong_as_they_stop_a_run(checked, inventory):
    odd = [{**HOSTS[0], "id": f"h-{number}", "asset_owner": {"id": "u-1"}} for number in range(11)]
    sound = [{**HOSTS[0], "id": f"h-{number}"} for number in range(11, 100)]
    inventory.state.reset([ADMIN], [*odd, *sound], USERS, TENANT)
    with InventoryService(inventory.state) as service:
        status, printed = checked({"platform.url": service.url})
    assert status == 1
    words = ("11 of the first 100 hosts cannot be read", "a run stops", "platform_user_field must name")
    assert told(printed, "wrong", "hosts", words), printed


def test_an_inventory_without_assets_is_a_warning(checked, inventory):
    inventory.state.reset([ADMIN], [], [], TENANT)
    status, printed = checked()
    assert status == 0
    assert "warning platform.contract.hosts: /api/v1/assets/list lists nothing" in printed
    assert "warning platform.contract.users: /api/v1/assets/list lists nothing" in printed


def test_a_password_sent_in_the_clear_is_a_warning_for_other_machines_only(checked):
    _, printed = checked({"url": "http://search.invalid", "platform.url": "http://inventory.invalid"})
    assert "warning url: http:// sends the password in the clear" in printed
    assert "warning platform.url: http:// sends the password in the clear" in printed
    _, printed = checked()  # its inventory service is http on 127.0.0.1
    assert "in the clear" not in printed


def test_enrichment_that_is_off_is_not_tried(checked):
    _, printed = checked({"scan.enrich": False})
    assert "enrich_fields" not in printed
    assert "that asset_owner can be set" in printed


def test_a_service_that_cannot_read_one_asset_is_well(checked):
    status, printed = checked({"platform.contract.read": None})
    assert status == 0
    assert "ok platform.contract.read: is null, so hosts are listed again right before" in printed


def test_a_verification_code_that_was_asked_for_is_told(checked, monkeypatch):
    monkeypatch.setenv("CODED_PASSWORD", CODED.password)
    monkeypatch.setenv("CODED_SECRET", CODED.mfa_secret)
    secrets = {"platform.password": {"env": "CODED_PASSWORD"}, "platform.mfa_secret": {"env": "CODED_SECRET"}}
    status, printed = checked({"platform.email": CODED.email, **secrets})
    assert status == 0
    assert "ok log-in: coded@corp.example is signed in, with a verification code" in printed
    assert CODED.mfa_secret not in printed
    assert CODED.password not in printed


def test_certificate_of_the_inventory(checked, inventory, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    options = ServiceOptions(certificate=tmp_path / "server.pem", private_key=tmp_path / "server.pem")
    with InventoryService(inventory.state, options) as service:
        status, printed = checked({"platform.url": service.url})
        assert status == 1
        assert "could not prove who it is" in printed
        assert "Set platform.ca_file" in printed
        assert "not tried log-in: " in printed
        status, printed = checked({"platform.url": service.url, "platform.ca_file": "authority.pem"})
        assert status == 0
        assert printed.count("its certificate is trusted") == 2
        status, printed = checked({"platform.url": service.url, "platform.ignore_ssl": True})
        assert status == 0
        assert "warning platform.ignore_ssl: is on" in printed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"password": {"env": "NOT_SET"}}, "password: the environment variable NOT_SET is not set"),
        ({"platform.password": {"file": "gone"}}, "platform.password: the file"),
        ({"ca_file": "gone.pem"}, "ca_file: "),
        ({"platform.ca_file": "gone.pem"}, "platform.ca_file: "),
        ({"scan.first_day": "2999-01-01"}, r"is before scan.first_day \(2999-01-01\)"),
        ({"idnex": "logs-*"}, "idnex: is an unknown key"),
    ],
)
def test_a_wrong_instance_file_or_secret_is_no_finding(instance_file, changes, words):
    with pytest.raises(ConfigurationError, match=words):
        check(instance_file(changes))


@pytest.mark.parametrize("json_asked", [False, True])
@pytest.mark.parametrize(
    ("changes", "status"), [({}, 0), ({"user_field": "user.nick"}, 1), ({"password": {"env": "NOT_SET"}}, 2)]
)
def test_exit_status_of_the_command_and_its_object(
    instance_file, monkeypatch, capsys, changes, status, json_asked
):
    command = ["asset-owners", "check", "--instance", str(instance_file(changes)), *["--json"] * json_asked]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    if json_asked:
        told = json.loads(capsys.readouterr().out)
        states = [finding["state"] for finding in told.get("findings", [])]
        assert told.get("wrong", 0) == states.count("wrong") == (status == 1)
        assert ("error" in told) == (status == 2)
