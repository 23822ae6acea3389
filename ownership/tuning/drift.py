"""Owners whom the evidence no longer supports: reported, never written."""

from datetime import timedelta

import polars as pl

from ownership.declaration import polars_schema
from ownership.evidence import Evidence
from ownership.matching import username_matches
from ownership.names import normalise_username
from ownership.tables import OwnershipDrift
from ownership.windows import Window


def last_logons(counts: pl.LazyFrame, users: pl.DataFrame, *, user_value_field: str) -> pl.DataFrame:
    """Find the last day on which each user asset may have logged on to any host.

    Excluded names count, and so do names that fit several user assets: somebody who uses them has not left.

    Args:
        counts: Rows of `logon_counts`.
        users: Rows of `inventory_users`.
        user_value_field: Name of the field that `user_value` of the users holds.

    Returns:
        owner, last_anywhere.
    """
    days = counts.group_by("document_username").agg(last=pl.max("day")).collect(engine="streaming")
    named = days.with_columns(username=normalise_username(pl.col("document_username"))).drop_nulls()
    usernames = named.select("username").unique()
    return (
        named.join(username_matches(usernames, users, user_value_field=user_value_field), on="username")
        .drop_nulls("user_id")
        .group_by(owner="user_id")
        .agg(last_anywhere=pl.max("last"))
    )


def ownership_drift(
    evidence: Evidence,
    last_anywhere: pl.DataFrame,
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    runs: pl.DataFrame,
    *,
    window: Window,
    stored_days: int,
) -> pl.DataFrame:
    """Find the owners who do not lead the logons of their hosts any more, and say why.

    The first that applies: an owner has `left` who is no user asset any more, or was seen before the window
    and nowhere in it, if each day of it is stored; was `never_seen` where no logon on any host is stored;
    has `moved` where the logons name somebody else; is `unsupported` where they name nobody and no logon of
    the owner on the host is stored in the window.

    Args:
        evidence: What was counted, on the days that tuning tries.
        last_anywhere: What `last_logons` finds on all stored days.
        decisions: Rows of `owner_decisions`.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        runs: Rows of `runs`.
        window: The look-back window of the decisions.
        stored_days: Days that are stored without a gap, up to the last one of the window.

    Returns:
        Rows of `ownership_drift`, sorted by hostname, host_id and owner. A host with several owners has a row
        for each, unless one of them is whom the logons name.
    """
    logons = (
        evidence.days.lazy()
        .group_by("subject", "user")
        .agg(last=pl.max("day"))
        .join(evidence.users.lazy().drop_nulls("resolved_owner"), on="user")
    )
    subjects = evidence.subjects.lazy().select("subject", "host_id").drop_nulls()
    on_host = (
        logons.join(subjects, on="subject")
        .group_by("host_id", owner="resolved_owner")
        .agg(last_here=pl.max("last"))
    )
    known = users.lazy().select(owner="user_id", known=pl.lit(value=True))
    silent = (pl.col("last_anywhere") < window.first) & (stored_days >= window.days)
    absent = pl.col("last_here").fill_null(window.first - timedelta(days=1)) < window.first
    since = pl.col("last_here") + pl.duration(days=1)
    ends = runs.filter(pl.col("kind").is_in(["run", "dry_run"]), status="succeeded")["window_to"].sort()
    runs_before = pl.lit(ends).search_sorted(since, side="left").cast(pl.Int64)
    return (
        decisions.lazy()
        .filter(pl.col("host_id").is_not_null(), pl.col("problem").is_null(), pl.col("action") != "agree")
        .select("host_id", "hostname", "action", leader="username")
        .join(hosts.lazy().select("host_id", owner="owner_ids"), on="host_id")
        .explode("owner", empty_as_null=False)
        .drop_nulls("owner")
        .join(on_host, on=("host_id", "owner"), how="left")
        .join(last_anywhere.lazy(), on="owner", how="left")
        .join(known, on="owner", how="left")
        .with_columns(
            reason=pl.when(pl.col("known").is_null() | silent)
            .then(pl.lit("left"))
            .when(pl.col("last_anywhere").is_null())
            .then(pl.lit("never_seen"))
            .when(action="conflict")
            .then(pl.lit("moved"))
            .when(absent)
            .then(pl.lit("unsupported")),
            since=since,
            days=(pl.lit(window.last) - since).dt.total_days() + 1,
            runs=pl.when(since.is_not_null()).then(ends.len() - runs_before),
        )
        .drop_nulls("reason")
        .select(*polars_schema(OwnershipDrift))
        .sort("hostname", "host_id", "owner", nulls_last=True)
        .collect()
    )
