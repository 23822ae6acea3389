import polars as pl
import pytest

from ownership.declaration import validated
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tables import UsernameMatches
from tests.ownership.builders import counts, shares_of, user, users

ALICE = shares_of(counts(("ws1", "alice", 1)), Rules())


def matches(people, shares=ALICE, field="user_email"):
    """Username, user_id, matched_by and decisive of each row."""
    found = username_matches(shares, people, user_value_field=field)
    return validated(UsernameMatches, found).drop("problem").rows()


def test_the_first_field_that_gives_a_match_decides_and_later_fields_are_kept():
    people = users(
        user("u1", surname="alice"),
        user("u2", sam="alice"),
        user("u3", email="alice@corp.example", surname="Alice"),
    )
    assert matches(people) == [
        ("alice", "u3", "user_email", True),
        ("alice", "u2", "directory_user_sam_account_name", False),
        ("alice", "u1", "directory_user_surname", False),
    ]


def test_the_instances_user_value_field_comes_first():
    people = users(
        user("u1", email="alice@corp.example") | {"user_value": ["x-17"]},
        user("u2", email="bob@corp.example") | {"user_value": ["alice"]},
    )
    assert matches(people, field="employee_login") == [
        ("alice", "u2", "employee_login", True),
        ("alice", "u1", "user_email", False),
    ]


def unreadable(user_id, **fields):
    return user(user_id, **fields) | {"user_email": None, "problem": "its field user_email holds a dict"}


@pytest.mark.parametrize(
    "fields", [{"sam": "alice"}, {"surname": "Alice"}, {"sam": "al", "surname": "alice"}]
)
def test_any_field_of_an_unreadable_user_asset_is_decisive_beside_those_of_the_first_field(fields):
    people = users(
        user("u1", email="alice@corp.example"), user("u2", sam="alice"), unreadable("u9", **fields)
    )
    found = username_matches(ALICE, people, user_value_field="user_email")
    assert found.filter("decisive").select("user_id", "problem").rows() == [
        ("u1", None),
        ("u9", "its field user_email holds a dict"),
    ]
    assert found.filter(~pl.col("decisive"))["user_id"].to_list() == ["u2"]


def test_an_unreadable_user_asset_does_not_keep_later_fields_from_being_asked():
    people = users(user("u1", surname="alice"), unreadable("u9", sam="alice"))
    assert matches(people) == [
        ("alice", "u9", "directory_user_sam_account_name", True),
        ("alice", "u1", "directory_user_surname", True),
    ]


def test_a_field_is_asked_once():
    people = users({"user_id": "u1", "user_value": ["alice"], "directory_user_surname": ["alice"]})
    assert matches(people, field="directory_user_surname") == [
        ("alice", "u1", "directory_user_surname", True)
    ]


def test_any_of_several_values_matches():
    people = users(
        {"user_id": "u1", "user_value": ["a.liddell@corp.example", "alice@corp.example", "ALICE@lab.example"]}
    )
    assert matches(people) == [("alice", "u1", "user_email", True)]


@pytest.mark.parametrize(
    "people", [users(), users(user("u1", email="bob@corp.example", sam="", surname="-"))]
)
def test_a_user_name_nobody_has_is_kept_without_candidates(people):
    assert matches(people) == [("alice", None, None, False)]


def test_every_user_name_of_the_evidence_is_looked_up():
    shares = shares_of(counts(("ws1", "alice", 9), ("ws1", "bob", 1), ("ws2", "alice", 1)), Rules())
    assert [row[0] for row in matches(users(), shares)] == ["alice", "bob"]


def test_nothing_is_looked_up_without_evidence():
    assert matches(users(user("u1", email="alice@corp.example")), ALICE.clear()) == []
