"""Settings that would settle more hosts: each tried by deciding again without the account or the host."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from ownership.declaration import polars_schema
from ownership.evidence import Evidence
from ownership.kinds import Kinds, nothing_skipped, numbers_of
from ownership.rules import names_owner
from ownership.tables import Suggestions
from ownership.tuning.accuracy import decided

NO_PEOPLE = ("service", "computer", "built_in", "administrator")
"""Kinds of accounts that are proposed to be left out."""

NOBODYS = ("kiosk", "server", "collector")
"""Kinds of hosts that are proposed to be left out."""

MAX_TRIED = 100
"""Accounts, and hosts, that are tried one by one: those with most hosts, or users, first."""

MAX_NAMED = 5
"""Accounts, or hosts, of a kind that are named."""


def suggestions(evidence: Evidence, totals: pl.DataFrame, classes: Kinds) -> pl.DataFrame:
    """Try to leave out accounts that are no person's and hosts that are nobody's, and keep what helps.

    Args:
        evidence: What counts under the present rules.
        totals: What `user_totals` gives for the look-back window.
        classes: What kinds of accounts and hosts there are.

    Returns:
        Rows of `suggestions`, those that settle most first: only values that change a decision.
    """
    now = _outcomes(evidence, totals)
    rows = [{**row, **_effect(now, evidence, totals, skipped)} for row, skipped in _tried(evidence, classes)]
    effects = ("hosts_resolved", "conflicts_removed", "owners_lost")
    return (
        pl.DataFrame(rows, schema=polars_schema(Suggestions))
        .filter(pl.any_horizontal(pl.col(effects) > 0))
        .sort(
            pl.sum_horizontal("hosts_resolved", "conflicts_removed"),
            "setting",
            "value",
            descending=[True, False, False],
        )
    )


def _tried(evidence: Evidence, classes: Kinds) -> Iterator[tuple[dict[str, str], Kinds]]:
    """Values of settings with what each leaves out: kinds of several members, and members one by one."""
    counted = classes.accounts.filter(
        pl.col("kind").is_in(NO_PEOPLE), pl.col("username").is_in(evidence.users["username"].implode())
    ).sort("hosts", "username", descending=[True, False])
    nobodys = classes.hosts.filter(pl.col("kind").is_in(NOBODYS), pl.col("hostname").is_not_null()).sort(
        "users", "hostname", descending=[True, False]
    )
    nothing = nothing_skipped()
    settings = (
        ("rules.skip_account_kinds", "rules.exclude_users", "username", counted),
        ("rules.skip_host_kinds", "rules.exclude_hosts", "hostname", nobodys),
    )
    for by_kind, by_name, name, members in settings:
        field = "accounts" if members is counted else "hosts"
        for (kind,), of_kind in members.group_by("kind", maintain_order=True):
            if of_kind.height < 2:
                continue
            row = {"setting": by_kind, "value": str(kind), "reason": _members(of_kind[name].to_list(), field)}
            yield row, replace(nothing, **{field: of_kind})
        for number in range(min(members.height, MAX_TRIED)):
            one = members[number]
            row = {"setting": by_name, "value": one[name].item(), "reason": one["reasons"].item()[0]}
            yield row, replace(nothing, **{field: one})


def _members(names: Sequence[str], noun: str) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{len(names):,} {noun}: {', '.join(names[:MAX_NAMED])}{more}"


def _outcomes(evidence: Evidence, totals: pl.DataFrame) -> pl.DataFrame:
    """What is decided for each host that somebody is named for: subject, matched, conflict, to_write."""
    named = pl.col("eligible") & names_owner(evidence.rules)
    outcomes = decided(evidence, totals).filter(named)
    return outcomes.select("subject", "matched", "conflict", "to_write").collect()


def _effect(now: pl.DataFrame, evidence: Evidence, totals: pl.DataFrame, skipped: Kinds) -> dict[str, int]:
    """Decide again, about the hosts for which something is left out, and count what becomes of them."""
    users, hosts = numbers_of(evidence, skipped)
    left_out = pl.col("user").is_in(users.implode()) | pl.col("subject").is_in(hosts.implode())
    touched = totals.filter(left_out).select(pl.col("subject").unique())
    left = totals.join(touched, on="subject", how="semi").filter(~left_out)
    then = _outcomes(evidence, left)
    both = (
        now.join(touched, on="subject", how="semi")
        .join(then, on="subject", how="full", coalesce=True, suffix="_then")
        .fill_null(value=False)
    )
    changes = both.select(
        hosts_resolved=(~pl.col("matched") & pl.col("matched_then")).sum(),
        conflicts_removed=(pl.col("conflict") & ~pl.col("conflict_then")).sum(),
        owners_lost=(pl.col("to_write") & ~pl.col("to_write_then")).sum(),
    )
    return changes.row(0, named=True)
