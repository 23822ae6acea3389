"""The ways of shipping logons (presets), each tried on documents in the layout that it is for."""

from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

import pytest
import yaml

from docs.make.examples import EXAMPLES, example
from resources.errors import ConfigurationError
from resources.search.asking import Asker
from resources.search.explaining import propose
from resources.settings import load_instance
from resources.settings.models import presets
from sandbox.company import MAPPING, RECOMMENDED
from sandbox.logons import Logon, document
from tests.end_to_end.stand import TODAY, at_noon
from tests.resources import samples

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unrecorded", "no_catalogue", "no_report")]

OF_THE_STAND = {"name", "url", "username", "password", "sensor", "platform"}
"""Keys that say where the services are; all others are the example's."""

USERS = [{"id": name, "user_email": f"{name}@corp.example"} for name in ("ann", "bob", "cyd", "root", "gdm")]
WHEN = f"{at_noon(TODAY - timedelta(days=1)):%Y-%m-%dT%H:%M:%S}"
KEYWORDS = {"match_mapping_type": "string", "mapping": {"type": "keyword"}}
AS_KEYWORDS = {"mappings": {"dynamic_templates": [{"strings": KEYWORDS}]}}
AS_TEXTS: dict[str, Any] = {"mappings": {}}  # the service's own: a text with a keyword below it
GRAYLOG_TIME = {"timestamp": {"type": "date", "format": "uuuu-MM-dd HH:mm:ss.SSS"}}


@pytest.fixture
def load(engine_stand):
    """Fills an index that a pattern holds, for this test only; gives its name."""
    made = []

    def load(pattern, mapping, documents):
        index = pattern.partition(",")[0].replace("*", f"2026.03.{len(made) + 10}")
        engine_stand.engine.load(index, mapping, documents)
        made.append(index)
        return index

    yield load
    for index in made:
        engine_stand.engine.request("DELETE", index)


@pytest.fixture
def as_admin(engine_stand, tmp_path):
    """Settings of the user who may read every index."""
    password = tmp_path / "admin-password"
    password.write_text(engine_stand.engine.admin.password)
    return {"username": "admin", "password": {"file": str(password)}}


@pytest.fixture
def run(engine_stand, as_admin):
    """Runs an example, or none, on host assets of these names; gives evidence and owners written."""
    stand = engine_stand

    def run(name, *hosts, **changes):
        settings = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")) if name else {}
        stand.begin([{"id": name, "search_agent_name": name} for name in hosts], USERS)
        own = {key: value for key, value in settings.items() if key not in OF_THE_STAND}
        ran = stand.run({**own, **as_admin, **changes})
        assert ran.status == 0, ran.stderr
        decisions = stand.tables.read_own("owner_decisions", ran.report["run_id"])
        owners = {host: fields["asset_owner"] for host, fields in stand.written().items()}
        return dict(decisions.select("host_id", "evidence").iter_rows()), owners

    return run


@pytest.fixture
def proposed(engine_stand, as_admin, monkeypatch):
    """What `init --url` says of an index; presets in brackets."""
    stand = engine_stand

    def proposed(*options):
        monkeypatch.setenv("ADMIN_PASSWORD", stand.engine.admin.password)
        service = ("--url", stand.engine.url, "--username", as_admin["username"])
        secrets = ("--password-env", "ADMIN_PASSWORD", "--ca-file", stand.engine.ca_file)
        return stand.call("init", "-", *service, *secrets, *options)

    return proposed


def test_the_examples_are_those_of_the_presets_and_told():
    files = {path.stem for path in EXAMPLES.iterdir()}
    assert files == {*presets(), "windows-interactive"}
    page = (EXAMPLES.parent / "logs.md").read_text(encoding="utf-8")
    for name in files:
        load_instance(EXAMPLES / f"{name}.yaml")
        assert f"examples/{name}.yaml" in page
    for name in presets():
        written = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
        assert written == example(name), "run `make docs`"


class Event(NamedTuple):
    """A Windows logon: where, whose, of which type, and the process that reports it (`-`: none)."""

    host: str
    user: str
    type: str
    process: str
    domain: str = "CORP"

    @property
    def path(self):
        return self.process if self.process == "-" else f"C:\\Windows\\System32\\{self.process}"

    @property
    def machine(self):
        return f"{self.host}.corp.example"

    def data(self):
        names = {"TargetUserName": self.user, "TargetDomainName": self.domain}
        return {**names, "LogonType": self.type, "ProcessName": self.path}


def of_winlogbeat(event, agent=None):
    winlog = {"computer_name": event.machine, "event_id": "4624", "event_data": event.data()}
    agent = {"name": agent or event.host, "type": "winlogbeat"}
    return {"@timestamp": f"{WHEN}Z", "agent": agent, "winlog": winlog, "event": {"code": "4624"}}


def of_ecs(event, agent=None):
    body = of_winlogbeat(event, agent)
    body["event"] |= {"outcome": "success", "action": "logged-in", "category": ["authentication"]}
    process = {"name": event.process, "executable": event.path}
    return body | {"user": {"name": event.user, "domain": event.domain}, "process": process}


def of_forwarding(event):
    return of_ecs(event, "WEC01") | {"host": {"name": event.machine}, "tags": ["forwarded"]}


def of_wazuh(event):
    data = {name[0].lower() + name[1:]: text.replace("\\", "\\\\") for name, text in event.data().items()}
    win = {"system": {"eventID": "4624", "computer": event.machine, "channel": "Security"}, "eventdata": data}
    return {"@timestamp": f"{WHEN}Z", "agent": {"name": event.host, "id": "001"}, "data": {"win": win}}


def of_graylog(event):
    data = {f"winlogbeat_winlog_event_data_{name}": text for name, text in event.data().items()}
    names = {"winlogbeat_agent_name": event.host, "winlogbeat_winlog_computer_name": event.machine}
    code = {"winlogbeat_event_code": "4624", "winlogbeat_winlog_event_id": "4624"}
    return {"timestamp": f"{WHEN.replace('T', ' ')}.000", "source": event.host, **data, **names, **code}


def of_nxlog(event):
    times = {"EventTime": f"{WHEN}.000Z", "EventReceivedTime": f"{WHEN}.000Z"}
    return {**times, "Hostname": event.machine, "EventID": 4624, "Channel": "Security", **event.data()}


def of_bare_fluent_bit(event):
    subject = ["S-1-5-18", f"{event.host}$", "CORP", "0x3e7", "S-1-5-21-1-2-3-1104"]
    inserts = [*subject, event.user, event.domain, "0x1008e", int(event.type), *["-"] * 8, event.path]
    event_of = {"EventID": 4624, "Channel": "Security", "Computer": event.machine}
    return {"@timestamp": f"{WHEN}.000Z", **event_of, "StringInserts": inserts}


def of_fluent_bit(event):
    return {**of_bare_fluent_bit(event), **event.data(), "StringInserts": None}


WINDOWS = {
    "elastic-agent": (MAPPING, of_ecs),
    "winlogbeat": (MAPPING, of_ecs),
    "winlogbeat-logstash": (AS_TEXTS, of_winlogbeat),
    "windows-forwarding": (MAPPING, of_forwarding),
    "windows-7": (MAPPING, of_ecs),
    "wazuh": (AS_KEYWORDS, of_wazuh),
    "graylog": ({"mappings": AS_KEYWORDS["mappings"] | {"properties": GRAYLOG_TIME}}, of_graylog),
    "nxlog": (AS_TEXTS, of_nxlog),
    "fluent-bit": (AS_TEXTS, of_fluent_bit),
}
assert WINDOWS.keys() == presets().keys() - {"linux", "macos"}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(load, run, proposed, name):
    """Counted is what the page says; the proposal for the index is the preset whose layout it has."""
    mapping, layout = WINDOWS[name]
    counted, other = (
        ("winlogon.exe", "svchost.exe") if name == "windows-7" else ("svchost.exe", "winlogon.exe")
    )
    events = [
        *[Event("PC-1", "ann", "2", counted)] * 2,
        *[Event("PC-1", "ann", "11", counted)],
        *[Event("PC-1", "bob", "7", "lsass.exe")] * 20,
        *[Event("PC-1", "bob", "3", "-")] * 20,
        *[Event("PC-1", "cyd", "5", "services.exe")] * 20,
        *[Event("PC-1", "cyd", "2", other)] * 20,
        *[Event("PC-2", "bob", "10", counted)] * 2,
        *[Event("PC-2", "PC-2$", "3", counted)] * 20,
        *[Event("PC-2", "SYSTEM", "4", counted, "NT AUTHORITY")] * 20,
        *[Event("PC-3", "cyd", "7", "lsass.exe")] * 5,
    ]
    index = load(presets()[name].settings["index"], mapping, map(layout, events))
    evidence, owners = run(name, "PC-1", "PC-2", "PC-3", "WEC01")
    assert owners == {"PC-1": "ann", "PC-2": "bob"}
    assert evidence["PC-3"] == evidence["WEC01"] == "no_logons"
    said = proposed("--index", index)
    assert f"({name})" in said.stderr
    assert yaml.safe_load(said.stdout)["query"] == presets()[name].settings["query"]


def test_fluent_bit_without_the_filter_names_no_user(load, proposed):
    mapping = {"mappings": {"properties": {"StringInserts": {"type": "keyword"}}}}
    bare = of_bare_fluent_bit(Event("PC-1", "ann", "2", "svchost.exe"))
    index = load("fluent-bit*", mapping, [bare])
    with pytest.raises(ConfigurationError, match=r"the user: none; the host: Computer\.keyword"):
        proposed("--index", index)


def test_fields_of_its_own_are_taken_by_enter_and_count(load, run, as_admin, engine_stand):
    types = {"user": "keyword", "host": "keyword", "action": "keyword", "when": "date"}
    mapping = {"mappings": {"properties": {name: {"type": kind} for name, kind in types.items()}}}
    logons = [{"user": "CORP\\ann", "host": "PC-1", "action": "logon", "when": f"{WHEN}Z"}] * 3
    index = load("corp-*", mapping, [*logons, {**logons[0], "user": "bob", "action": "logoff"}])
    settings = {
        "url": engine_stand.engine.url,
        "ca_file": str(engine_stand.engine.ca_file),
        "index": "corp-*",
    }
    with Asker(samples.instance(**settings, **as_admin)) as client:
        found = propose(client, own_fields=True)
    assert found.index == index.replace("2026.03.10", "*")
    assert run(None, "PC-1", **found.own) == ({"PC-1": "single_user"}, {"PC-1": "ann"})


def ecs(host, user, action, process=None, *, category="authentication", outcome="success", **event):
    """An event that is no Windows event."""
    return {
        "@timestamp": f"{WHEN}Z",
        "event": {"kind": "event", "category": [category], "action": action, "outcome": outcome, **event},
        "host": {"name": host, "hostname": host.split(".")[0]},
        "user": {"name": user},
        **({"process": {"name": process}} if process else {}),
    }


def ssh(host, user, process="sshd", **changes):
    return ecs(host, user, "ssh_login", process, type=["info"], dataset="system.auth", **changes)


def test_linux(load, run, proposed):
    def session(host, user, kind="start"):
        return ecs(host, user, f"session_{kind}", "systemd-logind", type=[kind], dataset="system.auth")

    documents = [
        *[ssh("web-1.corp.example", "ann")] * 3,
        *[session("web-1", "ann")] * 3,
        *[session("web-1", "bob", "end")] * 20,
        *[ssh("web-1", "cyd", outcome="failure")] * 20,
        *[session("ws-2", "bob")] * 4,
        *[session("ws-2", "gdm")] * 20,
        *[session("ws-2", "root")] * 20,
        *[ecs("ws-2", "cyd", "ran-command", "sudo", category="process")] * 20,
        *[ecs("ws-3", "cyd", "user_login", type=["start"], dataset="login")] * 2,
        *[ssh("ws-3", "cyd", "sshd-session")] * 2,
        *[session("ws-4", name) for name in ("root", "gdm", "gdm-greeter", "systemd-network")],
    ]  # fmt: skip
    index = load("filebeat-*", MAPPING, documents)
    evidence, owners = run("linux", "web-1", "WS-2", "ws-3", "ws-4")
    assert owners == {"web-1": "ann", "WS-2": "bob", "ws-3": "cyd"}
    assert evidence["ws-4"] == "no_logons"
    assert "(linux)" in proposed("--index", index).stderr


def test_macos(load, run, proposed):
    def logon(host, user, action="log_on", system="macos", **changes):
        body = ecs(host, user, action, "loginwindow", module="endpoint", type=["start"], **changes)
        body["host"]["os"] = {"type": system}
        return body | {"agent": {"type": "endpoint", "version": "8.15.3"}}

    documents = [
        *[logon("Anns-MacBook-Pro.local", "ann")] * 3,
        *[logon("Anns-MacBook-Pro.local", "bob", "log_off")] * 20,
        *[logon("Anns-MacBook-Pro.local", "bob", outcome="failure")] * 20,
        *[logon("Anns-MacBook-Pro.local", "_mbsetupuser")] * 20,
        *[logon("mini-2", "bob", "ssh_log_on")] * 3,
        *[logon("mini-2", "cyd", "rdp_log_on")],
        *[logon("mini-2", "root", "ssh_log_on")] * 20,
        *[logon("pc-3", "cyd", system="windows")] * 3,
    ]  # fmt: skip
    index = load("logs-endpoint.events.security-*", MAPPING, documents)
    evidence, owners = run("macos", "Anns-MacBook-Pro", "mini-2", "pc-3")
    assert owners == {"Anns-MacBook-Pro": "ann", "mini-2": "bob"}
    assert evidence["pc-3"] == "no_logons"
    assert "(macos)" in proposed("--index", index).stderr


def test_logs_of_two_ways_count_together(load, run, engine_stand, as_admin):
    """A host of both lists has one share, and an error names the one of the logs that it is about."""
    windows = [Event("box-1", "ann", "2", "svchost.exe")] * 3 + [Event("PC-2", "bob", "2", "svchost.exe")] * 2
    indexes = {
        "winlogbeat-logstash": load("winlogbeat-*", AS_TEXTS, map(of_winlogbeat, windows)),
        "linux": load("filebeat-*", MAPPING, [ssh("box-1", "bob")] * 3 + [ssh("web-3", "cyd")]),
    }
    logs = [{"preset": name, "index": index} for name, index in indexes.items()]
    evidence, owners = run(None, "box-1", "PC-2", "web-3", logs=logs)
    assert owners == {"PC-2": "bob", "web-3": "cyd"}
    assert evidence["box-1"] == "no_majority"
    logs[1]["user_field"] = "user.nmae"
    file = engine_stand.instance_file({**as_admin, "logs": logs})
    checked = engine_stand.call("check", "--instance", file).output
    assert "logs.0 (winlogbeat-logstash): query: matches 5 logon events" in checked
    assert "logs.1 (linux): user_field: none of the 4 logon events from" in checked
    failed = engine_stand.call("run", "--instance", file)
    assert failed.exit_code == 1
    assert "logs.1 (linux): user_field: none of the 4 logon events from" in failed.output


ONE_OF_EACH_PAIR = (
    "event.code:4624 AND event.outcome:success AND process.name:svchost.exe"
    ' AND NOT (winlog.event_data.ElevatedToken:"%%1843"'
    " AND winlog.event_data.TargetLinkedLogonId:* AND NOT winlog.event_data.TargetLinkedLogonId:0x0)"
)


@pytest.mark.parametrize(
    ("changes", "user"), [({}, "tech"), ({"rules": RECOMMENDED}, "ann"), ({"query": ONE_OF_EACH_PAIR}, None)]
)
def test_a_local_administrators_logon_is_two_events(load, engine_stand, as_admin, changes, user):
    """One with the elevated token, one with the filtered; a query may leave one of them out."""
    page = (EXAMPLES.parent / "logs.md").read_text(encoding="utf-8")
    assert ONE_OF_EACH_PAIR in " ".join(page.split())
    numbers, documents = count(), []

    def add(name, age, elevated="%%1843", linked="0x0"):
        logon = Logon(at_noon(TODAY - timedelta(days=age)), "logon", "pc-1.corp.example", "pc-1", name)
        documents.append(document(logon, next(numbers)))
        documents[-1]["winlog"]["event_data"] |= {"ElevatedToken": elevated, "TargetLinkedLogonId": linked}

    for number in range(10):
        add("tech", number % 2, "%%1842", "0x4ea536")
        add("tech", number % 2, "%%1843", "0x4ea518")
    for age in range(13):
        add("ann", age)
    index = load("logs-pairs-*", MAPPING, documents)
    engine_stand.begin([{"id": "h-1", "search_agent_name": "pc-1"}], USERS)
    ran = engine_stand.run(
        {**as_admin, "index": index, "scan": {"lookback_days": 30}, **changes}, "--dry-run"
    )
    assert ran.status == 0, ran.stderr
    (decision,) = engine_stand.tables.read_own("owner_decisions", ran.report["run_id"]).to_dicts()
    named = decision["username"] if decision["evidence"] == "majority" else None
    assert (named, decision["total_events"]) == (user, 23 if user is None else 33)


def test_windows_by_kind_of_logon(load, run):
    logons = [
        *[("pc-1", "ann", "2")] * 2,
        *[("pc-1", "bob", "3")] * 15,
        *[("pc-2", "cyd", "7")],
        *[("pc-2", "cyd", "11")],
        *[("pc-2", "ann", "10")] * 3,
        *[("pc-3", "bob", "3")] * 3,
        *[("pc-3", "cyd", "5")] * 30,
        *[("pc-4", "ann", "10")] * 3,
        *[("pc-4", "bob", "2")],
    ]
    load("winlogbeat-*", MAPPING, [of_ecs(Event(*logon, "svchost.exe")) for logon in logons])
    evidence, owners = run("windows-interactive", "pc-1", "pc-2", "pc-3", "pc-4")
    assert owners == {"pc-1": "ann", "pc-2": "cyd", "pc-3": "bob"}
    assert evidence["pc-4"] == "no_majority"
