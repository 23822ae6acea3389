"""Settings that would settle more hosts: each is tried by deciding again without the accounts or hosts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from rapidfuzz import fuzz, process

from ownership.decisions import with_action
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, logon_totals, primary_devices, primary_users
from ownership.kinds import Kinds
from ownership.matching import FIELDS
from ownership.names import is_stand_in, normalise_username, some_of
from ownership.rules import AccountKind, Rules, names_owner
from ownership.tables import ClosestUsers, Suggestions
from ownership.tuning.accuracy import Comparison

MAX_SPELLED = 500
"""User names that are compared letter by letter with all others: those first that are on most hosts."""
SPELLED_TOGETHER = 50
"""Of these: with 500,000 names to compare with, the similarities take 100 MB."""
MAX_USERS = 3
"""Most user assets that are proposed for a user name."""
MIN_ALIKE = 80
"""Least similarity of two names that is proposed (percent)."""

_PARTS = r"[^\p{L}\p{N}]+"
_NO_PEOPLE = ("computer", "built_in", "service")


def closest_users(accounts: pl.DataFrame, users: pl.DataFrame, matches: pl.DataFrame) -> pl.DataFrame:
    """Find user assets, not active under their own names, with names like those of users without one.

    Rows of `closest_users`, at most `MAX_USERS` for each username; sorted, the closest first.
    """
    users = users.join(matches.drop_nulls("user_id"), on="user_id", how="anti")
    unmatched = accounts.filter(
        pl.col("user_assets") == 0,
        ~pl.col("kind").is_in(_NO_PEOPLE),
        ~is_stand_in(pl.col("username")),
        ~pl.col("username").str.starts_with("s-1-"),  # SIDs of one directory differ in a number only
    ).sort("hosts", "username", descending=[True, False])
    known = (
        users.unpivot(["user_value", *FIELDS], index="user_id", value_name="name")
        .explode("name", empty_as_null=False)
        .select("user_id", normalise_username(pl.col("name")))
        .drop_nulls()
        .unique()
    )
    return (
        pl.concat([*_by_shape(unmatched.select("username"), known), *_by_spelling(unmatched, known)])
        .sort("username", "score", "user_id", descending=[False, True, False])
        .unique(["username", "user_id"], keep="first", maintain_order=True)
        .group_by("username", maintain_order=True)
        .head(MAX_USERS)
        .select(*polars_schema(ClosestUsers))
    )


def _by_shape(unmatched: pl.DataFrame, known: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Join names that are equal once a difference is removed; the reason names it."""
    ours, theirs = _shapes(pl.col("username")), _shapes(pl.col("name"))
    for reason, score, our_shape, their_shape in (
        ("Only numbers at the end differ.", 0.95, "without number", "without number"),
        ("Only dots, hyphens and the like differ.", 0.95, "joined", "joined"),
        ("The parts of the name stand in another order.", 0.9, "sorted", "sorted"),
        ("It may be the initial of the first name, and the surname.", 0.8, "joined", "initial, last"),
        ("It may be the surname, and the initial of the first name.", 0.8, "joined", "last, initial"),
        ("The user asset may have the initial of the first name only.", 0.8, "initial, last", "joined"),
    ):
        yield (
            unmatched.with_columns(key=ours[our_shape])
            .join(known.with_columns(key=theirs[their_shape]), on="key")
            .filter(pl.col("key").str.len_chars() > 2)
            .select("username", "user_id", score=pl.lit(score), reason=pl.lit(reason))
        )


def _shapes(name: pl.Expr) -> dict[str, pl.Expr]:
    parts = name.str.replace_all(_PARTS, " ").str.strip_chars().str.split(" ")
    first, last, several = parts.list.first().str.head(1), parts.list.last(), parts.list.len() > 1
    return {
        "without number": name.str.replace(r"[-_.]?\d+$", ""),
        "joined": name.str.replace_all(_PARTS, ""),
        "sorted": parts.list.sort().list.join(" "),
        "initial, last": pl.when(several).then(first + last),
        "last, initial": pl.when(several).then(last + first),
    }


def _by_spelling(unmatched: pl.DataFrame, known: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Compare names letter by letter: each of some with all, so some at a time."""
    for usernames in unmatched["username"].head(MAX_SPELLED).to_frame().iter_slices(SPELLED_TOGETHER):
        alike = process.cdist(
            usernames["username"].to_list(),
            known["name"].to_list(),
            scorer=fuzz.ratio,
            score_cutoff=MIN_ALIKE,
            workers=-1,
        )
        ours, theirs = alike.nonzero()
        yield pl.DataFrame(
            {
                "username": usernames["username"][ours],
                "user_id": known["user_id"][theirs],
                "score": (pl.Series(alike[ours, theirs], dtype=pl.Float64) / 100).round(3),
            }
        ).with_columns(reason=pl.lit("The names are spelled alike."))


NO_PEOPLE: tuple[AccountKind, ...] = ("service", "computer", "built_in", "administrator")
"""Kinds of accounts that are proposed for exclusion."""
UNOWNED_KINDS = ("kiosk", "server", "collector")
"""Kinds of hosts that are proposed for exclusion."""
MAX_TRIED = 100
"""Accounts that are tried one by one: those with most hosts first."""

_Tried = tuple[str, str, str, pl.DataFrame, pl.DataFrame]


def suggestions(evidence: Evidence, matches: pl.DataFrame, classes: Kinds, now: Comparison) -> pl.DataFrame:
    """Try to exclude accounts that are not a person's and hosts without a person, and keep what helps.

    `evidence` is that of the look-back window, `now` what it leads to under the present rules. Rows of
    `suggestions`, those that settle most first: only values with which more of the owners that somebody set
    are right, and no smaller part of them; or, where they touch none of these, that take no owner away.
    """
    by_hand = now.now.select("subject", "by_hand")
    present, rows = _outcomes(now.now.lazy(), evidence.rules), []
    for setting, value, reason, concerned, outcomes in _try_settings(evidence, matches, classes):
        then = pl.concat([present.join(concerned, on="subject", how="anti"), outcomes])
        both = present.join(then, on="subject", how="full", coalesce=True, suffix="_then")
        effect = _count_effect(both.join(by_hand, on="subject", how="left"))
        rows.append({"setting": setting, "value": value, "reason": reason} | effect)
    schema, settled = polars_schema(Suggestions), pl.sum_horizontal("hosts_resolved", "conflicts_removed")
    helping = pl.DataFrame(rows, schema | {"helps": pl.Boolean}).filter("helps").select(*schema)
    return helping.sort(settled, "setting", "value", descending=[True, False, False])


def _try_settings(evidence: Evidence, matches: pl.DataFrame, classes: Kinds) -> Iterator[_Tried]:
    """Return setting, value, reason, the hosts concerned and their outcomes: kinds, and single accounts."""
    # Excluding an account changes only hosts where it logged on, and no rank of other users' devices.
    logons, username = logon_totals(evidence), pl.col("username")
    devices = primary_devices(logons, evidence).collect().lazy()
    counted = logons.select(username.unique().cast(pl.String))
    accounts = classes.accounts.filter(pl.col("kind").is_in(NO_PEOPLE)).join(counted, on="username")
    accounts = accounts.sort("hosts", "username", descending=[True, False])
    unowned = classes.hosts.drop_nulls("hostname").sort("users", "hostname", descending=[True, False])

    def decide(hosts: pl.DataFrame, rules: Rules) -> pl.DataFrame:
        asked = matches.join(hosts, on="username", how="semi")
        return _outcomes(with_action(hosts.lazy(), asked, named=pl.lit(value=True)), rules)

    def exclude(names: Sequence[str], evidence: Evidence = evidence) -> tuple[pl.DataFrame, pl.DataFrame]:
        among = username.is_in(names)
        concerned = logons.filter(among).select(pl.col("subject").unique())
        there = replace(evidence, subjects=evidence.subjects.join(concerned, on="subject", how="semi"))
        others = logons.join(concerned, on="subject", how="semi").filter(~among)
        return concerned, decide(primary_users(there, others, devices), evidence.rules)

    for kind in NO_PEOPLE:
        members = accounts.filter(kind=kind)
        if members.height > 1:
            names = members["username"].to_list()
            skipped = pl.concat([evidence.skipped, evidence.days.filter(username.is_in(names))])
            rules = replace(evidence.rules, skip_account_kinds=(*evidence.rules.skip_account_kinds, kind))
            skipping = replace(evidence, skipped=skipped, rules=rules)
            reason = f"{len(names):,} accounts; account_profiles has their names"
            yield "rules.skip_account_kinds", kind, reason, *exclude(names, skipping)
    for kind in UNOWNED_KINDS:
        members = unowned.filter(kind=kind)
        if members.height > 1:
            left = evidence.subjects.join(members, on=("host_id", "hostname"), how="anti", nulls_equal=True)
            then = decide(primary_users(replace(evidence, subjects=left), logons), evidence.rules)
            hosts, names = evidence.subjects.select("subject"), members["hostname"].to_list()
            yield "rules.skip_host_kinds", kind, f"{len(names):,} hosts: {some_of(names)}", hosts, then
    for name, reasons in accounts.head(MAX_TRIED).select("username", "reasons").iter_rows():
        yield "rules.exclude_users", name, reasons[0], *exclude([name])


def _outcomes(decided: pl.LazyFrame, rules: Rules) -> pl.DataFrame:
    """Return what follows for each host that names somebody: subject, action."""
    named = decided.filter(names_owner(rules), pl.col("match") == "matched")
    return named.select("subject", "action").collect()


def _count_effect(hosts: pl.DataFrame) -> dict[str, Any]:
    """Count what becomes of hosts: columns of `suggestions`, and whether it helps.

    Hosts have action, action_then (null: no user named) and by_hand. It helps if more right than wrong
    owners that somebody set come, and no smaller part of them is right; or, where none of these changes, if
    an owner is found or a conflict ends, and no owner is lost.
    """
    before, after, by_hand = pl.col("action"), pl.col("action_then"), pl.col("by_hand")
    gained = before.is_null() & after.is_not_null()
    effect = hosts.select(
        precision=(after == "agree").filter(gained & by_hand).mean(),
        hosts_resolved=gained.sum(),
        conflicts_removed=((before == "conflict") & after.ne_missing("conflict")).sum(),
        owners_lost=((before == "write") & after.ne_missing("write")).sum(),
    ).row(0, named=True)
    compared = hosts.filter("by_hand").select("action", "action_then")
    right, wrong, right_then, wrong_then = (
        actions.to_list().count(action) for actions in compared for action in ("agree", "conflict")
    )
    if (right, wrong) == (right_then, wrong_then):
        helps = effect["owners_lost"] == 0 and effect["hosts_resolved"] + effect["conflicts_removed"] > 0
    else:
        helps = right_then - right > wrong_then - wrong and right_then * wrong >= right * wrong_then
    return effect | {"helps": helps}
