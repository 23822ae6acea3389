"""The inventory: host assets and user assets as the service lists them, odd ones among them."""

from typing import Literal

import dagster as dg

from assets_defs.progress import Progress
from assets_defs.run import as_dagster_failure, require_none_failed, resource_keys, scan_run
from assets_defs.specs import asset_arguments
from resources.settings import Instance


def inventory_asset(instance: Instance, kind: Literal["hosts", "users"]) -> dg.AssetsDefinition:
    """Define inventory_hosts or inventory_users."""
    table = f"inventory_{kind}"

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
            inventory, progress = run.inventory(), Progress(context.log.info, f"Rows of {table} listed")
            frame = inventory.hosts(progress) if kind == "hosts" else inventory.users(progress)
            run.tables.prepare()
            run.store(table, frame)
        context.log.info(f"Inventory: {frame.height:,} rows of {table} listed, {run.seconds}")
        return dg.MaterializeResult(metadata={"dagster/row_count": frame.height})

    return listed
