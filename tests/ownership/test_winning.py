"""The winning rule and its inverse say the same, whatever counts."""

from dataclasses import asdict
from datetime import timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ownership.rules import NAMING, Rules, events_needed
from tests import examples
from tests.ownership.builders import PEOPLE, WINDOW, counts, decide, host, hosts

THRESHOLDS = st.integers(50, 99)


def needed(events, total_events, rules):
    row = pl.select(weight=events, total_weight=total_events, total_events=total_events, active_days=1)
    return row.select(events_needed(rules)).item()


def winner(events, rules):
    """Who wins a host on which users have so many events, by the rules themselves."""
    logons = counts(*(("ws1", name, number) for name, number in events.items() if number))
    (decision,) = decide(logons, PEOPLE, hosts(host("h1", "ws1")), rules).to_dicts()
    return decision["username"] if decision["evidence"] in NAMING else None


@examples(25)
@given(st.integers(0, 40), st.lists(st.integers(1, 40), max_size=3), THRESHOLDS, st.integers(1, 60))
def test_exactly_so_many_events_are_lacking(events, others, threshold, min_events):
    users_of_host = {"alice": events} | {f"user{number}": count for number, count in enumerate(others)}
    rules = Rules(share_threshold_percent=threshold, min_events=min_events)
    lacking = needed(events, sum(users_of_host.values()), rules)
    assert winner(users_of_host | {"alice": events + lacking}, rules) == "alice"
    if lacking:
        assert winner(users_of_host | {"alice": events + lacking - 1}, rules) != "alice"


@examples(100)
@given(st.integers(0, 10**12), st.integers(0, 10**12), THRESHOLDS)
def test_large_counts_are_exact_too(events, others, threshold):
    lacking = needed(events, events + others, Rules(share_threshold_percent=threshold))
    enough = 100 * (events + lacking) > threshold * (events + others + lacking) or not others
    one_less = 100 * (events + lacking - 1) > threshold * (events + others + lacking - 1)
    assert enough
    assert lacking == 0 or not others or not one_less


def test_what_a_decision_says_is_lacking_would_do():
    logons = counts(("even", "ann", 6), ("even", "bob", 4), ("clear", "ann", 7), ("clear", "bob", 3))
    decisions = decide(logons, PEOPLE, hosts(host("h1", "even"), host("h2", "clear"), host("h3", "idle")))
    assert dict(decisions.select("host_id", "events_needed").iter_rows()) == {"h1": 1, "h2": 0, "h3": None}


def logons_of(*rows):
    """`("ann", 6, 0)`: six events of ann on the last day of the window, on the day before with 1."""
    return counts(*(("ws1", name, events, WINDOW.last - timedelta(days=age)) for name, events, age in rows))


def decided(logons, **rules):
    (row,) = decide(logons, PEOPLE, hosts(host("h1", "ws1")), Rules(**rules)).to_dicts()
    return row


def test_by_days_one_busy_day_of_a_technician_does_not_win():
    """Rules 1.7."""
    logons = logons_of(("ann", 1, 0), ("ann", 2, 1), ("ann", 1, 2), ("bob", 40, 3))
    assert decided(logons)["username"] == "bob"
    row = decided(logons, evidence_metric="days")
    assert (row["username"], row["evidence"], row["share"]) == ("ann", "majority", 0.75)
    assert (row["events"], row["total_events"]) == (4, 44)  # exact counts stay beside what counts
    assert (row["weight"], row["total_weight"]) == (3, 4)
    assert row["runner_up_weight"] == 1


@examples(8)
@given(
    others=st.dictionaries(st.integers(0, 20), st.integers(1, 9), min_size=1, max_size=5),
    own=st.integers(1, 9),
    threshold=THRESHOLDS,
)
def test_so_many_further_days_are_lacking(others, own, threshold):
    rules = Rules(evidence_metric="days", share_threshold_percent=threshold)
    before = [("ann", own, 25), *(("bob", events, age) for age, events in others.items())]

    def wins(further):
        more = pl.concat([logons_of(*before), *(logons_of(("ann", 1, age)) for age in range(further))])
        counted = more.group_by(pl.exclude("events")).agg(pl.sum("events"))
        row = decided(counted, **asdict(rules))
        return row["evidence"] in NAMING and row["username"] == "ann"

    row = decided(logons_of(*before), **asdict(rules))
    weight = row["weight"] if row["username"] == "ann" else row["runner_up_weight"]
    totals = {name: row[name] for name in ("total_weight", "total_events")}
    of_ann = pl.select(weight=weight, active_days=1, **totals)
    lacking = of_ann.select(events_needed(rules)).item()
    if lacking > 25:
        return
    assert wins(lacking)
    assert lacking == 0 or not wins(lacking - 1)


@examples(10)
@given(
    own=st.dictionaries(st.integers(0, 9), st.integers(1, 9), min_size=1, max_size=4),
    others=st.integers(0, 6),
    least_days=st.integers(1, 8),
    min_events=st.integers(1, 20),
)
def test_so_many_further_events_on_further_days_are_lacking(own, others, least_days, min_events):
    """Rules 1.6: what `events_needed` says counts the days that min_active_days asks for, too."""
    rules = {"min_active_days": least_days, "min_events": min_events}
    before = [("ann", events, age) for age, events in own.items()]
    before += [("bob", others, 0)] if others else []

    def further(number):
        return decided(logons_of(*before, *(("ann", 1, age) for age in range(10, 10 + number))), **rules)

    row = further(0)
    if row["username"] != "ann" or row["events_needed"] > 20:
        return
    lacking = row["events_needed"]
    assert (lacking == 0) == (row["evidence"] in NAMING)
    assert further(lacking)["evidence"] in NAMING
    assert lacking == 0 or further(lacking - 1)["evidence"] not in NAMING
