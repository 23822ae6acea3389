"""The inventory: host assets and user assets as the service lists them, odd ones among them."""

from collections.abc import Callable

import dagster as dg
import polars as pl

from assets_defs.progress import Progress
from assets_defs.run import as_dagster_failure, require_none_failed, resource_keys, scan_run
from assets_defs.specs import asset_arguments
from resources.inventory.adapter import Inventory
from resources.inventory.client import OnProgress
from resources.settings import Instance


def inventory_assets(instance: Instance) -> list[dg.AssetsDefinition]:
    """Define inventory_hosts and inventory_users."""
    return [
        _listed(instance, "inventory_hosts", lambda inventory: inventory.hosts),
        _listed(instance, "inventory_users", lambda inventory: inventory.users),
    ]


def _listed(
    instance: Instance,
    table: str,
    listing: Callable[[Inventory], Callable[[OnProgress], pl.DataFrame]],
) -> dg.AssetsDefinition:
    @dg.asset(
        **asset_arguments(instance, table, kinds={"rest"}),
        required_resource_keys={*resource_keys(instance)},
    )
    def listed(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        if instance.platform.ignore_ssl:
            context.log.warning("platform.ignore_ssl is on: the inventory's certificate is not checked")
        with as_dagster_failure(run, last=not run.plans):
            require_none_failed(context, run)
            frame = listing(run.inventory())(Progress(context.log.info, f"Rows of {table} listed"))
            run.tables.prepare()
            run.store(table, frame)
        context.log.info(f"Inventory: {frame.height:,} rows of {table} listed, {run.seconds}")
        return dg.MaterializeResult(metadata={"dagster/row_count": frame.height})

    return listed
