"""The hosts of a run as people look for them, on the page and in a spreadsheet."""

from datetime import date, timedelta

import polars as pl
import pytest

from ownership.current_owners import current_owners
from ownership.history import with_conflict_since
from ownership.matching import FieldNames
from ownership.rules import Rules
from reports.hosts import hosts_by_now, hosts_sheet, natural
from tests.ownership.builders import NOW, PEOPLE, counts, decide, host, hosts, plan

LOGONS = counts(
    ("pc-1", "ann", 9), ("pc-2", "ann", 7), ("pc-2", "bob", 3), ("kiosk", "ann", 1), ("kiosk", "bob", 1)
)
ASSETS = hosts(host("h1", "kiosk"), host("h2", "pc-1"), host("h3", "pc-2", owners=("u2", "u9")))


def by_now(assets, *outcomes):
    """The hosts after a run, and after writes of the owners that it planned with these outcomes."""
    decided = decide(LOGONS, PEOPLE, assets)
    decisions = with_conflict_since(decided, decided.clear())
    planned = plan(decisions, PEOPLE, assets)
    writes = pl.concat(
        planned.with_columns(outcome=pl.lit(outcome), completed_at=pl.lit(NOW + timedelta(minutes=minutes)))
        for minutes, outcome in enumerate(outcomes or ["not_written"])
    ).lazy()
    return hosts_by_now(decisions, current_owners(assets, PEOPLE, writes), writes)


def test_people_get_a_row_for_each_host_with_owner_reason_what_would_change_it_and_since_when():
    several = "has a share above the threshold"
    day = date(2026, 3, 2)
    assert hosts_sheet(by_now(ASSETS, "written"), PEOPLE, Rules(), FieldNames()).rows() == [
        (
            *("pc-1", "ann@corp.example", "ann@corp.example", "Sales", "ann@corp.example"),
            "Only one user logged on to the host (ann, 9 of 9 logons on 1 day).",
            "To change the owner, set it in the inventory (asset_owner): no run replaces an owner.",
            *(None, day, "h2"),
        ),
        (
            *("pc-2", "bob@corp.example, u9", "bob@corp.example", "", "ann@corp.example"),
            f"One of several users {several} (ann, 7 of 10 logons on 1 day).",
            "Clear asset_owner of host h3: the next run would write u1.",
            *(NOW.date(), day, "h3"),
        ),
        (
            *("kiosk", "", "", "", ""),
            f"None of several users {several} (ann, 1 of 2 logons on 1 day).",
            "ann would be named as the owner with 1 more logon.",
            *(None, day, "h1"),
        ),
    ]


@pytest.mark.parametrize(
    ("outcomes", "outcome", "owners"),
    [
        (["planned"], "planned", ["u1"]),
        (["written", "not_written"], "written", ["u1"]),
        (["failed", "owned_meanwhile"], "failed", []),
    ],
)
def test_what_was_sent_counts_for_more_than_what_left_a_host_alone_and_a_plan_as_carried_out(
    outcomes, outcome, owners
):
    found = by_now(hosts(host("h2", "pc-1")), *outcomes).filter(host_id="h2")
    assert found.select("outcome", "owner_ids").row(0) == (outcome, owners)


def test_names_are_sorted_as_people_do():
    names = ["", "007", "8", "9" * 19, "1" * 20, "a", "B", "c1d2", "c1d10"]
    assert sorted(set(names), key=natural) == names
