import pytest

from ownership.declaration import validated
from ownership.matching import FIELDS, username_matches
from ownership.rules import Rules
from ownership.tables import UsernameMatches
from tests.ownership.builders import counts, shares_of, user, users

ALICE = shares_of(counts(("ws1", "alice", 1)), Rules())


def matches(people, shares=ALICE, field="user_email"):
    """Username, user_id, matched_by and decisive of each row."""
    found = username_matches(shares, people, user_value_field=field)
    return validated(UsernameMatches, found).drop("problem").rows()


def unreadable(user_id, **fields):
    return user(user_id, **fields) | {"user_email": None, "problem": "its field user_email holds a dict"}


EMAIL, SAM, SURNAME = FIELDS
LATER = [user("u1", surname="alice"), user("u2", sam="alice")]
CANDIDATES = {
    "the first field that gives a match decides, and later ones are kept": (
        EMAIL,
        [*LATER, user("u3", email="alice@corp.example", surname="Alice")],
        [("u3", EMAIL, True), ("u2", SAM, False), ("u1", SURNAME, False)],
    ),
    "the instance's user value field comes first": (
        "employee_login",
        [
            user("u1", email="alice@corp.example") | {"user_value": ["x-17"]},
            user("u2", email="bob@corp.example") | {"user_value": ["alice"]},
        ],
        [("u2", "employee_login", True), ("u1", EMAIL, False)],
    ),
    "an unreadable user asset does not keep later fields from being asked": (
        EMAIL,
        [user("u1", surname="alice"), unreadable("u9", sam="alice")],
        [("u9", SAM, True), ("u1", SURNAME, True)],
    ),
    "any field of an unreadable user asset is decisive": (
        EMAIL,
        [user("u1", email="alice@corp.example"), user("u2", sam="alice"), unreadable("u9", surname="Alice")],
        [("u1", EMAIL, True), ("u2", SAM, False), ("u9", SURNAME, True)],
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
    "without user assets": (EMAIL, [], [(None, None, False)]),
    "nobody has the name": (
        EMAIL,
        [user("u1", "bob@corp.example", sam="", surname="-")],
        [(None, None, False)],
    ),
}


@pytest.mark.parametrize("story", CANDIDATES)
def test_who_a_user_name_may_stand_for(story):
    """Rules 2.1, 2.7."""
    field, people, expected = CANDIDATES[story]
    assert matches(users(*people), field=field) == [("alice", *row) for row in expected]


def test_every_user_name_of_the_evidence_is_looked_up():
    shares = shares_of(counts(("ws1", "alice", 9), ("ws1", "bob", 1), ("ws2", "alice", 1)), Rules())
    assert [row[0] for row in matches(users(), shares)] == ["alice", "bob"]
    assert matches(users(user("u1", email="alice@corp.example")), shares.clear()) == []
