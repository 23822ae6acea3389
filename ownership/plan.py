"""What would be written: one row for each host whose decision is to write.

Writing itself, and reading the host once more before, is done elsewhere.
"""

from datetime import datetime
from typing import Literal

import polars as pl

from ownership.schemas import OwnerWrites, polars_schema


def plan_writes(
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    enrich: bool,
    outcome: Literal["planned", "intended"],
    run_id: str,
    intended_at: datetime,
) -> pl.DataFrame:
    """Plan the writes of new owners (§1 rules 5, 7 and 10; readings §2.6).

    Args:
        decisions: Rows of `owner_decisions`.
        hosts: Rows of `inventory_hosts` that the decisions were made from.
        users: Rows of `inventory_users` that the decisions were made from.
        enrich: Whether the owner's department and criticality, where not empty, are written as well.
        outcome: `planned` for a dry run, `intended` where the writes will be tried.
        run_id: The run that the rows bear.
        intended_at: The instant that the rows bear.

    Returns:
        Rows of `owner_writes`, sorted by hostname and host_id; a null in `new_values` is not sent.
    """
    owners = users.lazy().select(
        owner="user_id", new_department=_copied("user_department"), new_criticality=_copied("criticality")
    )
    if not enrich:
        owners = owners.with_columns(
            pl.lit(None, pl.String).alias(name) for name in ("new_department", "new_criticality")
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
            outcome=pl.lit(outcome),
            old_values=pl.struct(pl.lit(None, pl.String).alias("owner"), "department", "criticality"),
            new_values=pl.struct("owner", department="new_department", criticality="new_criticality"),
            message=pl.lit(None, pl.String),
            intended_at=pl.lit(intended_at, pl.Datetime("us", "UTC")),
            completed_at=pl.lit(None, pl.Datetime("us", "UTC")),
        )
        .select(*polars_schema(OwnerWrites))
        .collect()
    )


def _copied(field: str) -> pl.Expr:
    """A value to copy; empty ones are not (readings §2.6)."""
    return pl.when(pl.col(field).str.strip_chars() != "").then(field)
