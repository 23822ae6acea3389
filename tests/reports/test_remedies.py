import polars as pl
import pytest

from ownership.codes import OUTCOME
from ownership.matching import username_matches
from ownership.rules import Rules
from reports.explanations import host_explanation
from reports.remedies import FieldNames
from tests.ownership.builders import counts, decide, host, hosts, plan, shares_of, user, users
from tests.ownership.test_winning import winner

PEOPLE = users(
    user("u1", email="alice@corp.example"),
    user("u2", sam="bob"),
    user("u3", surname="miller"),
    user("u4", surname="miller"),
    user("u5", surname="odd") | {"problem": "its field user_department holds a dict"},
)


def advice(logons, *assets, rules=None, now=None, outcome=None, hostname="ws1", fields=None):
    """What would change the outcome for ws1: decided by `rules`, asked about by the rules `now`."""
    rules = rules or Rules()
    fields = fields or FieldNames()
    assets = hosts(*(assets or [host("h1", "ws1")]))
    shares = shares_of(counts(*logons), rules)
    decisions = decide(counts(*logons), PEOPLE, assets, rules)
    writes = plan(decisions, PEOPLE, assets).with_columns(
        outcome=pl.lit(outcome, pl.String), completed_at="intended_at"
    )
    found = host_explanation(
        hostname,
        decisions=decisions.filter(pl.col("hostname").eq_missing(pl.lit(hostname))),
        shares=shares,
        matches=username_matches(shares, PEOPLE, user_value_field=fields.user_value),
        hosts=assets,
        users=PEOPLE,
        writes=writes.drop_nulls("outcome"),
        rules=now or rules,
        fields=fields,
    )
    return found["decisions"][0]["what_would_change"]


EXACTLY_60 = [("ws1", "alice", 6), ("ws1", "carol", 4)]
ALICE = [("ws1", "alice", 3)]
HAS_OWNER = host("h1", "ws1", owners=("u9",))
CASES = {
    "exactly the threshold": (
        EXACTLY_60,
        [],
        {},
        [
            "alice (u1) needs 1 more logon to become the owner.",
            "carol needs 6 more logons and must have a user asset to become the owner.",
            "If carol is no person, list it in rules.exclude_users: alice would win.",
        ],
    ),
    "another threshold": (
        [("ws1", "alice", 6), ("ws1", "bob", 4), ("ws1", "miller", 4)],
        [],
        {"rules": Rules(share_threshold_percent=75)},
        [
            "alice (u1) needs 19 more logons to become the owner.",
            "bob (u2) needs 27 more logons to become the owner.",
        ],
    ),
    "nobody near": (
        [("ws1", "miller", 5), ("ws1", "bob", 5)],
        [HAS_OWNER],
        {},
        [
            "bob (u2) needs 3 more logons to become the owner.",
            (
                "miller needs 3 more logons and must be only one of the user assets u3 or u4 to become the "
                "owner."
            ),
            "If miller is no person, list it in rules.exclude_users: bob would win.",
            "Clear asset_owner of host h1, too: no run replaces an owner.",
        ],
    ),
    "too few": (
        ALICE,
        [],
        {"rules": Rules(min_events=5)},
        ["alice (u1) needs 2 more logons to become the owner."],
    ),
    "too few, and no majority": (
        EXACTLY_60,
        [],
        {"rules": Rules(min_events=12)},
        [
            "alice (u1) needs 2 more logons to become the owner.",
            "carol needs 6 more logons and must have a user asset to become the owner.",
        ],
    ),
    "on too few days": (
        [("ws1", "alice", 500)],
        [],
        {"rules": Rules(min_active_days=3)},
        ["alice (u1) needs logons on 2 more days to become the owner."],
    ),
    "on too few days, and too few": (
        ALICE,
        [],
        {"rules": Rules(min_active_days=2, min_events=10)},
        ["alice (u1) needs 7 more logons on at least 1 more day to become the owner."],
    ),
    "on too few days, and no majority": (
        EXACTLY_60,
        [],
        {"rules": Rules(min_active_days=3)},
        [
            "alice (u1) needs logons on 2 more days to become the owner.",
            (
                "carol needs 6 more logons and logons on at least 3 days in all and must have a user asset "
                "to become the owner."
            ),
        ],
    ),
    "where days count": (
        [("ws1", "alice", 6), ("ws1", "bob", 1)],
        [],
        {"rules": Rules(evidence_metric="days")},
        [
            "alice (u1) needs logons on 1 more day to become the owner.",
            "bob (u2) needs logons on 1 more day to become the owner.",
            "If bob is no person, list it in rules.exclude_users: alice would win.",
        ],
    ),
    "days asked for since": (
        EXACTLY_60,
        [],
        {"rules": Rules(), "now": Rules(share_threshold_percent=50, min_active_days=2)},
        [
            "alice (u1) needs logons on 1 more day to become the owner.",
            (
                "carol needs 3 more logons and logons on at least 2 days in all and must have a user asset "
                "to become the owner."
            ),
        ],
    ),
    "days asked for no more": (
        ALICE,
        [],
        {"rules": Rules(min_active_days=2), "now": Rules()},
        ["By the present rules the logons name alice (u1): run again."],
    ),
    "rules that changed": (
        ALICE,
        [],
        {"rules": Rules(min_events=5), "now": Rules()},
        ["By the present rules the logons name alice (u1): run again."],
    ),
    "no logons": ([], [], {}, ["1 more logon of one user would make that user the owner."]),
    "no logons where several days are asked for": (
        [],
        [],
        {"rules": Rules(min_active_days=3)},
        ["3 more logons of one user on at least 3 days would make that user the owner."],
    ),
    "logons under a full name": (
        [("ws1.corp.example", "alice", 3)],
        [],
        {"rules": Rules(min_events=4)},
        [
            "4 more logons of one user would make that user the owner.",
            (
                "The logons know ws1.corp.example: if that is this host, put the name into "
                "search_agent_name, or compare short names (rules.hostname_match: short)."
            ),
        ],
    ),
    "no name": (
        [],
        [host("h1")],
        {"hostname": None},
        ["Give the asset a host name in search_agent_name."],
    ),
    "excluded": (
        ALICE,
        [],
        {"rules": Rules(exclude_hosts=("srv*", "W?1", "ws1"))},
        ["Take W?1 or ws1 out of rules.exclude_hosts."],
    ),
    "excluded by its full name": (
        [("ws1.lab", "alice", 3)],
        [host("h1", "ws1.lab")],
        {"rules": Rules(exclude_hosts=("*.lab",), hostname_match="short")},
        ["Take *.lab out of rules.exclude_hosts."],
    ),
    "excluded no more": (
        ALICE,
        [],
        {"rules": Rules(exclude_hosts=("ws1",)), "now": Rules()},
        ["rules.exclude_hosts does not exclude it any more: run again."],
    ),
    "collision": (
        [("ws1.a", "alice", 3), ("ws1.b", "alice", 3)],
        [],
        {"rules": Rules(hostname_match="short")},
        ["Compare whole names (rules.hostname_match: exact), or give the hosts different short names."],
    ),
    "no user asset": (
        [("ws1", "carol", 3)],
        [],
        {},
        [
            (
                "Give carol a user asset, one with this name in user_email or "
                "directory_user_sam_account_name or directory_user_surname; if it is no person, list "
                "it in rules.exclude_users."
            ),
        ],
    ),
    "several user assets": (
        [("ws1", "miller", 3)],
        [],
        {},
        [
            (
                "Remove the name miller in directory_user_surname from all but one of u3 and u4, or enter it "
                "for the right one in user_email or directory_user_sam_account_name, which is asked first."
            ),
        ],
    ),
    "an unreadable host": (
        ALICE,
        [host("h1", "ws1") | {"owner_ids": None, "problem": "its field owner holds a dict"}],
        {},
        ["Correct host asset h1 in the inventory: its field owner holds a dict."],
    ),
    "an unreadable user asset": (
        [("ws1", "odd", 3)],
        [],
        {},
        ["Correct user asset u5 in the inventory: its field user_department holds a dict."],
    ),
    "an unreadable user asset in front": (
        [("ws1", "odd", 6), ("ws1", "alice", 4)],
        [],
        {},
        [
            "odd needs 1 more logon and must not fit the unreadable u5 to become the owner.",
            "alice (u1) needs 6 more logons to become the owner.",
            "If alice is no person, list it in rules.exclude_users: odd would win.",
        ],
    ),
    "several by the first field": (
        [("ws1", "miller", 3)],
        [],
        {"fields": FieldNames(user_value="directory_user_surname")},
        ["Remove the name miller in directory_user_surname from all but one of u3 and u4."],
    ),
    "conflict": (
        ALICE,
        [HAS_OWNER],
        {"fields": FieldNames(owner="owned_by")},
        ["Clear owned_by of host h1: the next run would write u1."],
    ),
    "agreement": (
        ALICE,
        [host("h1", "ws1", owners=("u1",))],
        {},
        ["Set another owner in asset_owner by hand: no run replaces an owner."],
    ),
    "no asset": (
        ALICE,
        [host("h2", "other")],
        {},
        ["There must be a host asset with ws1 in search_agent_name."],
    ),
    "an asset with a full name": (
        ALICE,
        [host("h2", "WS1.corp.example")],
        {},
        [
            (
                "There must be a host asset with ws1 in search_agent_name, which host asset h2 has but"
                " for the domain part."
            ),
        ],
    ),
    "to write": (ALICE, [], {}, ["The next run that may write sets u1."]),
    "written": (
        ALICE,
        [],
        {"outcome": "written"},
        ["Set another owner in asset_owner by hand: no run replaces an owner."],
    ),
    "refused": (
        ALICE,
        [],
        {"outcome": "failed"},
        ["Correct what the service complained about; the next run tries again."],
    ),
}


@pytest.mark.parametrize(("logons", "assets", "options", "texts"), CASES.values(), ids=CASES)
def test_what_would_change_the_outcome_is_told(logons, assets, options, texts):
    assert [each["text"] for each in advice(logons, *assets, **options)] == texts


@pytest.mark.parametrize("outcome", OUTCOME)
def test_something_follows_from_every_outcome_of_a_write(outcome):
    (found,) = advice(ALICE, outcome=outcome)
    assert found["text"]


def test_following_the_advice_helps():
    found = advice(EXACTLY_60)
    for each in found[:2]:
        rows = [*EXACTLY_60, ("ws1", each["username"], each["events"])]
        assert (
            winner(
                {name: sum(count for _, who, count in rows if who == name) for _, name, _ in rows}, Rules()
            )
            == each["username"]
        )
    assert winner({"alice": 6, "carol": 4}, Rules(exclude_users=(found[2]["username"],))) == "alice"
