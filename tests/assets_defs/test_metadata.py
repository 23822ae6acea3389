from datetime import date, timedelta

import dagster as dg
import polars as pl
import pytest

from assets_defs.metadata import (
    days_metadata,
    decisions_metadata,
    hosts_metadata,
    matches_metadata,
    shares_metadata,
    users_metadata,
    writes_metadata,
)
from ownership.history import with_new_conflicts
from ownership.matching import username_matches
from ownership.plan import plan_writes
from ownership.rules import Rules
from tests.ownership.builders import NOW, RUN, counts, decide, host, hosts, shares_of, user, users

PEOPLE = users(user("u1", "alice@corp.example"), user("u2", "bob@corp.example"))
ASSETS = hosts(
    host("h1", "ws1"),
    host("h2", "ws2"),
    host("h3", "ws3", owners=("u1",)),
    host("h4", "ws4", owners=("u9|<b>",)),
    host("h5"),
)
LOGONS = [("ws1", "alice", 6), ("ws2", "bob", 5), ("ws2", "zoe", 4), ("ws3", "alice", 9), ("ws4", "bob", 2)]
DECISIONS = decide(counts(*LOGONS), PEOPLE, ASSETS)


def writes(*outcomes):
    planned = plan_writes(
        DECISIONS, ASSETS, PEOPLE, enrich=False, takes=["owner"], run_id=RUN, target="t", intended_at=NOW
    )
    said = pl.lit("said\n|so|")
    rows = [
        planned.with_columns(host_id=pl.lit(f"h{number}"), outcome=pl.lit(outcome), message=said)
        for number, outcome in enumerate(outcomes)
    ]
    return pl.concat([planned.clear(), *rows])


def md(value):
    assert isinstance(value, dg.MarkdownMetadataValue)
    return value.md_str


def is_plot(value):
    return md(value).startswith("![") and "](data:image/png;base64,iVBOR" in md(value)


def test_decisions_tell_the_way_from_events_to_owners():
    found = decisions_metadata(with_new_conflicts(DECISIONS, DECISIONS.clear()), events=26)
    assert found["new_conflicts"] == 1
    assert "`h4`" in md(found["first_new_conflicts"])
    assert md(found["funnel"]).splitlines()[:5] == [
        "26 logon events",
        "",
        "| stage | hosts | left out |",
        "| --- | ---: | --- |",
        "| hosts\u00a0known | 5 | no_hostname 1 |",
    ]
    assert "| with\u00a0logons | 4 | no_majority 1 |" in md(found["funnel"])
    assert len(md(found["funnel"])) < 1000  # longer texts are shown behind a click
    assert is_plot(found["funnel_plot"])
    numbers = {name: found[name] for name in ("events", "hosts_owned_percent", "hosts_to_write", "conflicts")}
    assert numbers == {"events": 26, "hosts_owned_percent": 40.0, "hosts_to_write": 1, "conflicts": 1}


def test_the_inventory_tells_how_much_there_is_to_do():
    assert hosts_metadata(ASSETS) == {"with_owner": 2, "unreadable": 0}
    odd = host("h6") | {"owner_ids": None, "problem": "its field asset_owner holds a dict"}
    assert hosts_metadata(hosts(odd, host("h7", owners=("u1",)))) == {"with_owner": 1, "unreadable": 1}
    people = users(user("u1", user_department="Sales"), user("u2"))
    assert users_metadata(people) == {"with_department": 1, "unreadable": 0}
    assert users_metadata(users(user("u1") | {"problem": "x"})) == {"with_department": 0, "unreadable": 1}


def test_matches_tell_which_field_names_the_users():
    people = users(
        user("u1", "alice@corp.example"),
        user("u2", surname="bob"),
        user("u3", surname="bob"),
        user("u4", sam="alice"),
    )
    shares = shares_of(counts(*LOGONS), Rules())
    found = matches_metadata(username_matches(shares, people, user_value_field="user_email"))
    assert md(found.pop("users_by_field")).splitlines()[2:] == [
        "| `directory_user_surname` | 1 |",
        "| `user_email` | 1 |",
    ]
    assert found == {"users": 3, "unmatched_users": 1, "ambiguous_users": 1}


def test_a_name_that_fits_one_unreadable_user_asset_is_ambiguous():
    shares = shares_of(counts(*LOGONS), Rules())
    people = users(user("u1", sam="alice") | {"problem": "x"})
    found = matches_metadata(username_matches(shares, people, user_value_field="user_email"))
    assert (found["unmatched_users"], found["ambiguous_users"]) == (2, 1)


def test_shares_tell_hosts_users_and_how_clear_the_winners_are():
    found = shares_metadata(shares_of(counts(*LOGONS), Rules()), threshold_percent=60)
    assert is_plot(found.pop("winning_shares"))
    assert found == {"events": 26, "hosts": 4, "users": 3}


def test_an_index_without_logons_is_told_as_well():
    nothing = shares_of(counts(), Rules())
    assert shares_metadata(nothing, threshold_percent=60)["hosts"] == 0
    nothing = decide(counts(), PEOPLE, hosts())
    found = decisions_metadata(nothing, events=0)
    assert (found["hosts_owned_percent"], found["new_conflicts"]) == (0, 0)
    assert "first_new_conflicts" not in found


def test_days_are_drawn_and_those_listed_that_lack_events():
    days = pl.DataFrame(
        {
            "day": [date(2026, 3, 1) + timedelta(days=number) for number in range(4)],
            "events": [90, 0, None, 90],
            "state": ["ok", "gap", "not fetched", "ok"],
        }
    )
    found = days_metadata(days)
    assert is_plot(found["events_by_day"])
    assert md(found["days_lacking_events"]).splitlines()[2:] == [
        "| 2026-03-03 | not fetched |  |",
        "| 2026-03-02 | gap | 0 |",
    ]
    assert list(days_metadata(days.filter(state="ok"))) == ["events_by_day"]


def test_writes_tell_their_outcomes_and_what_the_inventory_holds_now():
    found = writes_metadata(
        writes("written", "written", "failed", "owned_meanwhile"), DECISIONS, may_write=True
    )
    assert md(found["outcomes"]).splitlines()[2:] == [
        "| written | 2 |",
        "| failed | 1 |",
        "| owned_meanwhile | 1 |",
    ]
    numbers = {name: found[name] for name in ("hosts_written", "hosts_failed", "hosts_owned_percent")}
    assert numbers == {"hosts_written": 2, "hosts_failed": 1, "hosts_owned_percent": 80.0}


def test_a_run_that_had_nothing_to_write_says_so():
    found = writes_metadata(writes(), DECISIONS, may_write=True)
    assert found["outcomes"] == "nothing to write"
    assert found["hosts_written"] == found["hosts_failed"] == 0  # so that the UI's plots have no holes


def test_a_plan_shows_the_first_hosts_with_their_owners():
    found = writes_metadata(writes(*["planned"] * 10), DECISIONS, may_write=False)
    planned = md(found["first_planned"]).splitlines()
    assert planned[0] == "| hostname | host id | owner before | owner |"
    assert planned[-1] == "and 2 more"


def test_the_first_failures_and_conflicts_are_shown_whatever_they_hold():
    found = writes_metadata(writes(*["failed"] * 10, "written"), DECISIONS, may_write=True)
    failures = md(found["first_failures"]).splitlines()
    assert failures[2] == r"| `h0` | failed | `said\n\x7cso\x7c` |"
    assert failures[-1] == "and 2 more"
    assert md(found["first_conflicts"]).splitlines()[2:] == [r"| `h4` | `u9\x7c<b>` | `u2` | 1.00 |"]


@pytest.mark.parametrize("name", ["alice", "bob", "zoe", "ws4"])
def test_no_names_stand_in_what_a_run_tells_of_its_writes(name):
    found = writes_metadata(writes("failed"), DECISIONS, may_write=True)
    assert not any(
        name in md(value) for value in found.values() if isinstance(value, dg.MarkdownMetadataValue)
    )


def test_a_run_without_fault_lists_none():
    agreed = DECISIONS.filter(action="agree")
    found = writes_metadata(writes("written"), agreed, may_write=True)
    assert "first_failures" not in found
    assert "first_conflicts" not in found
