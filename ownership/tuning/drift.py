"""Owners that the evidence no longer supports: reported, never written."""

from dataclasses import replace
from datetime import timedelta

import polars as pl

from ownership.declaration import polars_schema
from ownership.evidence import Evidence
from ownership.matching import candidates, username_matches
from ownership.rules import Rules, first_that_holds
from ownership.shares import normalised_names
from ownership.tables import OwnershipDrift
from ownership.windows import Window


def last_logons(
    counts: pl.LazyFrame, users: pl.DataFrame, *, rules: Rules, user_value_field: str | None
) -> pl.DataFrame:
    """Find the last day on which each user asset may have logged on to any host: owner, last_anywhere.

    Excluded names count, and so do names that fit several user assets: somebody who uses them has not left.
    Accounts that stand for nobody, such as a host's own, do not (rules 1.3).
    """
    days = counts.group_by("document_hostname", "document_username").agg(last=pl.max("day"))
    days = days.collect(engine="streaming").lazy()
    names = normalised_names(days, rules=replace(rules, exclude_users=()))
    named = (
        names.add_to(days)
        .group_by(username=pl.col("account").cast(pl.String))
        .agg(pl.max("last"))
        .collect(engine="streaming")
    )
    usernames = named.select("username")
    return (
        named.join(
            username_matches(usernames, users, user_value_field=user_value_field, rules=rules), on="username"
        )
        .drop_nulls("user_id")
        .group_by(owner="user_id")
        .agg(last_anywhere=pl.max("last"))
    )


def ownership_drift(
    evidence: Evidence,
    matches: pl.DataFrame,
    last_anywhere: pl.DataFrame,
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    window: Window,
    stored_days: int,
) -> pl.DataFrame:
    """Find the owners who are not primary users of their hosts any more, and the first reason that applies.

    Rows of `ownership_drift`; a host with several owners has a row for each, unless the logons name one of
    them.
    """
    on_host = (
        evidence.days.group_by("subject", "username")
        .agg(last=pl.max("day"))
        .with_columns(pl.col("username").cast(pl.String))
        .join(candidates(matches.lazy()), on="username")
        .join(evidence.subjects.lazy().select("subject", "host_id").drop_nulls(), on="subject")
        .group_by("host_id", owner="resolved_owner")
        .agg(last_here=pl.max("last"))
    )
    since = pl.col("last_here") + pl.duration(days=1)
    reasons = (
        ("gone", ~pl.col("owner").is_in(users["user_id"].implode())),
        ("never_seen", pl.col("last_anywhere").is_null()),
        ("left", (pl.col("last_anywhere") < window.first) & (stored_days >= window.days)),
        ("moved", pl.col("action") == "conflict"),
        ("unsupported", pl.col("last_here").fill_null(window.first - timedelta(days=1)) < window.first),
    )
    return (
        decisions.lazy()
        .filter(pl.col("host_id").is_not_null(), pl.col("problem").is_null(), pl.col("action") != "agree")
        .select("host_id", "hostname", "action", leader="username")
        .join(hosts.lazy().select("host_id", owner="owner_ids"), on="host_id")
        .explode("owner", empty_as_null=False)
        .drop_nulls("owner")
        .join(on_host, on=("host_id", "owner"), how="left")
        .join(last_anywhere.lazy(), on="owner", how="left")
        .with_columns(
            reason=first_that_holds(reasons),
            since=since,
            days=(pl.lit(window.last) - since).dt.total_days() + 1,
        )
        .drop_nulls("reason")
        .select(*polars_schema(OwnershipDrift))
        .sort("hostname", "host_id", "owner", nulls_last=True)
        .collect(engine="streaming")
    )
