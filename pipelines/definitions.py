"""All instances as one Dagster code location."""

import os
from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg

from assets_defs.checks import asset_checks
from assets_defs.evidence import logon_assets, shares_asset
from assets_defs.inventory import inventory_asset
from assets_defs.owners import owner_assets
from assets_defs.run import scan_resources
from assets_defs.sink import sink_asset
from assets_defs.tuning import tuning_specs
from pipelines.jobs import LOGGERS, broken_job, other_jobs, run_executor, scan_job
from pipelines.repository import REPOSITORY, Instances
from pipelines.schedules import schedules
from resources.settings import BrokenInstance, Instance, instances_folder, load_instances, logs_as_json
from resources.store.tables import Tables, tables_of


@dg.definitions
def definitions() -> Any:  # a repository, which Dagster takes as well
    """The instances of the instances folder; Dagster calls this, importing the module does nothing.

    Whatever Dagster's processes write from here on is for their owner alone.
    """
    os.umask(0o077)
    return build_repository()


def build_repository() -> dg.RepositoryDefinition:
    """All instances, each defined when Dagster asks for it."""

    @dg.repository(name=REPOSITORY)
    def repository() -> Any:  # the decorator's types leave out what its text allows
        return Instances(load_instances(instances_folder()), define)

    return repository


def define(instance: Instance | BrokenInstance) -> dg.Definitions:
    """Define what an instance file holds; of one that cannot be used a job that fails with its message."""
    if isinstance(instance, BrokenInstance):
        return dg.Definitions(jobs=[broken_job(instance)], executor=run_executor(), loggers=LOGGERS)
    return build_definitions(instance, tables_of(instance))


def build_definitions(
    instance: Instance,
    tables: Tables,
    *,
    since: date | None = None,
    **services: Callable[[Instance], Any],
) -> dg.Definitions:
    """Define assets, checks, jobs, schedules and resources of an instance.

    `since` is a day of the past that a run is to cover, where the partitions would begin later. `services`
    open others than the instance's: `source` and `inventory`, as `scan_resources` takes them.
    """
    logs_as_json()  # a wrong form of the log is an error here, and not when a run begins
    # They go with what uses them, so that no launchpad shows another instance's.
    resources = scan_resources(instance, tables, **services)
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
    return dg.Definitions(
        assets=[*equipped[len(checks) :], *tuning_specs(instance)],
        asset_checks=equipped[: len(checks)],
        jobs=[scan_job(instance), *other_jobs(instance, resources)],
        schedules=schedules(instance, tables),
        executor=run_executor(),
        loggers=LOGGERS,
    )
