"""What would be written or put back: one row for each host.

Writing itself, and reading the host once more before, is done elsewhere.
"""

from collections.abc import Collection
from datetime import datetime

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import empty
from ownership.tables import OwnerWrites


def plan_writes(
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    enrich: bool,
    takes: Collection[str],
    run_id: str,
    target: str,
    intended_at: datetime,
) -> pl.DataFrame:
    """Plan the writes of new owners (rules 2.2, 2.5, 2.6): rows of `owner_writes`, `planned`.

    With `enrich` the department and criticality of the owner, where not empty, are written as well, as far as
    the inventory `takes` them. A null in `new_values` is not sent.
    """
    copied = {"department": _copied("user_department"), "criticality": _copied("criticality")}
    owners = users.lazy().select(
        resolved_owner="user_id",
        **{
            f"new_{field}": value if enrich and field in takes else pl.lit(None, pl.String)
            for field, value in copied.items()
        },
    )
    planned = (
        decisions.lazy()
        .filter(action="write")
        .join(hosts.lazy().select("host_id", "department", "criticality"), on="host_id", how="left")
        .join(owners, on="resolved_owner", how="left")
        .sort("hostname", "host_id")
        .select(
            "host_id",
            "hostname",
            outcome=pl.lit("planned"),
            old_values=pl.struct(pl.lit(None, pl.String).alias("owner"), "department", "criticality"),
            new_values=pl.struct(
                owner="resolved_owner", department="new_department", criticality="new_criticality"
            ),
        )
    )
    return _rows(planned.collect(), run_id=run_id, target=target, intended_at=intended_at)


def plan_undo(
    writes: pl.DataFrame, history: pl.DataFrame, *, run_id: str, target: str, intended_at: datetime
) -> pl.DataFrame:
    """Plan to put back what a run wrote: its new values become the old ones, and the other way round.

    A run is undone once: a host that was put back since, or written by a later run, as far as is known, is
    left alone: `not_written` with the reason. `history` has the rows of all runs on the same inventory. In
    `new_values` an empty text clears the field, and null stands for a field that was not written.
    """

    def put_back(field: str) -> pl.Expr:
        written = pl.col("new_values").struct.field(field)
        before = pl.col("old_values").struct.field(field)
        return pl.when(written.is_not_null()).then(before.fill_null("")).alias(field)

    changes = history.filter(pl.col("outcome").is_in([*SUCCESSES, "intended"])).sort(
        pl.coalesce("completed_at", "intended_at")
    )
    last_change = changes.group_by("host_id").agg(last_run=pl.last("run_id"), last_outcome=pl.last("outcome"))
    # By the clocks the write itself may be the last change although it was put back.
    undone = changes.filter(outcome="undone").group_by("host_id", "undoes").agg(put_back_by=pl.last("run_id"))
    changed_since = pl.col("last_run") != pl.col("run_id")
    written_again = changed_since & (pl.col("last_outcome") != "undone")
    overtaken = pl.col("overtaken_by").is_not_null()
    planned = (
        writes.filter(outcome="written")
        .select("host_id", "hostname", "run_id", "old_values", "new_values", undoes="run_id")
        .join(last_change, on="host_id", how="left", maintain_order="left")
        .join(undone, on=["host_id", "undoes"], how="left", maintain_order="left")
        .with_columns(
            overtaken_by=pl.when(changed_since).then("last_run").otherwise("put_back_by"),
            what=pl.when(written_again).then(pl.lit("written again")).otherwise(pl.lit("put back")),
        )
        .select(
            "host_id",
            "hostname",
            "undoes",
            outcome=pl.when(overtaken).then(pl.lit("not_written")).otherwise(pl.lit("planned")),
            old_values="new_values",
            new_values=pl.struct(put_back(field) for field in ("owner", "department", "criticality")),
            message=pl.format("left alone: {} since, by run {}", "what", "overtaken_by"),
            completed_at=pl.when(overtaken).then(pl.lit(intended_at, pl.Datetime("us", "UTC"))),
        )
    )
    return _rows(planned, run_id=run_id, target=target, intended_at=intended_at)


def _rows(planned: pl.DataFrame, **of_all: str | datetime) -> pl.DataFrame:
    """Rows of `owner_writes`, with values that all of them have; what is not planned is null."""
    rows = planned.with_columns(pl.lit(value).alias(name) for name, value in of_all.items())
    return pl.concat([empty(OwnerWrites), rows], how="diagonal")


def _copied(field: str) -> pl.Expr:
    """A value to copy; empty ones are not (rules 2.6)."""
    return pl.when(pl.col(field).str.strip_chars() != "").then(field)
