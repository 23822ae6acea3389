"""Finds the user assets that a user name may stand for."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from ownership.declaration import polars_schema
from ownership.names import host_arguments, is_stand_in, normalise_username, printable
from ownership.rules import Rules, excluding_field
from ownership.tables import UnmatchedUsers, UsernameMatches

ACCOUNT_FIELDS = ("user_email", "directory_user_sam_account_name")
"""The fields that hold account names, which are compared together (rules 2.1)."""
SURNAME = "directory_user_surname"
"""Compared where no account name fits."""
FIELDS = (*ACCOUNT_FIELDS, SURNAME)
"""The fields that are always compared."""


@dataclass(frozen=True)
class FieldNames:
    """The instance's names for fields of the inventory, as advice must call them.

    `decisive` is the user value field if the instance file names it: then it is compared first.
    """

    user_value: str = "user_email"
    decisive: str | None = None
    owner: str = "asset_owner"
    hostname: str = "search_agent_name"

    @property
    def asked(self) -> tuple[str, ...]:
        """Fields of user assets in the order in which they are compared (rules 2.1)."""
        return tuple(dict.fromkeys((self.user_value, *FIELDS)))

    @property
    def turns(self) -> tuple[tuple[str, ...], ...]:
        """The same in turns: what is compared together, once no earlier turn knows the name (rules 2.1)."""
        further = [[name for name in turn if name != self.decisive] for turn in (ACCOUNT_FIELDS, (SURNAME,))]
        return tuple(map(tuple, filter(None, [[self.decisive] if self.decisive else [], *further])))


class Present(NamedTuple):
    """What advice depends on: an instance's rules, field names, commands, keep.history_days and the time."""

    rules: Rules
    fields: FieldNames
    undo: str
    conflicts: str
    history_days: int
    now: datetime

    def acknowledge(self, host_id: str, *, undo: bool = False) -> str:
        """Return the command that acknowledges the conflict of a host, or ends that."""
        of_host = shlex.join(host_arguments("--undo" if undo else "--acknowledge", [printable(host_id)]))
        return f"{self.conflicts} {of_host}" + ("" if undo else " --note 'why'")

    def undo_as_wrong(self, host: Mapping[str, Any]) -> str | None:
        """Return the command that undoes what asset-owners wrote to a host; None: it is not the owner.

        `host` has the columns `host_id, owner_ids, source, wrote_in` of `reports.story.hosts_by_now`.
        """
        if not host["owner_ids"] or host["source"] != "asset-owners":
            return None
        of_host = host_arguments("--host", [printable(host["host_id"])])
        return f"{self.undo} {shlex.join([host['wrote_in'][:8], *of_host, '--wrong'])}"


def candidates(matches: pl.LazyFrame) -> pl.LazyFrame:
    """Gather the user assets that each user name may stand for (rules 2.1).

    username, matched_by, candidate_ids (sorted), resolved_owner (the one, if there is one and it can be
    read), user_excluded_by (what excludes the user assets that have the name).
    """
    decisive, readable, ids = pl.col("decisive"), pl.col("problem").is_null(), pl.col("candidate_ids")
    fields = (pl.col("matched_by").filter(some).first() for some in (decisive & readable, decisive))
    one = (ids.list.len() == 1) & pl.col("all_readable")
    return (
        matches.group_by("username")
        .agg(
            pl.coalesce(fields),
            candidate_ids=pl.col("user_id").filter(decisive).sort(),
            all_readable=readable.filter(decisive).all(),
            user_excluded_by=pl.min("excluded_by"),
        )
        .with_columns(resolved_owner=pl.when(one).then(ids.list.first()))
        .drop("all_readable")
    )


def owner_by_account(matches: pl.LazyFrame) -> pl.LazyFrame:
    """Return the names that stand for one user asset, with it: username, resolved_owner."""
    return candidates(matches).select("username", "resolved_owner").drop_nulls()


def all_accounts(named: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """Return rows of subject and username, and these with each other account of the same person.

    Of rows of `owner_by_account`: a person who changes account stays the same (rules 1.13, 9.2).
    """
    username = pl.col("username").cast(named.schema["username"], strict=False)
    several = owners.select(username, "resolved_owner").filter(pl.len().over("resolved_owner") > 1)
    others = named.join(several, on="username").drop("username").join(several, on="resolved_owner")
    return pl.concat([named, others.select(named.columns)]).unique()


def username_matches(
    shares: pl.DataFrame, users: pl.DataFrame, *, user_value_field: str | None, rules: Rules
) -> pl.DataFrame:
    """Look every user name of `shares` up in the user assets (rules 2.1, 2.7): rows of `username_matches`.

    The user value field, if the instance file names it, is first, then the account fields together, then
    the surname; the first that know the name decide, and what later ones say is kept beside it. A user asset
    that cannot be read whole matches no user: whatever field of it knows the name, the name is ambiguous. An
    excluded one keeps its names and is not matched: the surname of another is not compared instead.
    """
    turns = FieldNames(decisive=user_value_field).turns
    known = pl.concat(
        users.lazy()
        .with_columns(excluded_by=excluding_field("exclude_user_assets", rules.exclude_user_assets))
        .select(
            *("user_id", "problem", "excluded_by"),
            username="user_value" if field == user_value_field else field,
        )
        .explode("username")
        .with_columns(normalise_username(pl.col("username")), matched_by=pl.lit(field), order=pl.lit(turn))
        for turn, fields in enumerate(turns)
        for field in fields
    )
    # A candidate whom several fields know is found by the first of them.
    known = known.unique(["username", "user_id"], keep="first", maintain_order=True)
    excluded = pl.col("excluded_by").is_not_null()
    certain = pl.col("problem").is_null() | excluded
    first = pl.when(certain).then("order").min().over("username")
    decides = (pl.col("order").eq(first) | ~certain).fill_null(value=False)
    return (
        shares["username"]
        .unique()
        .to_frame()
        .lazy()
        .join(known, on="username", how="left")
        .with_columns(decisive=decides & ~excluded, excluded_by=pl.when(decides).then("excluded_by"))
        .sort("username", "order", "user_id")
        .select(*polars_schema(UsernameMatches))
        .collect(engine="streaming")
    )


def people_by_account(users: pl.DataFrame, *, user_value_field: str | None, rules: Rules) -> pl.DataFrame:
    """Return the names that stand for one user asset, but for surnames: username, user_id (rules 1.3)."""
    columns = ("user_value", *ACCOUNT_FIELDS)
    names = pl.concat(users.select(username=normalise_username(pl.col(name).explode())) for name in columns)
    matches = username_matches(names, users, user_value_field=user_value_field, rules=rules)
    found = candidates(matches.lazy()).filter(pl.col("matched_by") != SURNAME)
    return found.select("username", user_id="resolved_owner").drop_nulls().collect()


def unmatched_users(shares: pl.DataFrame, matches: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `unmatched_users`, those for whom most hosts wait first.

    The arguments are rows of `host_user_shares`, `username_matches` and `owner_decisions` of one run.
    """
    seen = shares.group_by("username").agg(
        pl.sum("events"), pl.min("first_seen"), pl.max("last_seen"), hosts=pl.len()
    )
    waits = pl.col("host_id").is_not_null() & pl.col("existing_owner").is_null()
    named = decisions.drop_nulls("match").group_by("username")
    return (
        seen.join(candidates(matches.lazy()).collect(), on="username")
        .filter(pl.col("resolved_owner").is_null(), ~is_stand_in(pl.col("username")))
        .filter((pl.col("candidate_ids").list.len() > 0) | pl.col("user_excluded_by").is_null())
        .join(named.agg(hosts_named=pl.len(), hosts_waiting=waits.sum()), on="username", how="left")
        .with_columns(pl.col("hosts_named", "hosts_waiting").fill_null(0))
        .with_columns(user_assets=pl.col("candidate_ids").list.len())
        .select(pl.col(name).cast(kind) for name, kind in polars_schema(UnmatchedUsers).items())
        .sort("hosts_waiting", "hosts_named", "events", "username", descending=[True, True, True, False])
    )
