"""All instances as one Dagster code location."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
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


def build_repository(
    *, executor: dg.ExecutorDefinition = dg.in_process_executor, part: int = 1, parts: int = 1
) -> dg.RepositoryDefinition:
    """All instances as the environment tells where they are, each defined when Dagster asks for it.

    Args:
        executor: as for `build_definitions`.
        part: which part of the instances, where several code locations share them.
        parts: into how many parts the instances are divided.
    """
    where = home()
    options: dict[str, Any] = {
        "location": tables_location(),
        "analysts": analysts_group(),
        "executor": executor,
    }

    def read(slug: str | None) -> list[Instance | BrokenInstance]:
        if slug is not None:
            return load_instances(instances_folder(), slug.__eq__)
        only = None if parts == 1 else lambda slug: part_of(slug, parts) == part
        return load_instances(instances_folder(), only)

    @dg.repository(name=REPOSITORY)
    def repository() -> Any:  # the decorator's types leave out what its text allows
        return Instances(
            read,
            lambda instance: build_definitions([instance], where, **options),
            common_definitions(executor),
        )

    return repository


def part_of(slug: str, parts: int) -> int:
    """The part that an instance belongs to: the same one whatever other instances there are."""
    return int.from_bytes(hashlib.sha256(slug.encode()).digest()) % parts + 1


def __getattr__(name: str) -> Callable[[], dg.RepositoryDefinition]:
    """Each part of the instances as an attribute, `part_2_of_4`, for a workspace file to name."""
    found = re.fullmatch("part_([1-9][0-9]*)_of_([1-9][0-9]*)", name)
    if not found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part, parts = map(int, found.groups())

    def definitions_of_part() -> dg.RepositoryDefinition:
        os.umask(0o077)
        return build_repository(part=part, parts=parts)

    return definitions_of_part


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
                target=instance.platform.place,
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
