"""What tuning found, in words: `asset-owners tune` is tried in tests/pipelines."""

import polars as pl
import pytest

from ownership.decisions import FEATURES
from ownership.declaration import empty, polars_schema
from ownership.rules import Rules
from ownership.tables import AuditSample, OwnerDecisions, Suggestions, ThresholdBacktest
from reports.tuning import (
    Aim,
    best_line,
    claim_in_words,
    confidence_in_words,
    nearest_line,
    settings_in_words,
    suggestions_in_words,
)
from tests.ownership.builders import table

LINE = dict.fromkeys(polars_schema(ThresholdBacktest)) | {
    "window_days": 30,
    "threshold_percent": 60,
    "min_active_days": 1,
    "evidence_metric": "events",
    "to_write": 168,
    "people_hosts": 41,
    "people_precision": 0.6,
    "people_low": 0.5,
    "people_high": 0.7,
    "wrong_measure": "people",
    "wrong": 65.0,
    "wrong_low": 50.0,
    "wrong_high": 80.0,
    "wrong_to_choose": 60.0,
    "wrong_if_best": 70.0,
    "wrong_if_best_low": 40.0,
    "wrong_if_best_high": 90.0,
}
NO_ANSWERS = empty(AuditSample)
STRICTER = LINE | {"threshold_percent": 80, "to_write": 155, "people_low": 0.9}
STRICTER |= {"wrong_to_choose": 20.0, "wrong_if_best": 30.0}
OTHERS = {
    "fewer writes than are to be kept": {"to_write": 100},
    "too imprecise": {"people_low": 0.8},
    "a lower threshold": {"threshold_percent": 50},
    "by another measure": {"wrong_measure": "future", "future_low": 0.99},
    "no estimate": {"wrong": None},
    "more wrong": {"wrong_to_choose": 21.0, "threshold_percent": 90},
}


def as_lines(*rows):
    return pl.DataFrame(rows, schema=polars_schema(ThresholdBacktest))


def answered(number, *, no=0):
    """So many answers that a confidence may be learnt from."""
    sample = empty(AuditSample).clear(number).with_columns(pl.lit(1).alias(name) for name in FEATURES)
    return sample.with_columns(right=pl.int_range(pl.len()) >= no)


@pytest.mark.parametrize("case", OTHERS)
def test_the_best_settings_have_fewest_wrong_owners_among_those_that_are_good_enough(case):
    other = STRICTER | {"wrong_to_choose": 1.0} | OTHERS[case]
    lines = as_lines(LINE, STRICTER, other)
    by_others = {"wrong": 30.0, "wrong_low": 40.0, "wrong_high": 90.0}
    assert best_line(lines, LINE, Aim()) == STRICTER | by_others
    assert best_line(lines, LINE | {"wrong": None}, Aim()) is None


def test_settings_that_the_other_half_of_the_answers_finds_no_better_are_not_shown():
    """Rules 9.7: 13 fewer owners, and as many of each hundred wrong."""
    no_better = STRICTER | {"wrong_if_best": 0.45 * 155}
    good = LINE | {"wrong": 0.4 * 168, "wrong_if_best": 0.45 * 168, "people_low": 0.9}
    assert best_line(as_lines(good, no_better), good, Aim()) == good
    assert best_line(as_lines(LINE, no_better), LINE, Aim()) is None
    assert nearest_line(as_lines(LINE, no_better), LINE, Aim()) is None


def test_where_no_setting_reaches_the_aim_the_nearest_one_is_shown_beside_the_present():
    better = STRICTER | {"people_low": 0.7, "people_precision": 0.8, "wrong": 25.0}
    lines = as_lines(LINE, better)
    assert best_line(lines, LINE, Aim()) is None
    words = settings_in_words(lines, LINE, Rules(), Aim(), claim=claim_in_words(LINE, Rules(), NO_ANSWERS))
    assert words[-1] == "  share_threshold_percent: 80"
    assert (
        "None of 2 combinations of settings is sure to be at least 90% right and to write 90% of the present "
        "owners. This one comes closest: 30 wrong instead of 65, 13 owners fewer."
    ) in words
    nothing = settings_in_words(as_lines(LINE), LINE, Rules(), Aim())
    assert nothing[-1].startswith("None of 1 combinations of settings does better than the present ones and")
    assert "60.0% are right" in words[2]
    assert any("80.0% are right" in line for line in words[3:])


@pytest.mark.parametrize("wrong", [None, 0.0])
def test_of_no_owners_none_is_wrong(wrong):
    nothing = LINE | {"to_write": 0, "wrong": wrong, "wrong_low": wrong, "wrong_high": wrong}
    sentence, *_ = claim = claim_in_words(nothing, Rules(), NO_ANSWERS, ask="asset-owners tune")
    assert sentence == "No owner would be written (rule: more than 60% over 30 days)."
    assert "asset-owners" not in " ".join(claim), "there is nothing to check"


@pytest.mark.parametrize(
    ("written", "said"),
    [(None, "would be written"), (100, "were to be written"), (168, "168 owners were written")],
)
def test_a_number_that_is_not_known_yet_comes_with_the_command_that_tells_it(written, said):
    unknown = {
        "wrong": None,
        "wrong_low": 5.0,
        "wrong_measure": "future",
        "no_claim": "too few answers; not usual",
    }
    claim = claim_in_words(
        LINE | unknown, Rules(), NO_ANSWERS, ask="tune --audit 50", brief=True, written=written
    )
    assert said in claim[0]
    assert claim[1:] == [
        "How many more are wrong is not known yet: too few answers.",
        "Let a colleague check 50 of them: tune --audit 50",
    ]
    assert "too few answers; not usual" in claim_in_words(LINE | unknown, Rules(), NO_ANSWERS)[1]


@pytest.mark.parametrize(
    ("written", "no", "said"),
    [
        (
            168,
            0,
            " (rule: more than 60% over 30 days). 5 undone since. Of the other 163 about 63 are wrong (49",
        ),
        (168, 4, ". 5 undone since, 4 of these answered no. Of the other 163 about 61 are wrong"),
        (169, 1, "169 owners were written (rule: more than 60% over 30 days). 5 undone since, 1 of these "),
        (
            6,
            0,
            "168 owners were to be written (rule: more than 60% over 30 days). 6 were, 5 undone since. Of ",
        ),
    ],
)
def test_owners_undone_since_are_told_and_how_many_of_the_others_are_wrong(written, no, said):
    undone = pl.DataFrame({"right": [False] * no + [None] * (5 - no)}, schema={"right": pl.Boolean})
    assert said in claim_in_words(LINE, Rules(), NO_ANSWERS, written=written, undone=undone)[0]


@pytest.mark.parametrize(("written", "said"), [(168, "; too few are left to estimate how many"), (165, ".")])
def test_where_hardly_any_owner_is_left_there_is_no_estimate(written, said):
    undone = pl.DataFrame({"right": [False] * 80 + [None] * 85})
    line = LINE | {"to_write": written}
    sentence, *_ = claim_in_words(line, Rules(), NO_ANSWERS, written=written, undone=undone)
    assert f"165 undone since, 80 of these answered no{said}" in sentence
    assert "about" not in sentence
    unknown = line | {"wrong": None, "wrong_low": 100.0, "to_write": 168}
    sentence, *_ = claim_in_words(unknown, Rules(), NO_ANSWERS, written=168, undone=undone)
    assert "answered no. Of the other 3 at least 1 are wrong" in sentence


def test_owners_come_with_each_rule_that_differs_from_the_specification():
    """The line's where it has them: `tune` tries others than the instance has."""
    line = LINE | {"min_active_days": 3, "evidence_metric": "days", "primary_devices": 1}
    rules = Rules(70, exclude_users=("x",), unite_accounts=True, max_idle_days=14, min_stable_days=14)
    sentence, *_ = claim_in_words(line, rules, NO_ANSWERS)
    assert sentence.startswith(
        "168 owners would be written (rule: more than 60% over 30 days, min_active_days 3, evidence_metric "
        "days, primary_devices 1, unite_accounts true, max_idle_days 14, min_stable_days 14), about 65 of"
    )


@pytest.mark.parametrize("to_write", [0, 1, 168])
def test_where_the_same_rules_were_audited_the_answers_are_told_and_no_more_are_asked_for(to_write):
    unknown = {"wrong": None, "wrong_low": None, "wrong_measure": None, "no_claim": "too few answers"}
    claim = claim_in_words(
        LINE | unknown | {"to_write": to_write},
        Rules(),
        answered(50, no=4),
        ask="tune --audit 50",
        brief=True,
    )
    assert claim[1:] == ["Of 50 owners by these rules that somebody checked, 46 are right."]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (0, "it takes 50 answers to an audit of these rules."),
        (49, "it takes 50 answers to an audit of these rules, 1 more than there are. Once all "),
    ],
)
def test_how_many_answers_are_missing_is_told(answers, says):
    planned = empty(OwnerDecisions).clear(50)
    [said] = confidence_in_words(None, planned, answered(answers), NO_ANSWERS, "tune --audit 12", Aim())
    assert says in said
    [said] = confidence_in_words(None, planned[:49], answered(answers), NO_ANSWERS, "tune --audit 12", Aim())
    assert "tune" not in said, "all are answered"


@pytest.mark.parametrize(("measure", "said"), [("people", True), ("audit", False)])
def test_a_number_that_rests_on_owners_set_by_hand_says_when_it_is_too_low(measure, said):
    audited = {"audit_hosts": 40, "audit_precision": 0.9, "audit_low": 0.8, "audit_high": 0.95}
    words = claim_in_words(LINE | audited | {"wrong_measure": measure}, Rules(), NO_ANSWERS)
    assert ("their own hosts only" in " ".join(words)) == said


def test_a_suggestion_comes_with_its_effect_and_the_line_for_the_instance_file():
    effects = {"hosts_resolved": 41, "conflicts_removed": 7, "owners_lost": 0}
    kinds = {"setting": "rules.skip_account_kinds", "value": "service", "reason": "3 accounts"}
    user = {"setting": "rules.exclude_users", "value": 'j."admin', "reason": "The name is one."}
    rows = table(Suggestions, kinds | effects, user | effects)
    assert suggestions_in_words(rows, Rules(exclude_users=("*$",)))[1:] == [
        "  Exclude service (3 accounts): 41 more hosts get an owner, 7 conflicts end.",
        '    rules: {skip_account_kinds: ["service"]}',
        '  Exclude j."admin (The name is one): 41 more hosts get an owner, 7 conflicts end.',
        '    rules: {exclude_users: ["*$", "j.\\"admin"]}',
    ]
