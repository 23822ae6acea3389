from datetime import date
from functools import cache

import dagster as dg
import polars as pl
import pytest

from assets_defs.asset_specs import (
    MAX_EXAMPLES,
    MAX_ROWS,
    days_metadata,
    decisions_metadata,
    departments_metadata,
    hosts_metadata,
    writes_metadata,
)
from assets_defs.tuning import table_filled
from ownership.declaration import empty
from ownership.history import current_owners, with_new_conflicts
from ownership.tables import AcknowledgedConflicts, OwnerWrites, ThresholdBacktest
from reports.story import hosts_by_now, hosts_sheet
from tests.ownership.builders import PRESENT, counts, decide, host, hosts, plan, reading, table, user, users
from tests.resources.samples import instance

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


@cache
def decisions():
    now, before = decide(counts(*LOGONS), PEOPLE, ASSETS), decide(counts(), PEOPLE, hosts())
    return with_new_conflicts(now, before, empty(AcknowledgedConflicts))


def of_writes(*outcomes):
    """What is shown of a plan whose writes had these outcomes."""
    planned = plan(decisions(), PEOPLE, ASSETS)
    rows = [
        planned.with_columns(
            host_id=pl.lit(f"h{number}"), outcome=pl.lit(outcome), message=pl.lit("said\n|so|")
        )
        for number, outcome in enumerate(outcomes)
    ]
    rows = pl.concat([planned.clear(), *rows])
    return writes_metadata(rows, decisions(), outcomes.count("written"))


def told(decisions, people=PEOPLE, assets=ASSETS, writes=None):
    """The first hosts of decisions, each as the sheet tells of it."""
    rows = (empty(OwnerWrites) if writes is None else writes).lazy()
    owners = current_owners(assets, people, rows)

    def sheet_of(some):
        now = hosts_by_now(some, reading(current_owners=owners), rows, PRESENT)
        return hosts_sheet(now, people, PRESENT)

    return hosts_metadata(decisions, sheet_of, see_all="list them")


def records(value):
    assert isinstance(value, dg.TableMetadataValue)
    return [record.data for record in value.records]


def test_decisions_show_the_way_from_events_to_owners():
    found = decisions_metadata(decisions(), events=26)
    (conflict,) = records(found["first_new_conflicts"])
    assert conflict == {
        "hostname": "ws4",
        "host_id": "h4",
        "existing_owner": "u9|<b>",
        "resolved_owner": "u2",
    }
    assert next(iter(found)) == "funnel"
    assert records(found["funnel"])[0] == {"stage": "in the inventory", "hosts": 5}
    dropped = {"reason": "no host name", "hosts": "1", "lost after": "in the inventory"}
    assert records(found["drop_out"])[0] == dropped
    assert found["drop_out_owners"] == "2 without an owner, 0 that keep theirs"
    numbers = ("events", "hosts_owned_percent", "hosts_to_write", "conflicts", "new_conflicts")
    assert [found[name] for name in numbers] == [26, 40.0, 1, 1, 1]
    written = decisions_metadata(decisions(), events=26, written=1)
    assert [written[name] for name in numbers] == [26, 60.0, 0, 1, 1]
    stages = {row["stage"]: row["hosts"] for row in records(written["funnel"])}
    assert (stages["written"], stages["to write"]) == (1, written["hosts_to_write"])


def test_departments_are_listed_with_their_hosts_that_have_an_owner_the_largest_first():
    sales = (host(f"s{owner}", department="Sales", owners=(owner,)) for owner in ("u1", ""))
    owners = current_owners(pl.concat([ASSETS, hosts(*sales)]), PEOPLE, empty(OwnerWrites).lazy())
    assert records(departments_metadata(owners)["owners_by_department"]) == [
        {"department": "none", "with owner": "2 of 4 (50%)"},
        {"department": "Sales", "with owner": "1 of 2 (50%)"},
        {"department": "Legal", "with owner": "0 of 1 (0%)"},
    ]
    assert departments_metadata(owners.clear()) == {}
    many = hosts(*(host(f"h{n}", department=f"D{n}") for n in range(60)))
    listed = records(
        departments_metadata(current_owners(many, PEOPLE, empty(OwnerWrites).lazy()))["owners_by_department"]
    )
    assert (len(listed), listed[-1]["department"]) == (51, "and 10 more")


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


@pytest.mark.parametrize(
    ("table", "rows", "command", "numbers"),
    [
        (
            "audit_sample",
            [{"right": True}, {"right": None}, {"right": True}],
            "tune --instance windows_logons --audit",
            [{"right": "true", "rows": 2}, {"right": "", "rows": 1}],
        ),
        ("host_profiles", [{"kind": "personal"}], "tune", [{"kind": "personal", "rows": 1}]),
        ("confidence_bands", [{"band": "90 to 99"}], "tune", [{"band": "90 to 99"}]),
        ("suggestions", [], "tune", None),
    ],
)
def test_a_table_of_tuning_shows_what_filled_it_and_its_numbers_without_names(table, rows, command, numbers):
    found = table_filled(instance(), table, pl.DataFrame(rows)).metadata
    assert str(found["filled_by"].value).startswith(f"asset-owners {command}")
    assert ("numbers" in found and records(found["numbers"])) == (numbers or False)
    assert found["dagster/row_count"].value == len(rows)


def test_settings_tried_are_shown_with_the_fewest_wrong_first_in_columns_that_a_page_does_not_cut_off():
    usual = {"window_days": 30, "threshold_percent": 60, "min_active_days": 1, "evidence_metric": "events"}
    lines = [
        {"to_write": 150, "wrong_low": 0.4},
        {"to_write": 168, "wrong_low": 4.6},
        {"to_write": 90, "wrong": 2.2, "wrong_low": 1.0, "wrong_high": 6.0, "primary_devices": 1},
    ]
    rows = table(ThresholdBacktest, *(usual | line for line in lines))
    found = table_filled(
        instance(), "threshold_backtest", rows, {"now": "168 owners would be written"}
    ).metadata
    assert next(iter(found)) == "now"
    assert [(each["to_write"], each["wrong"], each["settings"]) for each in records(found["numbers"])] == [
        (90, "2 (1 to 6)", "60% of events in 30 days, min_active_days 1, primary_devices 1"),
        (168, "at least 5", "60% of events in 30 days, min_active_days 1"),
        (150, "not known", "60% of events in 30 days, min_active_days 1"),
    ]


def test_writes_are_counted_by_outcome_and_the_first_failures_shown_whatever_they_hold():
    found = of_writes("written", "written", *["failed"] * 10, "owned_meanwhile")
    assert found["outcomes"] == (
        "10 hosts failed, refused by the service or not readable. 2 hosts written. "
        "1 host skipped, with an owner that a person or another run has set meanwhile"
    )
    assert [found[name] for name in ("hosts_written", "hosts_failed", "hosts_owned_percent")] == [2, 10, 80.0]
    failures = records(found["first_failures"])
    assert failures[0] == {"host_id": "h2", "outcome": "failed", "message": r"said\n|so|"}
    assert len(failures) == MAX_EXAMPLES
    nothing = of_writes()
    assert nothing["hosts_written"] == nothing["hosts_failed"] == 0, "so that the UI's plots have no holes"
    assert "first_failures" not in nothing


def test_a_plan_can_be_judged_by_its_first_hosts_with_owner_and_evidence():
    names = [f"ws{number:03}" for number in range(MAX_ROWS + 2)]
    assets = hosts(*(host(f"h-{name}", name, department="Legal", criticality="high") for name in names))
    decisions = decide(counts(*((name, "alice", 6) for name in names)), PEOPLE, assets)
    found = told(decisions, assets=assets, writes=plan(decisions, PEOPLE, assets))
    rows = records(found["hosts"])
    assert len(rows) == MAX_ROWS
    assert found["more_hosts"] == "2 more; all of them: list them"
    assert (rows[2]["Host"], rows[2]["Owner"]) == ("ws002", "alice@corp.example")
    assert rows[2]["Status"] == "planned: only one user"
    assert "6 of 6 logons" in rows[2]["In words"]
    assert rows[2]["In words"].endswith(" Department: Legal → Sales. Criticality: high → low.")


def test_decisions_show_hosts_that_have_an_owner_or_are_to_get_one_apart_from_those_without():
    assets = pl.concat([ASSETS, hosts(host("h6", owners=("u1",)))])
    decisions = decide(counts(*LOGONS), PEOPLE, assets)
    found = told(decisions, assets=assets)
    without = [(row["Host"], row["Status"]) for row in records(found["hosts_without_owner"])]
    assert without == [("ws2", "no owner: no majority"), ("h5", "no owner: no host name")]
    rows = records(found["hosts"])
    assert [(row["Host"], row["Owner"], row["Status"]) for row in rows] == [
        ("ws4", "u9|<b>", "conflict: only one user"),
        ("ws1", "", "no owner: only one user"),
        ("ws3", "alice@corp.example", "set by hand: only one user"),
        ("h6", "alice@corp.example", "set by hand: no host name"),
    ]
