"""A run as the tables hold it, stored without Dagster and services: for the cookbook and for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import polars as pl

from ownership.declaration import polars_schema
from ownership.resolution import Resolution
from ownership.tables import Runs
from resources.store.retention import store_decisions
from resources.store.tables import Tables


@dataclass(frozen=True, kw_only=True)
class ResolvedRun(Resolution):
    """The stages of one run, in memory: rows of its tables, each made of the previous one."""

    decided_at: datetime
    run_id: str

    @cached_property
    def shares(self) -> pl.DataFrame:
        """Rows of `host_user_shares`."""
        return self.count_shares()

    @cached_property
    def matches(self) -> pl.DataFrame:
        """Rows of `username_matches`."""
        return self.match_usernames(self.shares)

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """Rows of `owner_decisions`."""
        return self.decide(self.matches, decided_at=self.decided_at, run_id=self.run_id)


def inventory_reader(hosts: pl.DataFrame, users: pl.DataFrame) -> Callable[[str], pl.LazyFrame]:
    """Return the `read_inventory` of tables in memory."""
    return {"inventory_hosts": hosts.lazy(), "inventory_users": users.lazy()}.__getitem__


def store_run(
    tables: Tables,
    resolution: ResolvedRun,
    *,
    run_id: str,
    decided_at: datetime,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame | None = None,
    publish: bool = True,
) -> None:
    """Store what a run listed, resolved and wrote, or what a dry run planned, which publishes nothing."""
    snapshots = {
        "inventory_hosts": hosts,
        "inventory_users": users,
        "host_user_shares": resolution.shares,
        "username_matches": resolution.matches,
    }
    for table, frame in snapshots.items():
        tables.write(table, frame, run_id=run_id, publish=publish)
    tables.store_current_owners(run_id=run_id, publish=publish)
    tables.append("runs", _run(resolution, run_id, decided_at, writes), run_id=run_id)
    store_decisions(tables, resolution.decisions, decided_at=decided_at, run_id=run_id, publish=publish)
    if writes is not None and publish:
        store_writes(tables, writes, run_id=run_id)
    elif writes is not None:
        tables.write("owner_writes", writes, run_id=run_id, publish=False)
    if publish:
        with tables.changing():
            tables.store_coverage(run_id)


def store_writes(tables: Tables, writes: pl.DataFrame, *, run_id: str) -> None:
    """Store rows of owner_writes of a run as it would have written them."""
    by = pl.lit(next(iter(tables.rows("runs", run_id)["by"]), None), pl.String)
    with tables.ledger() as ledger:
        ledger.store("owner_writes", writes.with_columns(by=by))
    tables.publish_writes(run_id)


def _run(
    resolution: ResolvedRun, run_id: str, decided_at: datetime, writes: pl.DataFrame | None
) -> pl.DataFrame:
    """Return the row of `runs`."""
    written = 0 if writes is None else writes.filter(outcome="written").height
    owned = resolution.decisions.filter(pl.col("host_id").is_not_null())["existing_owner"].count()
    row = {
        "run_id": run_id,
        "kind": "run",
        "status": "succeeded",
        "started_at": decided_at,
        "ended_at": decided_at,
        "window_from": resolution.window.first,
        "window_to": resolution.window.last,
        "rules": resolution.rules.as_json(),
        "options": "{}",
        "by": "user somebody",
        "hosts": resolution.decisions["host_id"].count(),
        "to_write": resolution.decisions.filter(action="write").height,
        "written": written,
        "conflicts": resolution.decisions.filter(action="conflict").height,
        "owned_before": owned,
        "owned_after": owned + written,
    }
    schema = polars_schema(Runs)
    return pl.DataFrame([dict.fromkeys(schema.names()) | row], schema=schema)
