"""Settings that would settle more hosts: each tried by deciding again without the account or the host."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import Rules, names_somebody
from ownership.tables import Suggestions
from ownership.tuning.accuracy import decided
from ownership.tuning.evidence import Evidence
from ownership.windows import Window

NO_PEOPLE = ("service", "computer", "built_in", "administrator")
"""Kinds of accounts that are proposed to be left out."""

NOBODYS = ("kiosk", "server", "collector")
"""Kinds of hosts that are proposed to be left out."""

MOST_TRIED = 100
"""Accounts, and hosts, that are tried: those with most hosts first."""


def suggestions(
    evidence: Evidence, accounts: pl.DataFrame, machines: pl.DataFrame, *, rules: Rules, window: Window
) -> pl.DataFrame:
    """Try to leave out accounts that are no person's and hosts that are nobody's, and keep what helps.

    Args:
        evidence: What counts under the present rules.
        accounts: Rows of `account_profiles`.
        machines: Rows of `host_profiles`.
        rules: The instance's rules.
        window: The look-back window.

    Returns:
        Rows of `suggestions`, those that settle most first: only values that change a decision.
    """
    now = _outcomes(evidence, rules, window)
    rows = [
        {**row, **_effect(now, _outcomes(replace(evidence, days=days), rules, window))}
        for row, days in (*_without_accounts(evidence, accounts), *_without_hosts(evidence, machines))
    ]
    effects = ("hosts_resolved", "conflicts_removed", "owners_lost")
    return (
        pl.DataFrame(rows, schema=polars_schema(Suggestions))
        .filter(pl.any_horizontal(pl.col(effects) > 0))
        .sort(pl.sum_horizontal("hosts_resolved", "conflicts_removed"), "value", descending=[True, False])
    )


def _without_accounts(
    evidence: Evidence, accounts: pl.DataFrame
) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    counted = accounts.filter(
        pl.col("kind").is_in(NO_PEOPLE), pl.col("username").is_in(evidence.users["username"].implode())
    )
    for row in counted.sort("hosts", descending=True).head(MOST_TRIED).iter_rows(named=True):
        numbers = evidence.users.filter(username=row["username"])["user"]
        yield (
            {"setting": "rules.exclude_users", "value": row["username"], "reason": row["reasons"][0]},
            evidence.days.filter(~pl.col("user").is_in(numbers.implode())),
        )


def _without_hosts(
    evidence: Evidence, machines: pl.DataFrame
) -> Iterator[tuple[dict[str, str], pl.DataFrame]]:
    nobodys = machines.filter(pl.col("kind").is_in(NOBODYS), pl.col("hostname").is_not_null())
    for row in nobodys.sort("users", descending=True).head(MOST_TRIED).iter_rows(named=True):
        numbers = evidence.subjects.filter(hostname=row["hostname"])["subject"]
        yield (
            {"setting": "rules.exclude_hosts", "value": row["hostname"], "reason": row["reasons"][0]},
            evidence.days.filter(~pl.col("subject").is_in(numbers.implode())),
        )


def _outcomes(evidence: Evidence, rules: Rules, window: Window) -> pl.DataFrame:
    """What is decided for each host that somebody is named for: subject, matched, conflict, to_write."""
    named = pl.col("eligible") & names_somebody(rules)
    outcomes = decided(evidence, window).filter(named)
    return outcomes.select("subject", "matched", "conflict", "to_write").collect()


def _effect(now: pl.DataFrame, then: pl.DataFrame) -> dict[str, int]:
    both = now.join(then, on="subject", how="full", coalesce=True, suffix="_then").fill_null(value=False)
    changes = both.select(
        hosts_resolved=(~pl.col("matched") & pl.col("matched_then")).sum(),
        conflicts_removed=(pl.col("conflict") & ~pl.col("conflict_then")).sum(),
        owners_lost=(pl.col("to_write") & ~pl.col("to_write_then")).sum(),
    )
    return changes.row(0, named=True)
