"""Settings that would settle more hosts, and owners whom the evidence no longer supports."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tables import ClosestUsers, OwnershipDrift, Suggestions
from ownership.tuning.inputs import ownership_drift
from ownership.tuning.suggestions import closest_users, suggestions
from tests.ownership.builders import PEOPLE, WINDOW, counts, decide, host, hosts, resolution, user, users
from tests.ownership.tuning.inputs import inputs

RULES = Rules()


def suggestions_of(logons, assets, rules=RULES):
    made = inputs(logons, assets, rules)
    [now] = made.compare([(WINDOW.days, rules)]).values()
    return validated(Suggestions, suggestions(made.evidence.restrict(WINDOW), made.matches, made.kinds, now))


def by_action(decisions, action):
    return set(decisions.filter(action=action)["host_id"])


LOGONS = counts(
    ("pc-1", "ann", 5), ("pc-1", "svc_x", 5),
    ("pc-2", "ann", 5), ("pc-2", "svc_x", 4), ("pc-2", "sccm-push", 1),
    ("pc-3", "svc_y", 9), ("pc-3", "ann", 1),
    ("pc-4", "bob", 5),
    ("kiosk-1", "bob", 5),
)  # fmt: skip
ASSETS = hosts(
    host("h1", "pc-1"),
    host("h2", "pc-2", owners=("u1",)),
    host("h3", "pc-3"),
    host("h4", "pc-4", owners=("u1",)),
    host("h5", "kiosk-1"),
)


def test_each_suggestion_has_exactly_the_effect_that_deciding_again_shows():
    rows = suggestions_of(LOGONS, ASSETS)
    assert set(rows.select("setting", "value").rows()) == {
        ("rules.exclude_users", "svc_x"),
        ("rules.exclude_users", "svc_y"),
        ("rules.skip_account_kinds", "service"),
    }
    service = rows.row(by_predicate=pl.col("value") == "service", named=True)
    assert [*service.items()] == [*{
        "setting": "rules.skip_account_kinds", "value": "service",
        "reason": "3 accounts; account_profiles has their names",
        "hosts_resolved": 2, "conflicts_removed": 0, "owners_lost": 0, "precision": 1.0,
    }.items()]  # fmt: skip
    now = decide(LOGONS, PEOPLE, ASSETS)
    for row in rows.iter_rows(named=True):
        rules = replace(RULES, **{row["setting"].removeprefix("rules."): (row["value"],)})
        then = decide(LOGONS, PEOPLE, ASSETS, rules)
        owners = [set(each.drop_nulls("resolved_owner")["host_id"]) for each in (now, then)]
        assert row["hosts_resolved"] == len(owners[1] - owners[0])
        assert row["conflicts_removed"] == len(by_action(now, "conflict") - by_action(then, "conflict"))
        assert row["owners_lost"] == len(by_action(now, "write") - by_action(then, "write"))


@pytest.mark.parametrize(("owner", "suggested"), [("u1", "service"), ("u2", "kiosk")])
def test_only_what_helps_by_the_owners_that_somebody_set_is_suggested(owner, suggested):
    """Ann, u1, is their primary user; hosts are excluded where more wrong owners go than right ones."""
    services = [(pc, who, 5) for pc, who in (("pc-1", "svc_x"), ("pc-2", "svc_y"))]
    logons = counts(*((name, "ann", 5) for name in ("pc-1", "pc-2", "pc-3", "kiosk-1", "kiosk-2")), *services)
    owners = {"pc-1": (owner,), "kiosk-1": (owner,), "pc-3": ("u1",)}
    names = ("pc-1", "pc-2", "pc-3", "kiosk-1", "kiosk-2")
    rows = suggestions_of(logons, hosts(*(host(name, name, owners=owners.get(name, ())) for name in names)))
    assert {"service", "kiosk"} & {*rows["value"]} == {suggested}


def test_what_is_left_out_already_is_not_suggested_again():
    rules = Rules(exclude_users=("svc_*",), exclude_hosts=("kiosk-*",))
    assert set(suggestions_of(LOGONS, ASSETS, rules)["value"]) <= {"sccm-push"}
    rules = Rules(skip_account_kinds=("service",), skip_host_kinds=("kiosk",))
    assert suggestions_of(LOGONS, ASSETS, rules).is_empty()


def drift_of(logons, assets, *, stored_days=WINDOW.days, rules=RULES):
    in_window = logons.filter(pl.col("day").is_between(WINDOW.first, WINDOW.last))
    decisions = decide(in_window, PEOPLE, assets)
    made = inputs(logons, assets, rules, decisions=decisions, stored_days=stored_days)
    return validated(OwnershipDrift, ownership_drift(made, logons))


def test_owners_whom_the_evidence_no_longer_supports_are_told_with_the_reason():
    late, early, before = WINDOW.last, WINDOW.first + timedelta(days=9), WINDOW.first - timedelta(days=5)
    logons = counts(
        ("stays", "ann", 5, late),
        ("handed-on", "ann", 1, early), ("handed-on", "bob", 9, late),
        ("of-a-leaver", "bob", 9, late),
        ("shared", "bob", 5, late), ("shared", "kim", 5, late), ("shared", "ann", 2, before),
        ("shared-still", "bob", 5, late), ("shared-still", "ann", 5, early),
        ("left-alone", "ann", 3, before),
    )  # fmt: skip
    names = ("stays", "handed-on", "shared", "shared-still", "left-alone")
    assets = hosts(
        *(host(name, name, owners=("u1",)) for name in names),
        host("of-a-leaver", "of-a-leaver", owners=("u9",)),
        host("several", "stays", owners=("u2", "u1")),
        host("free", "shared"),
    )
    columns = ("host_id", "owner", "reason", "leader", "since", "days")
    rows = drift_of(logons, assets).select(columns).rows()
    assert {host_id: values for host_id, *values in rows} == {
        "handed-on": ["u1", "moved", "bob", early + timedelta(days=1), 20],
        "of-a-leaver": ["u9", "gone", "bob", None, None],
        "shared": ["u1", "unsupported", "bob", before + timedelta(days=1), 34],
        "left-alone": ["u1", "unsupported", None, before + timedelta(days=1), 34],
    }  # fmt: skip


BEFORE = WINDOW.first - timedelta(days=1)


@pytest.mark.parametrize(
    ("seen", "excluded", "stored_days", "reason"),
    [
        (("pc-1", "ann", 5, BEFORE), (), WINDOW.days, "left"),
        (("pc-1", "ann", 5, BEFORE), (), 4, "unsupported"),
        (("pc-3", "ann", 1, WINDOW.last), (), WINDOW.days, "unsupported"),
        (("pc-3", "ann", 1, WINDOW.last), ("ann",), WINDOW.days, "unsupported"),
        (("pc-3", "kim", 1, WINDOW.last), (), WINDOW.days, "never_seen"),
        (("pc-3", "kim", 1, WINDOW.last), (), 4, "never_seen"),
        (("pc-3", "PC-3\\ann", 1, WINDOW.last), (), WINDOW.days, "never_seen"),
        (("pc-3", "NT AUTHORITY\\ann", 1, WINDOW.last), (), WINDOW.days, "never_seen"),
    ],
)
def test_an_owner_has_left_who_was_seen_before_a_window_that_is_stored_whole(
    seen, excluded, stored_days, reason
):
    """Of days that are not stored nothing is claimed."""
    assets, rules = hosts(host("h1", "pc-1", owners=("u1",))), Rules(exclude_users=excluded)
    rows = drift_of(
        counts(seen, ("pc-2", "bob", 5, WINDOW.last)), assets, stored_days=stored_days, rules=rules
    )
    assert rows["reason"].to_list() == [reason]


# User assets with names like an account's

NAMED = users(
    user("u1", email="jane.doe@corp.example"),
    user("u2", email="maria.garcia@corp.example", sam="mgarcia"),
    user("u3", surname="Oyelaran"),
    user("u4", email="bob@corp.example"),
    user("u5", sam="S-1-5-21-1004336348-1177238915-682003330-1104"),
)


def closest_of(*names):
    logons = counts(*(("pc-1", name, 5) for name in names))
    accounts = resolution(logons, NAMED, hosts()).kinds.accounts
    matches = username_matches(accounts, NAMED, user_value_field="user_email", rules=Rules())
    return validated(ClosestUsers, closest_users(accounts, NAMED, matches))


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
def test_accounts_that_are_matched_or_of_nobody_or_unlike_all_others_have_no_closest_user(names):
    assert closest_of(*names).is_empty()


def test_no_more_than_three_are_told_the_closest_first():
    many = users(*(user(f"u{n}", email=f"jane.doe{n}@corp.example") for n in range(9)))
    accounts = pl.DataFrame({"username": ["jane.doe"], "kind": ["unknown"], "hosts": [1], "user_assets": [0]})
    nobody = username_matches(accounts, many, user_value_field="user_email", rules=Rules())
    assert closest_users(accounts, many, nobody)["user_id"].to_list() == ["u0", "u1", "u2"]
