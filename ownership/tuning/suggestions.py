"""Settings that would settle more hosts: each tried by deciding again without the accounts or the hosts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from ownership.decisions import with_action
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, leaders
from ownership.kinds import Kinds
from ownership.rules import AccountKind, names_owner
from ownership.tables import Suggestions
from ownership.tuning.accuracy import Compared

NO_PEOPLE: tuple[AccountKind, ...] = ("service", "computer", "built_in", "administrator")
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
    `suggestions`, those that settle most first: only values with which more of the owners that somebody set
    are right, and no smaller part of them; or, where they touch none of these, that take no owner away.
    """
    known = now.now.select("subject", "by_hand")
    present = _outcomes(now.now.lazy(), evidence)
    rows, helping = [], []
    for setting, value, reason, counted in _tried(evidence, classes):
        decided = with_action(leaders(counted).lazy(), matches, named=pl.lit(value=True))
        then = _outcomes(decided, counted)
        effect = _effect(present, then, known)
        rows.append({"setting": setting, "value": value, "reason": reason} | effect)
        helping.append(_helps(present, then, known, owners_lost=effect["owners_lost"]))
    helps = pl.Series(helping, dtype=pl.Boolean)
    effects = ("hosts_resolved", "conflicts_removed", "owners_lost")
    return (
        pl.DataFrame(rows, schema=polars_schema(Suggestions))
        .filter(pl.any_horizontal(pl.col(effects) > 0), helps)
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

    def without(names: Sequence[str], kind: AccountKind | None = None) -> Evidence:
        among = username.cast(pl.String).is_in(names)
        left = replace(evidence, days=evidence.days.filter(~among))
        if kind is None:
            return left
        kinds = (*evidence.rules.skip_account_kinds, kind)
        skipped = pl.concat([evidence.skipped, evidence.days.filter(among)])
        return replace(left, skipped=skipped, rules=replace(evidence.rules, skip_account_kinds=kinds))

    for kind in NO_PEOPLE:
        members = accounts.filter(kind=kind)
        if members.height > 1:
            names = members["username"].to_list()
            yield "rules.skip_account_kinds", kind, _members(names, "accounts"), without(names, kind)
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


def _helps(now: pl.DataFrame, then: pl.DataFrame, known: pl.DataFrame, *, owners_lost: int) -> bool:
    """Whether it does by the owners that somebody set: more right than wrong ones come, and no worse a part.

    Where none of these is decided otherwise: whether no owner is lost.
    """
    by_hand = known.filter("by_hand")
    before, after = (frame.join(by_hand, on="subject", how="semi")["action"] for frame in (now, then))
    right, wrong, right_then, wrong_then = (
        actions.to_list().count(action) for actions in (before, after) for action in ("agree", "conflict")
    )
    if (right, wrong) == (right_then, wrong_then):
        return owners_lost == 0
    return right_then - right > wrong_then - wrong and right_then * wrong >= right * wrong_then


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
