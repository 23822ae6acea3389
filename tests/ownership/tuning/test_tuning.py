"""How often the rules are wrong, and what other settings would have led to."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership.declaration import validated
from ownership.rules import Rules
from ownership.tables import Accuracy, ThresholdBacktest
from ownership.tuning.accuracy import (
    AskedTwice,
    accuracy,
    least_right_percent,
    most_biased_trait,
    wilson,
    wrong_among,
    wrong_by_audit,
)
from ownership.tuning.backtest import COUNTED, usual_settings
from reports.tuning import line_of
from tests import examples
from tests.ownership import builders
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, decide, host, hosts, plan, user, users
from tests.ownership.tuning.inputs import inputs

LAST = WINDOW.last
EARLY, LATE = LAST - timedelta(days=12), LAST - timedelta(days=3)
RULES = Rules()


def accuracy_of(logons, assets, rules=RULES, **others):
    [judged] = inputs(logons, assets, rules, **others).compare([(WINDOW.days, rules)]).values()
    return validated(Accuracy, accuracy(judged, PEOPLE, rules=rules))


def counted(rows, measure, by="all"):
    found = rows.filter(measure=measure, by=by).select("value", "right_hosts", "hosts")
    return {value: (right, compared) for value, right, compared in found.iter_rows()}


def test_where_nothing_was_compared_nothing_is_said():
    rows = accuracy_of(counts(), hosts())
    assert counted(rows, "people") == {"all": (0, 0)}
    assert rows.select("precision", "low", "high").null_count().row(0) == (3, 3, 3)


def test_what_a_run_decided_is_judged_with_the_owners_that_hosts_had_then():
    """Ids may have commas; an owner that cannot be read now stays unknown, and new hosts are excluded."""
    logons = counts(*((f"ws{n}", "ann", 5, EARLY) for n in range(1, 6)))
    then = hosts(
        host("h1", "ws1"), host("h2", "ws2", owners=("u2", "a,b")), host("h3", "ws3", owners=("u9",))
    )
    decided = inputs(logons, then, RULES, decisions=decide(logons, PEOPLE, then))
    assert decided.as_decided() is decided
    now = hosts(
        host("h1", "ws1", owners=("u1",)),
        host("h2", "ws2"),
        host("h3", "ws3") | {"owner_ids": None, "problem": "its owner is odd"},
        host("h4", "ws4"),
    )
    judged = inputs(logons, now, RULES, decisions=decided.decisions).as_decided()
    assert judged.hosts.select("host_id", "owner_ids").rows() == [
        ("h1", []),
        ("h2", ["u2", "a,b"]),
        ("h3", None),
    ]
    # Hosts and people that have left the inventory since, as long as what the run listed is kept.
    kept = inputs(logons, now, RULES, decisions=decided.decisions, users=PEOPLE[:0], listed=(then, PEOPLE))
    assert kept.as_decided().hosts.equals(then)
    assert kept.as_decided().users.equals(PEOPLE)


KIOSK = Rules(exclude_hosts=("kiosk-*",))


def test_owners_set_by_hand_are_the_truth_and_a_list_is_right_that_contains_the_one_decided_on():
    logons = counts(*((name, "ann", 5, EARLY) for name in ("ws1", "ws2", "ws3", "ws4", "kiosk-1")))
    assets = hosts(
        host("h1", "ws1", owners=("u1",)),
        host("h2", "ws2", owners=("u2",)),
        host("h3", "ws3", owners=("u2", "u1")),
        host("h4", "ws4"),
        host("h5", "kiosk-1", owners=("u1",)),
    )
    rows = accuracy_of(logons, assets, KIOSK)
    assert counted(rows, "people") == {"all": (2, 3)}
    assert counted(rows, "people", "department") == {"Sales": (2, 3)}
    assert counted(rows, "people", "share_band") == {"only user": (2, 3)}
    assert counted(rows, "people", "active_days") == {"1": (2, 3)}


@pytest.mark.parametrize(
    ("owner_now", "outcomes", "people", "corrected"),
    [
        ("u1", {"written": -1}, (0, 0), (1, 1)),
        ("u2", {"written": -1}, (0, 0), (0, 1)),
        ("u1", {"failed": -1}, (1, 1), (0, 0)),
        ("u1", {"written": -2, "undone": -1}, (1, 1), (0, 0)),
        ("u1", {"written": -1, "undone": 1}, (0, 0), (1, 1)),
    ],
)
def test_what_was_written_here_is_not_the_truth_and_counts_as_corrected_where_somebody_changed_it(
    owner_now, outcomes, people, corrected
):
    """Rules 9.1, by what came of writes how many hours after the inventory was listed."""
    logons = counts(("ws1", "ann", 5, EARLY))
    before, now = hosts(host("h1", "ws1")), hosts(host("h1", "ws1", owners=(owner_now,)))
    planned = plan(decide(logons, PEOPLE, before), PEOPLE, before)
    writes = pl.concat(
        planned.with_columns(outcome=pl.lit(outcome), completed_at=pl.lit(NOW + timedelta(hours=hours)))
        for outcome, hours in outcomes.items()
    )
    rows = accuracy_of(logons, now, writes=writes)
    assert (counted(rows, "people"), counted(rows, "corrected")) == ({"all": people}, {"all": corrected})
    owner = pl.col("new_values").struct.with_fields(owner=pl.lit("forgotten-0123456789abcdef"))
    forgotten = accuracy_of(logons, now, writes=writes.with_columns(new_values=owner))
    assert counted(forgotten, "corrected") == {"all": (0, 0)}
    assert counted(forgotten, "people") == {"all": people}, "nor is the owner anybody's who was set by hand"


def test_the_days_held_back_tell_whether_the_one_decided_on_still_leads():
    """Rules 9.2: a tie is wrong, and who has no logons in them is not compared."""
    logons = counts(
        *((name, "ann", 5, day) for day in (EARLY, LATE) for name in ("stays", "kiosk-1")),
        ("moved", "ann", 5, EARLY),
        ("moved", "bob", 5, LATE),
        ("tied", "ann", 5, EARLY),
        ("tied", "ann", 2, LATE),
        ("tied", "bob", 2, LATE),
        ("silent", "ann", 5, EARLY),
        ("shared", "ann", 3, EARLY),
        ("shared", "bob", 3, EARLY),
        ("shared", "bob", 3, LATE),
        ("new", "ann", 5, LATE),
        # Another account of the same person.
        ("renamed", "old.bob", 5, EARLY),
        ("renamed", "bob", 5, LATE),
    )
    people = users(user("u1", sam="ann"), user("u2", "bob@corp.example", sam="old.bob"))
    found = accuracy_of(logons, hosts(host("h1", "kiosk-1")), KIOSK, users=people)
    assert counted(found, "future") == {"all": (2, 4)}


@pytest.mark.parametrize("late_days", [0, 4, 14])
@pytest.mark.parametrize(("at_work", "compared"), [(8, 8), (5, 0)])
def test_a_week_of_holidays_is_not_compared(at_work, compared, late_days):
    """Colleagues who stand in are primary users then, and would be taken for the owners (rules 9.2)."""
    settled = LAST - timedelta(days=late_days)
    days = [LAST - timedelta(days=age) for age in range(WINDOW.days)]
    logons = counts(
        *(
            (f"pc-{n}", f"p{n}", 3, day)
            for n in range(10)
            for day in days
            if n < at_work or not settled - timedelta(days=7) < day <= settled
        )
    )
    people = users(*(user(f"u{n}", f"p{n}@corp.example") for n in range(10)))
    assets = hosts(*(host(f"h{n}", f"pc-{n}") for n in range(10)))
    stored = inputs(logons, assets, RULES, users=people, last_settled=settled)
    line = stored.backtest([(30, RULES)]).row(0, named=True)
    assert line["future_hosts"] == compared
    assert ("too few logons to compare with" in line["no_claim"]) == (compared == 0)


names = st.sampled_from(["ann", "CORP\\Ann", "bob", "kim", "svc_x", "zoe", "-"])
machines = st.sampled_from(["ws1", "WS1", "ws2", "old", "ws3.corp.example", "ws3", "kiosk-1", "alone"])
types = st.sampled_from(["2", "3", "10", None])
logon = st.tuples(machines, names, st.integers(1, 9), st.integers(0, 29), types)
ASSETS = hosts(
    host("h1", "ws1"),
    host("h2", "ws2", "old", owners=("u1",)),
    host("h3", "WS3", owners=("u2", "u1")),
    host("h4", "kiosk-1"),
    host("h5", "never"),
    host("h6", "ws1", owners=("u2",)),
)


common_rules = st.builds(
    Rules,
    hostname_match=st.sampled_from(["exact", "short"]),
    exclude_users=st.just(("svc_*",)),
    exclude_hosts=st.just(("kiosk-*",)),
    evidence_metric=st.sampled_from(["events", "days"]),
    logon_type_weights=st.sampled_from([{}, {"2": 7, "10": 3}]),
)
choices = st.tuples(st.sampled_from([50, 60, 75]), st.sampled_from([1, 3]), st.sampled_from([None, 1, 2]))


@examples(7)
@given(
    st.lists(logon, max_size=25, unique_by=lambda row: (row[0], row[1], *row[3:])),
    common_rules,
    st.lists(choices, min_size=2, max_size=2, unique=True),
)
def test_each_line_counts_what_a_run_with_these_settings_decides(logons, common, tried):
    names = ("share_threshold_percent", "min_active_days", "primary_devices")
    several = [replace(common, **dict(zip(names, values, strict=True))) for values in tried]
    logons = counts(
        *((name, user, n, WINDOW.first + timedelta(days=day), kind) for name, user, n, day, kind in logons)
    )
    stored = inputs(logons, ASSETS, several[0])
    lines = validated(ThresholdBacktest, stored.backtest([(30, rules) for rules in several]))
    assert lines.height == 2
    for rules in several:
        decisions = decide(logons, PEOPLE, ASSETS, rules)
        actions = Counter(decisions.filter(match="matched")["action"])
        expected = {
            "hosts_with_evidence": decisions.filter(pl.col("total_events") > 0).height,
            "resolved": decisions["match"].count(),
            "matched": actions.total(),
            **{column: actions[action] for column, action in COUNTED.items()},
        }
        line = line_of(lines, rules, window_days=30)
        assert {name: line[name] for name in expected} == expected


def test_a_host_whose_owner_is_not_stable_yet_is_written_by_no_settings_that_ask_for_it():
    logons = counts(*((name, "ann", 5, EARLY) for name in ("ws1", "ws2")))
    assets, rules = hosts(host("h1", "ws1"), host("h2", "ws2")), Rules(min_stable_days=20)
    decisions = decide(logons, PEOPLE, assets, rules)
    waiting = decisions["evidence"] == "not_stable"
    for decided, to_write in ((decisions, 0), (decisions.filter(~waiting), 2)):
        stored = inputs(logons, assets, rules, decisions=decided)
        tried = [(30, replace(rules, primary_devices=devices)) for devices in (None, 2)]
        assert stored.backtest(tried)["to_write"].to_list() == [to_write, to_write]


def test_no_window_longer_than_stored_and_no_threshold_below_the_present_one_is_tried():
    tried = usual_settings(Rules(share_threshold_percent=72), lookback_days=14, stored_days=30)
    assert {window for window, _ in tried} == {14, 30}
    assert {rules.share_threshold_percent for _, rules in tried} == {72, 75, 80, 85, 90, 95}


def company(
    *, set_by_hand, wrong=0, to_write=20, others=0, few_days=(), primary_users=60, audit=None, answered_no=0
):
    """Hosts with primary users: so many have the owner whom somebody set, the first of them another one.

    `others` of them are led by nobody's accounts; those numbered in `few_days` on one day instead of five.
    `audit` makes, of the decisions, what an audit says; so many more of the first owners that could be
    written were answered no before the decisions.
    """
    to_write += answered_no
    people = users(*(user(f"u{n}", email=f"p{n}@corp.example") for n in range(primary_users)))
    led = [f"p{n % primary_users}" for n in range(set_by_hand + to_write)] + [f"x{n}" for n in range(others)]
    logons = counts(
        *(
            (f"pc-{n}", primary_user, 2, LAST - timedelta(days=day))
            for n, primary_user in enumerate(led)
            for day in range(1 if n in few_days else 5)
        )
    )
    owners = ["u999" if n < wrong else f"u{n % primary_users}" for n in range(set_by_hand)]
    assets = hosts(*(host(f"h{n}", f"pc-{n}", owners=tuple(owners[n : n + 1])) for n in range(len(led))))
    decided = decide(logons, people, assets)
    no = decided.filter(action="write").head(answered_no).with_columns(evidence=pl.lit("answered_no"))
    answers = {"audit": audit(decided), "decisions": no} if audit else {}
    stored = inputs(logons, assets, RULES, users=people, **answers)
    return stored.backtest([(30, RULES)]).row(0, named=True)


def an_audit(answers, wrong=0, left_out=0):
    """So many answers, the first of them no; the last so many hosts were not planned when it was drawn."""

    def of(decisions):
        planned = decisions.filter(action="write")
        planned = planned.head(planned.height - left_out)
        right = [None if n >= answers else n >= wrong for n in range(planned.height)]
        unknown = pl.lit(None, pl.Boolean)
        answered = pl.Series(right, dtype=pl.Boolean)
        return planned.select("host_id", "resolved_owner", right_by_audit=answered, contradicted=unknown)

    return of


@pytest.mark.parametrize(
    ("case", "measure", "wrong", "within"),
    [
        ({"to_write": 20}, "people", 20 * 10.5 / 41, (0, 20)),
        # Not 4 + 60 * 4.5 / 41: some of the answers may be wrong.
        ({"to_write": 100, "audit": an_audit(40, wrong=4)}, "audit", 8, (0, 39)),
        ({"to_write": 35, "audit": an_audit(35, wrong=3)}, "audit", 3, (3, 5)),
        ({"to_write": 98, "audit": an_audit(40, wrong=4), "answered_no": 2}, "audit", 6, (2, 37)),
    ],
    ids=["owners set by hand", "answers of an audit", "all answered", "those answered no are not written"],
)
def test_the_number_of_wrong_owners_is_predicted(case, measure, wrong, within):
    """Rules 9.4, 9.7: (k + 1/2) / (n + 1) of the hosts to write."""
    line = company(set_by_hand=40, wrong=10, **case)
    assert (line["to_write"], line["wrong_measure"], line["no_claim"]) == (case["to_write"], measure, None)
    assert line["wrong"] == pytest.approx(wrong, abs=0.1)
    assert within[0] <= line["wrong_low"] <= wrong < line["wrong_high"] <= within[1]


def test_hosts_that_one_person_has_are_not_independent_tries():
    many, few = (company(set_by_hand=40, wrong=10, primary_users=primary_users) for primary_users in (60, 4))
    assert few["people_precision"] == many["people_precision"]
    assert few["people_low"] < many["people_low"] < many["people_high"] < few["people_high"]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"set_by_hand": 29}, "fewer than 30 hosts have an owner set by hand"),
        (
            {"set_by_hand": 40, "few_days": range(40, 60)},
            "owners set by hand are not a fair sample: most unlike the others in the primary user's",
        ),
        (
            {"set_by_hand": 40, "to_write": 15, "others": 45, "few_days": range(30, 55)},
            "hosts to write are unlike those compared, most in the primary user's active days",
        ),
        ({"set_by_hand": 29, "to_write": 100, "audit": an_audit(29)}, "an audit answers for 29 of them"),
    ],
)
def test_where_few_were_compared_or_others_than_those_to_write_only_a_lower_bound_is_claimed(case, reason):
    """Rules 9.4."""
    line = company(wrong=5, **case)
    assert reason in line["no_claim"]
    assert (line["wrong"], line["wrong_high"], line["wrong_measure"]) == (None, None, None)


def test_hosts_planned_after_an_audit_was_drawn_widen_what_it_says_until_they_are_too_many():
    """Rules 9.7: whatever changed, rules or hosts, an audit speaks of the owners that it could have drawn."""
    whole, wider, other = (
        company(set_by_hand=40, to_write=100, audit=an_audit(40, wrong=4, left_out=new))
        for new in (0, 10, 11)
    )
    assert (whole["audit_hosts"], whole["audit_precision"]) == (40, 0.9)
    assert wider["wrong_measure"] == "audit"
    assert wider["wrong_low"] <= whole["wrong_low"]
    assert wider["wrong_high"] >= whole["wrong_high"] + 5
    assert other["wrong_measure"] == "people"


def test_half_of_the_hosts_compared_choose_settings_and_the_other_half_judges_them():
    line = company(set_by_hand=60, wrong=30, to_write=100, audit=an_audit(60, wrong=6))
    assert line["wrong_to_choose"] != line["wrong_if_best"]
    assert line["wrong_if_best_high"] - line["wrong_if_best_low"] > line["wrong_high"] - line["wrong_low"]


# How sure a share or a number of wrong owners is, and whether hosts compared are like the others


@pytest.mark.parametrize(
    ("right", "compared", "low", "high"),
    [(0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)],
)
def test_the_interval_is_wilson_s(right, compared, low, high):
    """The last two as in R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    share, lower, upper = wilson(right, compared, compared)
    assert share == right / compared
    assert (lower, upper) == pytest.approx((low, high), abs=5e-5)


def bands(*hosts, each=1):
    """So many hosts in each band, so many of them of one primary user."""
    return np.array(hosts), np.array(hosts) / each


@pytest.mark.parametrize(("compared", "wrong"), [((100, 100), (0.04, 0.06)), ((100, 0), (1.9, 2.2))])
def test_a_band_counts_by_what_was_compared_in_it_and_by_all_where_nothing_was(compared, wrong):
    estimate, low, high = wrong_among(bands(*compared), np.array([20, 0]), bands(0, 10))
    assert wrong[0] < estimate < wrong[1]
    assert low <= estimate <= high


@pytest.mark.parametrize("wrong_answers", [0, 0.05])
@pytest.mark.parametrize("planned", [60, 168, 3000])
@pytest.mark.parametrize("answered", [30, 50])
def test_the_interval_of_an_audit_holds_in_nineteen_of_twenty_draws(planned, answered, wrong_answers):
    """Over all shares of wrong owners, and never in less than 85 of 100 draws of one."""
    chance = np.random.default_rng(7)
    held = []
    for part in (0.02, 0.05, 0.1, 0.2, 0.35, 0.5):
        truth = round(part * planned)
        drawn = chance.hypergeometric(truth, planned - truth, answered, 400)
        wrong = chance.binomial(drawn, 1 - wrong_answers) + chance.binomial(answered - drawn, wrong_answers)
        contradicted = chance.binomial(5, 2 * wrong_answers * (1 - wrong_answers), 400)
        ends = [
            wrong_by_audit(answered, no, twice=AskedTwice(5, twice), drawn_from=planned, to_write=planned)[1:]
            for no, twice in zip(wrong.tolist(), contradicted.tolist(), strict=True)
        ]
        held.append(np.mean([low <= truth <= high for low, high in ends]))
    assert min(held) >= 0.85
    assert np.mean(held) >= 0.94


def test_hosts_asked_twice_tell_how_many_answers_are_wrong():
    rates = [AskedTwice(5, contradicted).rate() for contradicted in range(4)]
    assert rates == sorted(rates)
    assert rates[0] < 0.03
    assert rates[2] > 0.05
    assert least_right_percent(50) == 94


@pytest.mark.parametrize(
    ("shift", "least", "most"), [((0, 0), 0.07, 0.13), ((0.8, 0), 0.9, 1), ((0.5, 0.5), 0.9, 1)]
)
def test_samples_that_differ_are_told_apart_and_one_of_ten_of_those_that_do_not(shift, least, most):
    chance, chosen, traits_found = np.random.default_rng(7), np.arange(200) < 40, []
    for _ in range(1000):
        # The third trait is always the same, and the fourth follows from others.
        first, second = chance.normal(size=(2, 200)) + np.outer(shift, chosen)
        traits = np.column_stack([first, second, np.ones(200), first - second])
        traits_found.append(most_biased_trait(traits, chosen, level=0.1))
    assert least <= np.mean([trait is not None for trait in traits_found]) <= most
    if shift[0] > shift[1]:
        assert max(set(traits_found), key=traits_found.count) == 0


def test_an_answer_no_holds_for_each_account_of_the_person():
    """With more days another account is in front: a run of that window would not write them either."""
    people = users(user("u1", email="ann@corp.example", sam="ann.adm"))
    accounts = ("ann", 5, WINDOW.first), ("ann.adm", 50, WINDOW.first - timedelta(days=30))
    days = (("pc1", who, events, first + timedelta(n)) for who, events, first in accounts for n in range(20))
    logons, assets, rules = counts(*days), hosts(host("h1", "pc1")), Rules()
    present = logons.filter(pl.col("day") >= WINDOW.first)
    decided = builders.resolution(present, people, assets, rules, answered_no=[("h1", "u1")]).decisions
    tried = inputs(logons, assets, rules, users=people, decisions=decided, stored_days=60)
    assert tried.backtest([(30, rules), (60, rules)])["to_write"].to_list() == [0, 0]


def test_people_whose_accounts_are_one_user_are_matched_by_the_account_that_is_shown():
    logons = counts(("pc1", "zoe", 5), ("pc1", "adm1", 1))
    people, rules = users(user("u1", "zoe@corp.example", sam="adm1")), Rules(unite_accounts=True)
    assets = hosts(host("h1", "pc1"))
    assert inputs(logons, assets, rules, users=people).backtest([(30, rules)])["to_write"].item() == 1
