from datetime import UTC, datetime

import polars as pl
import pytest

from ownership import schemas
from ownership.decisions import Rules
from ownership.explanations import explain_host
from ownership.matching import username_matches
from tests.ownership.builders import counts, decide, host, hosts, plan, shares_of, user, users

PEOPLE = users(
    user("u1", email="alice@corp.example", user_department="Sales"),
    user("u2", surname="Alice"),
    user("u3", surname="miller"),
    user("u4", surname="miller"),
)


DONE = datetime(2026, 3, 30, 12, 5, tzinfo=UTC)


def story(logons, assets, hostname="ws1", *, rules=None, outcome=None, message=None):
    rules = rules or Rules()
    decisions = decide(logons, PEOPLE, assets, rules)
    shares = shares_of(logons, rules)
    writes = plan(decisions, PEOPLE, assets).with_columns(
        outcome=pl.lit(outcome, pl.String), message=pl.lit(message, pl.String), completed_at=pl.lit(DONE)
    )
    return explain_host(
        hostname,
        decisions=decisions.filter(hostname=hostname),
        shares=shares,
        matches=username_matches(shares, PEOPLE, user_value_field="user_email"),
        writes=writes.drop_nulls("outcome"),
    )


def test_the_story_goes_from_the_counts_to_the_write():
    logons = counts(("WS1", "CORP\\Alice", 7), ("ws1", "bob", 3))
    told = story(logons, hosts(host("h1", "ws1", department="IT")), outcome="written")
    assert told.splitlines() == [
        "ws1",
        "",
        "Logon events on ws1, 10 in all:",
        "  user     events   share  first seen  last seen   spelled",
        "  alice         7   70.0%  2026-03-02  2026-03-02  CORP\\Alice",
        "  bob           3   30.0%  2026-03-02  2026-03-02  bob",
        "",
        "Host asset h1, window 2026-03-01 to 2026-03-30, decided 2026-03-30 12:00 UTC by run run-1:",
        "  alice has 7 of 10 logon events (70.0%), over 60%.",
        "  alice is the user asset u1, found by user_email.",
        "  Not asked any more: directory_user_surname, which says u2.",
        "  The host had no owner, so u1 is to be written.",
        "  Written, 2026-03-30 12:05 UTC, run run-1: owner u1, department Sales (before: IT).",
    ]


ALICE = [("ws1", "alice", 6)]
WS1 = [host("h1", "ws1")]


@pytest.mark.parametrize(
    ("logons", "assets", "rules", "sentence"),
    [
        (
            [*ALICE, ("ws1", "bob", 4)],
            WS1,
            {},
            "No user has over 60% of the 10 logon events; alice comes first with 6",
        ),
        ([*ALICE, ("ws1", "bob", 4)], WS1, {}, "The host stays without an owner."),
        (ALICE, WS1, {}, "alice is the only user, with all of the logon events (6)."),
        (ALICE, [host("h1", "ws1", owners=("u1",))], {}, "The host has that owner already (u1)"),
        (
            ALICE,
            [host("h1", "ws1", owners=("u8", "u9"))],
            {},
            "another owner (u8,u9), who stays: a conflict.",
        ),
        ([("ws1", "carol", 6)], WS1, {}, "No user asset has the name carol."),
        ([("ws1", "carol", 6)], [host("h1", "ws1", owners=("u9",))], {}, "The host keeps its owner u9."),
        (
            [("ws1", "miller", 6)],
            WS1,
            {},
            "By directory_user_surname, miller may be any of u3, u4; nobody is",
        ),
        (ALICE, [], {}, "No host asset has this name, so there is nothing to write to."),
        ([], WS1, {}, "Nobody logged on in the window."),
        (ALICE, WS1, {"min_events": 7}, "6 is fewer logon events than min_events asks for."),
        (ALICE, WS1, {"exclude_hosts": ("ws*",)}, "Host names like this are excluded (exclude_hosts)."),
        (
            [("ws1.a", "bob", 1), ("ws1.b", "bob", 1)],
            WS1,
            {"hostname_match": "short"},
            "hosts of different domains",
        ),
        (ALICE, [*WS1, host("h2", "ws1")], {}, "Host asset h2, window"),
        ([*ALICE, ("old", "bob", 4)], [host("h1", "ws1", "old")], {}, "Logon events on old, 4 in all:"),
    ],
)
def test_each_decision_is_told_in_words(logons, assets, rules, sentence):
    assert sentence in story(counts(*logons), hosts(*assets), rules=Rules(**rules))


@pytest.mark.parametrize("outcome", schemas.OUTCOME)
def test_each_outcome_is_told_with_what_the_service_said(outcome):
    told = story(
        counts(("ws1", "alice", 1)), hosts(host("h1", "ws1")), outcome=outcome, message="no such\x1b[2J field"
    )
    assert told.endswith(
        ", 2026-03-30 12:05 UTC, run run-1: owner u1, department Sales (no such\\x1b[2J field)."
    )


def test_only_the_first_users_of_a_crowded_host_are_shown():
    told = story(counts(*(("ws1", f"user{number:02}", 1) for number in range(30))), hosts())
    assert "user09" in told
    assert "user10" not in told
    assert "and 20 more users" in told


def test_an_unknown_host_is_said_to_be_unknown():
    told = story(counts(), hosts(), "ws9")
    assert told == "ws9: the last decisions know no such host, in the inventory or in the logons."


def test_hostile_names_cannot_act_on_a_terminal():
    name = "ws1\x1b[2j\u202e"
    told = story(counts((name, "al\nice\x07", 3)), hosts(host("h1", name)), name)
    assert "ws1\\x1b[2j\\u202e" in told
    assert "al\\nice\\x07" in told
    assert all(line.isprintable() for line in told.splitlines())
