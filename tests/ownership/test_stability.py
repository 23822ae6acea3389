"""Owners that stay: many windows counted together, against the resolution called for each of them."""

from dataclasses import replace
from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership import stability
from ownership.codes import MOVED, reason_of
from ownership.rules import NAMING, Rules
from ownership.windows import Window, days_of, window_before
from tests import examples
from tests.ownership.builders import counts, host, hosts, resolution, user, users

WINDOW = Window(date(2026, 3, 3), date(2026, 3, 11))
MOST_DAYS = 6
ALL_DAYS = days_of(Window(WINDOW.first - timedelta(days=MOST_DAYS), WINDOW.last))
HOSTNAMES = ["pc1", "pc2", "pc3", "pc4", "old", "shared"]
ASSETS = hosts(
    *(host(f"h{n}", name) for n, name in enumerate(HOSTNAMES)), host("h6", "pc1", "old"), host("h7", "shared")
)
PEOPLE = users(
    user("u1", email="ann@corp.example", sam="adm1"),
    user("u2", email="bob@corp.example"),
    user("u3", sam="cat"),
)
stays = st.tuples(
    st.sampled_from(HOSTNAMES),
    st.sampled_from(["ann", "adm1", "bob", "cat", "zoe"]),
    st.integers(1, 9),
    st.sampled_from(ALL_DAYS),
    st.integers(1, 5),
)
rules = st.builds(
    Rules,
    share_threshold_percent=st.sampled_from([50, 60, 75]),
    exclude_hosts=st.sampled_from([(), ("old",)]),
    min_events=st.integers(1, 4),
    min_active_days=st.sampled_from([1, 2, 3]),
    evidence_metric=st.sampled_from(["events", "days"]),
    primary_devices=st.sampled_from([None, 1, 2]),
    unite_accounts=st.booleans(),
    max_idle_days=st.sampled_from([None, 3]),
    min_stable_days=st.integers(1, MOST_DAYS + 1),
)


def decisions(logons, window, rules):
    """What is decided by the logons of a window, each a host, user, events and day."""
    before = Window(window.first - timedelta(days=MOST_DAYS), window.first - timedelta(days=1))
    inside, earlier = (
        counts(*(row for row in logons if days.first <= row[-1] <= days.last)) for days in (window, before)
    )
    return resolution(inside, PEOPLE, ASSETS, rules, window=window, earlier=earlier).decisions


@pytest.mark.jobs  # it takes as long
def test_owners_are_named_for_as_many_days_as_the_resolution_of_each_day_says(monkeypatch):
    """Rules 1.13; however many hosts are counted together."""

    @examples(25)
    @given(st.lists(stays, min_size=1, max_size=25), rules, st.sampled_from([1, stability.TOGETHER]))
    def check(stays, rules, together):
        monkeypatch.setattr(stability, "TOGETHER", together)
        logons = [(*stay, day + timedelta(days=n)) for *stay, day, length in stays for n in range(length)]
        named = []
        for age in range(rules.min_stable_days):
            window = Window(*(day - timedelta(days=age) for day in (WINDOW.first, WINDOW.last)))
            then = decisions(logons, window, replace(rules, min_stable_days=None))
            then = then.filter(pl.col("evidence").is_in(NAMING))
            owner = pl.coalesce("resolved_owner", "username")
            named.append(dict(then.select("host_id", owner).iter_rows()))
        for row in decisions(logons, WINDOW, rules).drop_nulls("host_id").iter_rows(named=True):
            owners = [then.get(row["host_id"]) for then in named]
            others = [age for age, owner in enumerate(owners) if owner != owners[0]]
            days = min(others, default=len(owners))
            since = WINDOW.last - timedelta(days=days - 1)
            assert row["named_since"] == (since if owners[0] else None)
            waits = bool(owners[0] and others)
            assert (row["evidence"] == "not_stable") == waits
            ready = WINDOW.last + timedelta(days=rules.min_stable_days - days)
            assert row["stable_on"] == (ready if waits and owners[0] in PEOPLE["user_id"] else None)

    check()


@pytest.mark.parametrize(("moved", "usually", "barred"), [(12, 0, 12), (9, 0, 0), (12, 5, 0), (13, 5, 13)])
def test_hosts_that_others_have_used_lately_name_nobody_if_they_are_far_more_than_usual(
    moved, usually, barred
):
    """Rules 1.13. Of 60 hosts so many have moved; before, so many others were lent for five days each.

    Of twelve more people only the account has changed, which is not a move.
    """
    window = window_before(WINDOW.last, 30)

    def user_of(n, age):
        lent = range(25 + usually * (age // 5), 25 + usually * (age // 5 + 1))
        if n in (range(moved) if age < 5 else lent):
            return "guest"
        return f"new{n}" if n in range(13, 25) and age < 5 else f"u{n}"

    days = enumerate(reversed(days_of(window)))
    logons = [(f"pc{n}", user_of(n, age), 3, day) for age, day in days for n in range(60)]
    people = users(*(user(f"p{n}", email=f"new{n}@corp.example", sam=f"u{n}") for n in range(13, 25)))
    assets = hosts(*(host(f"h{n}", f"pc{n}") for n in range(60)))
    made = resolution(counts(*logons), people, assets, Rules(min_stable_days=3), window=window).decisions
    waiting = made.filter(evidence="not_stable")
    assert waiting["hostname"].to_list() == sorted(f"pc{n}" for n in range(barred))
    assert waiting["named_since"].null_count() == barred
    assert {reason_of(row) for row in waiting.iter_rows(named=True)} <= {MOVED}
