"""How often the rules are wrong, and what other settings would have led to."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership.declaration import validated
from ownership.evidence import evidence_by_day
from ownership.rules import Rules
from ownership.tables import Accuracy, ThresholdBacktest
from ownership.tuning.accuracy import accuracy, judged, owners_set_by_hand, wilson
from ownership.tuning.backtest import Grid, grid, threshold_backtest
from tests import examples
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, decide, host, hosts, plan

LAST = WINDOW.last
EARLY, LATE = LAST - timedelta(days=12), LAST - timedelta(days=3)
RULES = Rules()
NO_WRITES = plan(decide(counts(), PEOPLE, hosts()), PEOPLE, hosts())


def evidence_of(logons, assets, rules=RULES, people=PEOPLE):
    return evidence_by_day(logons, assets, people, rules=rules, user_value_field="user_email")


def accuracy_of(logons, assets, writes=NO_WRITES, rules=RULES):
    evidence, by_hand = evidence_of(logons, assets, rules), owners_set_by_hand(assets, writes)
    windows = judged(evidence, by_hand, [WINDOW.days], last=LAST, last_settled=LAST)
    return validated(Accuracy, accuracy(windows[WINDOW.days], PEOPLE, rules=rules))


def backtest_of(evidence, by_hand, tried, rules=RULES):
    windows = judged(evidence, by_hand, tried.windows, last=LAST, last_settled=LAST)
    return threshold_backtest(windows, rules=rules, tried=tried)


def counted(rows, measure, by="all"):
    found = rows.filter(measure=measure, by=by).select("value", "right_hosts", "hosts")
    return {value: (right, compared) for value, right, compared in found.iter_rows()}


@pytest.mark.parametrize(
    ("right", "compared", "low", "high"),
    [(0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)],
)
def test_the_interval_is_wilson_s(right, compared, low, high):
    """The last two as in R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    share, lower, upper = [pl.select(bound).item() for bound in wilson(pl.lit(right), pl.lit(compared))]
    assert share == right / compared
    assert (round(lower, 4), round(upper, 4)) == (low, high)


def test_where_nothing_was_compared_nothing_is_said():
    rows = accuracy_of(counts(), hosts())
    assert counted(rows, "people") == {"all": (0, 0)}
    assert rows.select("precision", "low", "high").null_count().row(0) == (2, 2, 2)


def test_owners_set_by_hand_are_the_truth_and_a_list_is_right_that_contains_the_one_decided_on():
    logons = counts(*((name, "ann", 5, EARLY) for name in ("ws1", "ws2", "ws3", "ws4")))
    assets = hosts(
        host("h1", "ws1", owners=("u1",)),
        host("h2", "ws2", owners=("u2",)),
        host("h3", "ws3", owners=("u2", "u1")),
        host("h4", "ws4"),
    )
    rows = accuracy_of(logons, assets)
    assert counted(rows, "people") == {"all": (2, 3)}
    assert counted(rows, "people", "department") == {"Sales": (2, 3)}
    assert counted(rows, "people", "share_band") == {"only user": (2, 3)}


@pytest.mark.parametrize(
    ("owner_now", "outcome", "right", "compared"),
    [("u1", "written", 0, 0), ("u2", "written", 0, 1), ("u1", "failed", 1, 1), ("u1", "undone", 1, 1)],
)
def test_what_was_written_here_and_still_holds_is_no_truth(owner_now, outcome, right, compared):
    """Rules 9.1."""
    logons = counts(("ws1", "ann", 5, EARLY))
    before, now = hosts(host("h1", "ws1")), hosts(host("h1", "ws1", owners=(owner_now,)))
    writes = plan(decide(logons, PEOPLE, before), PEOPLE, before)
    writes = writes.with_columns(outcome=pl.lit(outcome), completed_at=pl.lit(NOW))
    assert counted(accuracy_of(logons, now, writes), "people") == {"all": (right, compared)}


def test_what_was_put_back_after_the_inventory_was_listed_leaves_its_owners_ours():
    logons = counts(("ws1", "ann", 5, EARLY))
    unowned, listed = hosts(host("h1", "ws1")), hosts(host("h1", "ws1", owners=("u1",)))
    planned = plan(decide(logons, PEOPLE, unowned), PEOPLE, unowned)
    ours = planned.with_columns(outcome=pl.lit("written"), completed_at=pl.lit(NOW - timedelta(hours=1)))
    back = planned.with_columns(outcome=pl.lit("undone"), completed_at=pl.lit(NOW + timedelta(hours=1)))
    assert counted(accuracy_of(logons, listed, pl.concat([ours, back])), "people") == {"all": (0, 0)}


def test_the_days_held_back_tell_whether_the_one_decided_on_still_leads():
    """Rules 9.2: a tie is wrong, and who has no logons in them is not compared."""
    logons = counts(
        *(("stays", "ann", 5, day) for day in (EARLY, LATE)),
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
    )
    assert counted(accuracy_of(logons, hosts()), "future") == {"all": (1, 3)}


def test_hosts_that_are_left_out_are_not_compared():
    logons = counts(*(("kiosk-1", "ann", 5, day) for day in (EARLY, LATE)))
    assets = hosts(host("h1", "kiosk-1", owners=("u1",)))
    rows = accuracy_of(logons, assets, rules=Rules(exclude_hosts=("kiosk-*",)))
    assert (counted(rows, "people"), counted(rows, "future")) == ({"all": (0, 0)}, {"all": (0, 0)})


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


@examples(20)
@given(
    logons=st.lists(logon, max_size=25, unique_by=lambda row: (row[0], row[1], *row[3:])),
    threshold=st.sampled_from([50, 60, 75]),
    least=st.sampled_from([1, 3, 10]),
    least_days=st.sampled_from([1, 3]),
    short=st.booleans(),
    metric=st.sampled_from(["events", "days"]),
    weights=st.sampled_from([{}, {"2": 7, "10": 3}]),
)
def test_each_line_counts_what_a_run_with_these_settings_decides(
    logons, threshold, least, least_days, short, metric, weights
):
    logons = counts(
        *((name, user, n, WINDOW.first + timedelta(days=day), kind) for name, user, n, day, kind in logons)
    )
    rules = Rules(
        hostname_match="short" if short else "exact",
        exclude_users=("svc_*",),
        exclude_hosts=("kiosk-*",),
        evidence_metric=metric,
        logon_type_weights=weights,
    )
    lines = backtest_of(
        evidence_of(logons, ASSETS, rules),
        owners_set_by_hand(ASSETS, NO_WRITES),
        Grid([30], [50, 60, 75], [1, 3, 10], [1, 3]),
        rules,
    )
    [line] = (
        validated(ThresholdBacktest, lines)
        .filter(threshold_percent=threshold, min_events=least, min_active_days=least_days)
        .iter_rows(named=True)
    )
    chosen = replace(rules, share_threshold_percent=threshold, min_events=least, min_active_days=least_days)
    decisions = decide(logons, PEOPLE, ASSETS, chosen)
    expected = {
        "hosts_with_evidence": decisions.filter(pl.col("total_events") > 0).height,
        "resolved": decisions["match"].count(),
        "matched": decisions.filter(match="matched").height,
        "to_write": decisions.filter(action="write").height,
        "agree": decisions.filter(action="agree").height,
        "conflict": decisions.filter(action="conflict").height,
    }
    assert {name: line[name] for name in expected} == expected


def test_shorter_windows_count_their_own_days_and_longer_ones_than_stored_are_not_tried():
    logons = counts(("ws1", "ann", 5, LAST), ("ws1", "bob", 9, LAST - timedelta(days=20)))
    lines = backtest_of(
        evidence_of(logons, hosts(host("h1", "ws1"))),
        owners_set_by_hand(hosts(), NO_WRITES),
        grid(RULES, lookback_days=30, stored_days=30),
    )
    at_60 = lines.filter(threshold_percent=60, min_events=1, min_active_days=1)
    assert at_60.select("window_days", "resolved").rows() == [(7, 1), (14, 1), (30, 1)]
    at_65 = lines.filter(threshold_percent=65, min_events=1, min_active_days=1)
    assert at_65.select("window_days", "resolved").rows() == [(7, 1), (14, 1), (30, 0)]


def test_owners_expected_to_be_wrong_are_told_by_share_band_where_enough_were_compared():
    """Rules 9.3: strong evidence was right 30 times of 30, weak evidence 10 times of 20."""
    strong = [(f"s{n}", "ann", 5, EARLY) for n in range(40)]
    weak = [row for n in range(30) for row in ((f"w{n}", "ann", 7, EARLY), (f"w{n}", "bob", 3, EARLY))]
    assets = hosts(
        *(host(f"s{n}", f"s{n}", owners=("u1",) if n < 30 else ()) for n in range(40)),
        *(host(f"w{n}", f"w{n}", owners=("u1",) if n < 10 else ("u2",) if n < 20 else ()) for n in range(30)),
    )
    evidence = evidence_of(counts(*strong, *weak), assets)

    def line(assets, threshold):
        by_hand = owners_set_by_hand(assets, NO_WRITES)
        return backtest_of(evidence, by_hand, Grid([30], [threshold], [1], [1])).row(0, named=True)

    both = line(assets, 60)
    assert (both["to_write"], both["wrong_measure"], both["wrong"]) == (20, "people", 5.0)
    assert both["wrong_low"] < 5 < both["wrong_high"]
    assert line(assets, 75)["wrong"] == 0
    assert line(assets.head(29), 75)["wrong_measure"] is None
