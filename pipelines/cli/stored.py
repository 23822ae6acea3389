"""What commands that only look start from: the instance, and its tables of an earlier run."""

from pathlib import Path

from resources.errors import AssetOwnersError
from resources.settings import Instance, home, load_instance
from resources.tables import Tables


def stored_tables(path: Path) -> tuple[Instance, Tables]:
    """Load an instance file and find the instance's tables.

    Raises:
        ConfigurationError: the instance file is wrong.
        AssetOwnersError: no run has decided anything yet.
    """
    instance = load_instance(path)
    tables = Tables(home(), instance.slug)
    if not tables.exist():
        raise AssetOwnersError(
            f"{instance.name} has no tables yet; run it first: asset-owners run --instance {path}"
        )
    return instance, tables
