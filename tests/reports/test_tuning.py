"""What tuning found, in words: `asset-owners tune` is tried in tests/pipelines."""

import polars as pl

from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import OwnershipDrift, Suggestions
from reports.tuning import drift_in_words, in_words, suggestions_in_words
from tests.ownership.builders import table

LINE = {
    "window_days": 30,
    "threshold_percent": 60,
    "min_events": 1,
    "min_active_days": 1,
    "to_write": 168,
    "people_hosts": 41,
    "people_precision": 0.6,
    "people_low": 0.5,
    "people_high": 0.7,
    "future_hosts": 200,
    "future_precision": 0.97,
    "future_low": 0.94,
    "future_high": 0.99,
    "wrong_measure": "people",
    "wrong": 65.0,
    "wrong_low": 50.0,
    "wrong_high": 80.0,
}
STRICTER = LINE | {"threshold_percent": 80, "to_write": 90, "people_hosts": 20, "wrong_measure": "future"}


def test_both_measures_are_told_and_where_two_lines_rest_on_different_ones():
    words = in_words(pl.DataFrame([LINE, STRICTER]), Rules(), window_days=30, target_precision=0.94)
    assert words[2] == (
        "  Compared with owners set by hand: 60.0% of 41 hosts are right (95% interval 50.0% to 70.0%)."
        " By who leads the logons a week later, which is not used here: 97.0% of 200 hosts are right"
        " (95% interval 94.0% to 99.0%)."
    )
    told = "The two rest on different measures, because fewer than 30 hosts with an owner set by hand remain"
    assert any(word.startswith(told) for word in words)
    same = in_words(pl.DataFrame([LINE]), Rules(), window_days=30, target_precision=0.4)
    assert not any(word.startswith("The two") for word in same)


def test_a_suggestion_comes_with_its_effect_and_the_line_for_the_instance_file():
    effects = {"hosts_resolved": 41, "conflicts_removed": 7, "owners_lost": 0}
    rows = table(
        Suggestions,
        {
            "setting": "rules.skip_account_kinds",
            "value": "service",
            "reason": "3 accounts: a, b, c",
            **effects,
        },
        {"setting": "rules.exclude_users", "value": 'j."admin', "reason": "The name is one.", **effects},
    )
    rules = Rules(exclude_users=("*$",))
    assert suggestions_in_words(rows, rules)[2:] == [
        "  Leave out service (3 accounts: a, b, c): 41 more hosts get an owner, 7 conflicts end.",
        '    rules: {skip_account_kinds: ["service"]}',
        '  Leave out j."admin (The name is one): 41 more hosts get an owner, 7 conflicts end.',
        '    rules: {exclude_users: ["*$", "j.\\"admin"]}',
    ]


def test_where_nothing_is_suggested_it_is_said():
    assert suggestions_in_words(empty(Suggestions), Rules()) == [
        "",
        "Nothing to leave out was found that would change a decision.",
    ]


def test_owners_without_support_are_counted_by_the_reason():
    row = {"hostname": "pc", "owner": "u1", "leader": None, "since": None, "days": None, "runs": None}
    drift = table(
        OwnershipDrift,
        *(
            {"host_id": f"h{n}", "reason": reason, **row}
            for n, reason in enumerate(("left", "moved", "left"))
        ),
    )
    assert drift_in_words(drift) == [
        "The evidence no longer supports 3 owners: 2 left, 1 moved (table ownership_drift)."
    ]
    assert drift_in_words(empty(OwnershipDrift)) == []
