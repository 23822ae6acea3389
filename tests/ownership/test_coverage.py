from datetime import date

import pytest

from ownership.decisions import events_by_day, funnel, owned_percent, summary
from ownership.rules import Rules
from ownership.tables import LogonDays
from reports.run_results import decisions_in_words
from tests.ownership.builders import counts, decide, host, hosts, logon_day, table, user, users


def test_the_funnel_counts_the_hosts_of_each_stage_and_why_others_stay_behind():
    logons = counts(
        ("new", "alice", 9),
        ("agreed", "alice", 9),
        ("conflict", "alice", 9),
        ("unlisted", "alice", 9),
        ("shared", "alice", 1),
        ("shared", "bob", 1),
        ("stranger", "zoe", 9),
        ("twins", "sam", 9),
        ("kiosk", "alice", 9),
    )
    people = users(user("u1", "alice@corp.example"), user("u2", sam="sam"), user("u3", sam="sam"))
    names = ("new", "agreed", "conflict", "shared", "stranger", "twins", "kiosk", "silent")
    owners = {"agreed": ("u1",), "conflict": ("u2",), "silent": ("u3",)}
    assets = hosts(*(host(name, name, owners=owners.get(name, ())) for name in names), host("nameless"))
    decisions = decide(logons, people, assets, Rules(exclude_hosts=("kiosk",)))
    assert funnel(decisions, written=1).rows() == [
        ("in the inventory", 9, "no host name 1, no logons 1"),
        ("with logons", 7, "excluded host 1, no majority 1"),
        ("one primary user", 5, "account without a person 1, several user assets 1"),
        ("user identified", 3, None),
        ("to write", 1, None),
        ("agrees", 1, None),
        ("conflict", 1, None),
        ("not in the inventory", 1, None),
        ("written", 1, None),
    ]
    assert f"no owner for {9 - 3} hosts:" in "\n".join(decisions_in_words(summary(decisions))), "alike"
    assert owned_percent(decisions) == pytest.approx(100 * 3 / 9)
    assert owned_percent(decisions.clear()) == 0


def test_of_a_host_that_cannot_be_read_it_is_not_known_whether_it_is_owned():
    odd = {"owner_ids": None, "problem": "its field asset_owner holds a dict"}
    assets = hosts(
        host("h1", "ws1", owners=("u1",)),
        host("h2", "ws2"),
        host("h3", "ws3") | odd,
        host("h4", "ws4", owners=("u1",)) | {"problem": "its field department holds a dict"},
    )
    found = decide(counts(("ws3", "alice", 9)), users(), assets)
    assert owned_percent(found) == pytest.approx(100 * 2 / 3)
    assert owned_percent(found, written=1) == 100
    assert funnel(found).rows()[:2] == [
        ("in the inventory", 4, "no logons 2, unreadable asset 1"),
        ("with logons", 1, "unreadable asset 1"),
    ]


def test_each_day_is_told_with_its_events_and_whether_some_are_missing():
    days = [date(2026, 3, day) for day in (1, 2, 3, 4)]
    fetched = table(LogonDays, logon_day(days[0], 100), logon_day(days[1], 9), logon_day(days[3], 100))
    assert events_by_day(days, fetched, timezone="UTC").rows() == [
        (date(2026, 3, 1), 100, "ok"),
        (date(2026, 3, 2), 9, "gap"),
        (date(2026, 3, 3), None, "not fetched"),
        (date(2026, 3, 4), 100, "ok"),
    ]
