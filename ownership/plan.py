"""What would be written or put back: one row for each host, and whether it is too much for one run.

Writing itself, and reading the host once more before, is done elsewhere.
"""

from collections.abc import Collection
from datetime import datetime

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import polars_schema
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
        owner="user_id",
        **{
            f"new_{field}": value if enrich and field in takes else pl.lit(None, pl.String)
            for field, value in copied.items()
        },
    )
    return (
        decisions.lazy()
        .filter(pl.col("action") == "write")
        .select("host_id", "hostname", owner="resolved_owner")
        .join(hosts.lazy().select("host_id", "department", "criticality"), on="host_id", how="left")
        .join(owners, on="owner", how="left")
        .sort("hostname", "host_id")
        .select(
            "host_id",
            "hostname",
            run_id=pl.lit(run_id),
            outcome=pl.lit("planned"),
            old_values=pl.struct(pl.lit(None, pl.String).alias("owner"), "department", "criticality"),
            new_values=pl.struct("owner", department="new_department", criticality="new_criticality"),
            message=pl.lit(None, pl.String),
            intended_at=pl.lit(intended_at, pl.Datetime("us", "UTC")),
            completed_at=pl.lit(None, pl.Datetime("us", "UTC")),
            target=pl.lit(target),
            undoes=pl.lit(None, pl.String),
            by=pl.lit(None, pl.String),
        )
        .select(*polars_schema(OwnerWrites))
        .collect()
    )


def plan_undo(
    writes: pl.DataFrame, history: pl.DataFrame, *, run_id: str, target: str, intended_at: datetime
) -> pl.DataFrame:
    """Plan to put back what a run wrote: its new values become the old ones, and the other way round.

    A run is undone once: a host that was put back since, or written by a later run, is left alone:
    `not_written` with the reason. `history` has the rows of all runs on the same target. In `new_values` an
    empty text clears the field, and null stands for a field that was not written.
    """

    def put_back(field: str) -> pl.Expr:
        written = pl.col("new_values").struct.field(field)
        before = pl.col("old_values").struct.field(field)
        return pl.when(written.is_not_null()).then(before.fill_null("")).alias(field)

    now = pl.lit(intended_at, pl.Datetime("us", "UTC"))
    changed_since = pl.col("last_run") != pl.col("run_id")
    written_again = changed_since & (pl.col("last_outcome") == "written")
    what = pl.when(written_again).then(pl.lit("written again")).otherwise(pl.lit("put back"))
    overtaken = pl.col("overtaken_by").is_not_null()
    return (
        writes.filter(outcome="written")
        .with_columns(undoes="run_id")
        .join(_last_changes(history), on="host_id", how="left", maintain_order="left")
        .join(_put_back(history), on=["host_id", "undoes"], how="left", maintain_order="left")
        # By the clocks the write itself may be the last change although it was put back.
        .with_columns(
            overtaken_by=pl.when(changed_since).then("last_run").otherwise("put_back_by"), what=what
        )
        .with_columns(
            run_id=pl.lit(run_id),
            outcome=pl.when(overtaken).then(pl.lit("not_written")).otherwise(pl.lit("planned")),
            old_values="new_values",
            new_values=pl.struct(put_back(field) for field in ("owner", "department", "criticality")),
            message=pl.format("left alone: {} since, by run {}", "what", "overtaken_by"),
            intended_at=now,
            completed_at=pl.when(overtaken).then(now),
            target=pl.lit(target),
            by=pl.lit(None, pl.String),
        )
        .select(*polars_schema(OwnerWrites))
    )


def _put_back(history: pl.DataFrame) -> pl.DataFrame:
    """Which run put back what another wrote, whatever the clocks say: host_id, undoes, put_back_by."""
    return (
        history.filter(outcome="undone")
        .drop_nulls("undoes")
        .sort("completed_at")
        .group_by("host_id", "undoes")
        .agg(put_back_by=pl.last("run_id"))
    )


def _last_changes(history: pl.DataFrame) -> pl.DataFrame:
    """The last change of each host that runs made: host_id, last_run, last_outcome."""
    return (
        history.filter(pl.col("outcome").is_in(SUCCESSES))
        .sort("completed_at")
        .group_by("host_id")
        .agg(last_run=pl.last("run_id"), last_outcome=pl.last("outcome"))
    )


def limit_exceeded(
    planned: int, hosts: int, *, what: str, max_writes: int, max_write_percent: float | None
) -> str | None:
    """Say why a plan is too large for a run to carry out unseen, naming the setting; None when it is not."""
    if planned > max_writes:
        return f"{planned} {what} are planned, more than writes.max_writes ({max_writes})"
    if max_write_percent is not None and 100 * planned > max_write_percent * hosts:
        return (
            f"{planned} {what} are planned for {hosts} hosts, more than writes.max_write_percent "
            f"({max_write_percent:g}%)"
        )
    return None


def _copied(field: str) -> pl.Expr:
    """A value to copy; empty ones are not (rules 2.6)."""
    return pl.when(pl.col(field).str.strip_chars() != "").then(field)
