import polars as pl
import pytest

from ownership.declaration import validated
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tables import ClosestUsers
from ownership.tuning.suggestions import closest_users
from tests.ownership.builders import counts, hosts, resolution, user, users

PEOPLE = users(
    user("u1", email="jane.doe@corp.example"),
    user("u2", email="maria.garcia@corp.example", sam="mgarcia"),
    user("u3", surname="Oyelaran"),
    user("u4", email="bob@corp.example"),
    user("u5", sam="S-1-5-21-1004336348-1177238915-682003330-1104"),
)


def closest_of(*names):
    logons = counts(*(("pc-1", name, 5) for name in names))
    accounts = resolution(logons, PEOPLE, hosts()).kinds.accounts
    matches = username_matches(accounts, PEOPLE, user_value_field="user_email", rules=Rules())
    return validated(ClosestUsers, closest_users(accounts, PEOPLE, matches))


@pytest.mark.parametrize(
    ("name", "user_id", "reason"),
    [
        ("jane.doe2", "u1", "Only numbers at the end differ."),
        ("CORP\\Jane-Doe", "u1", "Only dots, hyphens and the like differ."),
        ("doe.jane", "u1", "The parts of the name stand in another order."),
        ("jdoe", "u1", "It may be the initial of the first name, and the surname."),
        ("doej", "u1", "It may be the surname, and the initial of the first name."),
        ("mercedes.garcia", "u2", "The user asset may have the initial of the first name only."),
        ("oyelarann", "u3", "The names are spelled alike."),
    ],
)
def test_the_closest_user_asset_is_told_with_what_differs(name, user_id, reason):
    row = closest_of(name).row(0, named=True)
    assert (row["user_id"], row["reason"]) == (user_id, reason)
    assert 0.7 < row["score"] < 1


@pytest.mark.parametrize(
    "names",
    [
        ["bob"],
        ["zoe"],
        ["svc_jane.doe"],
        ["jane.doe$"],
        ["SYSTEM"],
        ["jane.doe2", "jane.doe"],
        ["S-1-5-21-1004336348-1177238915-682003330-1105"],
    ],
)
def test_who_is_matched_or_nobody_or_like_nobody_or_whoever_logs_on_as_himself_has_none(names):
    assert closest_of(*names).is_empty()


def test_no_more_than_three_are_told_the_closest_first():
    many = users(*(user(f"u{n}", email=f"jane.doe{n}@corp.example") for n in range(9)))
    accounts = pl.DataFrame({"username": ["jane.doe"], "kind": ["unknown"], "hosts": [1], "user_assets": [0]})
    nobody = username_matches(accounts, many, user_value_field="user_email", rules=Rules())
    assert closest_users(accounts, many, nobody)["user_id"].to_list() == ["u0", "u1", "u2"]
