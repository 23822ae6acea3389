"""Owners whom the evidence no longer supports: reported, never written."""

from datetime import timedelta

import polars as pl

from ownership.declaration import polars_schema
from ownership.evidence import Evidence
from ownership.tables import OwnershipDrift
from ownership.windows import Window

SILENT_DAYS = 30
"""Days without a logon anywhere after which an owner is taken to have left."""


def ownership_drift(
    evidence: Evidence,
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    runs: pl.DataFrame,
    *,
    window: Window,
) -> pl.DataFrame:
    """Find the owners who do not lead the logons of their hosts any more, and say why.

    An owner has `left` where no user asset has that id any more, or none of the owner's user names logged on
    anywhere in the last `SILENT_DAYS` days that are stored; has `moved` where the logons name somebody else;
    is `unsupported` where they name nobody and the owner did not log on to the host in the window.

    Args:
        evidence: What was counted, on all stored days.
        decisions: Rows of `owner_decisions`.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        runs: Rows of `runs`.
        window: The look-back window of the decisions.

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
    anywhere = logons.group_by(owner="resolved_owner").agg(last_anywhere=pl.max("last"))
    silent_since = window.last - timedelta(days=SILENT_DAYS - 1)
    known = users.lazy().select(owner="user_id", known=pl.lit(value=True))
    silent = pl.col("last_anywhere").fill_null(silent_since - timedelta(days=1)) < silent_since
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
        .join(anywhere, on="owner", how="left")
        .join(known, on="owner", how="left")
        .with_columns(
            reason=pl.when(pl.col("known").is_null() | silent)
            .then(pl.lit("left"))
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
