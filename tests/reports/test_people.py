from datetime import timedelta

import polars as pl
import pytest

from reports.people import (
    SHOWN_ELSEWHERE,
    each_person,
    find_person,
    person_explanation,
    person_in_words,
)
from tests.ownership.builders import NOW, counts, host, hosts, plan, resolution, user, users

PEOPLE = users(
    user("u1", email="Ann@corp.example", sam="akeller"),
    user("u2", email="bob@corp.example"),
    user("u3", surname="kim"),
    user("u4", surname="kim"),
    user("u5", surname="odd") | {"user_email": None, "problem": "its field user_email holds a dict"},
)


def story(asked, logons, assets, outcome=None):
    made = resolution(logons, PEOPLE, assets)
    writes = plan(made.decisions, PEOPLE, assets).with_columns(
        outcome=pl.lit(outcome, pl.String), completed_at=pl.lit(NOW + timedelta(minutes=5))
    )
    found = find_person(asked, PEOPLE, made.matches)
    return found and person_explanation(
        asked,
        found,
        decisions=made.decisions,
        shares=made.shares,
        hosts=assets,
        users=PEOPLE,
        writes=writes.drop_nulls("outcome"),
    )


LOGONS = counts(("ws1", "ann", 3), ("ws2", "akeller", 2), ("ws2", "kim", 3), ("ws3", "odd", 1))


@pytest.mark.parametrize(
    ("asked", "user_ids", "usernames"),
    [
        ("u1", ["u1"], ["akeller", "ann"]),
        ("U1", ["u1"], ["akeller", "ann"]),
        ("ann@CORP.example", ["u1"], ["akeller", "ann"]),
        ("CORP\\akeller", ["u1"], ["akeller", "ann"]),
        ("bob", ["u2"], []),
        ("kim", ["u3", "u4"], ["kim"]),
        ("odd", ["u5"], ["odd"]),
    ],
)
def test_a_person_is_found_by_any_of_their_names(asked, user_ids, usernames):
    found = story(asked, LOGONS, hosts())
    assert [asset["user_id"] for asset in found["user_assets"]] == user_ids
    assert found["usernames"] == usernames


def test_people_who_share_a_name_are_told_of_one_by_one():
    matches = resolution(LOGONS, PEOPLE, hosts()).matches
    by_name = {"user_ids": ["u1", "u3"], "usernames": ["ann", "kim"]}
    assert each_person(by_name, matches) == [
        {"user_ids": ["u1"], "usernames": ["ann"]},
        {"user_ids": ["u3"], "usernames": []},
        {"user_ids": [], "usernames": ["kim"]},  # one of them, or somebody else
    ]


@pytest.mark.parametrize("asked", ["nobody", "", " ", "@", "-", "u"])
def test_who_is_unknown_is_nobody(asked):
    assert story(asked, LOGONS, hosts()) is None


@pytest.mark.parametrize(
    ("owners", "outcome", "owned"),
    [
        ((), None, []),
        (("u1",), None, ["h1"]),
        (("u2", "u1"), None, ["h1"]),
        ((), "written", ["h1"]),
        ((), "failed", []),
    ],
)
def test_theirs_is_what_was_listed_and_what_was_written_since(owners, outcome, owned):
    found = story("ann", counts(("ws1", "ann", 3)), hosts(host("h1", "ws1", owners=owners)), outcome)
    assert [row["host_id"] for row in found["hosts_owned"]] == owned


def test_of_many_hosts_the_first_are_shown_and_names_do_not_act_on_a_terminal():
    rows = [(f"ws{number}\x1b[2j", name, 1) for number in range(30) for name in ("ann", "bob")]
    told = person_in_words(story("ann", counts(*rows), hosts()))
    assert told.count("1 of 2 logons on 1 day") == SHOWN_ELSEWHERE
    assert "Other hosts with logons: 30\n" in told
    assert told.endswith("  and more; --json has all")
    assert all(line.isprintable() for line in told.splitlines())
