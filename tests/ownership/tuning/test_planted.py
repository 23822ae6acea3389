"""Tuning held against a company whose truth is known: it tells how often the rules are wrong, and why."""

from collections import Counter
from datetime import UTC, datetime, time, timedelta

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.rules import Rules
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts, OwnerWrites
from ownership.tuning.backtest import THRESHOLDS, Grid
from ownership.tuning.inputs import Inputs, tuning_tables
from ownership.windows import Window
from sandbox.planted import LAST, LEFT_OUT, LOOKBACK_DAYS, planted
from sandbox.resolution import resolve

SEEDS = range(40)
RULES = Rules(exclude_users=LEFT_OUT)
WINDOW = Window(LAST - timedelta(days=LOOKBACK_DAYS - 1), LAST)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def decide(company, rules=RULES):
    return resolve(
        company.counts.lazy().filter(pl.col("day").is_between(WINDOW.first, WINDOW.last)),
        company.hosts,
        company.users,
        rules=rules,
        user_value_field="user_email",
        window=WINDOW,
        decided_at=datetime.combine(LAST, time(20), UTC),
        run_id="a-run",
    ).decisions


def inputs_of(company):
    return Inputs(
        counts=company.counts.lazy(), hosts=company.hosts, users=company.users, writes=company.writes,
        decisions=decide(company), rules=RULES, user_value_field="user_email", window=WINDOW,
        stored_days=WINDOW.days, last_settled=LAST,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned():
    """Of each seed: the planted machines, and the back-test's line of each threshold."""
    found = []
    for seed in SEEDS:
        company = planted(seed)
        tried = Grid([LOOKBACK_DAYS], THRESHOLDS, [1], ["events"], [None])
        found.append((company.machines, inputs_of(company).backtest(tried)))
    return found


def test_the_tables_are_valid_and_the_same_for_a_seed():
    company, again = planted(1), planted(1)
    models = {"counts": LogonCounts, "hosts": InventoryHosts, "users": InventoryUsers, "writes": OwnerWrites}
    for name, model in models.items():
        validated(model, getattr(company, name))
        assert getattr(company, name).equals(getattr(again, name))
    assert not planted(2).counts.equals(company.counts)


def test_each_threshold_writes_the_planted_machines(tuned):
    for machines, lines in tuned:
        unowned = machines.filter(pl.col("owned").is_null())
        planted_lines = {percent: unowned.filter(pl.col("share") > percent).height for percent in THRESHOLDS}
        assert dict(lines.select("threshold_percent", "to_write").iter_rows()) == planted_lines


def test_a_number_of_wrong_owners_that_is_claimed_holds(tuned):
    """Rules 9.4: at least 90 of 100 times; and it is claimed where hosts to write are like those compared."""
    held = claimed = 0
    for machines, lines in tuned:
        named = machines.filter(pl.col("owned").is_null(), pl.col("share") > 60)
        [line] = lines.filter(threshold_percent=60).iter_rows(named=True)
        wrong = named.filter(pl.col("leader") != pl.col("owner")).height
        if line["wrong"] is not None:
            claimed += 1
            held += line["wrong_low"] <= wrong <= line["wrong_high"]
    print(f"claimed {claimed} of {len(tuned)} times, held {held}")  # noqa: T201  (to be seen with -s)
    assert claimed >= len(SEEDS) / 2
    assert held >= 0.9 * claimed


def test_kinds_are_those_planted():
    hosts, accounts = Counter(), Counter()
    for seed in SEEDS[:5]:
        company = planted(seed)
        told = inputs_of(company).kinds
        hosts.update(
            (company.host_kinds[name], kind) for name, kind in told.hosts.select("hostname", "kind").rows()
        )
        accounts.update(
            (company.account_kinds[name], kind)
            for name, kind in told.accounts.select("username", "kind").rows()
        )
    for what, confusion in (("hosts", hosts), ("accounts", accounts)):
        print(f"{what}, planted and told:", *sorted(confusion.items()), sep="\n  ")  # noqa: T201  (to be seen with -s)
        right = Counter({kind: number for (kind, told), number in confusion.items() if kind == told})
        assert right.total() >= 0.95 * confusion.total(), confusion
        of_kind = Counter()
        for (kind, _), number in confusion.items():
            of_kind[kind] += number
        assert [kind for kind, number in of_kind.items() if right[kind] < 0.6 * number] == [], confusion


def test_owners_who_left_are_told_with_the_day():
    company = planted(0)
    drift = tuning_tables(inputs_of(company), company.counts.lazy())["ownership_drift"]
    left = drift.filter(reason="left").select("hostname", pl.col("since") - timedelta(days=1))
    assert dict(left.iter_rows()) == company.left
