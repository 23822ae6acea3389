"""All instances as one Dagster code location."""

import os
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
from upath import UPath

from assets_defs.checks import asset_checks
from assets_defs.evidence import logon_assets, shares_asset
from assets_defs.inventory import inventory_assets
from assets_defs.owners import owner_assets
from assets_defs.run import scan_resources
from assets_defs.sink import sink_asset
from assets_defs.tuning import drift_check, tuning_specs
from pipelines.jobs import LOGGERS, apply_job, broken_job, scan_job, tuning_job, undo_job
from pipelines.repository import REPOSITORY, Instances
from pipelines.schedules import scan_schedule, tuning_schedule
from resources.settings import (
    BrokenInstance,
    Instance,
    analysts_group,
    home,
    instances_folder,
    load_instances,
    logs_as_json,
    tables_location,
)
from resources.store.tables import Tables


@dg.definitions
def definitions() -> Any:  # a repository, which Dagster takes as well
    """The instances of the instances folder; Dagster calls this, importing the module does nothing.

    Whatever Dagster's processes write from here on is for their owner alone.
    """
    os.umask(0o077)
    return build_repository()


def build_repository(*, executor: dg.ExecutorDefinition = dg.in_process_executor) -> dg.RepositoryDefinition:
    """All instances as the environment tells where they are, each defined when Dagster asks for it.

    Args:
        executor: as for `build_definitions`.
    """
    where = home()
    options: dict[str, Any] = {
        "location": tables_location(),
        "analysts": analysts_group(),
        "executor": executor,
    }

    @dg.repository(name=REPOSITORY)
    def repository() -> Any:  # the decorator's types leave out what its text allows
        return Instances(
            lambda slug: load_instances(instances_folder(), slug),
            lambda instance: build_definitions([instance], where, **options),
            common_definitions(executor),
        )

    return repository


def build_definitions(
    instances: Sequence[Instance | BrokenInstance],
    home: Path,
    *,
    location: UPath | None = None,
    analysts: int | None = None,
    since: date | None = None,
    resource_overrides: Mapping[str, Any] | None = None,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
) -> dg.Definitions:
    """Define assets, checks, job, schedule and resources of each instance.

    Args:
        instances: what the instance files hold; a broken one becomes a job that fails with its message.
        home: ASSET_OWNERS_HOME.
        location: what holds the folders of all instances' tables; None: `tables` in the home.
        analysts: id of the group that may read tables and catalogue.
        since: a day of the past that a run is to look at, where the partitions would begin later.
        resource_overrides: parts to swap, by resource key (`<slug>__search` …).
        executor: runs the steps of a run. In one process by default: the steps share its imports, which
            cost more than they do.
    """
    logs_as_json()  # a wrong form of the log is told here, and not by a stack trace when a run begins
    parts = [
        dg.Definitions(jobs=[broken_job(instance)])
        if isinstance(instance, BrokenInstance)
        else _instance_definitions(
            instance,
            Tables(
                home,
                instance.slug,
                name=instance.name,
                file=instance.file,
                location=location,
                analysts=analysts,
            ),
            since,
            resource_overrides or {},
            executor,
        )
        for instance in instances
    ]
    return dg.Definitions.merge(common_definitions(executor), *parts)


def common_definitions(executor: dg.ExecutorDefinition) -> dg.Definitions:
    """What the jobs of all instances have in common."""
    return dg.Definitions(executor=executor, loggers=LOGGERS)


def _instance_definitions(
    instance: Instance,
    tables: Tables,
    since: date | None,
    overrides: Mapping[str, Any],
    executor: dg.ExecutorDefinition,
) -> dg.Definitions:
    """Define what belongs to an instance; the resources go with it, so that no launchpad shows another's."""
    resources = {**scan_resources(instance, tables), **overrides}
    checks = [*asset_checks(instance), drift_check(instance)]
    assets = [
        logon_assets(instance, since),
        *inventory_assets(instance),
        shares_asset(instance),
        *owner_assets(instance),
        sink_asset(instance),
    ]
    equipped = dg.with_resources([*checks, *assets], resources)
    return dg.Definitions(
        assets=[*equipped[len(checks) :], *tuning_specs(instance)],
        asset_checks=equipped[: len(checks)],
        jobs=[
            scan_job(instance, executor),
            apply_job(instance, resources, executor),
            undo_job(instance, resources, executor),
            tuning_job(instance, resources, executor),
        ],
        schedules=[
            *([scan_schedule(instance)] if instance.scan.schedule else []),
            tuning_schedule(instance),
        ],
    )
