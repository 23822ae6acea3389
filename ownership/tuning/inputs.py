"""All tables of tuning from the stored tables, in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

import polars as pl

from ownership.declaration import empty
from ownership.evidence import Evidence
from ownership.kinds import Kinds
from ownership.resolution import Resolution, inventory_reader
from ownership.rules import EvidenceMetric, Rules
from ownership.tables import AuditSample, OwnerDecisions
from ownership.tuning.accuracy import Compared, accuracy, compared, owners_known
from ownership.tuning.audit import audited
from ownership.tuning.backtest import Tried, threshold_backtest, usual_settings
from ownership.tuning.closest import closest_users
from ownership.tuning.drift import last_logons, ownership_drift
from ownership.tuning.suggestions import suggestions
from ownership.windows import Window


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What tuning rests on.

    Rows of the stored tables: `counts` of logon_counts, of the longest window to try and of the days held
    back before it; `writes` of owner_writes of all runs on the target; `decisions` of one run. `window` is
    the look-back window, `stored_days` so many days up to its last one are stored without a gap,
    `last_settled` is the last day that nothing late arrives for any more.
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
    audit: pl.DataFrame = field(default_factory=lambda: audited(empty(OwnerDecisions), empty(AuditSample)))

    @cached_property
    def resolution(self) -> Resolution:
        """The stages over the look-back window."""
        return Resolution(
            counts=self.counts.filter(pl.col("day").is_between(self.window.first, self.window.last)),
            read_inventory=inventory_reader(self.hosts, self.users),
            rules=self.rules,
            user_value_field=self.user_value_field,
            window=self.window,
        )

    @property
    def kinds(self) -> Kinds:
        """The kinds of accounts and hosts of the window."""
        return self.resolution.kinds

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence of all days, without the kinds that the rules exclude."""
        return self.resolution.count_evidence(self.counts).collect()

    @cached_property
    def matches(self) -> pl.DataFrame:
        """Rows of `username_matches` for the users of the evidence."""
        usernames = self.evidence.days.select(pl.col("username").cast(pl.String).unique()).collect()
        return self.resolution.match_usernames(usernames)

    def compared(self, tried: Sequence[Tried]) -> Mapping[tuple[int, EvidenceMetric], Compared]:
        """What is decided on each window and by each metric that is tried."""
        known = owners_known(self.hosts, self.writes)
        return {
            (days, metric): compared(
                replace(self.evidence, rules=replace(self.rules, evidence_metric=metric)),
                self.matches,
                known,
                self.audit,
                days=days,
                last=self.window.last,
                last_settled=self.last_settled,
            )
            for days, metric in dict.fromkeys((days, rules.evidence_metric) for days, rules in tried)
        }

    def backtest(self, tried: Sequence[Tried]) -> pl.DataFrame:
        """Rows of `threshold_backtest` for the settings that are tried."""
        return threshold_backtest(self.compared(tried), tried)


def tuning_tables(stored: Inputs, all_counts: pl.LazyFrame) -> dict[str, pl.DataFrame]:
    """Compute the rows of each table of tuning, by its name.

    `all_counts` are rows of `logon_counts` of all stored days up to the last one of the window.
    """
    rules, users, window = stored.rules, stored.users, stored.window
    classes, evidence, matches = stored.kinds, stored.evidence, stored.matches
    tried = usual_settings(rules, lookback_days=window.days, stored_days=stored.stored_days)
    decided = stored.compared(tried)
    now = decided[window.days, rules.evidence_metric]
    return {
        "accuracy": accuracy(now, users, rules=rules),
        "threshold_backtest": threshold_backtest(decided, tried),
        "host_profiles": classes.hosts,
        "account_profiles": classes.accounts,
        "suggestions": suggestions(evidence.restrict(window), matches, classes, now),
        "ownership_drift": ownership_drift(
            evidence,
            matches,
            last_logons(all_counts, users, user_value_field=stored.user_value_field),
            stored.decisions,
            stored.hosts,
            window=window,
            stored_days=stored.stored_days,
        ),
        "closest_users": closest_users(classes.accounts, users, matches),
    }


def present_line(stored: Inputs) -> dict[str, Any]:
    """The row of `threshold_backtest` for the instance's own settings, without trying any others."""
    return stored.backtest([(stored.window.days, stored.rules)]).row(0, named=True)
