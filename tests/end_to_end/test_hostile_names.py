"""Users and hosts may be called anything: names stay as they are, and nothing takes them for more."""

import copy
import unicodedata

import duckdb
import pytest

from pipelines.dagster_home import dagster_instance
from resources.store.catalogue import catalogue_path
from sandbox.company import MAPPING
from tests.end_to_end.stand import TODAY, at_noon, documents, logons

pytestmark = pytest.mark.slow

NAMES = {
    "right to left": "\u202egnp.exe\u202c",
    "Hebrew and Arabic": "דוד-احمد",
    "only zero width": "\u200b\u2060",
    "NUL": "nul\x00nul",
    "newlines": "line\nfeed\r\nand\x0bmore\u2028still\x85",
    "terminal": "\x1b[2J\x1b]0;title\x07red",
    "10,000 letters": "long" * 2_500,
    "Markdown": "**bold** | [link](http://x.example) | `code`\n# Head",
    "HTML": "<img src=x onerror=alert(1)>&amp;",
    "formula": "=cmd|' /C calc'!A0",
    "quotes": 'o\'brien "the" `x`',
    "SQL": "'); DROP TABLE small.owner_decisions; --",
    "backslash": "c:\\temp\\..\\n",
    "path": "../../etc/passwd%2e%2e",
    "percent": "%s%n%(name)s%00",
    "braces": "{0.__class__} {username} ${jndi:ldap://x}",
    "lone accent": "\u0301acute\u0308",
    "decomposed": "Zo\u0065\u0301",
    "emoji": "👩🏽\u200d💻🦊",
    "not a character": "\ufffe\uffff\U0010ffff",
    "wildcards": "*?[a-z]",
    "option": "--instance=/etc/passwd",
    "null": "null",
    "comma": 'a,b;c\t"d"',
}
"""Their normalised forms differ; so do those of user names, without what stands before \\ or after @."""

WHOLE = copy.deepcopy(MAPPING)
for field in ("agent", "user"):
    WHOLE["mappings"]["properties"][field]["properties"]["name"]["ignore_above"] = 20_000


FORGED = "2026-11-21 12:00:00 error: forged"
ODD = ("\x1b[2J", f"\n{FORGED}", "\u202e")


def odd_id(letter, number):
    """The id of an asset; the first three act on a terminal, or forge a line of a log."""
    return f"{letter}-{number}{dict(enumerate(ODD)).get(number, '')}"


@pytest.fixture
def hostile(engine_stand, monkeypatch):
    """A host and a user of each name; pages of two pairs, so that names go out in requests, too."""
    monkeypatch.setattr("resources.search.logons.MAX_PAGE", 2)
    people, machines, taken = [], [], []
    for number, name in enumerate(NAMES.values()):
        person = {"id": odd_id("u", number), "directory_user_sam_account_name": name, "user_department": name}
        people.append(person)
        machines.append({"id": odd_id("h", number), "search_agent_name": name})
        if number < len(ODD):
            owner = f"somebody{ODD[number]}"
            taken.append({"id": odd_id("taken", number), "search_agent_name": name, "asset_owner": owner})
    engine_stand.begin(machines + taken, people)
    events = [event for name in NAMES.values() for event in logons(name, name, 2, at=at_noon(TODAY))]
    engine_stand.engine.load("logs-hostile", WHOLE, documents(events))
    return engine_stand


def is_plain(text):
    """Whether a text acts on no terminal, and has no line that a name has made."""
    lines = text.split("\n")
    return all(line.isprintable() and not line.startswith(FORGED) for line in lines)


def test_hostile_names_and_ids_go_through_whole_runs_as_they_are_and_act_on_nothing(hostile):
    settings = {"index": "logs-hostile"}
    ran = hostile.run(settings)
    assert (ran.status, ran.report["writes"]) == (0, {"written": len(NAMES)}), ran.stderr
    assert hostile.written() == {
        odd_id("h", number): {"asset_owner": odd_id("u", number), "department": name}
        for number, name in enumerate(NAMES.values())
    }
    names = sorted(NAMES.values())
    with duckdb.connect(catalogue_path(hostile.home), read_only=True) as catalogue:
        for column, table in (
            ("document_hostname", "logon_counts"),
            ("document_username", "logon_counts"),
            ("DISTINCT hostnames[1]", "inventory_hosts"),
            ("directory_user_sam_account_name[1]", "inventory_users"),
            ("username_spellings[1]", "host_user_shares"),
            ("new_values.department", "owner_writes"),
        ):
            found = catalogue.sql(f"SELECT {column} FROM small.{table}").fetchall()  # noqa: S608
            assert sorted(name for (name,) in found) == names, column
        decided = "SELECT hostname, host_id, resolved_owner FROM small.owner_decisions WHERE action = 'write'"
        found = set(catalogue.sql(decided).fetchall())
    assert found == {
        (unicodedata.normalize("NFC", name.lower()).strip(), odd_id("h", number), odd_id("u", number))
        for number, name in enumerate(NAMES.values())
    }

    again = hostile.run(settings)
    assert (again.status, again.report["writes"]) == (0, {})
    assert again.report["decisions"] == {
        "single_user/matched/agree": len(NAMES),
        "single_user/matched/conflict": len(ODD),
    }
    file = hostile.instance_file(settings)
    calls = [hostile.call("explain", "--instance", file, "--", name) for name in NAMES.values()]
    for number, explained in enumerate(calls):
        assert f"h-{number}" in explained.stdout
    calls += [
        hostile.call("sql", "FROM owner_decisions"),
        hostile.call("sql", "FROM owner_writes", "--format", "json"),
        hostile.call("undo", "--instance", file, ran.report["run_id"], "--dry-run"),
        hostile.call("undo", "--instance", file, ran.report["run_id"]),
        hostile.call("run", "--instance", file, "--as-of", TODAY, "--dry-run"),
    ]
    assert {call.exit_code for call in calls} == {0}
    with dagster_instance(hostile.home) as recorded:
        records = [entry for run in recorded.get_runs() for entry in recorded.all_logs(run.run_id)]
    logged = [entry.user_message for entry in records]
    assert any("taken" in text for text in logged)
    printed = [text for one in (ran, again, *calls) for text in (one.stdout, one.stderr)]
    assert [text for text in (*printed, *logged) if not is_plain(text)] == []
