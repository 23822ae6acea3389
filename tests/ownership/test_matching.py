import polars as pl
import pytest

from ownership.declaration import validated
from ownership.matching import FIELDS, people_by_account, unmatched_users, username_matches
from ownership.rules import Rules, excluding_field
from ownership.tables import UnmatchedUsers, UsernameMatches
from tests.ownership.builders import counts, host, hosts, resolution, shares_of, user, users

ALICE = shares_of(counts(("ws1", "alice", 1)), Rules())


EMAIL, SAM, SURNAME = FIELDS
LATER = [user("u1", surname="alice"), user("u2", sam="alice")]
CANDIDATES = {
    "a field that the file names decides alone, and later ones are kept": (
        EMAIL,
        [*LATER, user("u3", email="alice@corp.example", surname="Alice")],
        [("u3", EMAIL, True), ("u2", SAM, False), ("u1", SURNAME, False)],
    ),
    "otherwise e-mail and account name are asked together": (
        None,
        [*LATER, user("u3", email="alice@corp.example", surname="Alice")],
        [("u2", SAM, True), ("u3", EMAIL, True), ("u1", SURNAME, False)],
    ),
    "the instance's user value field comes first": (
        "employee_login",
        [
            user("u1", email="alice@corp.example") | {"user_value": ["x-17"]},
            user("u2", email="bob@corp.example") | {"user_value": ["alice"]},
        ],
        [("u2", "employee_login", True), ("u1", EMAIL, False)],
    ),
    "a field is asked once": (
        SURNAME,
        [{"user_id": "u1", "user_value": ["alice"], "directory_user_surname": ["alice"]}],
        [("u1", SURNAME, True)],
    ),
    "any of several values matches": (
        EMAIL,
        [{"user_id": "u1", "user_value": ["a.liddell@corp.example", "alice@corp.example", "ALICE@lab"]}],
        [("u1", EMAIL, True)],
    ),
}


@pytest.mark.parametrize("story", CANDIDATES)
def test_who_a_user_name_may_stand_for(story):
    """Rules 2.1."""
    field, people, expected = CANDIDATES[story]
    found = validated(
        UsernameMatches, username_matches(ALICE, users(*people), user_value_field=field, rules=Rules())
    )
    assert found.drop("problem", "excluded_by").rows() == [("alice", *row) for row in expected]


def test_nobody_is_counted_with_somebody_else_for_a_surname():
    """Rules 1.3: a value of a field that is not asked may be a surname, too."""
    people = users(user("u1", sam="ann", surname="smith"), user("u2", sam="bob") | {"user_value": ["smith"]})
    found = people_by_account(people, user_value_field=None, rules=Rules())
    assert sorted(found.rows()) == [("ann", "u1"), ("bob", "u2")]


def test_rules_that_exclude_no_asset_leave_each_of_many():
    assets = pl.DataFrame({"listed_values": [None] * 100_000}, schema={"listed_values": pl.List(pl.String)})
    assert assets.filter(excluding_field("exclude_user_assets", {}).is_null()).height == assets.height


# Who is in no user asset

PEOPLE = users(user("u1", "ann@corp.example"), user("u4", surname="Kim"), user("u5", surname="kim"))
LOGONS = counts(("kims", "kim", 7), ("kims too", "kim", 1), ("guests", "eve", 3), ("ws", "ann", 9))
ASSETS = hosts(host("h-kims", "kims"), host("h-too", "kims too", owners=("u4",)), host("h-guests", "guests"))


def unmatched(people, assets=ASSETS, logons=LOGONS):
    made = resolution(logons, people, assets)
    found = unmatched_users(made.shares, made.matches, made.decisions)
    return validated(UnmatchedUsers, found).drop("first_seen", "last_seen").rows()


def test_unmatched_are_the_users_without_exactly_one_user_asset_with_the_hosts_that_wait_for_them():
    assert unmatched(PEOPLE) == [("kim", 2, ["u4", "u5"], 2, 2, 1, 8), ("eve", 0, [], 1, 1, 1, 3)]


def test_so_is_one_whose_only_user_asset_cannot_be_read():
    people = users(user("u1", "ann@corp.example") | {"problem": "its field user_department holds a dict"})
    assets, logons = hosts(host("h1", "ws")), counts(("ws", "ann", 3))
    assert unmatched(people, assets, logons) == [("ann", 1, ["u1"], 1, 1, 1, 3)]
