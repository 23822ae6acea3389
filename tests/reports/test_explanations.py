import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from ownership.codes import OUTCOME
from ownership.declaration import polars_schema
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tables import OwnerWrites
from reports.explanations import host_explanation, in_words
from reports.remedies import FieldNames
from reports.sentences import ownership_sentence
from tests.ownership.builders import DAY, NOW, counts, decide, host, hosts, plan, shares_of, user, users

PEOPLE = users(
    user("u1", email="alice@corp.example", user_department="Sales"),
    user("u2", surname="Alice"),
    user("u3", surname="miller"),
    user("u4", surname="miller"),
)


DAYS = ("window_from", "window_to", "first_seen", "last_seen")
SEEN = ("first_seen", "last_seen")
DONE = datetime(2026, 3, 30, 12, 5, tzinfo=UTC)


def story(
    logons, assets, hostname="ws1", *, rules=None, outcome=None, message=None, others=None, people=PEOPLE
):
    """The story of the hosts of that name, as plain values."""
    rules = rules or Rules()
    decisions = decide(logons, people, assets, rules)
    shares = shares_of(logons, rules)
    writes = plan(decisions, people, assets).with_columns(
        outcome=pl.lit(outcome, pl.String), message=pl.lit(message, pl.String), completed_at=pl.lit(DONE)
    )
    return host_explanation(
        hostname,
        decisions=decisions.filter((pl.col("hostname") == hostname) | (pl.col("host_id") == hostname)),
        shares=shares,
        matches=username_matches(shares, people, user_value_field="user_email"),
        hosts=assets,
        users=people,
        writes=writes.drop_nulls("outcome"),
        rules=others or rules,
        fields=FieldNames(),
    )


def told(*arguments, **options):
    return in_words(story(*arguments, **options))


def test_the_story_goes_from_the_counts_to_the_write_and_to_what_would_change():
    logons = counts(("WS1", "CORP\\Alice", 7), ("ws1", "bob", 2), ("ws1", "miller", 1))
    lines = told(logons, hosts(host("h1", "ws1", department="IT")), outcome="written").splitlines()
    assert lines == [
        (
            "ws1 belongs to alice@corp.example (u1): 7 of 10 logons on 1 day; asset-owners wrote it on "
            "2026-03-30 (run run-1)."
        ),
        "",
        "Logon events on ws1, 10 in all; more than 60% is 7 or more:",
        "  user      events   share  first seen  last seen   user asset                          spelled",
        "  alice          7   70.0%  2026-03-02  2026-03-02  u1 by user_email                    CORP\\Alice",
        "  bob            2   20.0%  2026-03-02  2026-03-02  none                                bob",
        "  miller         1   10.0%  2026-03-02  2026-03-02  u3 or u4 by directory_user_surname  miller",
        "",
        "Host asset h1, window 2026-03-01 to 2026-03-30, decided 2026-03-30 12:00 UTC by run run-1:",
        "  alice has 7 of 10 logon events (70.0%), over 60%.",
        "  alice is the user asset u1, found by user_email.",
        "  Not asked any more: directory_user_surname, which says u2.",
        "  The host had no owner, so u1 was to be written.",
        "  Written, 2026-03-30 12:05 UTC, run run-1: owner u1, department Sales (before: IT).",
        "  The inventory held, 2026-03-30 12:00 UTC:",
        "  - host h1: host name ws1, no owner, department IT, no criticality",
        "  - user u1: user_email alice@corp.example, user_department Sales",
        "  What would change that:",
        "  - Set another owner in asset_owner by hand: no run replaces an owner.",
        (
            "  Now: owner alice@corp.example (u1), department Sales, criticality none "
            "(as listed 2026-03-30 12:00 UTC, and as written from here since)."
        ),
    ]


ALICE = [("ws1", "alice", 6)]
WS1 = [host("h1", "ws1")]


@pytest.mark.parametrize(
    ("logons", "assets", "rules", "sentence"),
    [
        (
            [*ALICE, ("ws1", "bob", 4)],
            WS1,
            {},
            "No user has over 60% of the 10 logon events; alice comes first with 6",
        ),
        ([*ALICE, ("ws1", "bob", 4)], WS1, {}, "The host stayed without an owner."),
        (ALICE, WS1, {}, "alice is the only user, with all of the logon events (6)."),
        (ALICE, [host("h1", "ws1", owners=("u1",))], {}, "The host had that owner already (u1)"),
        (
            ALICE,
            [host("h1", "ws1", owners=("u8", "u9"))],
            {},
            "another owner (u8,u9), who stayed: a conflict.",
        ),
        ([("ws1", "carol", 6)], WS1, {}, "No user asset has the name carol."),
        ([("ws1", "carol", 6)], [host("h1", "ws1", owners=("u9",))], {}, "The host kept its owner u9."),
        (
            [("ws1", "miller", 6)],
            WS1,
            {},
            "By directory_user_surname, miller may be any of u3, u4; none is",
        ),
        (ALICE, [], {}, "No host asset has this name, so there is nothing to write to."),
        ([], WS1, {}, "Nobody logged on to the host in the window."),
        (ALICE, WS1, {"min_events": 7}, "6 is fewer logon events than min_events asks for."),
        (
            [("ws1", "alice", 500)],
            WS1,
            {"min_active_days": 3},
            "  1 is fewer days with a logon of alice than min_active_days asks for.",
        ),
        (
            ALICE,
            WS1,
            {"min_events": 7, "min_active_days": 3},
            (
                "  6 is fewer logon events than min_events asks for; "
                "1 is fewer days with a logon of alice than min_active_days asks for."
            ),
        ),
        (ALICE, WS1, {"exclude_hosts": ("ws*",)}, "The host is left out by exclude_hosts: ws*."),
        (
            [("ws1.a", "bob", 1), ("ws1.b", "bob", 1)],
            WS1,
            {"hostname_match": "short"},
            "hosts of different domains",
        ),
        (ALICE, [*WS1, host("h2", "ws1")], {}, "Host asset h2, window"),
        ([*ALICE, ("old", "bob", 4)], [host("h1", "ws1", "old")], {}, "Logon events on ws1, old, 10 in all;"),
        (ALICE, [host("h1", "ws1", owners=("u2", "u9"))], {}, "- user u9: no such user asset"),
        (ALICE, [host("h1", "ws1", owners=("u2",))], {}, "- user u2: directory_user_surname Alice"),
    ],
)
def test_each_decision_is_told_in_words(logons, assets, rules, sentence):
    assert sentence in told(counts(*logons), hosts(*assets), rules=Rules(**rules))


def test_a_limit_that_was_changed_since_is_not_named_as_the_reason():
    text = told(counts(*ALICE), hosts(*WS1), rules=Rules(min_active_days=3), others=Rules())
    assert (
        "  6 logon events, with those of alice on 1 day, were fewer than min_events or min_active_days asked "
        "for." in text
    )


@pytest.mark.parametrize("outcome", OUTCOME)
def test_each_outcome_is_told_with_what_the_service_said(outcome):
    text = told(
        counts(("ws1", "alice", 1)), hosts(host("h1", "ws1")), outcome=outcome, message="no such\x1b[2J field"
    )
    said = ", 2026-03-30 12:05 UTC, run run-1: owner u1, department Sales (no such\\x1b[2J field)."
    if outcome in {"not_written", "owned_meanwhile"}:
        said = "  Not written, 2026-03-30 12:05 UTC, run run-1: no such\\x1b[2J field."
    assert any(line.endswith(said) for line in text.splitlines())


ONE_DAY = "6 of 6 logons on 1 day"


@pytest.mark.parametrize(
    ("logons", "assets", "sentence"),
    [
        (ALICE, WS1, f"ws1 has no owner yet; it is to get alice@corp.example (u1): {ONE_DAY}."),
        (
            ALICE,
            [host("h1", "ws1", owners=("u1",))],
            f"ws1 belongs to alice@corp.example (u1): {ONE_DAY}; the inventory had this owner already.",
        ),
        (
            ALICE,
            [host("h1", "ws1", owners=("u1", "u3"))],
            (
                f"ws1 belongs to alice@corp.example (u1), miller (u3): {ONE_DAY}; the inventory had these "
                "owners already."
            ),
        ),
        (
            ALICE,
            [host("h1", "ws1", owners=("u3",))],
            (
                "ws1 belongs to miller (u3) in the inventory, but the logons name alice@corp.example (u1): "
                f"{ONE_DAY}."
            ),
        ),
        (
            [],
            [host("h1", "ws1", owners=("u9",))],
            (
                "ws1 belongs to u9 in the inventory; the logons give no owner: "
                "nobody logged on to the host in the window."
            ),
        ),
        ([], WS1, "ws1 has no owner: nobody logged on to the host in the window."),
        (
            [*ALICE, ("ws1", "bob", 4)],
            WS1,
            (
                "ws1 has no owner: none of several users has more than the threshold of the logon events "
                "(alice, 6 of 10 logons on 1 day)."
            ),
        ),
        (
            ALICE,
            [],
            f"ws1 is no host of the inventory; the logons name alice@corp.example (u1): {ONE_DAY}.",
        ),
    ],
)
def test_the_first_line_tells_who_and_why(logons, assets, sentence):
    assert told(counts(*logons), hosts(*assets)).splitlines()[0] == sentence


def test_what_was_put_back_is_told_as_the_present_state():
    assets = hosts(*WS1)
    decisions = decide(counts(*ALICE), PEOPLE, assets)
    put_back = plan(decisions, PEOPLE, assets).with_columns(
        outcome=pl.lit("undone"), completed_at=pl.lit(DONE)
    )
    sentence = ownership_sentence(decisions.row(0, named=True), put_back, {"owner": []}, {})
    assert sentence == "ws1 has no owner: what asset-owners had written was put back on 2026-03-30."


WRITTEN = {"outcome": "written"}
UNDONE = {
    "outcome": "undone",
    "old_values": {"owner": "u1", "department": None, "criticality": None},
    "new_values": {"owner": "", "department": None, "criticality": None},
}
LEFT_ALONE = {**UNDONE, "outcome": "not_written", "message": "left alone: put back since, by run run-3"}


def after(*writes, owners=()):
    """What is told of a host whose writes were these, one an hour after the decision."""
    assets = hosts(host("h1", "ws1", owners=owners))
    decisions = decide(counts(*ALICE), PEOPLE, assets)
    (first,) = plan(decide(counts(*ALICE), PEOPLE, hosts(*WS1)), PEOPLE, hosts(*WS1)).to_dicts()
    rows = [
        first | write | {"run_id": f"run-{number}", "completed_at": DONE + timedelta(hours=number)}
        for number, write in enumerate(writes, 2)
    ]
    shares = shares_of(counts(*ALICE), Rules())
    found = host_explanation(
        "ws1",
        decisions=decisions,
        shares=shares,
        matches=username_matches(shares, PEOPLE, user_value_field="user_email"),
        hosts=assets,
        users=PEOPLE,
        writes=pl.DataFrame(rows, schema=polars_schema(OwnerWrites)),
        rules=Rules(),
        fields=FieldNames(),
    )
    lines = in_words(found).splitlines()
    return lines[0], lines[lines.index("") :], lines[-1]


def test_after_an_undo_nothing_contradicts_the_present_state():
    """Also where the run that decided found the owner that was put back later."""
    first, lines, now = after(UNDONE, owners=("u1",))
    assert first == "ws1 has no owner: what asset-owners had written was put back on 2026-03-30."
    assert "  The host had that owner already (u1); there was nothing to do." in lines
    assert "  Put back, 2026-03-30 14:05 UTC, run run-2: owner cleared (before: u1)." in lines
    again = "  - The next run writes u1 again, unless rules.exclude_hosts names the host by then."
    assert lines[-2:] == [again, now]
    assert now.startswith("  Now: owner none, ")


def test_after_a_write_nobody_is_told_that_the_next_run_sets_the_owner():
    """Not even by a plan that was made before."""
    _, lines, now = after({"outcome": "planned"}, WRITTEN)
    assert not any("Planned" in line or "next run" in line for line in lines)
    assert "  - Set another owner in asset_owner by hand: no run replaces an owner." in lines
    assert now.startswith("  Now: owner alice@corp.example (u1), ")


def test_an_owner_that_a_run_met_is_the_owner_by_now():
    met = {"department": None, "criticality": None, "owner": "u9"}
    first, lines, now = after({"outcome": "owned_meanwhile", "old_values": met, "message": "has got u9"})
    assert first.startswith("ws1 belongs to u9 in the inventory, but the logons name alice@corp.example (u1)")
    assert "  Not written, 2026-03-30 14:05 UTC, run run-2: has got u9." in lines
    assert "  - Clear asset_owner of host h1: the next run would write u1." in lines
    assert now.startswith("  Now: owner u9, ")


def test_the_history_of_a_host_tells_what_changed_and_why_the_last_run_left_it_alone():
    _, lines, _ = after(WRITTEN, UNDONE, LEFT_ALONE, LEFT_ALONE)
    assert [line.split(",")[0] for line in lines if ", run run-" in line] == [
        "  Written",
        "  Put back",
        "  Not written",
    ]
    told = "  Not written, 2026-03-30 17:05 UTC, run run-5: left alone: put back since, by run run-3."
    assert told in lines
    _, lines, _ = after(*[WRITTEN, UNDONE, LEFT_ALONE] * 4)
    assert "  4 earlier writes; --json has all" in lines
    _, lines, _ = after(*[WRITTEN, UNDONE] * 3)
    assert "  1 earlier write; --json has all" in lines
    assert len([line for line in lines if ", run run-" in line]) == 5


def test_what_was_put_back_before_the_run_decided_is_not_its_result():
    decisions = decide(counts(*ALICE), PEOPLE, hosts(*WS1))
    put_back = plan(decisions, PEOPLE, hosts(*WS1)).with_columns(
        outcome=pl.lit("undone"), completed_at=pl.lit(NOW - timedelta(days=1))
    )
    sentence = ownership_sentence(decisions.row(0, named=True), put_back, {"owner": []}, {})
    assert sentence.startswith("ws1 has no owner yet; it is to get u1: ")


def test_the_same_write_again_and_again_is_told_once():
    found = story(counts(*ALICE), hosts(*WS1), outcome="failed", message="read-only")
    (decision,) = found["decisions"]
    (write,) = decision["writes"]
    decision["writes"] = [write, write, write, {**write, "message": None}]
    lines = [line for line in in_words(found).splitlines() if "Refused" in line]
    assert [("3 times since 2026-03-30 12:05 UTC" in line, "(read-only)" in line) for line in lines] == [
        (True, True),
        (False, False),
    ]


def test_only_the_first_users_of_a_crowded_host_are_shown_and_all_are_in_the_story():
    found = story(counts(*(("ws1", f"user{number:02}", 1) for number in range(30))), hosts())
    text = in_words(found)
    assert "user09" in text
    assert "user10" not in text
    assert "and 20 more users" in text
    assert len(found["decisions"][0]["users"]) == 30


def test_an_asset_s_names_are_counted_together_and_a_table_is_shown_once():
    logons = counts(("ws1", "alice", 6), ("old", "alice", 1), ("old", "bob", 4))
    text = told(logons, hosts(host("h1", "ws1", "old"), host("h2", "ws1", "old"), host("h3", "ws1")))
    assert text.count("Logon events on ws1, old, 11 in all; more than 60% is 7 or more:") == 1
    assert text.count("Logon events on ws1, 6 in all; more than 60% is 4 or more:") == 1
    assert "  alice         7   63.6%" in text
    assert text.count("Host asset h") == 3


def test_an_unknown_host_is_said_to_be_unknown():
    found = story(counts(), hosts(), "ws9")
    assert found == {"hostname": "ws9", "similar": [], "near": [], "decisions": []}
    assert in_words(found) == "ws9: neither the inventory nor the logons know such a host or person."


def test_an_unknown_host_is_told_with_names_that_differ_in_the_domain_only():
    found = story(counts(("ws1.lab", "bob", 1), ("ws11", "bob", 1)), hosts(host("h1", "WS1.corp", "pc")))
    assert found["similar"] == ["ws1.corp", "ws1.lab"]
    assert in_words(found).endswith("such a host or person. They know ws1.corp, ws1.lab.")


def test_hostile_names_cannot_act_on_a_terminal():
    name = "ws1\x1b[2j\u202e"
    text = told(counts((name, "al\nice\x07", 3)), hosts(host("h\x07", name, department="\x1b]0;x\x07")), name)
    assert "ws1\\x1b[2j\\u202e" in text
    assert "al\\nice\\x07" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_an_unreadable_host_is_told_with_the_reason_and_what_to_do():
    odd = host("h1", "ws1", department="IT") | {"owner_ids": None, "problem": "its field owner holds a dict"}
    lines = told(counts(*ALICE), hosts(odd)).splitlines()
    assert lines[0] == "ws1 cannot be read, so its owner is not known: its field owner holds a dict."
    assert lines[-8:] == [
        "Host asset h1, window 2026-03-01 to 2026-03-30, decided 2026-03-30 12:00 UTC by run run-1:",
        "  The asset cannot be read: its field owner holds a dict.",
        "  Nothing is written to an asset that cannot be read.",
        "  The inventory held, 2026-03-30 12:00 UTC:",
        (
            "  - host h1: host name ws1, no owner that can be read, department IT, "
            "no criticality that can be read"
        ),
        "  What would change that:",
        "  - Correct host asset h1 in the inventory: its field owner holds a dict.",
        (
            "  Now: owner not known, department IT, criticality none "
            "(as listed 2026-03-30 12:00 UTC, and as written from here since)."
        ),
    ]


def test_a_host_whose_name_cannot_be_read_is_told_as_well():
    odd = host("h1", owners=("u1",)) | {"hostnames": None, "problem": "its field name holds a dict"}
    text = told(counts(*ALICE), hosts(odd), "h1")
    assert "The asset cannot be read: its field name holds a dict." in text
    assert "- host h1: no host name that can be read, owner u1" in text


@pytest.mark.parametrize("known", [[], [user("u1", email="alice@corp.example")]])
def test_an_unreadable_user_asset_is_told_as_the_reason_that_nobody_is_guessed(known):
    odd = user("u9", surname="Alice") | {"user_email": None, "problem": "its field user_email holds a dict"}
    text = told(counts(*ALICE), hosts(*WS1), people=users(*known, odd))
    assert "alice fits the user asset u9, which cannot be read (its field user_email holds a dict)" in text
    assert "u9 (unreadable) by " in text
    assert ("alice may be any of u1, u9" in text) == bool(known)
    advice = "  - Correct user asset u9 in the inventory: its field user_email holds a dict."
    assert advice in text.splitlines()


def test_the_story_is_plain_values_for_programs():
    found = story(counts(*ALICE, ("ws1", "bob", 4)), hosts(*WS1), outcome=None)
    assert json.loads(json.dumps(found, default=lambda day: day.isoformat())) == found | {
        "decisions": [
            decision
            | {name: decision[name].isoformat() for name in DAYS}
            | {"decided_at": decision["decided_at"].isoformat()}
            | {
                "users": [
                    user | {name: user[name].isoformat() for name in SEEN} for user in decision["users"]
                ]
            }
            | {"host_asset": decision["host_asset"] | {"listed_at": NOW.isoformat()}}
            for decision in found["decisions"]
        ]
    }
    (decision,) = found["decisions"]
    assert (decision["evidence"], decision["match"], decision["action"]) == ("no_majority", None, "none")
    assert [(user["username"], user["events"], user["share"]) for user in decision["users"]] == [
        ("alice", 6, 0.6),
        ("bob", 4, 0.4),
    ]
    assert decision["users"][0]["user_assets"] == [
        {"user_id": "u1", "matched_by": "user_email", "decisive": True, "problem": None},
        {"user_id": "u2", "matched_by": "directory_user_surname", "decisive": False, "problem": None},
    ]
    assert decision["what_would_change"][0] == {
        "change": "more_logons",
        "text": "alice (u1) needs 1 more logon to become the owner.",
        "username": "alice",
        "events": 1,
        "days": None,
    }


KINDS = counts(
    ("ws1", "alice", 3, DAY, "2"),
    ("ws1", "alice", 2, DAY, "3"),
    ("ws1", "bob", 20, DAY, "3"),
    ("ws1", "bob", 2, DAY, "10"),
)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("events", "alice has 5 of 27 logon events, weighed by kind of logon (73.8%), over 60%."),
        ("days", "alice has 10 of 11 days on which a user logged on, weighed by kind of logon (90.9%), over"),
    ],
)
def test_weights_by_kind_of_logon_are_told_beside_exact_counts(metric, said):
    weights = {"2": 20} if metric != "days" else {"2": 10}
    rules = Rules(logon_type_weights=weights, evidence_metric=metric)
    text = told(KINDS, hosts(host("h1", "ws1")), rules=rules)
    assert said in text
    assert f"  Weights by kind of logon: 2: {weights['2']}; all others 1." in text
    assert "Logon events on ws1, 27 in all:\n" in text  # of which no number is more than 60% of the weights


def test_what_is_lacking_is_told_in_logons_without_a_weight():
    rules = Rules(logon_type_weights={"2": 10})
    text = told(KINDS, hosts(host("h1", "ws1")), rules=rules)
    assert "alice (u1) needs 2 more logons without a weight to become the owner." in text
