"""The inventory: host assets and user assets as the service lists them, odd ones among them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.metadata import of_hosts, of_users
from assets_defs.progress import Progress
from assets_defs.run import InstanceRun, ScanRun, as_dagster_failure, resource_keys, scan_run
from assets_defs.specs import asset_arguments, table_metadata
from ownership.names import printable
from ownership.quality import too_many_unreadable, unreadable_assets
from resources.errors import ProtocolError
from resources.inventory.client import OnProgress, no_progress
from resources.inventory.records import AssetRows, host_rows, user_rows
from resources.settings import Instance, ListCall

_MOST_NAMED = 3


def inventory_assets(instance: Instance) -> list[dg.AssetsDefinition]:
    """Define inventory_hosts and inventory_users."""
    return [
        _listed(instance, "inventory_hosts", list_hosts, of_hosts),
        _listed(instance, "inventory_users", list_users, of_users),
    ]


def _listed(
    instance: Instance,
    table: str,
    list_assets: Callable[[ScanRun, OnProgress], pl.DataFrame],
    found: Callable[[pl.DataFrame], dict[str, Any]],
) -> dg.AssetsDefinition:
    @dg.asset(
        **asset_arguments(instance, table, kinds={"rest"}),
        required_resource_keys=set(resource_keys(instance)),
    )
    def listed(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        if instance.platform.ignore_ssl:
            context.log.warning("platform.ignore_ssl is on: the inventory's certificate is not checked")
        with as_dagster_failure():
            frame = list_assets(run, Progress(context.log.info, f"Rows of {table} listed"))
            run.tables.prepare()
            run.tables.write(table, frame, run_id=run.run_id, publish=run.may_write)
        context.log.info(f"Inventory: {frame.height:,} rows of {table} listed, {run.seconds}")
        return dg.MaterializeResult(
            metadata=table_metadata(instance, table, rows=frame.height, **found(frame))
        )

    return listed


def list_hosts(run: InstanceRun, on_progress: OnProgress = no_progress) -> pl.DataFrame:
    """List the host assets as rows of inventory_hosts."""
    instance = run.instance
    frame = _listed_now(run, instance.platform.contract.hosts, host_rows(instance), on_progress)
    return _mostly_readable(frame, "hosts", ("platform_user_field", "platform_hostname_field"))


def list_users(run: InstanceRun, on_progress: OnProgress = no_progress) -> pl.DataFrame:
    """List the user assets as rows of inventory_users."""
    instance = run.instance
    frame = _listed_now(run, instance.platform.contract.users, user_rows(instance), on_progress)
    return _mostly_readable(frame, "users", ("platform_user_value_field",))


def _listed_now(run: InstanceRun, call: ListCall, rows: AssetRows, on_progress: OnProgress) -> pl.DataFrame:
    listed_at = datetime.now(UTC)
    frame = run.inventory().list_assets(call, rows.read, on_progress=on_progress)
    return rows.table(frame).with_columns(listed_at=listed_at)


def _mostly_readable(frame: pl.DataFrame, kind: str, settings: Sequence[str]) -> pl.DataFrame:
    """Let single odd assets pass (rules 2.7).

    Raises:
        ProtocolError: they are so many that the contract or the name of a field must be wrong.
    """
    odd = unreadable_assets(frame)
    if not too_many_unreadable(odd.height, frame.height):
        return frame
    first = "; ".join(f"{printable(one)}: {problem}" for one, problem in odd.head(_MOST_NAMED).iter_rows())
    raise ProtocolError(
        f"{odd.height:,} of the {frame.height:,} {kind} that the inventory lists cannot be read, which are "
        f"too many for odd ones; nothing was written. Check {', '.join(settings)} and platform.contract "
        f"({kind}, fields_in). The first are {first}"
    )
