"""The inventory: host assets and user assets as the service lists them, odd ones among them."""

from typing import Any, Literal

import dagster as dg

from assets_defs.run import ScanRun
from assets_defs.specs import INVENTORY_SERVICE, table_asset
from resources.settings import Instance


def inventory_asset(instance: Instance, kind: Literal["hosts", "users"]) -> dg.AssetsDefinition:
    """Define inventory_hosts or inventory_users."""
    table = f"inventory_{kind}"

    def listed(run: ScanRun) -> dict[str, Any]:
        run.record.require_none_failed()
        inventory = run.inventory()
        frame = inventory.hosts() if kind == "hosts" else inventory.users()
        run.tables.prepare()
        run.store(table, frame)
        if all(run.tables.holds(each, run.run_id) for each in ("inventory_hosts", "inventory_users")):
            run.tables.store_current_owners(run_id=run.run_id, publish=run.may_write)
        run.log.info(f"Inventory: {frame.height:,} {kind} read")
        return {"dagster/row_count": frame.height}

    return table_asset(instance, table, listed, kind="rest", further=(INVENTORY_SERVICE,))
