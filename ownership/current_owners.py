"""Who owns each host asset now: as the inventory listed it, with what runs wrote, undid and read since."""

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import polars_schema
from ownership.joined_ids import split_ids
from ownership.tables import CurrentOwners

_COPIED = ("department", "criticality")


def current_owners(hosts: pl.DataFrame, users: pl.DataFrame, writes: pl.LazyFrame) -> pl.DataFrame:
    """Return rows of `current_owners` for all of `hosts`, rows of `inventory_hosts`.

    `users` are rows of `inventory_users`, `writes` those of `owner_writes` of all runs of the instance.
    """
    listed = hosts.lazy().select("host_id", "owner_ids", *_COPIED, seen_at="listed_at")
    given = pl.col("wrote").is_not_null()
    ours = pl.col("owner_ids").list.contains(pl.col("wrote")).fill_null(value=False)
    last_seen = (
        pl.concat([listed, _seen_by_runs(writes).join(listed, on="host_id", how="semi")], how="diagonal")
        .sort("seen_at", maintain_order=True)
        .group_by("host_id")
        .agg(
            pl.last("owner_ids", *_COPIED),
            pl.col("wrote", "wrote_at", "run_id").filter(given).last(),
        )
    )
    owners = last_seen.select(
        "host_id",
        pl.col("owner_ids").list.filter(pl.element() != ""),
        *(pl.when(pl.col(name) != "").then(name) for name in _COPIED),
        source=pl.when(ours).then(pl.lit("asset-owners")).otherwise(pl.lit("inventory")),
        since=pl.when(ours).then("wrote_at"),
        run_id=pl.when(ours).then("run_id"),
    )
    names = hosts.lazy().select("host_id", hostname=pl.col("hostnames").list.first())
    emails = (
        owners.select("host_id", user_id="owner_ids")
        .explode("user_id")
        .join(users.lazy().select("user_id", "user_email"), on="user_id")
        .sort("user_id")
        .group_by("host_id")
        .agg(owner_emails=pl.col("user_email").explode().drop_nulls())
    )
    return (
        owners.join(names, on="host_id")
        .join(emails, on="host_id", how="left")
        .with_columns(pl.col("owner_emails").fill_null([]))
        .sort("hostname", "host_id", nulls_last=True)
        .select(polars_schema(CurrentOwners).names())
        .collect()
    )


def _seen_by_runs(writes: pl.LazyFrame) -> pl.LazyFrame:
    """What runs saw a host hold: after a write or an undo, or where they skipped it for its owner."""
    done = pl.col("outcome").is_in(SUCCESSES)
    held, sent = pl.col("old_values").struct, pl.when(done).then("new_values").struct
    wrote, before = sent.field("owner"), split_ids(held.field("owner"))
    values = (pl.coalesce(sent.field(name), held.field(name)) for name in _COPIED)
    met = (pl.col("outcome") == "owned_meanwhile") & held.field("owner").is_not_null()
    unchanged = (pl.col("outcome") == "not_written") & pl.col("kept").is_not_null()
    return writes.filter(done | met | unchanged).select(
        "host_id",
        *values,
        owner_ids=pl.when(wrote.is_not_null()).then(pl.concat_list(wrote)).otherwise(before.fill_null([])),
        seen_at="completed_at",
        wrote=wrote,
        wrote_at="completed_at",
        run_id="run_id",
    )
