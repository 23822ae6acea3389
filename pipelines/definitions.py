"""All instances as one Dagster code location."""

import os
from datetime import date
from typing import Any

import dagster as dg

from assets_defs.asset_specs import service_specs
from assets_defs.checks import asset_checks
from assets_defs.evidence import logon_assets, shares_asset
from assets_defs.owners import inventory_asset, owner_assets
from assets_defs.run import OpenInventory, OpenSource, scan_resources
from assets_defs.run_request import INSTANCE_TAG
from assets_defs.sink import sink_asset
from assets_defs.tuning import tuning_specs
from pipelines.dagster_gaps.console import log_to_console_by_default
from pipelines.dagster_gaps.launcher import keep_noticing_dead_runs
from pipelines.dagster_gaps.repository import InstanceRepository, OneInstancePerRun
from pipelines.dagster_home import warn_of_other_home
from pipelines.jobs import LOGGERS, broken_definitions, jobs_of, run_executor, schedules, sensors
from resources.inventory import open_inventory
from resources.search import open_source
from resources.settings import BrokenInstance, Instance, check_environment, instances_folder, load_instances
from resources.store.tables import Tables, tables_of


@dg.definitions
def definitions() -> Any:  # a repository, which Dagster takes as well
    """Return the instances of the instances folder; Dagster calls this, importing the module does nothing.

    Whatever Dagster's processes write from here on is for their owner alone.
    """
    os.umask(0o077)
    log_to_console_by_default()
    warn_of_other_home(INSTANCE_TAG)
    keep_noticing_dead_runs()
    return build_repository()


def build_repository() -> dg.RepositoryDefinition:
    """Return all instances, each defined when Dagster asks for it."""
    return OneInstancePerRun(InstanceRepository(load_instances(instances_folder()), define))


def define(instance: Instance | BrokenInstance) -> dg.Definitions:
    """Define what an instance file holds; an invalid one gives assets that say what is wrong."""
    if isinstance(instance, BrokenInstance):
        return broken_definitions(instance)
    return build_definitions(instance, tables_of(instance))


def build_definitions(
    instance: Instance,
    tables: Tables,
    *,
    since: date | None = None,
    source: OpenSource = open_source,
    inventory: OpenInventory = open_inventory,
) -> dg.Definitions:
    """Define assets, checks, jobs, schedules and resources of an instance.

    `since` is a day before the first partition, which a run is for. `source` and `inventory` open the
    services of the instance.
    """
    check_environment()
    # Bound to what uses them, so that no launchpad shows another instance's.
    resources = scan_resources(instance, tables, source=source, inventory=inventory)
    checks = asset_checks(instance)
    assets = [
        logon_assets(instance, since),
        inventory_asset(instance, "hosts"),
        inventory_asset(instance, "users"),
        shares_asset(instance),
        *owner_assets(instance),
        sink_asset(instance),
    ]
    equipped = dg.with_resources([*checks, *assets], resources)
    services = service_specs(instance, instance.source_place, instance.platform.place)
    return dg.Definitions(
        assets=[*equipped[len(checks) :], *services, *tuning_specs(instance)],
        asset_checks=equipped[: len(checks)],
        jobs=jobs_of(instance, resources),
        schedules=schedules(instance),
        sensors=sensors(instance),
        executor=run_executor(),
        loggers=LOGGERS,
    )
