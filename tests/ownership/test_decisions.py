from datetime import date, timedelta

import polars as pl
import pytest

from ownership.decisions import events_by_day, funnel, owned_percent, summary
from ownership.declaration import validated
from ownership.matching import unmatched_users
from ownership.rules import Rules
from ownership.tables import LogonDays, OwnerDecisions
from reports.run_results import decisions_in_words
from tests.ownership.builders import (
    DAY,
    NOW,
    PEOPLE,
    WINDOW,
    counts,
    decide,
    host,
    hosts,
    logon_day,
    resolution,
    table,
    user,
    users,
)


def decided(*given):
    return validated(OwnerDecisions, decide(*given))


@pytest.mark.parametrize("short", [False, True])
def test_an_asset_whose_name_cannot_be_read_comes_before_one_without_a_name(short):
    odd = {"hostnames": None, "owner_ids": None, "problem": "its field x holds a dict"}
    assets = hosts(host("h1") | odd, host("h2"), host("h3", "ws3.corp"))
    rules = Rules(hostname_match="short" if short else "exact", exclude_hosts=("kiosk*",))
    found = decided(counts(("ws3.corp", "ann", 5)), PEOPLE, assets, rules)
    assert dict(found.select("host_id", "evidence").rows()) == {
        "h1": "unreadable_asset",
        "h2": "no_hostname",
        "h3": "single_user",
    }


def test_users_are_matched_by_a_sid_whatever_they_are_called():
    """Rules 2.1: the whole SID, in capitals or not; who has no user asset is not taken for Windows' own."""
    eve, bob = (f"S-1-5-21-1004336348-1177238915-682003330-{number}" for number in (1104, 11041))
    ann = "S-1-12-1-1944385920-1270426353-3372436379-2938437236"  # of Entra ID
    people = users(
        user("u1", sam="ann.after-her-marriage") | {"user_value": [ann]},
        user("u2", sam=ann) | {"user_value": [bob.lower()]},
    )
    logons = counts(
        ("pc-1", ann.lower(), 9), ("pc-1", "S-1-5-18", 8),
        ("pc-2", bob, 3), ("pc-2", bob.lower(), 4), ("pc-2", eve, 2),
        ("pc-3", eve, 9), ("pc-3", ann, 1),
    )  # fmt: skip
    rules = Rules(unite_accounts=True, skip_account_kinds=("built_in",))
    assets = hosts(*(host(f"h{n}", f"pc-{n}") for n in (1, 2, 3)))
    found = resolution(logons, people, assets, rules, user_value_field="directory_user_sid").decisions
    assert validated(OwnerDecisions, found).select("username", "match", "resolved_owner").rows() == [
        (ann.lower(), "matched", "u1"),
        (bob.lower(), "matched", "u2"),
        (eve.lower(), "no_user_asset", None),
    ]


def test_how_sure_an_owner_is_is_said_of_owners_alone():
    """Rules 1.10: of one that is too uncertain to be named as well, and of nobody without a user asset."""
    logons = counts(("pc-1", "ann", 9), ("pc-2", "ann", 4), ("pc-3", "ghost", 9))
    assets = hosts(*(host(f"h{n}", f"pc-{n}") for n in range(1, 5)))
    of_ten = {"rules": Rules(min_confidence=80), "confidence": pl.col("events") / 10}
    of_ten["audited"] = [("h1", "u1"), ("h2", "u1")]
    found = validated(OwnerDecisions, resolution(logons, PEOPLE, assets, **of_ten).decisions)
    assert found.select("hostname", "evidence", "match", "confidence").rows() == [
        ("pc-1", "single_user", "matched", 0.9),
        ("pc-2", "low_confidence", None, 0.4),
        ("pc-3", "single_user", "no_user_asset", None),
        ("pc-4", "no_logons", None, None),
    ]


@pytest.mark.parametrize(("days", "is_known"), [(13, False), (14, True)])
@pytest.mark.parametrize("least", [None, 80])
def test_an_owner_whom_no_audited_plan_had_has_no_confidence_until_it_is_stable(least, days, is_known):
    """Rules 9.8: and so is not written where a confidence is asked for."""
    since = [WINDOW.last - timedelta(days=age) for age in range(days)]
    logons = counts(*(("pc-1", "ann", 1, day) for day in since), ("pc-2", "ann", 9))
    learnt = {"confidence": pl.lit(0.9), "audited": [("h2", "u1"), ("h1", "u2")]}
    assets = hosts(host("h1", "pc-1"), host("h2", "pc-2"))
    found = resolution(logons, PEOPLE, assets, Rules(min_confidence=least), **learnt).decisions
    bars = least and not is_known
    assert validated(OwnerDecisions, found).select("evidence", "confidence").rows() == [
        ("low_confidence" if bars else "single_user", 0.9 if is_known else None),
        ("single_user", 0.9),
    ]


@pytest.mark.parametrize(("before", "since"), [("bob", 4), ("a.smith", None)])
def test_a_conflict_began_with_another_person_and_not_with_another_account(before, since):
    logons = counts(*(("pc-1", before if n < 4 else "ann", 1, DAY + timedelta(days=n)) for n in range(20)))
    people = users(user("u1", email="ann@corp.example", sam="a.smith"), user("u2", sam="bob"))
    (row,) = decide(logons, people, hosts(host("h1", "pc-1", owners=("u9",)))).iter_rows(named=True)
    began = DAY + timedelta(days=since) if since else NOW.date()
    assert (row["action"], row["conflict_since"].date()) == ("conflict", began)


def test_an_owner_who_was_answered_no_is_none_under_whichever_account():
    """Rules 1.12: of that host; if another person is the primary user, that is not what was answered."""
    logons = counts(("pc-1", "ann", 9), ("pc-2", "a.smith", 9), ("pc-2", "bob", 1), ("pc-3", "bob", 9))
    people = users(user("u1", email="ann@corp.example", sam="a.smith"), user("u2", sam="bob"))
    assets = hosts(
        host("h1", "pc-1"), host("h2", "pc-2", owners=("u9",)), host("h3", "pc-3"), host("h4", "pc-1")
    )
    answered_no = [("h1", "u1"), ("h2", "u1"), ("h3", "u1"), ("h5", "u2")]
    rules = Rules(min_confidence=80)
    found = resolution(
        logons, people, assets, rules, answered_no=answered_no, confidence=pl.lit(0.5)
    ).decisions
    assert validated(OwnerDecisions, found).sort("host_id").select("evidence", "match", "action").rows() == [
        ("answered_no", None, "none"),
        ("answered_no", None, "keep"),
        ("low_confidence", None, "none"),
        ("low_confidence", None, "none"),
    ]


def test_kinds_of_accounts_do_not_count_and_kinds_of_hosts_get_no_owner():
    """Rules 1.8."""
    logons = counts(
        ("pc-1", "ann", 5), ("pc-1", "a_svc", 5),
        ("kiosk-1", "ann", 3),
        ("ts-01", "ann", 3),
        ("lab-kiosk", "bob", 1),
    )  # fmt: skip
    assets = hosts(host("h1", "pc-1"), host("h2", "kiosk-1"), host("h3", "ts-01"))

    def found(**rules):
        rows = decided(logons, PEOPLE, assets, Rules(**rules))
        columns = ("username", "evidence", "excluded_by")
        return {row["hostname"]: tuple(row[name] for name in columns) for row in rows.iter_rows(named=True)}

    assert found()["pc-1"] == ("a_svc", "no_majority", None)
    assert found(skip_account_kinds=("service",))["pc-1"] == ("ann", "single_user", None)
    rows = found(skip_host_kinds=("kiosk", "server"), exclude_hosts=("nothing", "kiosk-*", "k*"))
    assert rows == {
        "pc-1": ("a_svc", "no_majority", None),
        "kiosk-1": ("ann", "excluded_host", "exclude_hosts: kiosk-*"),
        "ts-01": ("ann", "excluded_host", "skip_host_kinds: server"),
        "lab-kiosk": ("bob", "excluded_host", "skip_host_kinds: kiosk"),
    }


def test_host_assets_are_excluded_by_what_the_inventory_lists_of_them():
    """Rules 1.6: the asset and not its name; values are compared like names."""
    logons = counts(("pc", "ann", 5), ("desk", "bob", 3), ("lab", "bob", 9), ("old", "bob", 1))
    assets = hosts(
        host("h1", "pc", listed_values=["group: Kiosk 3", "managed: true"]),
        host("h2", "pc", listed_values=["group: Sales", "tags: kiosk"]),
        host("h3", "lab", listed_values=["tags: x", "tags: LAB ", "group: lab"]),
        host("h4", "desk", listed_values=[]),
        host("h5", "old"),  # listed before there was such a rule
    )
    excluded = {"group": ("none", "kiosk*"), "tags": ("?ab",)}
    rules = Rules(exclude_assets=excluded, primary_devices=1, exclude_hosts=("old",))
    rows = decided(logons, PEOPLE, assets, rules)
    assert rows.sort("host_id").select("evidence", "excluded_by").rows() == [
        ("excluded_host", "exclude_assets: group: kiosk*"),
        ("single_user", None),
        ("excluded_host", "exclude_assets: tags: ?ab"),
        ("single_user", None),  # lab is not a device of bob's
        ("excluded_host", "exclude_hosts: old"),
    ]
    assert Rules.from_json(rules.as_json()) == rules


def test_the_decision_says_what_excludes_the_user_asset_of_its_user():
    """Rules 2.1; a kind is that of the person nevertheless."""
    logons = counts(
        ("pc-1", "ann", 5), ("pc-2", "job.sa", 5), ("pc-3", "bob", 5), ("pc-4", "bob", 1), ("pc-4", "x", 1)
    )
    people = users(
        user("u1", sam="ann"),
        user("u2", sam="job.sa", listed_values=["account.enabled: false"]),
        user("u3", sam="bob", listed_values=["type: SharedMailbox", "account.enabled: false"]),
    )
    rules = Rules(
        exclude_user_assets={"type": ("shared*",), "account.enabled": ("false",)},
        skip_account_kinds=("administrator", "service"),
    )
    made = resolution(logons, people, hosts(host("h2", "pc-2", owners=("u2",))), rules)
    rows = (
        validated(OwnerDecisions, made.decisions).select("evidence", "match", "action", "excluded_by").rows()
    )
    assert rows == [
        ("single_user", "matched", "no_host", None),
        ("single_user", "no_user_asset", "keep", "exclude_user_assets: account.enabled: false"),
        ("single_user", "no_user_asset", "no_host", "exclude_user_assets: type: shared*"),
        ("no_majority", None, "no_host", None),
    ]
    unmatched = unmatched_users(made.shares, made.matches, made.decisions)
    assert unmatched["username"].to_list() == ["x"], "what is excluded waits for no user asset"
    assert Rules.from_json(rules.as_json()) == rules


@pytest.mark.parametrize(
    ("logons", "best"),
    [
        ([("a", 1, 1), ("a", 1, 2), ("b", 9, 3)], "a"),  # more days
        ([("a", 1, 1), ("b", 9, 1)], "b"),  # as many, more events
        ([("a", 1, 1), ("b", 1, 2)], "b"),  # as many, later
        ([("b", 1, 1), ("a", 1, 1)], "a"),  # by name
        ([("kiosk", 1, 1), ("kiosk", 1, 2), ("a", 1, 1)], "a"),  # of hosts that are not excluded
    ],
)
def test_a_host_is_only_a_users_if_it_is_among_the_best_of_them(logons, best):
    """Rules 1.9."""
    found = decided(
        counts(*((name, "ann", events, date(2026, 3, day)) for name, events, day in logons)),
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
    [row] = decided(
        counts(*logons), PEOPLE, hosts(host("h1", "pc-1")), Rules(skip_account_kinds=("service",))
    ).iter_rows(named=True)
    assert (row["username"], row["evidence"]) == ("ann", evidence)
    assert row["skipped_username"] == ("svc_x" if service > 2 * days else None)
    assert row["events_needed"] == (max(3 - days, 0) if service == 9 else 0)


# How far the hosts of a run came


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
        ("written", 1, None),
        ("to write", 0, None),
        ("agrees", 1, None),
        ("conflict", 1, None),
        ("not in the inventory", 1, None),
    ]
    assert f"no owner is found for {9 - 3} hosts:" in "\n".join(decisions_in_words(summary(decisions))), (
        "alike"
    )
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
