"""All tables of tuning from the stored tables, in one call."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import polars as pl

from ownership.evidence import Evidence, evidence_by_day, user_totals
from ownership.kinds import Kinds, kinds, nothing_skipped, without
from ownership.rules import Rules
from ownership.tuning.accuracy import (
    Judged,
    accuracy,
    judged,
    owners_set_by_hand,
)
from ownership.tuning.backtest import Grid, grid, threshold_backtest
from ownership.tuning.closest import closest_users
from ownership.tuning.drift import last_logons, ownership_drift
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
        runs: Rows of `runs`.
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
    runs: pl.DataFrame
    rules: Rules
    user_value_field: str
    window: Window
    stored_days: int
    last_settled: date

    def kinds(self) -> Kinds:
        """What kinds of accounts and hosts there are in the window."""
        return kinds(
            self.counts.filter(pl.col("day").is_between(self.window.first, self.window.last)),
            self.hosts,
            self.users,
            rules=self.rules,
            user_value_field=self.user_value_field,
        )

    def evidence(self, classes: Kinds) -> Evidence:
        """What was counted on all days, without the kinds that the rules leave out."""
        counted = evidence_by_day(
            self.counts, self.hosts, self.users, rules=self.rules, user_value_field=self.user_value_field
        )
        return without(counted, classes.skipped(self.rules))

    def judged(self, evidence: Evidence, tried: Grid) -> dict[int, Judged]:
        """What is decided on each window that is tried."""
        return judged(
            evidence,
            owners_set_by_hand(self.hosts, self.writes),
            tried.windows,
            last=self.window.last,
            last_settled=self.last_settled,
        )


def tuning_tables(stored: Inputs, all_counts: pl.LazyFrame) -> dict[str, pl.DataFrame]:
    """Compute how often the rules are wrong, and what other settings would have led to.

    Args:
        stored: What it rests on.
        all_counts: Rows of `logon_counts` of all stored days up to the last one of the window.

    Returns:
        Rows of each table of tuning, by its name.
    """
    rules, users, window = stored.rules, stored.users, stored.window
    classes = stored.kinds()
    evidence = stored.evidence(classes)
    tried = grid(rules, lookback_days=window.days, stored_days=stored.stored_days)
    windows = stored.judged(evidence, tried)
    return {
        "accuracy": accuracy(windows[window.days], users, rules=rules),
        "threshold_backtest": threshold_backtest(windows, rules=rules, tried=tried),
        "host_profiles": classes.hosts,
        "account_profiles": classes.accounts,
        "suggestions": suggestions(evidence, user_totals(evidence, window), classes),
        "ownership_drift": ownership_drift(
            evidence,
            last_logons(all_counts, users, user_value_field=stored.user_value_field),
            stored.decisions,
            stored.hosts,
            users,
            stored.runs,
            window=window,
            stored_days=stored.stored_days,
        ),
        "closest_users": closest_users(classes.accounts, users),
    }


def present_line(stored: Inputs) -> dict[str, Any]:
    """The row of `threshold_backtest` for the instance's own settings, without trying any others."""
    rules = stored.rules
    own = Grid(
        [stored.window.days], [rules.share_threshold_percent], [rules.min_events], [rules.min_active_days]
    )
    some = rules.skip_account_kinds or rules.skip_host_kinds
    evidence = stored.evidence(stored.kinds() if some else nothing_skipped())
    return threshold_backtest(stored.judged(evidence, own), rules=rules, tried=own).row(0, named=True)
