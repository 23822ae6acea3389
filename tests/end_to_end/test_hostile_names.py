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
    "right-to-left mark": "a\u200fb",
    "Hebrew and Arabic": "דוד-احمد",
    "zero width": "zero\u200bwidth\u200djoined\ufeff",
    "only zero width": "\u200b\u2060",
    "NUL": "nul\x00nul",
    "newlines": "line\nfeed\r\nand\x0bmore\u2028still\x85",
    "terminal": "\x1b[2J\x1b]0;title\x07red",
    "10,000 letters": "long" * 2_500,
    "Markdown": "**bold** | [link](http://x.example) | `code`\n# Head",
    "HTML": "<img src=x onerror=alert(1)>&amp;",
    "formula": "=cmd|' /C calc'!A0",
    "formulas": "+1-1",
    "at": "\u00a0-1+1",
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


def normalised(name):
    return unicodedata.normalize("NFC", name.lower()).strip()


@pytest.fixture
def hostile(engine_stand, monkeypatch):
    """A host and a user of each name; pages of two pairs, so that names go out in requests, too."""
    monkeypatch.setattr("resources.search.client.MAX_PAGE", 2)
    people = [
        {"id": f"u-{number}", "directory_user_sam_account_name": name, "user_department": name}
        for number, name in enumerate(NAMES.values())
    ]
    machines = [
        {"id": f"h-{number}", "search_agent_name": name} for number, name in enumerate(NAMES.values())
    ]
    engine_stand.begin(machines, people)
    events = [event for name in NAMES.values() for event in logons(name, name, 2, at=at_noon(TODAY))]
    engine_stand.engine.load("logs-hostile", WHOLE, documents(events))
    return engine_stand


def printable(text):
    return all(line.isprintable() for line in text.split("\n"))


def test_hostile_names_go_through_a_whole_run_as_they_are(hostile):
    ran = hostile.run({"index": "logs-hostile"})
    assert (ran.status, ran.report["writes"]) == (0, {"written": len(NAMES)}), ran.stderr
    assert hostile.written() == {
        f"h-{number}": {"asset_owner": f"u-{number}", "department": name}
        for number, name in enumerate(NAMES.values())
    }
    assert printable(ran.stderr), "the log is lines of text"

    names = sorted(NAMES.values())
    with duckdb.connect(catalogue_path(hostile.home), read_only=True) as catalogue:

        def column(select):
            return sorted(name for (name,) in catalogue.sql(select).fetchall())

        for select in (
            "SELECT document_hostname FROM small.logon_counts",
            "SELECT document_username FROM small.logon_counts",
            "SELECT hostnames[1] FROM small.inventory_hosts",
            "SELECT directory_user_sam_account_name[1] FROM small.inventory_users",
            "SELECT username_spellings[1] FROM small.host_user_shares",
            "SELECT new_values.department FROM small.owner_writes",
        ):
            assert column(select) == names, select
        assert column("SELECT hostname FROM small.owner_decisions") == sorted(map(normalised, names))
        for number, name in enumerate(NAMES.values()):
            found = catalogue.execute(
                "SELECT host_id, resolved_owner FROM small.owner_decisions WHERE hostname = ?",
                [normalised(name)],
            )
            assert found.fetchall() == [(f"h-{number}", f"u-{number}")], name

    again = hostile.run({"index": "logs-hostile"})
    assert (again.status, again.report["writes"]) == (0, {})
    assert again.report["decisions"] == {"single_user/matched/agree": len(NAMES)}

    for number, name in enumerate(NAMES.values()):
        told = hostile.call("explain", "--instance", hostile.instance_file(), "--", name)
        assert (told.exit_code, printable(told.stdout)) == (0, True), name
        assert f"h-{number}" in told.stdout, name


FORGED = "2026-11-21 12:00:00 error: forged"
ODD = ("\x1b[2J", f"\n{FORGED}", "\u202e")


def test_ids_cannot_act_on_the_terminal_or_forge_lines_of_a_log(recorded_stand):
    stand = recorded_stand
    people = [{"id": f"u{odd}", "user_email": f"u{number}@corp.example"} for number, odd in enumerate(ODD)]
    hosts = [
        {"id": f"{letter}{odd}", "search_agent_name": f"pc-{number}", "asset_owner": owner}
        for number, odd in enumerate(ODD)
        for letter, owner in (("free", None), ("taken", f"somebody{odd}"))
    ]
    stand.begin(hosts, people)
    events = [event for n in range(len(ODD)) for event in logons(f"pc-{n}", f"u{n}", at=at_noon(TODAY))]
    index = {"index": stand.load(events, "logs-odd-ids")}
    planned = stand.run(index, "--dry-run")
    stand.inventory.state.set_field(f"free{ODD[0]}", "asset_owner", f"somebody{ODD[0]}")
    applied = stand.follow_up("apply", planned.report["run_id"], **index)
    undone = stand.follow_up("undo", applied.report["run_id"], **index)
    file = stand.instance_file(index)
    ran = [planned, applied, undone]
    assert [one.status for one in ran] == [0, 0, 0]
    calls = [
        stand.call("run", "--instance", file, "--as-of", TODAY),
        stand.call("sql", "FROM owner_decisions"),
        stand.call("sql", "FROM owner_writes", "--format", "json"),
        *(stand.call("explain", "--instance", file, "--", host["id"]) for host in hosts),
    ]
    assert {call.exit_code for call in calls} == {0}
    with dagster_instance(stand.home) as recorded:
        records = [entry for run in recorded.get_runs() for entry in recorded.all_logs(run.run_id)]
    logged = [entry.user_message for entry in records]
    assert any("taken" in text for text in logged)
    printed = [text for one in (*ran, *calls) for text in (one.stdout, one.stderr)]
    for text in (*printed, *logged):
        assert printable(text), text
        assert not any(line.startswith(FORGED) for line in text.split("\n")), text
