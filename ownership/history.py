"""Decisions over time: a row only where a decision differs from the previous one."""

from collections.abc import Collection
from datetime import datetime

import polars as pl

from ownership.codes import GONE, SUCCESSES
from ownership.declaration import polars_schema
from ownership.names import is_stand_in, join_ids, normalise_hostname, split_ids
from ownership.rules import NAMING
from ownership.tables import CurrentOwners

_COPIED = ("department", "criticality")


def current_owners(hosts: pl.DataFrame, users: pl.DataFrame, writes: pl.LazyFrame) -> pl.DataFrame:
    """Return rows of `current_owners` for all of `hosts`, rows of `inventory_hosts`.

    `users` are rows of `inventory_users`, `writes` those of `owner_writes` of all runs of the instance.
    """
    listed = hosts.lazy().select("host_id", "owner_ids", *_COPIED, seen_at="listed_at")
    given = pl.col("wrote").is_not_null()
    # What was written for somebody who was forgotten cannot be undone any more.
    is_known = pl.col("owner_ids").list.contains(pl.col("wrote")) & ~is_stand_in(pl.col("wrote"))
    ours = is_known.fill_null(value=False)
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
    names = hosts.lazy().select("host_id", hostname=normalise_hostname(pl.col("hostnames").list.first()))
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
    """Return what runs saw on a host: after a write or an undo, or when they skipped it for its owner."""
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


# A host asset is known by its id, whatever its name; a name that no asset has, by itself.
_WITHOUT_ASSET = pl.when(pl.col("host_id").is_null()).then("hostname")
_HOST = ("host_id", _WITHOUT_ASSET)

# What a reader would call another decision. Counts and shares move every day, and so does who comes first
# where no user is named; neither changes what is known about the owner.
_DECISION = (
    *("hostname", "host_id", "evidence", "problem", "match", "action", "resolved_owner", "existing_owner"),
    pl.when(pl.col("evidence").is_in(NAMING)).then("username"),
    join_ids(pl.col("candidate_ids")),
    pl.col("total_events") > 0,
)

_CONFLICT = ("host_id", "resolved_owner")
"""Whose conflict it is."""
ACKNOWLEDGED = ("host_id", "existing_owner", "resolved_owner", "evidence")
"""What must be as it was then, so that an acknowledged conflict stays acknowledged."""


def latest(history: pl.LazyFrame) -> pl.DataFrame:
    """Return the state that a history ends with: the last row of each host that is not gone."""
    rows = history.with_row_index("row")
    last = rows.group_by("host_id", without_asset=_WITHOUT_ASSET).agg(pl.col("row").max_by("decided_at"))
    return (
        rows.join(last, on="row", how="semi")
        .filter(pl.col("action") != GONE)
        .drop("row")
        .collect(engine="streaming")
    )


def last_writes(
    hosts: pl.DataFrame, writes: pl.LazyFrame, outcomes: Collection[str] = SUCCESSES
) -> pl.LazyFrame:
    """Return each host's last row of `owner_writes` with one of these outcomes, and the owners listed since.

    `hosts` are rows of `inventory_hosts`: owner_ids is theirs, and `holds` says whether it is just the owner
    written (null: it cannot be read, or was somebody's who was forgotten).
    """
    # A write or an undo after the inventory was listed says nothing of the owners in that list.
    listed, owner = pl.col("owner_ids"), pl.col("new_values").struct.field("owner")
    return (
        writes.filter(pl.col("outcome").is_in(outcomes))
        .join(hosts.lazy().select("host_id", "owner_ids", "listed_at"), on="host_id")
        .filter(pl.col("completed_at") <= pl.col("listed_at"))
        .sort("completed_at")
        .unique("host_id", keep="last")
        .with_columns(
            holds=pl.when(~is_stand_in(owner)).then((listed.list.len() == 1) & (listed.list.first() == owner))
        )
        .drop("listed_at")
    )


def with_new_conflicts(
    decisions: pl.DataFrame, before: pl.DataFrame, acknowledged: pl.DataFrame
) -> pl.DataFrame:
    """Mark the conflicts that earlier decisions did not have: another host, or another person named for it.

    `before` is what `latest` gives of the decisions published last. An acknowledged conflict is new only once
    its evidence code or one of its owners has changed.
    """
    known = open_conflicts(before, acknowledged)
    new = open_conflicts(decisions, acknowledged).join(known, on=_CONFLICT, how="anti")
    return decisions.with_columns(
        new_conflict=pl.col("host_id").is_in(new["host_id"].implode()).fill_null(value=False)
    )


def open_conflicts(decisions: pl.DataFrame, acknowledged: pl.DataFrame) -> pl.DataFrame:
    """Return the unacknowledged conflicts, with this evidence code and these owners."""
    return decisions.filter(action="conflict").join(acknowledged, on=ACKNOWLEDGED, how="anti")


def with_conflict_since(decisions: pl.DataFrame, *earlier: pl.DataFrame) -> pl.DataFrame:
    """Say since when each conflict has been there, by its evidence or the first run in a row to find it.

    The earliest of them counts. `earlier` are decisions of earlier runs, each of which says the same of its
    own conflicts.
    """
    found = pl.concat(
        rows.filter(action="conflict").select(*_CONFLICT, found=pl.coalesce("conflict_since", "decided_at"))
        for rows in earlier
    )
    first = found.group_by(_CONFLICT).agg(pl.min("found"))
    since = pl.when(action="conflict").then(pl.min_horizontal("found", "conflict_since", "decided_at"))
    return (
        decisions.join(first, on=_CONFLICT, how="left", maintain_order="left")
        .with_columns(conflict_since=since)
        .drop("found")
    )


def changed_decisions(
    before: pl.DataFrame, decisions: pl.DataFrame, *, decided_at: datetime, run_id: str
) -> pl.DataFrame:
    """Find the decisions that differ from the previous ones, which `latest` gives.

    `_DECISION` says what makes another decision. For a host without a decision any more the last row comes
    again, with the action `gone`.
    """
    now, then = decisions.lazy(), before.lazy()
    changed = now.join(then, on=_DECISION, how="anti", nulls_equal=True)
    gone = then.join(now, on=_HOST, how="anti", nulls_equal=True).with_columns(
        action=pl.lit(GONE), decided_at=pl.lit(decided_at, pl.Datetime("us", "UTC")), run_id=pl.lit(run_id)
    )
    return pl.concat([changed, gone]).sort("hostname", "host_id", nulls_last=True).collect(engine="streaming")
