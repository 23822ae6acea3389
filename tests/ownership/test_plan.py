import re
from dataclasses import replace
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from ownership.plan import (
    Conditions,
    Plan,
    compare_plans,
    enrichment_change,
    plan_undo,
    refusals,
    select_hosts,
)
from tests.ownership.builders import BEGUN, NOW, RUN, TARGET, counts, decide, host, hosts, plan, user, users


def limits(max_writes=10, max_write_percent=None):
    return SimpleNamespace(max_writes=max_writes, max_write_percent=max_write_percent, plan_days=7)


LOGONS = counts(*((name, "alice", 5) for name in ("ws1", "ws2", "ws3", "lost")), ("ws4", "carol", 5))
PEOPLE = users(user("u1", email="alice@corp.example", user_department="Sales", criticality="high"))
ASSETS = hosts(
    host("h2", "ws2", department="IT", criticality="low"),
    host("h1", "ws1"),
    host("h3", "ws3", owners=("u9",)),
    host("h4", "ws4"),
)


@cache
def planned():
    return plan(decide(LOGONS, PEOPLE, ASSETS), PEOPLE, ASSETS)


def test_only_hosts_to_be_written_are_planned_with_what_they_held():
    nothing = {"owner": None, "department": None, "criticality": None}
    common = dict.fromkeys(("message", "completed_at", "undoes", "by", "kept"))
    common |= {"run_id": RUN, "outcome": "planned", "intended_at": BEGUN, "target": TARGET}
    common |= {"new_values": {"owner": "u1", "department": "Sales", "criticality": "high"}}
    held = nothing | {"department": "IT", "criticality": "low"}
    assert planned().rows(named=True) == [
        common | {"host_id": "h1", "hostname": "ws1", "old_values": nothing},
        common | {"host_id": "h2", "hostname": "ws2", "old_values": held},
    ]


@pytest.mark.parametrize(
    ("department", "options", "sent"),
    [
        ("Sales", {"enrich": False}, ("u1", None, None)),
        ("Sales", {"takes": ["owner", "department"]}, ("u1", "Sales", None)),
        *((empty, {}, ("u1", None, "high")) for empty in (None, "", "  ")),
    ],
)
def test_what_is_copied_is_asked_for_taken_and_not_empty(department, options, sent):
    """Rules 2.6."""
    person = user("u1", email="alice@corp.example", criticality="high") | {"user_department": department}
    rows = plan(decide(LOGONS, users(person), ASSETS), users(person), ASSETS, **options)
    assert {tuple(values.values()) for values in rows["new_values"]} == {sent}


WRITTEN_AT = NOW + timedelta(seconds=1)


def done(rows, outcome="written", *, run_id=RUN, at=WRITTEN_AT):
    return rows.with_columns(
        outcome=pl.lit(outcome), run_id=pl.lit(run_id), completed_at=pl.lit(at, pl.Datetime("us", "UTC"))
    )


@pytest.fixture
def written():
    return done(planned())


def undo(writes, *since):
    history = pl.concat([writes, *since])
    rows = plan_undo(writes, history, run_id="undo", target=TARGET, intended_at=NOW)
    return {row["host_id"]: row for row in rows.rows(named=True)}


def test_what_a_run_wrote_is_undone_to_the_previous_values(written):
    rows = undo(written)
    assert {row["outcome"] for row in rows.values()} == {"planned"}
    assert rows["h2"]["old_values"] == {"owner": "u1", "department": "Sales", "criticality": "high"}
    assert rows["h2"]["new_values"] == {"owner": "", "department": "IT", "criticality": "low"}


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("undone", "skipped: already undone by run r-2"),
        ("written", "skipped: written again since by run r-2"),
        ("intended", "skipped: written again since by run r-2"),  # as far as is known
        *((nothing_changed, None) for nothing_changed in ("failed", "owned_meanwhile", "not_written")),
    ],
)
def test_a_host_that_was_undone_or_written_since_is_skipped(written, outcome, reason):
    later = done(written.filter(host_id="h1"), outcome, run_id="r-2", at=WRITTEN_AT + timedelta(days=1))
    rows = undo(written, later)
    assert rows["h1"]["outcome"] == ("not_written" if reason else "planned")
    assert (rows["h1"]["message"], rows["h1"]["completed_at"]) == (reason, NOW if reason else None)
    assert (rows["h2"]["outcome"], rows["h2"]["completed_at"]) == ("planned", None)


def test_what_was_written_for_somebody_who_was_forgotten_is_not_undone(written):
    owner = pl.when(pl.col("host_id") == "h1").then(pl.lit("forgotten-0123456789abcdef"))
    forgotten = pl.col("new_values").struct.with_fields(owner=owner.otherwise(pl.field("owner")))
    rows = undo(written.with_columns(forgotten))
    assert (rows["h1"]["outcome"], rows["h1"]["message"]) == (
        "not_written",
        "skipped: its owner was forgotten",
    )
    assert rows["h2"]["outcome"] == "planned"


def test_what_was_undone_is_known_whatever_the_clocks_say_and_the_last_undo_is_named(written):
    """The undos ran on a machine whose clock was behind; since then somebody set the same owner."""
    first = plan_undo(written, written, run_id="undo", target=TARGET, intended_at=NOW)
    assert set(first["undoes"]) == set(written["run_id"])
    backs = [
        done(first, "undone", run_id=f"undo-{hour}", at=WRITTEN_AT - timedelta(hours=hour)) for hour in (1, 2)
    ]
    again = undo(written, *backs)
    assert {row["outcome"] for row in again.values()} == {"not_written"}
    assert again["h1"]["message"] == "skipped: already undone by run undo-1"


NOW_AND_HERE = Conditions(at=NOW, target=TARGET, settings="s-1", limits=limits(), hosts=4)
GOOD: dict[str, Any] = {"command": "run", "of_run": RUN, "settings": "s-1"}


@pytest.mark.parametrize(
    ("changed", "now", "remedy", "reason"),
    [
        ({}, {"target": "elsewhere"}, "point the instance back", f"for {TARGET}, .* points to elsewhere"),
        ({}, {"at": NOW + timedelta(days=8)}, "plan again", r"older than writes\.plan_days \(7\)"),
        ({}, {"at": NOW - timedelta(days=1)}, "plan again", "dated in the future"),
        ({}, {"settings": "s-2"}, "plan again", "other settings"),
        ({"missing_steps": ["logons"]}, {}, "run again", f"Run {RUN} did not make logons"),
        ({"gaps": [NOW.date()]}, {}, "apply", r"scan\.require_complete_window"),
        ({}, {"is_file_unchanged": False}, "run again", "file was changed"),
        ({"allowed": 1}, {}, "allow", r"2 owners are planned, more than were allowed \(1\)"),
        ({"allowed": 1, "command": "undo"}, {}, "allow", "2 hosts to undo are planned"),
        ({}, {"limits": limits(max_writes=1)}, "allow", r"writes\.max_writes \(1\)"),
        ({}, {"limits": limits(max_write_percent=49.5)}, "allow", r"for 4 hosts, .*\(49\.5%\)"),
        ({}, {"hidden_owners": ("h3",)}, "read owners", "hosts h3, .* overwrite an owner"),
    ],
)
def test_a_plan_lists_every_reason_why_it_may_not_be_written_now(changed, now, remedy, reason):
    rows = planned()
    assert not list(refusals(Plan(rows=rows, **GOOD), NOW_AND_HERE))
    other_clock = replace(NOW_AND_HERE, at=NOW - timedelta(minutes=3))
    assert not list(refusals(replace(Plan(rows=rows, **GOOD), settings=None), other_clock))
    refused, here = Plan(rows=rows, **GOOD | changed), replace(NOW_AND_HERE, **now)
    (only,) = refusals(refused, here)
    assert only.remedy == remedy
    assert re.search(reason, only.reason)
    both = list(refusals(replace(refused, missing_steps=["logons"], gaps=[NOW.date()]), here))
    assert {refusal.remedy for refusal in both} == {remedy, "run again", "apply"}


def test_limits_are_compared_once_hosts_are_listed_and_a_persons_word_replaces_them():
    rows = planned()
    strict = replace(NOW_AND_HERE, limits=limits(max_writes=0))
    assert not list(refusals(Plan(rows=rows, **GOOD), replace(strict, hosts=None)))
    assert not list(refusals(Plan(rows=rows, **GOOD, allowed=2), strict))


@pytest.mark.parametrize(
    ("field", "before", "after", "change"),
    [
        ("department", None, "Sales", "set"),
        ("department", "IT", "Sales", "replaced"),
        ("department", "2", "1", "replaced"),
        ("department", "IT", "", "cleared"),
        ("department", "IT", "IT", None),
        ("department", None, "", None),
        ("criticality", "High", "low", "lowered"),
        ("criticality", "low", "high", "replaced"),
        ("criticality", "10", "9", "lowered"),
        ("criticality", "gold", "silver", "replaced"),
        ("criticality", "high", None, None),
    ],
)
def test_what_enrichment_does_to_a_field_has_a_name(field, before, after, change):
    assert enrichment_change(field, before, after) == change


@cache
def decisions_on(*hostnames):
    """And the hosts; `alice` is the primary user of each."""
    assets = hosts(*(host(f"h{number}", *names) for number, names in enumerate(hostnames, 1)))
    return decide(counts(*((names[0], "alice", 5) for names in hostnames)), PEOPLE, assets), assets


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("h1", ["h1"]),
        (" H1 ", ["h1"]),
        ("WS1", ["h1"]),
        ("ws1.corp.example", ["h1"]),
        ("SRV.CORP.EXAMPLE", ["h2"]),
        ("srv", ["h2"]),
        ("second-name", ["h2"]),
    ],
)
def test_a_host_of_a_plan_is_known_by_its_id_and_by_any_spelling_of_its_names(asked, found):
    decisions, assets = decisions_on(("ws1",), ("srv.corp.example", "second-name"))
    rows = plan(decisions, PEOPLE, assets)
    assert select_hosts(rows, [asked], decisions)["host_id"].to_list() == found


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("sv.corp.example", "no host 'sv.corp.example' is known; name .* Did you mean srv.corp.example"),
        ("srv.other.example", "no host 'srv.other.example' is known; name it as the inventory does"),
        ("ws", r"'ws' may be each of the hosts h1 \(ws.a.example\), h2 \(ws.b.example\)"),
        ("12", r"'12' may be each of the hosts 12 \(srv.corp.example\), h4 \(12\)"),
        ("AB", r"'AB' may be each of the hosts aB \(owned\), ab \(kiosk\)"),
        ("owned", "^'owned'$"),
    ],
)
def test_a_host_that_the_plan_does_not_have_or_several_may_be_is_an_error(asked, says):
    """Another domain is another machine. A host that is not planned may be the one that is meant, too."""
    assets = hosts(
        *(host("h1", "ws.a.example"), host("h2", "ws.b.example"), host("12", "srv.corp.example")),
        *(host("h4", "12"), host("ab", "kiosk"), host("aB", "owned", owners=("u2",)), host("h7", "owned.x")),
    )
    named = ("ws.a.example", "ws.b.example", "srv.corp.example", "12", "kiosk", "owned.x")
    decisions = decide(counts(*((name, "alice", 5) for name in named)), PEOPLE, assets)
    assert select_hosts(plan(decisions, PEOPLE, assets), ["ab"], decisions)["hostname"].to_list() == ["kiosk"]
    with pytest.raises(LookupError, match=says):
        select_hosts(plan(decisions, PEOPLE, assets), [asked], decisions)


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        (("u1", None), (None, None), "drop"),
        (("u1", None), (None, "u1"), "keep"),
        (("u1", "u1"), (None, "u1"), "keep"),
        (("u1", None), (None, "u1,u2"), "keep"),
        (("u1", "u1"), ("u2", "u1"), "keep"),
        (("u1", None), ("u2", "u1"), "keep"),
        (("u,1", "u%2C1"), (None, "u%2C1"), "keep"),
        (("u1", "u1"), (None, None), "drop"),
        (("u1", None), (None, "u2"), "drop"),
        ((None, "u1"), (None, "u1"), None),
        (("u1", "u1"), ("u1", "u1"), None),
        (("u1", None), ("u1", "u1"), None),
        (("u1", "u1"), ("u1", None), "add"),
        ((None, "u1"), ("u1", None), "add"),
        ((None, None), ("u1", None), "add"),
        (("u1", None), ("u2", None), "change"),
        (("u1", None), ("u2", "u2"), "change"),
    ],
)
def test_a_host_that_has_its_owner_already_is_kept_or_no_difference_in_either_order(first, second, change):
    """Each run has whom it chooses, and whom it read in the inventory."""
    runs = []
    for day, (chosen, existing) in enumerate((first, second)):
        if chosen is None:
            action = "keep" if existing else "none"
        elif existing is None:
            action = "write"
        else:
            action = "agree" if chosen.replace(",", "%2C") in existing.split(",") else "conflict"
        decided, _ = decisions_on(("ws1",))
        values = pl.lit(chosen, pl.String), pl.lit(existing, pl.String), pl.lit(action)
        chosen_and_there = dict(zip(("resolved_owner", "existing_owner", "action"), values, strict=True))
        runs.append(decided.with_columns(decided_at=NOW + timedelta(days=day), **chosen_and_there))
    found = compare_plans(*runs)
    assert found["change"].to_list() == [change] * (change is not None)
    if change == "keep":
        assert found.select("owner_before", "owner").row(0) == (first[0], second[0])
        assert "keep" not in compare_plans(runs[1], runs[0].head(0))["change"]
    now = second[1] or ""
    back = compare_plans(*reversed(runs))
    assert (back["change"].to_list() == ["confirm"]) == (change == "keep"), (
        "the same hosts, the other way round"
    )
    if change == "drop" and not now:
        assert back["change"].to_list() == ["add"]
    back = back.filter(change="add")
    assert back.filter(pl.col("owner").is_in(now.split(","))).is_empty(), "it has this owner already"
