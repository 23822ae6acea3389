"""The stored tables as Dagster's assets: what it shows of each, and the steps that make them."""

import inspect
from collections.abc import Callable
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

RESULTS = ("owner_decisions", "owner_writes")
"""Tables whose page opens with what the last run found; under its own key Dagster shows all columns first."""

SEARCH_SERVICE, INVENTORY_SERVICE = "search_service", "inventory_service"
"""What the lineage begins with."""


def asset_key(instance: Instance, table: str) -> dg.AssetKey:
    """Return the key of a table's asset: the instance's slug and the table's name."""
    return dg.AssetKey([instance.slug, table])


def service_specs(instance: Instance) -> list[dg.AssetSpec]:
    """Return both services, which no run makes: Dagster's external assets."""
    addresses = {SEARCH_SERVICE: instance.url, INVENTORY_SERVICE: instance.platform.address}
    return [
        dg.AssetSpec(asset_key(instance, name), group_name=instance.slug, description=address)
        for name, address in addresses.items()
    ]


def table_asset(
    instance: Instance,
    table: str,
    make: Callable[[ScanRun], dict[str, Any]],
    *,
    kind: str = "polars",
    further: tuple[str, ...] = (),
    freshness: dg.FreshnessPolicy | None = None,
) -> dg.AssetsDefinition:
    """Define the asset of a table: `make` stores it and returns what Dagster shows; `further` are read."""

    @dg.asset(
        **asset_arguments(instance, table, kind=kind),
        deps=[asset_key(instance, source) for source in (*TABLES[table].__reads__, *further)],
        required_resource_keys={*resource_keys(instance)},
        freshness_policy=freshness,
    )
    def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        with as_dagster_failure(run.record, last=not run.mode.plans):
            return dg.MaterializeResult(metadata=make(run))

    return step


def asset_arguments(instance: Instance, table: str, *, kind: str, group: str | None = None) -> dict[str, Any]:
    """Return the arguments of Dagster's decorators that describe a table's asset."""
    return {
        "key": asset_key(instance, table),
        "group_name": group or instance.slug,
        "owners": OWNERS,
        "description": inspect.getdoc(TABLES[table]),
        "kinds": {kind, "parquet", "duckdb"},
        "metadata": {
            "columns" if table in RESULTS else "dagster/column_schema": _column_schema(table),
            "dagster/table_name": f"warehouse.{instance.slug}.{table}",
        },
    }


@cache
def _column_schema(table: str) -> dg.TableSchema:
    """Return the columns, made once for all instances."""
    columns, descriptions = columns_of(TABLES[table]), column_descriptions(TABLES[table])
    shown = []
    for name, kind in polars_schema(TABLES[table]).items():
        unique = columns[name].checks.get("unique", False)
        constraints = dg.TableColumnConstraints(nullable=columns[name].nullable, unique=unique)
        type_name = duckdb_type(kind).split("(")[0]  # the UI cuts off a struct's fields
        shown.append(dg.TableColumn(name, type_name, description=descriptions[name], constraints=constraints))
    return dg.TableSchema(columns=shown)
