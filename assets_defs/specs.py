"""What Dagster is told of each stored table: key, description, columns, where to find it, how to ask it."""

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import dagster as dg

from ownership.declaration import column_descriptions, lineage, polars_schema, source_tables
from ownership.tables import TABLES
from resources.settings import Instance
from resources.store.dictionary import duckdb_type

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


def source_keys(instance: Instance, table: str) -> list[dg.AssetKey]:
    """Keys of the assets that a table's asset is made of, for Dagster's `deps`."""
    return [asset_key(instance, source) for source in source_tables(TABLES[table])]


def query(instance: Instance, table: str) -> str:
    """A first question to the table, to paste into DuckDB with the catalogue open."""
    return TABLES[table].__query__.format(table=f'"{instance.slug}".{table}')


def table_metadata(instance: Instance, table: str, *, rows: int, **metadata: Any) -> dict[str, Any]:
    """Metadata of an unpartitioned table just stored: what was metadata, its rows, where columns come from.

    The lineage goes with each materialization because that is where Dagster looks for it.
    """
    sources = {
        column: [
            dg.TableColumnDep(asset_key(instance, source), name)
            for source, name in (column.split(".") for column in columns)
        ]
        for column, columns in lineage(TABLES[table]).items()
    }
    columns = {"dagster/column_lineage": dg.TableColumnLineage(sources)} if sources else {}
    return {**metadata, "dagster/row_count": rows, **columns}


@cache
def _column_schema(table: str) -> dg.TableSchema:
    """The columns, made once for all instances."""
    return dg.TableSchema(columns=list(_columns(table)))


def _columns(table: str) -> Iterator[dg.TableColumn]:
    """The columns; the description names the sources, for the UI without Dagster+ shows no column lineage."""
    columns, descriptions = TABLES[table].to_schema().columns, column_descriptions(TABLES[table])
    for name, kind in polars_schema(TABLES[table]).items():
        sources = ", ".join(f"`{source}`" for source in lineage(TABLES[table]).get(name, ()))
        yield dg.TableColumn(
            name,
            duckdb_type(kind).split("(")[0],  # the UI cuts what follows off for the fields of a struct
            description=f"{descriptions[name]}{f' From {sources}.' if sources else ''}",
            constraints=dg.TableColumnConstraints(
                nullable=bool(columns[name].nullable), unique=bool(columns[name].unique)
            ),
        )
