"""A run as the tables hold it, stored without Dagster and services: for the cookbook and for tests."""

from datetime import datetime

import polars as pl

from ownership.resolution import Resolution
from resources.store.history import append_changes
from resources.store.tables import Tables


def store_run(
    tables: Tables,
    resolution: Resolution,
    *,
    run_id: str,
    decided_at: datetime,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame | None = None,
) -> None:
    """Publish what a run listed, resolved and wrote.

    Args:
        tables: Prepared; they hold the days already.
        resolution: Of the run.
        run_id: The run.
        decided_at: When it decided.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        writes: Rows of `owner_writes`; None: the run wrote nothing.
    """
    snapshots = {
        "inventory_hosts": hosts,
        "inventory_users": users,
        "host_user_shares": resolution.shares,
        "username_matches": resolution.matches,
        "owner_decisions": resolution.decisions,
    }
    for table, frame in snapshots.items():
        tables.write(table, frame, run_id=run_id, publish=True)
    append_changes(tables, resolution.decisions, decided_at=decided_at, run_id=run_id)
    if writes is not None:
        tables.append("owner_writes", writes, run_id=run_id)
