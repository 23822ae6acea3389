import json
from datetime import timedelta

import polars as pl
import pytest

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.declaration import polars_schema
from ownership.matching import FieldNames, username_matches
from ownership.rules import Rules
from ownership.tables import OwnerWrites
from reports.explanations import host_explanation, in_words
from tests.ownership.builders import (
    DAY,
    NOW,
    WINDOW,
    counts,
    decide,
    host,
    hosts,
    plan,
    shares_of,
    user,
    users,
)
from tests.ownership.test_winning import winner

PEOPLE = users(
    user("u1", email="alice@corp.example", user_department="Sales"),
    user("u2", sam="bob"),
    user("u3", surname="miller"),
    user("u4", surname="miller"),
    user("u5", surname="odd") | {"problem": "its field user_department holds a dict"},
)
ALICE = [("ws1", "alice", 3)]
EXACTLY_60 = [("ws1", "alice", 6), ("ws1", "carol", 4)]
WS1 = host("h1", "ws1", department="IT")
OWNED = host("h1", "ws1", owners=("u9",))
UNREADABLE = host("h1", "ws1") | {"owner_ids": None, "problem": "its field owner holds a dict"}


def story(logons, *assets, rules=None, now=None, writes=(), hostname="ws1", fields=None, known=()):
    """The story of ws1: decided by `rules`, asked about by the rules `now`, an hour after each write."""
    rules, fields, logons = rules or Rules(), fields or FieldNames(), counts(*logons)
    assets = hosts(*assets) if assets else hosts(WS1)
    shares = shares_of(logons, rules)
    decisions = decide(logons, PEOPLE, assets, rules)
    unowned = hosts(WS1)
    (first,) = plan(decide(counts(*ALICE), PEOPLE, unowned), PEOPLE, unowned).to_dicts()
    rows = [
        first | write | {"run_id": f"run-{number}", "completed_at": NOW + timedelta(hours=number)}
        for number, write in enumerate(writes, 2)
    ]
    return host_explanation(
        hostname,
        decisions=decisions.filter(
            pl.col("hostname").eq_missing(pl.lit(hostname)) | (pl.col("host_id") == pl.lit(hostname))
        ),
        shares=shares,
        matches=username_matches(shares, PEOPLE, user_value_field=fields.user_value),
        hosts=assets,
        users=PEOPLE,
        writes=pl.DataFrame(rows, schema=polars_schema(OwnerWrites)),
        window=WINDOW,
        decided_by=rules,
        rules=now or rules,
        fields=fields,
        known=known,
    )


def told(*arguments, **options):
    return in_words(story(*arguments, **options)).splitlines()


def test_the_story_goes_from_the_counts_to_the_write_and_to_what_would_change():
    logons = [("WS1", "CORP\\Alice", 7), ("ws1", "bob", 2), ("ws1", "miller", 1)]
    lines = told(logons, writes=[{"outcome": "written"}])
    assert lines[0].startswith("ws1 belongs to alice@corp.example (u1): 7 of 10 logons on 1 day; ")
    table = [line.split() for line in lines[3:7]]
    assert [row[:3] for row in table[1:]] == [
        ["alice", "7", "70.0%"],
        ["bob", "2", "20.0%"],
        ["miller", "1", "10.0%"],
    ]
    assert table[3][5:] == ["u3", "or", "u4", "by", "directory_user_surname", "miller"]
    assert lines[8:] == [
        "Host asset h1, window 2026-03-01 to 2026-03-30, decided 2026-03-30 12:00 UTC by run run-1:",
        f"  {EVIDENCE['majority']} (alice has 7 of 10 logon events: 70.0%, threshold 60%)",
        f"  {MATCH['matched']} (u1, by user_email)",
        f"  {ACTION['write']}",
        f"  2026-03-30 14:00 UTC, run run-2: {OUTCOME['written']} owner u1, department Sales (before: IT)",
        (
            "  In the inventory, 2026-03-30 12:00 UTC: host name ws1, owner none, department IT, "
            "criticality none"
        ),
        "  In the inventory, user u1: user_email alice@corp.example, user_department Sales",
        "  What would change that:",
        "  - Set another owner in asset_owner by hand: no run replaces an owner.",
        (
            "  Now: owner alice@corp.example (u1), department Sales, criticality none (as listed, and as "
            "written from here since)."
        ),
    ]


# logons, assets, options; what would change: change, user, events, days
CASES = {
    "exactly the threshold": (
        EXACTLY_60,
        [],
        {},
        [
            ("more_logons", "alice", 1, None),
            ("more_logons", "carol", 6, None),
            ("exclude_users", "carol", None, None),
        ],
    ),
    "too few": (ALICE, [], {"rules": Rules(min_events=5)}, [("more_logons", "alice", 2, None)]),
    "on too few days": (
        [("ws1", "alice", 500)],
        [],
        {"rules": Rules(min_active_days=3)},
        [("more_logons", "alice", 2, 2)],
    ),
    "after an account left out with most logons": (
        [("ws1", "svc_x", 9), ("ws1", "alice", 2)],
        [],
        {"rules": Rules(skip_account_kinds=("service",))},
        [("more_logons", "alice", 2, 2)],
    ),
    "days asked for since": (
        EXACTLY_60,
        [],
        {"now": Rules(share_threshold_percent=50, min_active_days=2)},
        [("more_logons", "alice", 1, 1), ("more_logons", "carol", 3, None)],
    ),
    "rules that changed": (
        ALICE,
        [],
        {"rules": Rules(min_events=5), "now": Rules()},
        [("run", "alice", None, None)],
    ),
    "no logons": ([], [], {}, [("more_logons", None, 1, 1)]),
    "logons under a full name": (
        [("ws1.corp.example", "alice", 3)],
        [],
        {"rules": Rules(min_events=4)},
        [("more_logons", None, 4, 1), ("hostname", None, None, None)],
    ),
    "excluded": (
        ALICE,
        [],
        {"rules": Rules(exclude_hosts=("srv*", "W?1"))},
        [("exclude_hosts", None, None, None)],
    ),
    "collision": (
        [("ws1.a", "alice", 3), ("ws1.b", "alice", 3)],
        [],
        {"rules": Rules(hostname_match="short")},
        [("hostname_match", None, None, None)],
    ),
    "no user asset": ([("ws1", "carol", 3)], [], {}, [("user_asset", "carol", None, None)]),
    "several user assets": ([("ws1", "miller", 3)], [], {}, [("one_candidate", "miller", None, None)]),
    "an unreadable host": (ALICE, [UNREADABLE], {}, [("correct_asset", None, None, None)]),
    "an unreadable user asset": ([("ws1", "odd", 3)], [], {}, [("correct_asset", None, None, None)]),
    "conflict": (ALICE, [OWNED], {}, [("clear_owner", None, None, None)]),
    "agreement": (ALICE, [host("h1", "ws1", owners=("u1",))], {}, [("set_owner", None, None, None)]),
    "no asset": (ALICE, [host("h2", "other")], {}, [("host_asset", None, None, None)]),
    "to write": (ALICE, [], {}, [("run", None, None, None)]),
}


@pytest.mark.parametrize(("logons", "assets", "options", "changes"), CASES.values(), ids=CASES)
def test_each_decision_is_put_into_words_with_what_would_change_it(logons, assets, options, changes):
    found = story(logons, *assets, **options)
    decision = found["decisions"][0]
    told = decision["what_would_change"]
    assert [
        tuple(each[name] for name in ("change", "username", "events", "days")) for each in told
    ] == changes
    lines = in_words(found)
    for code, sentences in (("evidence", EVIDENCE), ("match", MATCH), ("action", ACTION)):
        assert decision[code] is None or sentences[decision[code]] in lines
    assert all(each["text"] in lines for each in told)


def test_advice_names_the_user_assets_the_fields_and_the_settings():
    def advice(*arguments, **options):
        decisions = story(*arguments, **options)["decisions"]
        return " ".join(each["text"] for each in decisions[0]["what_would_change"])

    fields = FieldNames(user_value="directory_user_surname", owner="owned_by", hostname="name")
    assert "owned_by of host h1" in advice(ALICE, OWNED, fields=fields)
    assert " in name" in advice([], host("h1"), hostname=None, fields=fields)
    miller = advice([("ws1", "miller", 3)])
    assert "directory_user_surname from all but one of u3 or u4" in miller
    assert "directory_user_sam_account_name" in miller, "is asked first"
    assert "sam_account_name" not in advice([("ws1", "miller", 3)], fields=fields)
    assert "alice (u1) needs 1 more logon to" in advice(EXACTLY_60)
    assert "carol needs 6 more logons and must have a user asset" in advice(EXACTLY_60)
    assert "unreadable u5" in advice([("ws1", "odd", 6), ("ws1", "alice", 4)])
    assert "rules.exclude_hosts" in advice(ALICE, rules=Rules(exclude_hosts=("w*",)))
    assert "ws1.corp.example" in advice([("ws1.corp.example", "alice", 3)])
    assert "host asset h2" in advice(ALICE, host("h2", "WS1.corp.example"))
    assert "u5 in the inventory: its field user_department" in advice([("ws1", "odd", 3)])
    weighted = Rules(logon_type_weights={"2": 10}, share_threshold_percent=90)
    kinds = [("ws1", "alice", 1, DAY, "2"), ("ws1", "bob", 2, DAY, "3")]
    assert "more logons without a weight" in advice(kinds, rules=weighted)


def test_following_the_advice_helps():
    found = story(EXACTLY_60)["decisions"][0]["what_would_change"]
    for each in found[:2]:
        events = {"alice": 6, "carol": 4}
        events[each["username"]] += each["events"]
        assert winner(events, Rules()) == each["username"]
    assert winner({"alice": 6, "carol": 4}, Rules(exclude_users=(found[2]["username"],))) == "alice"


@pytest.mark.parametrize("outcome", OUTCOME)
def test_each_outcome_is_put_into_words_with_what_the_service_said_and_what_follows(outcome):
    found = story(ALICE, writes=[{"outcome": outcome, "message": "no such\x1b[2J field"}])
    (line,) = (line for line in in_words(found).splitlines() if ", run run-2: " in line)
    assert OUTCOME[outcome] in line
    assert line.endswith("no such\\x1b[2J field")
    assert len(found["decisions"][0]["what_would_change"]) == 1


@pytest.mark.parametrize(
    ("logons", "assets", "sentence"),
    [
        (ALICE, [], "ws1 has no owner yet; it is to get alice@corp.example (u1): 3 of 3 logons on 1 day."),
        (ALICE, [host("h1", "ws1", owners=("u1", "u3"))], "ws1 belongs to alice@corp.example (u1), miller"),
        (ALICE, [OWNED], "ws1 belongs to u9 in the inventory, but the logons name alice@corp.example (u1)"),
        ([], [OWNED], "ws1 belongs to u9 in the inventory; the logons give no owner: nobody logged on"),
        ([], [], "ws1 has no owner: nobody logged on to the host in the window."),
        (EXACTLY_60, [], "ws1 has no owner: none of several users has more than the threshold"),
        (
            ALICE,
            [host("h2", "x")],
            "ws1 is no host of the inventory; the logons name alice@corp.example (u1)",
        ),
        (ALICE, [UNREADABLE], "ws1 cannot be read, so its owner is not known: its field owner holds a dict."),
    ],
)
def test_the_first_line_says_who_and_why(logons, assets, sentence):
    assert told(logons, *assets)[0].startswith(sentence)


UNDONE = {
    "outcome": "undone",
    "old_values": {"owner": "u1", "department": None, "criticality": None},
    "new_values": {"owner": "", "department": None, "criticality": None},
}
LEFT_ALONE = {**UNDONE, "outcome": "not_written", "message": "left alone: put back since, by run run-3"}
MET = {"department": None, "criticality": None, "owner": "u9"}


def test_after_an_undo_nothing_contradicts_the_present_state():
    """Also where the run that decided found the owner that was put back later."""
    lines = told(ALICE, host("h1", "ws1", owners=("u1",)), writes=[UNDONE])
    assert lines[0] == "ws1 has no owner: what asset-owners had written was put back on 2026-03-30."
    assert "again" in lines[-2]
    assert lines[-1].startswith("  Now: owner none, ")


def test_an_owner_that_a_run_met_is_the_owner_by_now():
    lines = told(ALICE, writes=[{"outcome": "owned_meanwhile", "old_values": MET, "message": "has got u9"}])
    assert lines[0].startswith("ws1 belongs to u9 in the inventory, but the logons name alice@corp.example")
    assert lines[-1].startswith("  Now: owner u9, ")


def test_the_history_of_a_host_shows_what_changed_and_why_the_last_run_left_it_alone():
    written = {"outcome": "written"}
    lines = [
        line for line in told(ALICE, writes=[written, UNDONE, LEFT_ALONE, LEFT_ALONE]) if "run run-" in line
    ]
    assert [line.split("run run-")[1][0] for line in lines[1:]] == ["2", "3", "5"]
    assert "put back since" in lines[-1]
    lines = told(ALICE, writes=[written, UNDONE] * 4)
    assert len([line for line in lines if ", run run-" in line]) == 5
    assert any("earlier writes: 3" in line for line in lines)


def test_only_the_first_users_of_a_crowded_host_are_shown_and_all_are_in_the_story():
    found = story([("ws1", f"user{number:02}", 1) for number in range(30)])
    text = in_words(found)
    assert "user09" in text
    assert "user10" not in text
    assert "20 more users" in text
    assert len(found["decisions"][0]["users"]) == 30


def test_an_asset_s_names_are_counted_together_and_a_table_is_shown_once():
    logons = [("ws1", "alice", 6), ("old", "alice", 1), ("old", "bob", 4)]
    text = "\n".join(told(logons, host("h1", "ws1", "old"), host("h2", "ws1", "old"), host("h3", "ws1")))
    assert text.count("Logon events on ws1, old, 11 in all") == 1
    assert text.count("Logon events on ws1, 6 in all") == 1
    assert text.count("Host asset h") == 3


def test_an_unknown_host_is_said_to_be_unknown_with_names_that_are_like_it():
    found = story([], host("h1", "pc"), hostname="ws9")
    assert found == {"hostname": "ws9", "similar": [], "near": [], "decisions": []}
    assert in_words(found).startswith("ws9: neither")
    found = story([("ws1.lab", "bob", 1), ("ws11", "bob", 1)], host("h1", "WS1.corp", "pc"))
    assert found["similar"] == ["ws1.corp", "ws1.lab"]
    assert "ws1.corp, ws1.lab" in in_words(found)
    assert story([], host("h1", "pc"), hostname="pc-11", known=["pc-1", "srv"])["near"] == ["pc-1"]


def test_hostile_names_cannot_act_on_a_terminal():
    name = "ws1\x1b[2j\u202e"
    asset = host("h\x07", name, department="\x1b]0;x\x07")
    lines = told([(name, "al\nice\x07", 3)], asset, hostname=name)
    assert "ws1\\x1b[2j\\u202e" in lines[0]
    assert all(line.isprintable() for line in lines)


def test_the_story_is_plain_values_for_programs():
    found = story(EXACTLY_60, writes=[{"outcome": "failed"}])
    (decision,) = found["decisions"]
    json.dumps(found, default=lambda day: day.isoformat())
    assert {*decision} >= {
        *(
            "evidence",
            "match",
            "action",
            "window_from",
            "window_to",
            "rules",
            "hostnames",
            "users",
            "too_few",
        ),
        *("host_asset", "user_assets", "writes", "what_would_change", "summary", "now", "owner_now"),
    }
    assert (decision["evidence"], decision["match"], decision["action"]) == ("no_majority", None, "none")
    assert [(user["username"], user["events"], user["share"]) for user in decision["users"]] == [
        ("alice", 6, 0.6),
        ("carol", 4, 0.4),
    ]
    assert decision["users"][0]["user_assets"] == [
        {"user_id": "u1", "matched_by": "user_email", "decisive": True, "problem": None}
    ]
