"""The example instance files for other logons, each run on documents in the layout that it is for."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from resources.settings import load_instance
from sandbox.company import MAPPING
from sandbox.logons import Logon, document
from tests.end_to_end.stand import TODAY, at_noon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unrecorded", "no_catalogue", "no_report")]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
OF_THE_STAND = {"name", "url", "username", "password", "sensor", "index", "platform"}
"""Keys that say where the services are; all others are the example's."""

USERS = [{"id": name, "user_email": f"{name}@corp.example"} for name in ("ann", "bob", "cyd", "root", "gdm")]
WHEN = f"{at_noon(TODAY - timedelta(days=1)):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def run(engine_stand):
    """Runs an example on documents and host assets of these names; gives evidence and owners written."""
    stand = engine_stand

    def run(example, documents, *hosts, **changes):
        settings = yaml.safe_load((EXAMPLES / example).read_text(encoding="utf-8"))
        index = f"logs-{example.removesuffix('.yaml')}-{len(changes)}"
        stand.engine.load(index, MAPPING, documents)
        stand.begin([{"id": name, "search_agent_name": name} for name in hosts], USERS)
        own = {key: value for key, value in settings.items() if key not in OF_THE_STAND}
        ran = stand.run({**own, "index": index, **changes})
        assert ran.status == 0, ran.stderr
        decisions = stand.tables.of_run("owner_decisions", ran.report["run_id"])
        owners = {host: fields["asset_owner"] for host, fields in stand.written().items()}
        return dict(decisions.select("host_id", "evidence").iter_rows()), owners

    return run


def ecs(host, user, action, process=None, *, category="authentication", outcome="success", **event):
    """An event that is no Windows event."""
    return {
        "@timestamp": WHEN,
        "event": {"kind": "event", "category": [category], "action": action, "outcome": outcome, **event},
        "host": {"name": host, "hostname": host.split(".")[0]},
        "user": {"name": user},
        **({"process": {"name": process}} if process else {}),
    }


def test_all_examples_are_valid_and_told():
    files = sorted(path.name for path in EXAMPLES.iterdir())
    assert len(files) == 4
    page = (EXAMPLES.parent / "configuration.md").read_text(encoding="utf-8")
    for name in files:
        load_instance(EXAMPLES / name)
        assert f"examples/{name}" in page


def test_linux(run):
    def ssh(host, user, **changes):
        return ecs(host, user, "ssh_login", "sshd", type=["info"], dataset="system.auth", **changes)

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
        *[ecs("ws-3", "cyd", "ssh_login", "sshd-session", type=["info"], dataset="system.auth")] * 2,
        *[session("ws-4", name) for name in ("root", "gdm", "gdm-greeter", "systemd-network")],
    ]  # fmt: skip
    evidence, owners = run("linux.yaml", documents, "web-1", "WS-2", "ws-3", "ws-4")
    assert owners == {"web-1": "ann", "WS-2": "bob", "ws-3": "cyd"}
    assert evidence["ws-4"] == "no_logons"


def test_macos(run):
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
    evidence, owners = run("macos.yaml", documents, "Anns-MacBook-Pro", "mini-2", "pc-3")
    assert owners == {"Anns-MacBook-Pro": "ann", "mini-2": "bob"}
    assert evidence["pc-3"] == "no_logons"


@pytest.mark.parametrize("field", ["host.name", "winlog.computer_name"])
def test_windows_by_a_forwarder(run, field):
    """A collector may leave host.name to the machine, or set its own name there, too."""
    documents = []
    for number, (machine, user) in enumerate([("pc-1", "ann"), ("pc-2", "bob"), ("pc-2", "SYSTEM")] * 3):
        logon = Logon(at_noon(TODAY), "logon", f"{machine}.corp.example", "WEC01", user)
        documents.append(document(logon, number))
        if field != "host.name":
            documents[-1]["host"]["name"] = "wec01.corp.example"
    changes = {} if field == "host.name" else {"hostname_field": field}
    evidence, owners = run("windows-forwarder.yaml", documents, "PC-1", "PC-2", "WEC01", **changes)
    assert owners == {"PC-1": "ann", "PC-2": "bob"}
    assert evidence["WEC01"] in {"excluded_host", "no_logons"}


def test_windows_by_kind_of_logon(run):
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
    documents = []
    for number, (host, user, kind) in enumerate(logons):
        documents.append(document(Logon(at_noon(TODAY), "desktop", host, host, user), number))
        documents[-1]["winlog"]["event_data"]["LogonType"] = kind
    evidence, owners = run("windows-interactive.yaml", documents, "pc-1", "pc-2", "pc-3", "pc-4")
    assert owners == {"pc-1": "ann", "pc-2": "cyd", "pc-3": "bob"}
    assert evidence["pc-4"] == "no_majority"
