"""What Dagster is told of each stored table: key, description, columns, where to find it."""

import inspect
from collections.abc import Iterable
from typing import Any

import dagster as dg

from ownership.schemas import TABLES, polars_schema
from resources.settings import Instance


def asset_key(instance: Instance, table: str) -> dg.AssetKey:
    """Key of a table's asset: the instance's slug and the table's name, as in the catalogue."""
    return dg.AssetKey([instance.slug, table])


def described(instance: Instance, table: str, *, kinds: Iterable[str]) -> dict[str, Any]:
    """Key, group, description, kinds and metadata of a table's asset, for any of Dagster's decorators."""
    model = TABLES[table]
    columns = [
        dg.TableColumn(name, str(kind), description=model.to_schema().columns[name].description)
        for name, kind in polars_schema(model).items()
    ]
    return {
        "key": asset_key(instance, table),
        "group_name": instance.slug,
        "description": inspect.getdoc(model),
        "kinds": {*kinds, "parquet", "duckdb"},
        "metadata": {
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
        },
    }
