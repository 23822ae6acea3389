"""What Dagster is told of each stored table: key, description, columns, where to find it, how to ask it."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg

from ownership.lineage import LINEAGE
from ownership.tables import TABLES, polars_schema
from resources.settings import Instance
from resources.store.dictionary import duckdb_type

OWNERS = ["team:asset-management"]

_QUERIES = {
    "logon_counts": """\
SELECT day, sum(events) AS events,
       count(DISTINCT document_hostname) AS hosts,
       count(DISTINCT document_username) AS users
FROM {table}
GROUP BY day ORDER BY day DESC LIMIT 30;""",
    "logon_days": """\
FROM {table}
ORDER BY day DESC LIMIT 30;""",
    "inventory_hosts": """\
SELECT department, count(*) AS hosts,
       count(*) FILTER (len(owner_ids) > 0) AS owned,
       count(problem) AS unreadable
FROM {table}
GROUP BY department ORDER BY hosts DESC;""",
    "inventory_users": """\
SELECT user_department, count(*) AS users
FROM {table}
GROUP BY user_department ORDER BY users DESC;""",
    "host_user_shares": """\
SELECT hostname, username, events,
       total_events, round(share, 2) AS share
FROM {table}
WHERE rank = 1 ORDER BY share LIMIT 20;""",
    "username_matches": """\
SELECT username
FROM {table}
WHERE user_id IS NULL ORDER BY username;""",
    "owner_decisions": """\
SELECT evidence, match, action, count(*) AS hosts
FROM {table}
GROUP BY ALL ORDER BY hosts DESC;""",
    "owner_writes": """\
SELECT completed_at, hostname, outcome,
       new_values.owner AS owner, message
FROM {table}
ORDER BY completed_at DESC LIMIT 20;""",
}
"""A first question to each table, in lines that the UI shows whole."""


def asset_key(instance: Instance, table: str) -> dg.AssetKey:
    """Key of a table's asset: the instance's slug and the table's name, as in the catalogue."""
    return dg.AssetKey([instance.slug, table])


def asset_arguments(instance: Instance, table: str, *, kinds: Iterable[str]) -> dict[str, Any]:
    """Key, group, owners, description, kinds and metadata of a table's asset, for Dagster's decorators."""
    return {
        "key": asset_key(instance, table),
        "group_name": instance.slug,
        "owners": OWNERS,
        "description": inspect.getdoc(TABLES[table]),
        "kinds": {*kinds, "parquet", "duckdb"},
        "metadata": {
            "dagster/column_schema": dg.TableSchema(columns=list(_columns(table))),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
            "query": dg.MetadataValue.md(f"```sql\n{query(instance, table)}\n```"),
        },
    }


def query(instance: Instance, table: str) -> str:
    """A first question to the table, to paste into DuckDB with the catalogue open."""
    return _QUERIES[table].format(table=f'"{instance.slug}".{table}')


def table_metadata(instance: Instance, table: str, *, rows: int, **found: Any) -> dict[str, Any]:
    """Metadata of an unpartitioned table just stored: what was found, its rows, where columns come from.

    The lineage goes with each materialization because that is where Dagster looks for it.
    """
    sources = {
        column: [
            dg.TableColumnDep(asset_key(instance, source), name)
            for source, name in (column.split(".") for column in columns)
        ]
        for column, columns in LINEAGE.get(table, {}).items()
    }
    lineage = {"dagster/column_lineage": dg.TableColumnLineage(sources)} if sources else {}
    return {**found, "dagster/row_count": rows, **lineage}


def _columns(table: str) -> Iterator[dg.TableColumn]:
    """The columns; the description names the sources, for the UI without Dagster+ shows no column lineage."""
    columns = TABLES[table].to_schema().columns
    for name, kind in polars_schema(TABLES[table]).items():
        sources = ", ".join(f"`{source}`" for source in LINEAGE.get(table, {}).get(name, ()))
        yield dg.TableColumn(
            name,
            duckdb_type(kind).split("(")[0],  # the UI cuts what follows off for the fields of a struct
            description=f"{columns[name].description}{f' From {sources}.' if sources else ''}",
            constraints=dg.TableColumnConstraints(
                nullable=bool(columns[name].nullable), unique=bool(columns[name].unique)
            ),
        )
