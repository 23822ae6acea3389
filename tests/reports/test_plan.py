import re
from datetime import date
from typing import Any

import polars as pl

from ownership.declaration import empty
from ownership.plan import compare_plans
from ownership.tables import OwnerDecisions, OwnerWrites
from reports.plan import SHOWN_HOSTS, compared_owners, differences_in_words, plan_in_words, planned_hosts
from tests.ownership.builders import PEOPLE, counts, decide, host, hosts, plan, table, user, users
from tests.resources.writeback import world

DAY = date(2026, 4, 2)
COMMANDS: dict[str, Any] = {"apply": "APPLY", "see_all": "SEE ALL"}


def planned(*assets):
    names = [name for asset in assets for name in asset["hostnames"]]
    decisions = decide(counts(*((name, "ann", 1) for name in names)), PEOPLE, hosts(*assets))
    return planned_hosts(plan(decisions, PEOPLE, hosts(*assets)), PEOPLE, decisions)


def lines_of(found, **options):
    return [*plan_in_words(found, **options, **COMMANDS)]


def test_a_plan_shows_what_each_host_had_and_gets_and_ends_with_the_command():
    found = planned(host("h1", "ws1", department="IT"), host("h2", "server-2", department="Sales"))
    assert lines_of(found, is_undo=False, sure=["About 1 is wrong."]) == [
        "Plan, the least certain first:",
        "+ server-2  no owner → ann@corp.example  1 of 1 logons on 1 day, no logon for 28 days",
        "+ ws1       no owner → ann@corp.example  1 of 1 logons on 1 day, no logon for 28 days  IT → Sales",
        "Plan: 2 owners to write, department replaced on 1. Nothing was written.",
        "About 1 is wrong.",
        "To apply it:",
        "    APPLY",
    ]
    some = lines_of(found, is_undo=False, in_all=168)
    assert "Plan: 2 of 168 owners to write, department replaced on 1. Nothing was written." in some
    several = lines_of(planned(*(host(f"h{n}", f"ws{n}") for n in range(3))), is_undo=False)
    assert all(
        "1 of 1 logons on 1 day, user mostly on other hosts (33% here)" in line for line in several[1:4]
    )


def test_of_a_long_plan_the_first_hosts_are_shown_and_how_to_see_all():
    found = planned(*(host(f"h{number:04}", f"ws{number:04}") for number in range(1200)))
    lines = lines_of(found, is_undo=False)
    assert len(lines) == SHOWN_HOSTS + 5
    assert lines[SHOWN_HOSTS + 1] == "  and 1,180 more; all of them: SEE ALL"
    assert lines[SHOWN_HOSTS + 2].startswith("Plan: 1,200 owners to write, department set on 1,200.")


def test_hosts_and_people_of_one_name_are_told_apart_and_wide_letters_keep_the_columns():
    people = users(
        *(user(f"u{n}", sam=f"lina{n}", email=f"li.na@{n}.example") for n in range(2)),
        user("u2", sam="sam", surname="王小明"),
    )
    assets = hosts(
        *(host("h0", "ws"), host("h1", "ws"), host("h2", "张伟的电脑")),
        *(host("h3", "pc", "a"), host("h4", "pc", "b"), host("h5", "pc", owners=("u9",))),
    )
    logons = counts(("ws", "sam", 4), ("张伟的电脑", "sam", 4), ("a", "lina0", 4), ("b", "lina1", 4))
    decisions = decide(logons, people, assets)
    lines = lines_of(planned_hosts(plan(decisions, people, assets), people, decisions), is_undo=False)[1:6]
    cells = {tuple(re.split(" {2,}", line)[:2]) for line in lines}
    assert cells == {
        ("+ ws (h0)", "no owner → 王小明"),
        ("+ ws (h1)", "no owner → 王小明"),
        ("+ 张伟的电脑", "no owner → 王小明"),
        ("+ pc (h3)", "no owner → Li Na (u0)"),
        ("+ pc (h4)", "no owner → Li Na (u1)"),
    }
    before = [line.partition("4 of 4")[0] for line in lines]
    assert len({len(text) + len(re.findall("[一-龥]", text)) for text in before}) == 1


def test_an_undo_says_what_it_sets_clears_and_keeps():
    undone = world.row("h1", hostname="ws1", old=world.values("u2", "Sales", "low"), new=world.values("", ""))
    found = planned_hosts(table(OwnerWrites, undone | {"outcome": "planned"}), PEOPLE, empty(OwnerDecisions))
    lines = lines_of(found, is_undo=True)
    assert "- ws1  bob@corp.example → no owner  Sales → no department" in lines
    assert "Plan: 1 host to undo, department cleared on 1. Nothing was written." in lines
    assert lines_of([], is_undo=True) == ["Plan: nothing to undo."]
    assert lines_of([], is_undo=False) == ["Plan: nothing to write."]


def test_rows_with_another_outcome_are_not_a_plan_and_hostile_names_do_not_act_on_a_terminal():
    found = planned(host("h\x07", "ws\x1b[2j"))
    assert all(line.isprintable() for line in lines_of(found, is_undo=False))
    assert planned_hosts(world.plan("h1", outcome="written"), PEOPLE, empty(OwnerDecisions)) == []


def test_the_least_certain_owners_of_a_plan_come_first():
    """A host that its user shares with somebody comes before one of its own."""
    assets = hosts(host("h1", "alone"), host("h2", "shared"))
    decisions = decide(
        counts(("alone", "ann", 9), ("shared", "bob", 7), ("shared", "kim", 3)), PEOPLE, assets
    )
    found = planned_hosts(plan(decisions, PEOPLE, assets), PEOPLE, decisions)
    assert [row["hostname"] for row in found] == ["shared", "alone"]


def test_what_another_plan_adds_drops_and_changes_is_told_with_the_reasons():
    names = ("added", "dropped", "changed", "taken", "written", "same")
    assets = hosts(*(host(name, name) for name in names))
    first = decide(
        counts(
            *(("added", "ann", 6), ("added", "bob", 5), ("dropped", "ann", 3), ("changed", "ann", 3)),
            *(("taken", "ann", 1), ("written", "ann", 1), ("same", "ann", 1)),
        ),
        PEOPLE,
        assets,
    )
    owned = {"taken": ("u2",), "written": ("u1",)}
    later = hosts(*(host(name, name, owners=owned.get(name, ())) for name in names))
    second = decide(
        counts(
            *(("added", "ann", 16), ("added", "bob", 5), ("changed", "bob", 3), ("dropped", "kim", 2)),
            *(("taken", "ann", 1), ("written", "ann", 1), ("same", "ann", 1)),
        ),
        PEOPLE,
        later,
    )
    names = {"u1": "ann@corp.example"}
    compared = compared_owners(compare_plans(first, second), names)
    no_majority = pl.col("host_id").is_in(["written", "dropped"])
    unsure = second.with_columns(
        evidence=pl.when(no_majority).then(pl.lit("no_majority")).otherwise("evidence"),
        match=pl.when(~no_majority).then("match"),
        resolved_owner=pl.when(~no_majority).then("resolved_owner"),
        action=pl.when(no_majority).then(pl.lit("keep")).otherwise("action"),
    )
    kept = compared_owners(compare_plans(second, unsure), names)

    def told(settings, diff, kept, see_all=""):
        compared = {"settings": settings, "diff": diff, "not_chosen": kept, "not_chosen_before": []}
        return differences_in_words(compared, ("run A", "run B"), see_all)

    assert [*told(["rules.min_events 1 → 2", "index"], compared, kept)] == [
        "Settings that differ: rules.min_events 1 → 2, index",
        "1 host gets an owner:",
        "+ added  ann@corp.example  was: no majority (54%)",
        "2 hosts no longer get an owner:",
        "- dropped  ann@corp.example  now: several user assets",
        "- taken    ann@corp.example  now: has another owner",
        "1 host gets another owner:",
        "~ changed  ann@corp.example → u2  was: 100%, now: 100%",
        "1 host keeps its owner, though run B would not choose it:",
        "= written  ann@corp.example  now: no majority (100%)",
    ]
    differences = compare_plans(first, second).filter(change="drop").with_columns(hostname=pl.lit("ws"))
    alike = compared_owners(differences, names)
    assert [line.split("  ")[0] for line in told([], alike, [])][2:] == ["- ws (dropped)", "- ws (taken)"]
    for ready, says in (
        (DAY, f"would be written from {DAY} on, if nothing changes"),
        (None, f"named since {DAY}"),
    ):
        since = {"named_since": pl.lit(DAY), "stable_on": pl.lit(ready, pl.Date)}
        waiting = unsure.with_columns(pl.col("evidence").replace("no_majority", "not_stable"), **since)
        [reason] = [row["reason"] for row in compared_owners(compare_plans(second, waiting), names)]
        assert reason == f"now: not stable yet ({says})"
    unsure = unsure.with_columns(pl.col("evidence").replace("no_majority", "low_confidence"), confidence=0.49)
    [reason] = [row["reason"] for row in compared_owners(compare_plans(second, unsure), names)]
    assert reason == "now: low confidence (49% sure)"
    other = kept[0] | {"owner": "u2"}
    lines = [*told([], [], [other] * 22, see_all="SEE ALL")]
    assert lines[1] == "22 hosts keep their owner, though run B would not choose it:"
    assert lines[SHOWN_HOSTS + 1 :] == [
        "= written  ann@corp.example, not u2  now: no majority (100%)",
        "  and 2 more: SEE ALL",
    ]
    assert [*told([], [], [])] == ["Settings that differ: none", "No owner differs"]
    back = compared_owners(compare_plans(unsure, second), names)
    assert [*told([], [], back)][1:] == [
        "1 host keeps its owner, though run A would not choose it:",
        "= written  ann@corp.example  was: low confidence (49% sure)",
    ]
    [line] = [*told([], [], [back[0] | {"owner_before": "u2"}])][2:]
    assert line.startswith("= written  ann@corp.example, not u2  was: ")


def test_of_a_host_that_the_earlier_run_did_not_list_the_reason_is_not_known():
    listed = decide(counts(("a", "ann", 3)), PEOPLE, hosts(host("a", "a", owners=("u1",))))
    [row] = compared_owners(compare_plans(listed.head(0), listed), {})
    assert (row["change"], row["reason"]) == ("confirm", "was: not known")
