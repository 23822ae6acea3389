"""The stored tables as Dagster's assets: what it shows of each, and the steps that make them."""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import dagster as dg

from assets_defs.run import ScanRun, scan_run
from assets_defs.scan_resources import resource_keys
from assets_defs.step_failures import as_dagster_failure
from ownership.declaration import column_descriptions, columns_of, polars_schema
from ownership.tables import TABLES
from resources.settings import Instance
from resources.store.catalogue import duckdb_type

LOCATION = "asset-owners"
"""The code location; Dagster keeps under this name which schedules are on."""

OWNERS = ["team:asset-management"]


def asset_key(instance: Instance, table: str) -> dg.AssetKey:
    """Key of a table's asset: the instance's slug and the table's name, as in the catalogue."""
    return dg.AssetKey([instance.slug, table])


def table_asset(
    instance: Instance,
    table: str,
    make: Callable[[ScanRun], dict[str, Any]],
    *,
    kind: str = "polars",
    further: tuple[str, ...] = (),
) -> dg.AssetsDefinition:
    """Define the asset of a table: `make` stores what a run makes of it, and gives what the UI shows.

    It depends on the tables that its declaration names, and on `further` ones.
    """

    @dg.asset(
        **asset_arguments(instance, table, kind=kind),
        deps=[asset_key(instance, source) for source in (*TABLES[table].__reads__, *further)],
        required_resource_keys={*resource_keys(instance)},
    )
    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        with as_dagster_failure(run.record, last=not run.mode.plans):
            return dg.MaterializeResult(metadata=make(run))

    return step


def asset_arguments(instance: Instance, table: str, *, kind: str, group: str | None = None) -> dict[str, Any]:
    """Key, group, owners, description, kinds and metadata of a table's asset, for Dagster's decorators."""
    return {
        "key": asset_key(instance, table),
        "group_name": group or instance.slug,
        "owners": OWNERS,
        "description": inspect.getdoc(TABLES[table]),
        "kinds": {kind, "parquet", "duckdb"},
        "metadata": {
            "dagster/column_schema": _column_schema(table),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
        },
    }


@cache
def _column_schema(table: str) -> dg.TableSchema:
    """The columns, made once for all instances."""
    return dg.TableSchema(columns=list(_columns(table)))


def _columns(table: str) -> Iterator[dg.TableColumn]:
    columns, descriptions = columns_of(TABLES[table]), column_descriptions(TABLES[table])
    for name, kind in polars_schema(TABLES[table]).items():
        yield dg.TableColumn(
            name,
            duckdb_type(kind).split("(")[0],  # the UI cuts what follows off for the fields of a struct
            description=descriptions[name],
            constraints=dg.TableColumnConstraints(
                nullable=columns[name].nullable, unique=columns[name].checks.get("unique", False)
            ),
        )
