"""From counts to decisions in one call: what the assets do one by one, storing each table."""

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from ownership.decisions import owner_decisions
from ownership.evidence import evidence_by_day
from ownership.kinds import skipped_by_kind
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.shares import host_user_shares
from ownership.windows import Window


@dataclass(frozen=True)
class Resolution:
    """Rows of `host_user_shares`, `username_matches` and `owner_decisions`, made of one another."""

    shares: pl.DataFrame
    matches: pl.DataFrame
    decisions: pl.DataFrame
    window: Window
    rules: Rules


def resolve(
    counts: pl.LazyFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    rules: Rules,
    user_value_field: str,
    window: Window,
    decided_at: datetime,
    run_id: str,
) -> Resolution:
    """Decide about every host from rows of `logon_counts` of the window, and of both inventory tables."""
    skipped = skipped_by_kind(counts, hosts, users, rules=rules, user_value_field=user_value_field)
    shares = host_user_shares(counts, rules=rules, skipped=skipped.accounts["username"])
    matches = username_matches(shares, users, user_value_field=user_value_field)
    evidence = evidence_by_day(
        counts,
        hosts,
        rules=rules,
        skipped_users=skipped.accounts["username"],
        skipped_hosts=skipped.hosts,
    )
    decisions = owner_decisions(evidence, matches, decided_at=decided_at, run_id=run_id)
    return Resolution(shares, matches, decisions, window, rules)
