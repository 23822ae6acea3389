"""The whole way from stored tables to what tuning tells, in one call."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import polars as pl

from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tuning.accuracy import (
    HOLDOUT_DAYS,
    accuracy,
    decided,
    owners_set_by_hand,
    with_future,
    with_people,
)
from ownership.tuning.backtest import Grid, grid, threshold_backtest
from ownership.tuning.closest import closest_users
from ownership.tuning.drift import ownership_drift
from ownership.tuning.evidence import Evidence, evidence_by_day
from ownership.tuning.profiles import account_profiles, host_profiles
from ownership.tuning.suggestions import suggestions
from ownership.windows import Window


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What tuning rests on.

    Attributes:
        counts: Rows of `logon_counts`: of the longest window to try, and of the days held back before it.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        writes: Rows of `owner_writes` of all runs on the target.
        decisions: Rows of `owner_decisions`, all of one run.
        rules: The instance's rules.
        user_value_field: Name of the field that `user_value` of the users holds.
        window: The look-back window of the decisions.
        stored_days: Days that are stored without a gap, up to the last one of the window.
        last_settled: The last day that nothing late arrives for any more.
    """

    counts: pl.LazyFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    writes: pl.DataFrame
    decisions: pl.DataFrame
    rules: Rules
    user_value_field: str
    window: Window
    stored_days: int
    last_settled: date

    def evidence(self, *, rules: Rules | None = None, window: Window | None = None) -> Evidence:
        """What was counted, under the instance's rules or others, on all days or those of a window."""
        counts = self.counts
        if window:
            counts = counts.filter(pl.col("day").is_between(window.first, window.last))
        return evidence_by_day(
            counts,
            self.hosts,
            self.users,
            rules=rules or self.rules,
            user_value_field=self.user_value_field,
        )


def tuning_tables(stored: Inputs) -> dict[str, pl.DataFrame]:
    """Tell how often the rules are wrong, and what other settings would have led to.

    Returns:
        Rows of each table of tuning, by its name.
    """
    rules, users, window = stored.rules, stored.users, stored.window
    evidence = stored.evidence()
    everybody = replace(rules, exclude_users=(), exclude_hosts=())
    all_logons = stored.evidence(rules=everybody, window=window)
    matches = username_matches(all_logons.users, users, user_value_field=stored.user_value_field)
    accounts = account_profiles(all_logons, matches)
    machines = host_profiles(all_logons, accounts, threshold_percent=rules.share_threshold_percent)
    by_hand = owners_set_by_hand(stored.hosts, stored.writes)
    now = with_people(decided(evidence, window), by_hand)
    before = with_future(evidence, last=stored.last_settled, days=window.days, holdout_days=HOLDOUT_DAYS)
    tried = grid(rules, lookback_days=window.days, stored_days=stored.stored_days)
    return {
        "accuracy": accuracy(now, before, users, rules=rules),
        "threshold_backtest": _backtest(stored, evidence, by_hand, tried),
        "host_profiles": machines,
        "account_profiles": accounts,
        "suggestions": suggestions(evidence, accounts, machines, rules=rules, window=window),
        "ownership_drift": ownership_drift(evidence, stored.decisions, stored.hosts, users, window=window),
        "closest_users": closest_users(accounts, users),
    }


def present_line(stored: Inputs) -> dict[str, Any]:
    """The row of `threshold_backtest` for the instance's own settings, without trying any others."""
    rules = stored.rules
    own = Grid(
        [stored.window.days], [rules.share_threshold_percent], [rules.min_events], [rules.min_active_days]
    )
    by_hand = owners_set_by_hand(stored.hosts, stored.writes)
    return _backtest(stored, stored.evidence(), by_hand, own).row(0, named=True)


def _backtest(stored: Inputs, evidence: Evidence, by_hand: pl.DataFrame, tried: Grid) -> pl.DataFrame:
    return threshold_backtest(
        evidence,
        by_hand,
        rules=stored.rules,
        tried=tried,
        last=stored.window.last,
        last_settled=stored.last_settled,
    )
