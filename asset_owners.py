"""What other Dagster projects import of this one."""

from pipelines.component import AssetOwnersComponent
from resources.settings import load_instance

__all__ = ["AssetOwnersComponent", "load_instance"]
