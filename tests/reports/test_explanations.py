import json
from dataclasses import replace
from datetime import timedelta

import pytest

from ownership.codes import ACTION, EVIDENCE, OUTCOME, reason_of
from ownership.declaration import empty
from ownership.history import current_owners
from ownership.matching import FieldNames
from ownership.names import near_names
from ownership.persons import Person, Persons
from ownership.rules import Rules
from ownership.tables import TABLES, AcknowledgedConflicts, AuditSample, OwnerWrites, Runs
from reports.explain import (
    SHOWN_ELSEWHERE,
    each_person,
    host_explanation,
    in_words,
    people_called,
    person_explanation,
    person_in_words,
)
from reports.page import MAX_TEXT
from tests.ownership.builders import (
    DAY,
    NOW,
    PRESENT,
    WINDOW,
    counts,
    host,
    hosts,
    resolution,
    table,
    user,
    users,
)
from tests.resources.writeback.world import row, values

PEOPLE = users(
    user("u1", email="alice@corp.example", user_department="Sales"),
    user("u2", sam="bob", listed_values=["enabled: false"]),
    user("u3", surname="miller"),
    user("u4", surname="miller"),
    user("u5", surname="odd") | {"problem": "its field user_department holds a dict"},
)
ALICE = [("ws1", "alice", 3)]
UNDO = "asset-owners undo run-2 --host h1 --wrong"
EXACTLY_60 = [("ws1", "alice", 6), ("ws1", "carol", 4)]
WS1 = host("h1", "ws1", department="IT")
OWNED = host("h1", "ws1", owners=("u9",))
UNREADABLE = host("h1", "ws1") | {"owner_ids": None, "problem": "its field owner holds a dict"}


ALICES = "alice@corp.example"
BY = "by the logons of 2026-03-01 to 2026-03-30"
NO_ANSWERS = empty(AuditSample)


def story(
    logons,
    *assets,
    people=PEOPLE,
    rules=None,
    now=None,
    writes=(),
    asked="ws1",
    fields=None,
    answers=NO_ANSWERS,
):
    """The story of ws1: decided by `rules`, asked about by the rules `now`, an hour after each write."""
    rules, assets = rules or Rules(), hosts(*assets) if assets else hosts(WS1)
    no = answers.select("host_id", "user_id").rows()
    made = resolution(counts(*logons), people, assets, rules, answered_no=no)
    of_ws1 = {"hostname": "ws1", "old": values(department="IT"), "new": values("u1", "Sales")}
    rows = [
        row("h1", **{**of_ws1, **write}, run_id=f"run-{number}", completed_at=NOW + timedelta(hours=number))
        for number, write in enumerate(writes, 2)
    ]
    written = table(OwnerWrites, *rows).lazy()
    tables = {
        "owner_decisions": made.decisions,
        "acknowledged_conflicts": empty(AcknowledgedConflicts),
        "host_user_shares": made.shares,
        "username_matches": made.matches,
        "inventory_hosts": assets,
        "inventory_users": people,
        "current_owners": current_owners(assets, people, written),
        "audit_sample": answers,
        "runs": table(Runs, {"run_id": "run-3", "options": json.dumps({"reason": "not \x1bhers"})}),
    }
    return host_explanation(
        asked,
        lambda name: tables[name].lazy(),
        writes=written,
        window=WINDOW,
        decided_by=rules,
        present=PRESENT._replace(rules=now or rules, fields=fields or FieldNames(), history_days=36_500),
    )


def lines_of(*arguments, **options):
    return in_words(story(*arguments, **options)).splitlines()


def test_the_story_is_whose_the_host_is_what_would_change_that_and_how_it_came_to_it():
    logons = [("WS1", "CORP\\Alice", 7), ("ws1", "bob", 2), ("ws1", "miller", 1)]
    lines = lines_of(logons, writes=[{"outcome": "written"}])
    assert lines[0].startswith(
        "ws1 belongs to alice@corp.example (u1): 7 of 10 logons on 1 day, no logon for 28 days; "
    )
    table = [line.split() for line in lines[3:7]]
    assert [row[:3] for row in table[1:]] == [
        ["alice", "7", "70%"],
        ["bob", "2", "20%"],
        ["miller", "1", "10%"],
    ]
    assert table[3][5:] == ["u3", "or", "u4", "miller"]
    assert lines[8:] == [
        "Host asset h1. What would change that:",
        "  - To change the owner, set it in the inventory (asset_owner): no run replaces an owner.",
        f"  - If the owner is wrong: {UNDO}",
        "What happened, the oldest first:",
        (
            "  - 2026-03-30 12:00 UTC, in the inventory: host name ws1, owner none, department IT, "
            "criticality none"
        ),
        f"  - 2026-03-30 12:00 UTC, run run-1 decided {BY}, with a threshold of 60%:",
        f"    {EVIDENCE['majority']} (alice, 7 of 10 logons on 1 day, no logon for 28 days)",
        f"    User u1 in the inventory, found by user_email: user_email {ALICES}, user_department Sales",
        f"    {ACTION['write']}",
        f"  - 2026-03-30 14:00 UTC, run run-2: written. {OUTCOME['written']} no owner → u1, IT → Sales",
    ]


def case(first, *changes, logons=ALICE, assets=(), **options):
    """A part of the first line, and one of each sentence on what would change the decision."""
    return first, changes, logons, assets, options


NOBODY = "has no owner: "
ANSWERED_NO = table(AuditSample, {"host_id": "h1", "user_id": "u1", "right": False, "answered_at": NOW})
CASES = {
    "to write": case(
        "has no owner yet; its primary user is alice@corp.example (u1): 3 of 3 logons on 1 day, no logon",
        "next run that may write sets alice@corp.example (u1)",
    ),
    "exactly the threshold": case(
        "has no owner: no user has a share above the threshold",
        *("with 1 more logon.", "If carol is not a person"),
        logons=EXACTLY_60,
    ),
    "on too few days": case(
        *(NOBODY, "with 2 more logons on at least 2 more days"),
        logons=[("ws1", "alice", 500)],
        rules=Rules(min_active_days=3),
    ),
    "rules that changed": case(
        NOBODY, "alice would be named as the owner: run again", rules=Rules(min_events=5), now=Rules()
    ),
    "rules that changed of a host that was answered no": case(
        NOBODY,
        "Somebody said that this is not alice's. Set the right owner in the inventory, or alice if that",
        rules=Rules(min_events=5),
        now=Rules(),
        answers=ANSWERED_NO,
    ),
    "named for too few days": case(
        "has no owner: the primary user has been named for 29 of 40 days in a row; min",
        "alice has been named on each day since 2026-03-02; if that stays so, the run of 2026-04-10 writes",
        rules=Rules(min_stable_days=40),
    ),
    "named for too few days on a host with an owner": case(
        "belongs to u9 (no such user asset) in the inventory; no owner is found: the primary user has",
        *(
            "alice has been named on each day since 2026-03-02, but no run writes it: the host has an owner.",
            "To change the owner, set it in the inventory (owned_by): no run replaces an owner.",
        ),
        assets=[OWNED],
        rules=Rules(min_stable_days=40),
    ),
    "named for too few days and answered no": case(
        "has no owner: the primary user has been named for 29 days in a row; min_stable_days asks",
        "since 2026-03-02, but no run writes it: somebody answered no, or the account is not one person's",
        rules=Rules(min_stable_days=40),
        answers=ANSWERED_NO,
    ),
    "named for too few days under a name that no asset has": case(
        "is not a host of the inventory: the primary user has been named for 29 days",
        "alice has been named on each day since 2026-03-02, but no run writes it: the host is not in the",
        "There must be a host asset with ws1 in name.",
        assets=[host("h2", "other")],
        rules=Rules(min_stable_days=40),
    ),
    "most days, but not enough": case(
        "no user has a share above the threshold (alice, 9 of 10 logons on 1 day, 1 of 2 days of all users",
        "alice would be named as the owner with",
        logons=[("ws1", "alice", 9), ("ws1", "bob", 1)],
        rules=Rules(evidence_metric="days"),
    ),
    "many users": case(
        *(NOBODY, "4 users share this host, and no one is near the threshold of 60%: alice has most, 28%."),
        logons=[("ws1", "alice", 27), *(("ws1", name, 23) for name in ("bob", "carol", "zoe"))],
    ),
    "kinds of logon that count more": case(
        *(NOBODY, "with 9 more logons without a weight."),
        logons=[("ws1", "alice", 1, DAY, "2"), ("ws1", "bob", 2, DAY, "3")],
        rules=Rules(logon_type_weights={"2": 10}, share_threshold_percent=90),
    ),
    "no logons of an owned host": case(
        "belongs to u9 (no such user asset) in the inventory; no owner is found: nobody logged on",
        *("One user would be named as the owner", "To change the owner, set it in the inventory (owned_by)"),
        logons=[],
        assets=[OWNED],
    ),
    "excluded": case(
        "has no owner: the host is excluded (exclude_hosts: W?1).",
        "(rules.exclude_hosts: W?1).",
        rules=Rules(exclude_hosts=("srv*", "W?1")),
    ),
    "one of two owners": case(
        f"belongs to {ALICES} (u1), u9 (no such user asset); its primary user is {ALICES} (u1): 3 of 3",
        "To change the owner, set it in the inventory",
        assets=[host("h1", "ws1", owners=("u1", "u9"))],
    ),
    "excluded, without a clear primary user": case(
        "has no owner: the host is excluded (exclude_hosts: ws1).",
        "If it were not excluded (rules.exclude_hosts: ws1), no user would have enough of the logons.",
        *("with 1 more logon.", "If carol is not a person"),
        logons=EXACTLY_60,
        rules=Rules(exclude_hosts=("ws1",)),
    ),
    "written, and answered no before this run": case(
        "belongs to alice@corp.example (u1); asset-owners wrote it on 2026-03-30 (run run-2); no owner",
        f"Undo it as wrong, so that no run of this instance writes it here again: {UNDO}",
        "Somebody said that this is not alice's. Set the right owner in the inventory, or alice if that",
        "To change the owner, set it in the inventory",
        assets=[host("h1", "ws1", owners=("u1",))],
        writes=[{"outcome": "written"}],
        answers=ANSWERED_NO,
    ),
    "collision": case(
        *("has no owner: the short host name", "rules.hostname_match: exact"),
        logons=[("ws1.a", "alice", 3), ("ws1.b", "alice", 3)],
        rules=Rules(hostname_match="short"),
    ),
    "no name": case("h1 has no owner: ", "a host name in name", logons=[], assets=[host("h1")], asked="h1"),
    "no user asset": case(
        "has no owner: the account belongs to no person",
        "Give carol a user asset, one with this name in user_email or directory_user_sam",
        logons=[("ws1", "carol", 3)],
    ),
    "an excluded user asset": case(
        "has no owner: the user asset that has the user's name is excluded "
        "(exclude_user_assets: enabled: f*; bob, 3 of 3 logons on 1 day, no logon for 28 days).",
        "Correct the user asset of bob in the inventory, or remove from the instance file what excludes it "
        "(rules.exclude_user_assets: enabled: f*).",
        logons=[("ws1", "bob", 3)],
        rules=Rules(exclude_user_assets={"enabled": ("f*",)}),
    ),
    "several user assets": case(
        "has no owner: several user assets",
        "The surname miller is that of miller (u3) or miller (u4): set the owner by hand, or enter miller",
        logons=[("ws1", "miller", 3)],
    ),
    "an unreadable host": case(
        "cannot be read, so its owner is not known: its field owner holds a dict.",
        "Correct host asset h1 in the inventory: its field owner",
        assets=[UNREADABLE],
    ),
    "an unreadable user asset": case(
        "has no owner: an unreadable user asset may be the user",
        "Correct user asset u5 in the inventory: its field user_department",
        logons=[("ws1", "odd", 3)],
    ),
    "conflict": case(
        f"belongs to u9 (no such user asset) in the inventory, but its primary user is {ALICES} (u1)",
        "Clear owned_by of ws1 (h1) in the inventory: the next run would write alice@corp.example (u1)",
        "If the owner may stay: asset-owners conflicts --acknowledge h1 --note 'why'",
        assets=[OWNED],
    ),
    "agreement": case(
        *("belongs to alice@corp.example (u1), miller", "set it in the inventory (owned_by)"),
        assets=[host("h1", "ws1", owners=("u1", "u3"))],
    ),
    "no asset": case(
        "is not a host of the inventory; its primary user is alice@corp.example",
        "There must be a host asset with ws1 in name.",
        assets=[host("h2", "other")],
    ),
}


@pytest.mark.parametrize(("first", "changes", "logons", "assets", "options"), CASES.values(), ids=CASES)
def test_each_decision_is_put_into_words_with_what_would_change_it(first, changes, logons, assets, options):
    found = story(logons, *assets, **options, fields=FieldNames(owner="owned_by", hostname="name"))
    decision = found["decisions"][0]
    lines = in_words(found)
    assert first in lines.splitlines()[0]
    assert len(decision["summary"]) <= MAX_TEXT, "the page would cut it"
    for sentence in (reason_of(decision), ACTION[decision["action"]]):
        assert f"    {sentence}" in lines
    assert len(decision["what_would_change"]) == len(changes)
    for sentence, part in zip(decision["what_would_change"], changes, strict=True):
        assert part in sentence
        assert f"  - {sentence}" in lines
    assert ("none (u2 is excluded)" in lines) == ("user's name is excluded" in first)


@pytest.mark.parametrize("outcome", OUTCOME)
def test_each_outcome_is_put_into_words_with_what_the_service_said_and_what_follows(outcome):
    found = story(ALICE, writes=[{"outcome": outcome, "message": "no such\x1b[2J field"}])
    (line,) = (line for line in in_words(found).splitlines() if ", run run-2: " in line)
    assert OUTCOME[outcome] in line
    assert line.endswith("no such\\x1b[2J field")
    is_ours = found["decisions"][0]["source"] == "asset-owners"
    assert len(found["decisions"][0]["what_would_change"]) == 1 + is_ours


def test_a_write_is_told_with_who_did_it_and_why():
    writes = [{"outcome": "written", "by": "schedule"}, {**UNDONE, "by": "ro\x1bot"}]
    *_, wrote, undid = lines_of(ALICE, writes=writes)
    assert "UTC, run run-2, by schedule: written. " in wrote
    assert 'UTC, run run-3, by ro\\x1bot ("not \\x1bhers"): undone. ' in undid


UNDONE = {"outcome": "undone", "old": values("u1"), "new": values("")}
SKIPPED = {**UNDONE, "outcome": "not_written", "message": "skipped: already undone by run run-3"}


@pytest.mark.parametrize(
    ("instead", "by", "said"),
    [
        ("u2", "kim", f"  - {NOW:%Y-%m-%d %H:%M} UTC, answered by kim: no, not u1; named instead: u2"),
        (None, None, f"  - {NOW:%Y-%m-%d %H:%M} UTC, answered: no, not u1"),
    ],
)
def test_who_answered_no_is_told_with_who_was_named_instead_also_if_the_logons_name_another(
    instead, by, said
):
    answer = {"host_id": "h1", "user_id": "u1", "right": False, "instead_id": instead, "answered_by": by}
    answers = table(AuditSample, answer | {"answered_at": NOW if by else None, "drawn_at": NOW})
    lines = lines_of(ALICE, answers=answers)
    assert EVIDENCE["answered_no"] in "".join(lines)
    assert lines[0].startswith("ws1 has no owner: somebody said that this host is not alice's, so ")
    assert said in lines
    assert any("User u2 in the inventory: " in line for line in lines) == bool(instead)
    assert any("in the inventory (named instead: bob" in line for line in lines) == bool(instead)
    assert said in lines_of([("ws1", "bob", 3)], answers=answers), "another primary user"


def test_after_an_undo_nothing_contradicts_the_present_state():
    """Also where the run that decided found the owner that was undone later: that is history."""
    text = in_words(story(ALICE, host("h1", "ws1", owners=("u1",)), writes=[UNDONE]))
    now, _, then = text.partition("What happened, the oldest first:\n")
    assert now.startswith("ws1 has no owner: the owner that asset-owners wrote was undone on 2026-03-30.\n")
    assert "writes alice@corp.example (u1) again" in now
    assert "already" not in now
    wrong = lines_of(ALICE, writes=[{"outcome": "written"}, UNDONE], answers=ANSWERED_NO)[0]
    assert wrong.startswith(
        "ws1 has no owner: the owner that asset-owners wrote was undone on 2026-03-30; it was "
    )
    assert wrong.endswith("as wrong, so runs of this instance do not write it again until 2126-03-06.")
    assert [line.split(", ")[1].split(":")[0] for line in then.splitlines() if line[2] != " "] == [
        *("in the inventory", f"run run-1 decided {BY}", "run run-2")
    ]


def test_what_became_of_a_pending_write_is_unknown():
    first = lines_of(ALICE, writes=[{"outcome": "intended"}])[0]
    assert first == (
        "ws1 has no owner that is known: whether alice@corp.example (u1) was written "
        "is unknown until the next run."
    )
    undo = {**UNDONE, "outcome": "intended"}
    first = lines_of(ALICE, writes=[{"outcome": "written"}, undo])[0]
    assert first.endswith("(run run-2); whether that was undone is unknown until the next run.")


def test_the_history_of_a_host_shows_what_changed_and_why_the_last_run_skipped_it():
    writes = [{"outcome": "written"}, UNDONE, SKIPPED, SKIPPED]
    lines = [line for line in lines_of(ALICE, writes=writes) if "run run-" in line]
    assert [line.split("run run-")[1][0] for line in lines[1:]] == ["2", "3", "5"]
    assert "already undone" in lines[-1]


def test_an_unknown_host_is_said_to_be_unknown_with_names_that_are_like_it():
    assert in_words(story([], host("h1", "pc"), asked="ws9")).startswith("ws9: no such host or person")
    found = story([("ws1.lab", "bob", 1), ("ws11", "bob", 1)], host("h1", "WS1.corp", "pc"))
    assert found["similar"] == ["ws1.corp", "ws1.lab"]
    assert "ws1.corp, ws1.lab" in in_words(found)


def test_two_accounts_of_one_person_are_told_as_such():
    person = users(user("u1", email="christopher.montgomery@corp.example", sam="christopher.montgome"))
    logons = [("ws1", "christopher.montgome", 5), ("ws1", "christopher.montgomery", 6)]
    (decision,) = story(logons, people=person)["decisions"]
    (advice,) = (line for line in decision["what_would_change"] if "unite_accounts" in line)
    assert "accounts of one person (u1)" in advice
    assert not any("exclude_users" in line for line in decision["what_would_change"])
    united = story(logons, people=person, rules=Rules(unite_accounts=True))["decisions"]
    assert [one["resolved_owner"] for one in united] == ["u1"]


MIXED_UP = users(user("u1", sam="mweber"), user("u2", email="mweber@corp.example"))


@pytest.mark.parametrize(
    ("people", "decisive", "says"),
    [
        (
            MIXED_UP,
            None,
            ["user_email or directory_user_sam_account_name", "write in platform_user_value_field"],
        ),
        (
            users(user("u1", surname="mweber"), user("u2", surname="mweber")),
            None,
            ["The surname mweber is that of mweber (u1) or mweber (u2): set", "which is compared first"],
        ),
        (
            users(user("u1", sam="mweber"), user("u2", sam="mweber")),
            "employee_login",
            ["all but one of mweber (u1) or mweber (u2)", "in employee_login, which is compared first"],
        ),
    ],
)
def test_a_name_of_several_people_is_told_with_the_fields_that_are_asked_together(people, decisive, says):
    named = FieldNames(user_value=decisive or "user_email", decisive=decisive)
    (decision,) = story([("ws1", "mweber", 3)], people=people, fields=named)["decisions"]
    (advice,) = (line for line in decision["what_would_change"] if " mweber " in line and "(u2)" in line)
    assert all(words in advice for words in says)


# Persons, with the hosts of the logons and of the inventory

PERSONS = users(
    user("u1", email="Ann@corp.example", sam="akeller"),
    user("u2", email="bob@corp.example"),
    user("u3", surname="kim"),
    user("u4", surname="kim"),
    user("u6", email="dee.olu@corp.example"),
    user("u5", surname="odd") | {"user_email": None, "problem": "its field user_email holds a dict"},
)


LOGONS = counts(("ws1", "ann", 3), ("ws2", "akeller", 2), ("ws2", "kim", 3), ("ws3", "odd", 1))
MADE = resolution(LOGONS, PERSONS, hosts())


@pytest.mark.parametrize("asked", ["zoe@corp.example", "u9", "zoe"])
def test_a_person_who_is_excluded_is_found_with_the_hosts_and_what_excludes_them(asked):
    people = users(user("u9", email="zoe@corp.example", listed_values=["left: true"]))
    rules = Rules(exclude_user_assets={"left": ("true",)})
    text = told(asked, None, counts(("ws1", "zoe", 3)), hosts(host("h1", "ws1")), people=people, rules=rules)
    assert "(u9), in the logons zoe, excluded (exclude_user_assets: left: true).\n" in text
    assert "Hosts by the logons only: 1\n  - no owner, user excluded: ws1 has no" in text


def text_of(usernames, user_ids, logons, assets):
    return told("asked", [Person(one, {}, usernames) for one in user_ids or [None]], logons, assets)


def told(asked, found, logons, assets, *, people=PERSONS, rules=None):
    """The story of the persons who are found, or else called so."""
    rules, writes = rules or Rules(), table(OwnerWrites).lazy()
    made = resolution(logons, people, assets, rules)
    tables = {
        "owner_decisions": made.decisions,
        "host_user_shares": made.shares,
        "current_owners": current_owners(assets, people, writes),
        "inventory_users": people,
        "username_matches": made.matches,
    }

    def read(name):
        return tables.get(name, empty(TABLES[name])).lazy()

    found = found or Persons(rules, tables.items()).find(asked)
    explained = person_explanation(asked, found, read, writes, PRESENT._replace(rules=rules))
    return person_in_words(explained)


def test_people_who_share_a_name_are_told_of_one_by_one():
    ann, kim = Person("u1", {"ann": "ann"}, ["kim", "CORP\\kim"]), Person("u3", {}, ["kim"])
    assert each_person([ann, kim], MADE.matches["username"]) == [
        [replace(ann, shared=())],
        [Person("u3", {})],
        [Person(None, {}, ["kim"])],  # one of them, or somebody else
    ]
    assert text_of(["kim"], [], LOGONS, hosts()).startswith("kim (several user assets: u3 or u4).")
    assert text_of(["x"], ["u9"], counts(("ws1", "x", 1)), hosts()).startswith(
        "x (an account without a person)."
    )


def test_who_is_not_known_is_asked_about_those_with_names_like_it():
    known = ["pc-1", "srv", "anna.jones@corp.example", "tom@corp.example"]
    assert near_names("pc-11", known) == ["pc-1"]
    assert near_names("Jones, Anna", known) == ["anna.jones@corp.example"]
    assert near_names("zzz", known) == []


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("KIM", ["u3", "u4"]),
        ("dee", ["u6"]),
        ("Olu, Dee", ["u6"]),
        ("odd", ["u5"]),
        ("dee kim", []),
        ("ol", []),
        (",", []),
        (" ", []),
    ],
)
def test_people_are_found_by_any_of_their_names(asked, found):
    assert [*people_called(asked, PERSONS)] == found


def test_of_people_who_share_a_name_each_host_says_whose_it_is():
    text = text_of(["kim"], ["u3", "u4"], LOGONS, hosts(host("h1", "ws1", owners=("u4",))))
    lines = text.splitlines()
    assert lines[0] == "This may be several people: kim (u3) or kim (u4), in the logons kim."
    assert (
        "  - conflict, only one user: ws1 belongs to kim (u4) in the inventory, but its primary user is "
        in text
    )
    assert lines[-1] == "  ws2  kim: 3 of 5 logons on 1 day  last on 2026-03-02"


def test_of_many_hosts_the_first_are_shown_and_names_do_not_act_on_a_terminal():
    rows = [(f"ws{number}\x1b[2j", name, 1) for number in range(30) for name in ("ann", "bob")]
    text = text_of(["ann"], ["u1"], counts(*rows), hosts(host("h1\x07", "ws1\x1b[2j", owners=("u1",))))
    assert text.count("ann: 1 of 2 logons on 1 day") == SHOWN_ELSEWHERE
    assert "Hosts in the inventory only: 1\n" in text
    assert "Other hosts with logons: 30\n" in text
    assert text.endswith("  and more; --json has all")
    assert all(line.isprintable() for line in text.splitlines())
