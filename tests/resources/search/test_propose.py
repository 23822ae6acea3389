"""What `init --url` proposes for the newest logon; `test_examples` asks the real engine."""

from types import SimpleNamespace
from typing import Any

import pytest

from resources.errors import ConfigurationError
from resources.search.asking import Document
from resources.search.explaining import Proposal, propose
from resources.settings.models import presets
from tests.resources.samples import instance


def client(index, fields, *matched):
    """A search client whose newest logon has these fields and fits the queries of these presets."""
    found = Document(index=index, fields=fields, matched_queries=[*matched])
    holder: Any = SimpleNamespace(newest=lambda _: found if fields else None, instance=instance())
    return holder


ECS = ("elastic-agent", "winlogbeat", "windows-forwarding")
OF_ECS = {
    **{field: ["x"] for field in presets()["winlogbeat"].settings.values()},
    "@timestamp": ["2026-03-02T12:00:00.000Z"],
    "agent.name": ["PC-1"],
    "winlog.computer_name": ["pc-1.corp.example"],
}


DATES = """
2026.w48 2026.48 2026-w48 2026w48 2026.kw48 w48-2026 2026.q4 2026-nov november-2026 2026 202611 20261127
2026-11-27t13 2026.11.27-000003 000003 8.15.0-2026.11.27-000003 7
"""
"""How indexes are called by the time that they are of."""


@pytest.mark.parametrize(
    ("index", "proposal"),
    [
        (".ds-logs-system.security-default-2026.03.02-000001", ("elastic-agent", "logs-system.security-*")),
        (".ds-winlogbeat-8.15.0-2026.03.02-000001", ("winlogbeat", "winlogbeat-*")),
        ("w2k-events_2026.03", ("elastic-agent", "w2k-events_*")),
        ("logs-small", ("elastic-agent", "logs-small")),
        *((f"siem-win-{days}", ("elastic-agent", "siem-win-*")) for days in DATES.split()),
        *((f"win{day}", ("elastic-agent", "win*")) for day in ("20261127", "2026.11.27", "2026.w48")),
        *(
            (name, ("elastic-agent", name))
            for name in ("win10", "logs.win2019", "siem-q4", "siem-w10", "a-may")
        ),
        ("siem-win2019-2026.11.27", ("elastic-agent", "siem-win2019-*")),
        (".ds-logs-siem-default-2026.11.27-000001", ("elastic-agent", "logs-siem-default")),
        (".ds-siem-8.15.0-000001", ("elastic-agent", "siem-*")),
    ],
)
def test_of_presets_with_the_same_fields_the_index_decides(index, proposal):
    assert propose(client(index, OF_ECS, *ECS)) == Proposal(*proposal)


def test_a_sender_that_is_another_machine_is_a_collector():
    fields = OF_ECS | {"agent.name": ["WEC01"]}
    assert propose(client("winlogbeat-1", fields, *ECS)).preset == "windows-forwarding"


def test_texts_with_keywords_below_need_a_preset_that_names_those():
    fields = OF_ECS | {"user.name.keyword": ["ann"], "account.name": ["ann"]}
    with pytest.raises(ConfigurationError) as raised:
        propose(client("winlogbeat-1", fields, *ECS))
    forms = "the user: account.name (aaa), user.name.keyword (aaa); the host: agent.name (aa-9)"
    assert forms in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        (
            {"user": ["CORP\\ann"], "host": ["PC-1"], "action": ["logon"], "when": ["2026/03/02 09:00"]},
            ("user", "host", "when", "action:logon"),
        ),
        (
            {
                "login": ["ann"],
                "login.keyword": ["ann"],
                "computer": ["PC-1"],
                "EventID": [4624],
                "ts": ["1772442000000"],
                "@timestamp": ["2026-03-02T09:00:00Z"],
                "odd name": ["logon"],
            },
            ("login.keyword", "computer", "@timestamp", "EventID:4624"),
        ),
        ({"user": ["ann"], "host": ["PC-1"]}, ("user", "host", None, "*")),
        ({"LoginUser": ["ann"], "Rechner": ["PC-1"]}, ("LoginUser", None, None, "*")),
        ({"Rechner": ["PC-1"]}, (None, None, None, "*")),
        *(
            ({"acct.login": ["ann"], name: ["PC-1"]}, ("acct.login", name, None, "*"))
            for name in (
                "machine.fqdn",
                "fqdn.keyword",
                "computer.dns_name",
                "asset.device",
                "workstation.name",
            )
        ),
        ({"machine.id": ["7"], "device.ip": ["::1"]}, (None, None, None, "*")),
    ],
)
def test_an_index_with_fields_of_its_own_is_proposed_with_the_form_of_their_values(fields, settings):
    found = propose(client("corp-2026.03", fields), own_fields=True)
    names = ("user_field", "hostname_field", "time_field", "query")
    assert (found.index, tuple(map(found.settings.get, names))) == ("corp-*", settings)
    assert "ann" not in found.title
    assert ("Rechner (aa-9)" in found.title) == ("Rechner" in fields)
    with pytest.raises(
        ConfigurationError, match=r"letters shown as a, .* that may hold the user: .*; the time: "
    ):
        propose(client("corp-2026.03", fields))


def test_where_no_logon_is_found_the_options_are_named():
    with pytest.raises(ConfigurationError, match=r"--index.*--logs"):
        propose(client("logs-1", {}))
