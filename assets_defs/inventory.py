"""The inventory: host assets and user assets as the service lists them, odd ones among them."""

from typing import Any, Literal

import dagster as dg

from assets_defs.progress import Progress
from assets_defs.run import ScanRun
from assets_defs.specs import table_asset
from resources.settings import Instance


def inventory_asset(instance: Instance, kind: Literal["hosts", "users"]) -> dg.AssetsDefinition:
    """Define inventory_hosts or inventory_users."""
    table = f"inventory_{kind}"

    def listed(run: ScanRun) -> dict[str, Any]:
        if instance.platform.ignore_ssl:
            run.log.warning("platform.ignore_ssl is on: the inventory's certificate is not checked")
        run.record.require_none_failed()
        inventory, progress = run.inventory(), Progress(run.log.info, f"Rows of {table} listed")
        frame = inventory.hosts(progress) if kind == "hosts" else inventory.users(progress)
        run.tables.prepare()
        run.store(table, frame)
        run.log.info(f"Inventory: {frame.height:,} rows of {table} listed")
        return {"dagster/row_count": frame.height}

    return table_asset(instance, table, listed, kind="rest")
