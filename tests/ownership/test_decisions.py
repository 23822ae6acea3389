from datetime import date

import pytest

from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import OwnerDecisions
from tests.ownership.builders import counts, decide, host, hosts, user, users

PEOPLE = users(
    user("u1", email="alice@corp.example"),
    user("u2", email="bob@corp.example"),
    user("u3", surname="miller"),
    user("u4", surname="Miller"),
)
SHORT = {"hostname_match": "short"}
NO_SVC = {"exclude_users": ("svc",)}
TWO_DC1 = [("dc1.a", "alice", 1), ("dc1.b", "alice", 1)]


def decision(logons, asset, people=PEOPLE, rules=None):
    return decide(logons, people, hosts(asset), rules).filter(host_id=asset["host_id"]).row(0, named=True)


@pytest.mark.parametrize(
    ("logons", "evidence", "owner"),
    [
        ([("ws1", "alice", 1)], "single_user", "u1"),
        ([("ws1", "alice", 61), ("ws1", "bob", 39)], "majority", "u1"),
        ([("ws1", "alice", 6), ("ws1", "bob", 4)], "no_majority", None),
        ([("ws1", "alice", 600_000_001), ("ws1", "bob", 400_000_000)], "majority", "u1"),
        ([], "no_logons", None),
    ],
)
def test_one_user_or_more_than_60_percent_of_the_events_wins(logons, evidence, owner):
    """Rules 1.2, 3.4."""
    row = decision(counts(*logons), host("h1", "ws1"))
    assert (row["evidence"], row["resolved_owner"]) == (evidence, owner)


@pytest.mark.parametrize(
    ("username", "owners", "action", "existing"),
    [
        ("alice", (), "write", None),
        ("alice", ("u1",), "agree", "u1"),
        ("alice", ("u9",), "conflict", "u9"),
        ("alice", ("u9", "u1"), "agree", "u9,u1"),
        ("alice", ("u9", "u8"), "conflict", "u9,u8"),
        ("carol", ("u9",), "keep", "u9"),
        ("carol", (), "none", None),
    ],
)
def test_an_owner_is_written_only_where_there_is_none(username, owners, action, existing):
    """Rules 2.2 to 2.5."""
    row = decision(counts(("ws1", username, 5)), host("h1", "ws1", owners=owners))
    assert (row["action"], row["existing_owner"]) == (action, existing)


@pytest.mark.parametrize(
    ("logons", "names", "rules", "evidence"),
    [
        ([("ws1", "alice", 1)], [], {}, "no_hostname"),
        ([("ws1", "alice", 1)], ["", "-", " "], {"exclude_hosts": ("*",)}, "no_hostname"),
        (TWO_DC1, ["dc1"], SHORT | {"exclude_hosts": ("dc*",)}, "excluded_host"),
        ([], ["kiosk-1"], {"exclude_hosts": ("KIOSK-*",)}, "excluded_host"),
        (TWO_DC1, ["dc1"], SHORT | {"min_events": 9}, "hostname_collision"),
        ([("ws1", "svc", 9)], ["ws1"], {"min_events": 9} | NO_SVC, "no_logons"),
        ([("ws1", "alice", 2)], ["ws1"], {"min_events": 3}, "too_few_events"),
        ([("ws1", "alice", 2), ("ws1", "svc", 2)], ["ws1"], {"min_events": 3} | NO_SVC, "too_few_events"),
        ([("ws1", "alice", 3)], ["ws1"], {"min_events": 3}, "single_user"),
        ([("ws1", "alice", 2), ("ws1", "bob", 1)], ["ws1"], {"min_events": 3}, "majority"),
    ],
)  # fmt: skip
def test_the_first_evidence_that_applies_is_told(logons, names, rules, evidence):
    """Rules 1.6, 2.3."""
    assert decision(counts(*logons), host("h1", *names), rules=Rules(**rules))["evidence"] == evidence


@pytest.mark.parametrize(
    ("documents", "assets", "collides"),
    [
        (["dc1.a", "dc1.b"], ["dc1"], True),
        (["dc1"], ["dc1.a", "dc1.b"], True),
        (["dc1.a", "dc1"], ["dc1.a"], False),
        (["dc1.a"], ["dc1.a", "dc1"], False),
        (["dc1.a"], ["dc1.b"], False),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1"], False),
    ],
)
def test_a_short_name_that_stands_for_two_full_names_names_nobody(documents, assets, collides):
    """Rules 1.4."""
    logons = counts(*((name, "alice", 5) for name in documents))
    listed = hosts(*(host(f"h{number}", name) for number, name in enumerate(assets)))
    found = decide(logons, PEOPLE, listed, Rules(hostname_match="short")).drop_nulls("host_id")
    expected = "hostname_collision" if collides else "single_user"
    assert set(found["evidence"]) == {expected}
    exact = decide(logons, PEOPLE, listed)
    assert "hostname_collision" not in exact["evidence"]


def test_nothing_at_all_is_an_empty_table():
    """Rules 3.4."""
    assert decide(counts(), users(), hosts()).equals(empty(OwnerDecisions))


ODD = {"problem": "its field x holds a dict"}


@pytest.mark.parametrize(
    ("asset", "existing"),
    [
        (host("h1", "ws1") | {"owner_ids": None}, None),
        (host("h1", "ws1", owners=("u2",)), "u2"),  # its department, say, cannot be read
        (host("h1", "ws1"), None),
    ],
)
@pytest.mark.parametrize("rules", [Rules(), Rules(exclude_hosts=("ws1",)), Rules(min_events=99)])
def test_an_unreadable_host_is_left_alone_and_keeps_its_name_and_logons(asset, existing, rules):
    (row,) = decide(counts(("ws1", "alice", 5)), PEOPLE, hosts(asset | ODD), rules).to_dicts()
    told = ("hostname", "host_id", "evidence", "match", "action", "existing_owner", "problem", "username")
    expected = ("ws1", "h1", "unreadable_asset", None, "none", existing, ODD["problem"], "alice")
    assert tuple(row[name] for name in told) == expected
    assert (row["events"], row["candidate_ids"], row["resolved_owner"]) == (5, [], None)


@pytest.mark.parametrize("short", [False, True])
def test_an_asset_whose_name_cannot_be_read_comes_before_one_without_a_name(short):
    assets = hosts(host("h1") | {"hostnames": None} | ODD, host("h2"), host("h3", "ws3.corp"))
    rules = Rules(hostname_match="short" if short else "exact", exclude_hosts=("kiosk*",))
    found = decide(counts(("ws3.corp", "alice", 5)), PEOPLE, assets, rules)
    assert dict(found.select("host_id", "evidence").rows()) == {
        "h1": "unreadable_asset",
        "h2": "no_hostname",
        "h3": "single_user",
    }


def test_an_asset_that_shares_its_name_with_an_unreadable_one_gets_its_owner():
    assets = hosts(host("h1", "ws1") | {"owner_ids": None} | ODD, host("h2", "ws1"))
    found = decide(counts(("ws1", "alice", 5)), PEOPLE, assets)
    assert dict(found.select("host_id", "action").rows()) == {"h1": "none", "h2": "write"}


@pytest.mark.parametrize(
    ("others", "candidates", "matched_by"),
    [
        ([], ["u9"], "directory_user_sam_account_name"),
        ([user("u1", email="alice@corp.example")], ["u1", "u9"], "user_email"),
        ([user("u1", surname="alice")], ["u1", "u9"], "directory_user_surname"),
        (
            [user("u1", sam="alice"), user("u2", surname="alice")],
            ["u1", "u9"],
            "directory_user_sam_account_name",
        ),
    ],
)
def test_a_name_that_fits_an_unreadable_user_asset_is_ambiguous(others, candidates, matched_by):
    odd = user("u9", sam="Alice") | {"user_email": None} | ODD
    row = decision(counts(("ws1", "alice", 5)), host("h1", "ws1"), people=users(*others, odd))
    assert (row["match"], row["action"], row["resolved_owner"]) == ("ambiguous_user", "none", None)
    assert (row["candidate_ids"], row["matched_by"]) == (candidates, matched_by)


def test_an_unreadable_user_asset_of_another_name_bars_nobody():
    people = users(user("u1", email="alice@corp.example"), user("u9", sam="bob") | ODD)
    assert decision(counts(("ws1", "alice", 5)), host("h1", "ws1"), people=people)["action"] == "write"


def test_kinds_of_accounts_do_not_count_and_kinds_of_hosts_get_no_owner():
    """Rules 1.8."""
    logons = counts(
        ("pc-1", "ann", 5), ("pc-1", "a_svc", 5),
        ("kiosk-1", "ann", 3),
        ("ts-01", "ann", 3),
        ("lab-kiosk", "bob", 1),
    )  # fmt: skip
    assets = hosts(host("h1", "pc-1"), host("h2", "kiosk-1"), host("h3", "ts-01"))

    def told(**rules):
        rows = decide(logons, PEOPLE, assets, Rules(**rules))
        columns = ("username", "evidence", "excluded_by")
        return {row["hostname"]: tuple(row[name] for name in columns) for row in rows.iter_rows(named=True)}

    assert told()["pc-1"] == ("a_svc", "no_majority", None)
    assert told(skip_account_kinds=("service",))["pc-1"] == ("ann", "single_user", None)
    rows = told(skip_host_kinds=("kiosk", "server"), exclude_hosts=("nothing", "kiosk-*", "k*"))
    assert rows == {
        "pc-1": ("a_svc", "no_majority", None),
        "kiosk-1": ("ann", "excluded_host", "exclude_hosts: kiosk-*"),
        "ts-01": ("ann", "excluded_host", "skip_host_kinds: server"),
        "lab-kiosk": ("bob", "excluded_host", "skip_host_kinds: kiosk"),
    }


@pytest.mark.parametrize(
    ("logons", "best"),
    [
        ([("a", 1, 1), ("a", 1, 2), ("b", 9, 3)], "a"),  # more days
        ([("a", 1, 1), ("b", 9, 1)], "b"),  # as many, more events
        ([("a", 1, 1), ("b", 1, 2)], "b"),  # as many, later
        ([("b", 1, 1), ("a", 1, 1)], "a"),  # by name
        ([("kiosk", 1, 1), ("kiosk", 1, 2), ("a", 1, 1)], "a"),  # of hosts that are not left out
    ],
)
def test_a_host_is_only_a_users_if_it_is_among_the_best_of_them(logons, best):
    """Rules 1.9."""
    found = decide(
        counts(*((name, "alice", events, date(2026, 3, day)) for name, events, day in logons)),
        PEOPLE,
        hosts(*(host(name, name) for name in {name for name, *_ in logons})),
        Rules(primary_devices=1, exclude_hosts=("kiosk",)),
    )
    rows = {row["hostname"]: row for row in found.iter_rows(named=True)}
    assert [name for name, row in rows.items() if row["resolved_owner"]] == [best]
    others = [row for name, row in rows.items() if name not in {best, "kiosk"}]
    assert {row["evidence"] for row in others} <= {"not_primary_device"}
    assert [row["primary_hostnames"] for row in others] == [[best]] * len(others)


@pytest.mark.parametrize(
    ("days", "service", "evidence"),
    [(1, 9, "too_few_events"), (2, 9, "too_few_events"), (3, 9, "single_user"), (1, 2, "single_user")],
)
def test_after_a_left_out_account_with_most_logons_the_next_user_needs_three_active_days(
    days, service, evidence
):
    """Rules 1.8: what stays once the account is gone may be a technician's visit."""
    logons = [("pc-1", "svc_x", service), *(("pc-1", "ann", 2, date(2026, 3, 2 + n)) for n in range(days))]
    [row] = decide(
        counts(*logons), PEOPLE, hosts(host("h1", "pc-1")), Rules(skip_account_kinds=("service",))
    ).iter_rows(named=True)
    assert (row["username"], row["evidence"]) == ("ann", evidence)
    assert row["skipped_username"] == ("svc_x" if service > 2 * days else None)
    assert row["events_needed"] == (max(3 - days, 0) if service == 9 else 0)
