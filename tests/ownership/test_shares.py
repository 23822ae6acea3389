from datetime import date, timedelta

import pytest

from ownership.rules import Rules
from tests.ownership.builders import counts, shares_of


def ranking(logons, **rules):
    columns = ("hostname", "username", "events", "total_events", "rank")
    return shares_of(logons, Rules(**rules)).select(columns).rows()


def test_shares_come_from_events_summed_over_the_whole_window():
    monday, tuesday, friday = date(2026, 3, 2), date(2026, 3, 3), date(2026, 3, 6)
    logons = counts(
        ("ws1", "bob", 1, friday),
        ("ws1", "alice", 4, tuesday),
        ("ws1", "bob", 4, tuesday),
        ("ws1", "bob", 1, monday),
    )
    (first, second) = shares_of(logons, Rules()).rows(named=True)
    assert first == {
        "hostname": "ws1", "username": "bob", "events": 6, "total_events": 10, "share": 0.6, "rank": 1,
        "first_seen": monday, "last_seen": friday,
        "username_spellings": ["bob"], "hostname_spellings": ["ws1"],
        "active_days": 3, "weight": 6, "total_weight": 10,
    }  # fmt: skip
    assert (second["username"], second["share"], second["first_seen"]) == ("alice", 0.4, tuesday)


def test_ties_are_ranked_by_name():
    logons = counts(("ws1", "carol", 2), ("ws1", "alice", 2), ("ws1", "bob", 3))
    assert [row[1] for row in ranking(logons)] == ["bob", "alice", "carol"]


def test_spellings_of_one_account_are_one_user_and_are_kept():
    logons = counts(
        ("WS1", "CORP\\Alice", 1),
        ("ws1", "alice@corp.example", 2),
        ("WS1", "ALICE", 3),
        ("ws1", "ALICE", 1),
        ("ws1", "bob", 1),
    )
    alice = shares_of(logons, Rules()).row(0, named=True)
    assert (alice["username"], alice["events"], alice["total_events"]) == ("alice", 7, 8)
    assert alice["username_spellings"] == ["ALICE", "CORP\\Alice", "alice@corp.example"]
    assert alice["hostname_spellings"] == ["WS1", "ws1"]


@pytest.mark.parametrize("kinds", [{}, {"evidence_metric": "days", "logon_type_weights": {"2": 10}}])
def test_active_days_are_exact_in_windows_of_any_length(kinds):
    first = date(2025, 1, 1)
    one, other = range(0, 400, 3), range(0, 400, 5)
    logons = counts(
        *(("WS1", "alice", 1, first + timedelta(days=number), "2") for number in one),
        *(("ws1", "Alice", 1, first + timedelta(days=number), "3") for number in other),
    )
    alice = shares_of(logons, Rules(**kinds)).row(0, named=True)
    days = len({*one, *other})
    assert alice["active_days"] == days
    assert alice["weight"] == (days + 9 * len(one) if kinds else len(one) + len(other))


def test_events_that_lack_a_name_do_not_count():
    logons = counts(
        ("ws1", "alice", 1),
        ("ws1", "", 5),
        ("ws1", "-", 5),
        ("ws1", "CORP\\", 5),
        ("-", "bob", 5),
        (" ", "bob", 5),
    )
    assert ranking(logons) == [("ws1", "alice", 1, 1, 1)]


@pytest.mark.parametrize("pattern", ["svc_*", "SVC_backup", "corp\\svc*", "corp\\svc?backup"])
def test_excluded_users_leave_before_shares_are_computed(pattern):
    logons = counts(("ws1", "CORP\\svc_backup", 90), ("ws1", "alice", 6), ("ws1", "bob", 4))
    assert ranking(logons, exclude_users=(pattern,)) == [("ws1", "alice", 6, 10, 1), ("ws1", "bob", 4, 10, 2)]


def test_an_excluded_spelling_leaves_the_other_spellings_of_the_user():
    logons = counts(("ws1", "LAB\\alice", 5), ("ws1", "CORP\\alice", 3))
    assert ranking(logons, exclude_users=("lab\\*",)) == [("ws1", "alice", 3, 3, 1)]


def test_short_names_add_up_only_when_asked_for():
    logons = counts(("ws1.corp.example", "alice", 2), ("WS1", "alice", 3), ("ws1.corp.example", "bob", 1))
    assert ranking(logons) == [
        ("ws1", "alice", 3, 3, 1),
        ("ws1.corp.example", "alice", 2, 3, 1),
        ("ws1.corp.example", "bob", 1, 3, 2),
    ]
    assert ranking(logons, hostname_match="short") == [("ws1", "alice", 5, 6, 1), ("ws1", "bob", 1, 6, 2)]


def test_all_spellings_of_a_host_are_kept_also_those_of_excluded_users():
    logons = counts(("dc1.a", "alice", 2), ("DC1.b", "svc", 3))
    (row,) = shares_of(logons, Rules(hostname_match="short", exclude_users=("svc",))).rows(named=True)
    assert row["hostname_spellings"] == ["DC1.b", "dc1.a"]
