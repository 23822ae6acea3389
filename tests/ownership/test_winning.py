"""The winning rule and its inverse say the same."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ownership.rules import NAMING, Rules, events_needed
from tests import examples
from tests.ownership.builders import PEOPLE, counts, decide, host, hosts

THRESHOLDS = st.integers(50, 99)


def needed(events, total_events, rules):
    return pl.select(events=events, total_events=total_events).select(events_needed(rules)).item()


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
