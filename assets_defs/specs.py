"""What Dagster shows of each stored table: key, description, columns, where to find it, how to ask it."""

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import dagster as dg

from ownership.declaration import column_descriptions, polars_schema
from ownership.tables import TABLES
from resources.settings import Instance
from resources.store.catalogue import duckdb_type

LOCATION = "asset-owners"
"""The code location; Dagster keeps under this name which schedules are on."""

OWNERS = ["team:asset-management"]


def asset_key(instance: Instance, table: str) -> dg.AssetKey:
    """Key of a table's asset: the instance's slug and the table's name, as in the catalogue."""
    return dg.AssetKey([instance.slug, table])


def asset_arguments(
    instance: Instance, table: str, *, kinds: Iterable[str], group: str | None = None
) -> dict[str, Any]:
    """Key, group, owners, description, kinds and metadata of a table's asset, for Dagster's decorators."""
    return {
        "key": asset_key(instance, table),
        "group_name": group or instance.slug,
        "owners": OWNERS,
        "description": inspect.getdoc(TABLES[table]),
        "kinds": {*kinds, "parquet", "duckdb"},
        "metadata": {
            "dagster/column_schema": _column_schema(table),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
            "query": dg.MetadataValue.md(f"```sql\n{query(instance, table)}\n```"),
        },
    }


def source_keys(instance: Instance, table: str, *further: str) -> list[dg.AssetKey]:
    """Keys of the assets that a table's asset is made of, for Dagster's `deps`."""
    return [asset_key(instance, source) for source in (*TABLES[table].__reads__, *further)]


def query(instance: Instance, table: str) -> str:
    """A first question to the table, to paste into DuckDB with the catalogue open."""
    return f'FROM "{instance.slug}".{table} LIMIT 20;'


@cache
def _column_schema(table: str) -> dg.TableSchema:
    """The columns, made once for all instances."""
    return dg.TableSchema(columns=list(_columns(table)))


def _columns(table: str) -> Iterator[dg.TableColumn]:
    columns, descriptions = TABLES[table].to_schema().columns, column_descriptions(TABLES[table])
    for name, kind in polars_schema(TABLES[table]).items():
        yield dg.TableColumn(
            name,
            duckdb_type(kind).split("(")[0],  # the UI cuts what follows off for the fields of a struct
            description=descriptions[name],
            constraints=dg.TableColumnConstraints(
                nullable=bool(columns[name].nullable), unique=bool(columns[name].unique)
            ),
        )
