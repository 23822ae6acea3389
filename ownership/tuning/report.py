"""The whole way from stored tables to the tables of tuning, in one call."""

from dataclasses import replace
from datetime import date

import polars as pl

from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.tuning.accuracy import HOLDOUT_DAYS, accuracy, decided, decided_before, owners_set_by_hand
from ownership.tuning.backtest import grid, threshold_backtest
from ownership.tuning.closest import closest_users
from ownership.tuning.drift import ownership_drift
from ownership.tuning.evidence import evidence_by_day
from ownership.tuning.profiles import account_profiles, host_profiles
from ownership.tuning.suggestions import suggestions
from ownership.windows import Window


def tuning_tables(
    counts: pl.LazyFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame,
    decisions: pl.DataFrame,
    *,
    rules: Rules,
    user_value_field: str,
    window: Window,
    stored_days: int,
    last_settled: date,
) -> dict[str, pl.DataFrame]:
    """Tell how often the rules are wrong, and what other settings would have led to.

    Args:
        counts: Rows of `logon_counts`: of the longest window to try, and of the days held back before it.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        writes: Rows of `owner_writes` of all runs on the target.
        decisions: Rows of `owner_decisions`, the last ones.
        rules: The instance's rules.
        user_value_field: Name of the field that `user_value` of the users holds.
        window: The look-back window of the last decisions.
        stored_days: Days that are stored without a gap, up to the last one of the window.
        last_settled: The last day that nothing late arrives for any more.

    Returns:
        Rows of each table of tuning, by its name.
    """
    evidence = evidence_by_day(counts, hosts, users, rules=rules, user_value_field=user_value_field)
    in_window = counts.filter(pl.col("day").is_between(window.first, window.last))
    everybody = replace(rules, exclude_users=(), exclude_hosts=())
    all_logons = evidence_by_day(in_window, hosts, users, rules=everybody, user_value_field=user_value_field)
    matches = username_matches(all_logons.users, users, user_value_field=user_value_field)
    accounts = account_profiles(all_logons, matches)
    by_hand = owners_set_by_hand(hosts, writes)
    now = decided(evidence, window, by_hand)
    before = decided_before(evidence, last=last_settled, days=window.days, holdout_days=HOLDOUT_DAYS)
    machines = host_profiles(all_logons, accounts, threshold_percent=rules.share_threshold_percent)
    return {
        "accuracy": accuracy(now, before, users, rules=rules),
        "threshold_backtest": threshold_backtest(
            evidence,
            by_hand,
            rules=rules,
            tried=grid(rules, lookback_days=window.days, stored_days=stored_days),
            last=window.last,
            last_settled=last_settled,
        ),
        "host_profiles": machines,
        "account_profiles": accounts,
        "suggestions": suggestions(evidence, accounts, machines, rules=rules, window=window),
        "ownership_drift": ownership_drift(evidence, decisions, hosts, users, window=window),
        "closest_users": closest_users(accounts, users),
    }
