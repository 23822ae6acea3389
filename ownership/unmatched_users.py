"""User names of the logons that do not stand for exactly one user asset, and the hosts that wait for them."""

import polars as pl

from ownership.declaration import polars_schema
from ownership.names import is_stand_in
from ownership.tables import UnmatchedUsers


def unmatched_users(shares: pl.DataFrame, matches: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `unmatched_users`, those for whom most hosts wait first.

    The arguments are rows of `host_user_shares`, `username_matches` and `owner_decisions` of one run.
    """
    candidates = matches.group_by("username").agg(
        user_assets=pl.col("decisive").sum(),
        candidate_ids=pl.col("user_id").filter("decisive").sort(),
        readable=pl.col("problem").is_null().all(),
    )
    seen = shares.group_by("username").agg(
        pl.sum("events"), pl.min("first_seen"), pl.max("last_seen"), hosts=pl.len()
    )
    waits = pl.col("host_id").is_not_null() & pl.col("existing_owner").is_null()
    named = decisions.drop_nulls("match").group_by("username")
    return (
        candidates.filter((pl.col("user_assets") != 1) | ~pl.col("readable"))
        .filter(~is_stand_in(pl.col("username")))
        .join(seen, on="username")
        .join(named.agg(hosts_named=pl.len(), hosts_waiting=waits.sum()), on="username", how="left")
        .with_columns(pl.col("hosts_named", "hosts_waiting").fill_null(0))
        .select(pl.col(name).cast(kind) for name, kind in polars_schema(UnmatchedUsers).items())
        .sort("hosts_waiting", "hosts_named", "events", "username", descending=[True, True, True, False])
    )
