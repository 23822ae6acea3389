"""Settings that would settle more hosts: each tried by deciding again without the accounts or the hosts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from ownership.decisions import with_action
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, leaders
from ownership.kinds import Kinds
from ownership.rules import names_owner
from ownership.tables import Suggestions
from ownership.tuning.accuracy import Compared

NO_PEOPLE = ("service", "computer", "built_in", "administrator")
"""Kinds of accounts that are proposed to be left out."""

NOBODYS = ("kiosk", "server", "collector")
"""Kinds of hosts that are proposed to be left out."""

MAX_TRIED = 100
"""Accounts that are tried one by one: those with most hosts first."""

MAX_NAMED = 5
"""Accounts, or hosts, of a kind that are named."""

_Tried = tuple[str, str, str, Evidence]


def suggestions(evidence: Evidence, matches: pl.DataFrame, classes: Kinds, now: Compared) -> pl.DataFrame:
    """Try to leave out accounts that are no person's and hosts that are nobody's, and keep what helps.

    `evidence` is that of the look-back window, `now` what it leads to under the present rules. Rows of
    `suggestions`, those that settle most first: only values that change a decision.
    """
    known = now.now.select("subject", "by_hand")
    present = _outcomes(now.now.lazy(), evidence)
    rows = []
    for setting, value, reason, counted in _tried(evidence, classes):
        decided = with_action(leaders(counted).lazy(), matches, named=pl.lit(value=True))
        effect = _effect(present, _outcomes(decided, counted), known)
        rows.append({"setting": setting, "value": value, "reason": reason} | effect)
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


def _tried(evidence: Evidence, classes: Kinds) -> Iterator[_Tried]:
    """Setting, value, reason and what is then counted: kinds of several members, and accounts one by one."""
    username = pl.col("username")
    counted = evidence.days.select(username.cast(pl.String).unique()).collect()
    accounts = classes.accounts.filter(pl.col("kind").is_in(NO_PEOPLE)).join(counted, on="username")
    accounts = accounts.sort("hosts", "username", descending=[True, False])
    nobodys = classes.hosts.filter(pl.col("kind").is_in(NOBODYS), pl.col("hostname").is_not_null())

    def without(names: Sequence[str]) -> Evidence:
        return replace(evidence, days=evidence.days.filter(~username.cast(pl.String).is_in(names)))

    for (kind,), members in accounts.group_by("kind", maintain_order=True):
        if members.height > 1:
            names = members["username"].to_list()
            yield "rules.skip_account_kinds", str(kind), _members(names, "accounts"), without(names)
    for (kind,), members in nobodys.sort("users", "hostname", descending=[True, False]).group_by(
        "kind", maintain_order=True
    ):
        if members.height > 1:
            left = evidence.subjects.join(members, on=("host_id", "hostname"), how="anti", nulls_equal=True)
            names = members["hostname"].to_list()
            yield (
                "rules.skip_host_kinds",
                str(kind),
                _members(names, "hosts"),
                replace(evidence, subjects=left),
            )
    for name, reasons in accounts.head(MAX_TRIED).select("username", "reasons").iter_rows():
        yield "rules.exclude_users", name, reasons[0], without([name])


def _members(names: Sequence[str], noun: str) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{len(names):,} {noun}: {', '.join(names[:MAX_NAMED])}{more}"


def _outcomes(decided: pl.LazyFrame, evidence: Evidence) -> pl.DataFrame:
    """What follows for each host that somebody is named for: subject, action."""
    named = decided.filter(names_owner(evidence.rules), pl.col("match") == "matched")
    return named.select("subject", "action").collect()


def _effect(now: pl.DataFrame, then: pl.DataFrame, known: pl.DataFrame) -> dict[str, Any]:
    """Count what becomes of the hosts, and how many of those that get an owner have it from a person."""
    both = now.join(then, on="subject", how="full", coalesce=True, suffix="_then")
    before, after = pl.col("action"), pl.col("action_then")
    gained = before.is_null() & after.is_not_null()
    compared = both.filter(gained).join(known.filter("by_hand"), on="subject", how="semi")
    return {
        "precision": (compared["action_then"] == "agree").mean(),
        **both.select(
            hosts_resolved=gained.sum(),
            conflicts_removed=((before == "conflict") & after.ne_missing("conflict")).sum(),
            owners_lost=((before == "write") & after.ne_missing("write")).sum(),
        ).row(0, named=True),
    }
