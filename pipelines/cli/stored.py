"""What commands that only look start from: the instance, and its tables of an earlier run."""

from pathlib import Path

from resources.errors import AssetOwnersError
from resources.settings import Instance, home, load_instance, tables_location
from resources.store.tables import Tables


def tables_of(instance: Instance) -> Tables:
    """The instance's tables, where the environment says that they lie.

    Raises:
        ConfigurationError: there are tables of another instance.
    """
    tables = Tables(home(), instance.slug, name=instance.name, location=tables_location())
    tables.require_own()
    return tables


def stored_tables(path: Path) -> tuple[Instance, Tables]:
    """Load an instance file and find the instance's tables.

    Raises:
        ConfigurationError: the instance file is wrong, or the tables are another instance's.
        AssetOwnersError: no run has decided anything yet.
    """
    instance = load_instance(path)
    tables = tables_of(instance)
    if not tables.exist():
        raise AssetOwnersError(
            f"{instance.name} has no tables yet; run it first: asset-owners run --instance {path}"
        )
    return instance, tables
