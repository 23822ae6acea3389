"""Where assets are listed and written: `open_inventory` chooses the inventory of an instance."""

from resources.inventory.adapter import Inventory
from resources.inventory.client import AssetInventory
from resources.settings import Instance


def open_inventory(instance: Instance) -> Inventory:
    """Open the inventory of an instance; ConfigurationError when a secret is not usable."""
    return AssetInventory(instance)
