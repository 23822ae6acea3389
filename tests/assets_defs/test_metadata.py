from datetime import date

import dagster as dg
import polars as pl

from assets_defs.metadata import (
    MAX_EXAMPLES,
    MAX_ROWS,
    days_metadata,
    decisions_metadata,
    owners_metadata,
    writes_metadata,
)
from ownership.codes import ACTION, EVIDENCE, MATCH
from ownership.declaration import empty
from ownership.history import with_new_conflicts
from ownership.tables import AcknowledgedConflicts
from tests.ownership.builders import counts, decide, host, hosts, plan, user, users

PEOPLE = users(
    user("u1", "alice@corp.example", user_department="Sales", criticality="low"),
    user("u2", "bob@corp.example"),
)
ASSETS = hosts(
    host("h1", "ws1", department="Legal", criticality="high"),
    host("h2", "ws2"),
    host("h3", "ws3", owners=("u1",)),
    host("h4", "ws4", owners=("u9|<b>",)),
    host("h5"),
)
LOGONS = [("ws1", "alice", 6), ("ws2", "bob", 5), ("ws2", "zoe", 4), ("ws3", "alice", 9), ("ws4", "bob", 2)]
DECISIONS = with_new_conflicts(
    decide(counts(*LOGONS), PEOPLE, ASSETS), decide(counts(), PEOPLE, hosts()), empty(AcknowledgedConflicts)
)


def of_writes(*outcomes):
    """What is shown of a plan whose writes had these outcomes."""
    planned = plan(DECISIONS, PEOPLE, ASSETS)
    rows = [
        planned.with_columns(
            host_id=pl.lit(f"h{number}"), outcome=pl.lit(outcome), message=pl.lit("said\n|so|")
        )
        for number, outcome in enumerate(outcomes)
    ]
    rows = pl.concat([planned.clear(), *rows])
    return writes_metadata(rows, DECISIONS, PEOPLE, see_all="list them")


def records(value):
    assert isinstance(value, dg.TableMetadataValue)
    return [record.data for record in value.records]


def test_decisions_show_the_way_from_events_to_owners():
    found = decisions_metadata(DECISIONS, events=26)
    (conflict,) = records(found["first_new_conflicts"])
    assert conflict == {
        "hostname": "ws4",
        "host_id": "h4",
        "existing_owner": "u9|<b>",
        "resolved_owner": "u2",
    }
    first = records(found["funnel"])[0]
    assert first == {"stage": "in the inventory", "hosts": 5, "drop_outs": "no_hostname 1"}
    numbers = ("events", "hosts_owned_percent", "hosts_to_write", "conflicts", "new_conflicts")
    assert [found[name] for name in numbers] == [26, 40.0, 1, 1, 1]


def test_hosts_without_an_owner_are_listed_with_the_reason():
    logons = counts(("two", "alice", 5), ("two", "bob", 5), ("lab", "zoe", 9))
    decided = decide(logons, PEOPLE, hosts(host("h1", "lab"), host("h2", "idle"), host("h3", "two")))
    assert records(owners_metadata(decided, PEOPLE, see_all="")["hosts_without_owner"]) == [
        {"host": "lab", "host id": "h1", "why": MATCH["no_user_asset"]},
        {"host": "idle", "host id": "h2", "why": EVIDENCE["no_logons"]},
        {"host": "two", "host id": "h3", "why": EVIDENCE["no_majority"]},
    ]


def test_days_are_listed_that_lack_events():
    days = pl.DataFrame(
        {
            "day": [date(2026, 3, number) for number in (1, 2, 3)],
            "events": [90, 0, None],
            "state": ["ok", "gap", "not fetched"],
        }
    )
    found = days_metadata(days)
    assert records(found["days_lacking_events"]) == [
        {"day": "2026-03-03", "state": "not fetched", "events": ""},
        {"day": "2026-03-02", "state": "gap", "events": 0},
    ]
    assert days_metadata(days.filter(state="ok")) == {}


def test_writes_are_counted_by_outcome_and_the_first_failures_shown_whatever_they_hold():
    found = of_writes("written", "written", *["failed"] * 10, "owned_meanwhile")
    assert found["outcomes"] == "10 failed, 2 written, 1 owned_meanwhile"
    assert [found[name] for name in ("hosts_written", "hosts_failed", "hosts_owned_percent")] == [2, 10, 80.0]
    failures = records(found["first_failures"])
    assert failures[0] == {"host_id": "h2", "outcome": "failed", "message": r"said\n|so|"}
    assert len(failures) == MAX_EXAMPLES
    nothing = of_writes()
    assert nothing["hosts_written"] == nothing["hosts_failed"] == 0, "so that the UI's plots have no holes"
    assert "first_failures" not in nothing


def test_a_plan_can_be_judged_by_its_first_hosts_with_owner_and_evidence():
    found = of_writes(*["planned"] * (MAX_ROWS + 2))
    hosts = records(found["hosts"])
    assert len(hosts) == MAX_ROWS
    assert found["more_hosts"].endswith("list them")
    assert (hosts[2]["host"], hosts[2]["owner"]) == ("ws1", "alice@corp.example (u1)")
    assert (hosts[2]["department"], hosts[2]["criticality"]) == ("Legal → Sales", "high → low")


def test_of_what_is_to_be_written_the_least_certain_hosts_are_shown_first():
    assets = hosts(host("h1", "alone"), host("h2", "shared"), host("h3", "taken", owners=("u1",)))
    logons = counts(("alone", "alice", 9), ("shared", "bob", 7), ("shared", "zoe", 3), ("taken", "bob", 2))
    rows = records(owners_metadata(decide(logons, PEOPLE, assets), PEOPLE, see_all="")["hosts"])
    assert [row["host"] for row in rows] == ["taken", "shared", "alone"]


def test_decisions_show_the_hosts_that_have_an_owner_or_are_to_get_one():
    assets = pl.concat([ASSETS, hosts(host("h6", owners=("u1",)))])
    decisions = decide(counts(*LOGONS), PEOPLE, assets)
    rows = records(owners_metadata(decisions, PEOPLE, see_all="")["hosts"])
    assert {row["host id"]: (row["owner"], row["department"]) for row in rows} == {
        "h1": ("alice@corp.example (u1)", "Sales"),
        "h3": ("alice@corp.example (u1)", "Sales"),
        "h4": ("u9|<b>", ""),
        "h6": ("alice@corp.example (u1)", "Sales"),
    }
    assert [row["why"] for row in rows] == [
        ACTION["conflict"],
        "has none and gets this one: 6 of 6 logons on 1 day",
        "9 of 9 logons on 1 day",
        ACTION["keep"],
    ]
