"""The jobs of an instance: the scan, and what may follow it; and one for each file that cannot be used."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets_defs.run import failure, resource_keys, run_tags
from assets_defs.sink import apply_op, undo_op
from resources.errors import ConfigurationError
from resources.settings import BrokenInstance, Instance, named


def scan_job(instance: Instance) -> Any:
    """The job of an instance: all its assets, from the days of the run to the writes.

    What Dagster makes of a selection of assets has a type that it does not export.
    """
    return dg.define_asset_job(
        instance.slug,
        selection=dg.AssetSelection.groups(instance.slug),
        description=f"Fills in the owners of host assets from the logon events of {instance.name}.",
        run_tags=run_tags(instance),
    )


def apply_job(instance: Instance, resources: Mapping[str, Any]) -> dg.JobDefinition:
    """The job that carries out a plan that an earlier run stored."""

    @dg.job(
        name=named(instance, "apply"),
        description=f"Carries out a stored plan of {instance.name}.",
        run_tags=run_tags(instance),
        resource_defs=_follow_up_resources(instance, resources),
    )
    def job() -> None:
        apply_op(instance)()

    return job


def undo_job(instance: Instance, resources: Mapping[str, Any]) -> dg.JobDefinition:
    """The job that puts back what a run wrote."""

    @dg.job(
        name=named(instance, "undo"),
        description=f"Puts back what a run of {instance.name} wrote, where hosts still hold it.",
        run_tags=run_tags(instance),
        resource_defs=_follow_up_resources(instance, resources),
    )
    def job() -> None:
        undo_op(instance)()

    return job


def _follow_up_resources(instance: Instance, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of what follows a scan: the launchpad offers those of its own job alone."""
    return {key: resources[key] for key in resource_keys(instance).of_follow_up}


def broken_job(broken: BrokenInstance) -> dg.JobDefinition:
    """A job that fails with the message for the file's author, so that the other instances still load."""

    @dg.op(name=named(broken, "cannot_be_used"))
    def cannot_be_used() -> None:  # NoReturn is no type of output to Dagster
        raise failure(broken.message) from ConfigurationError()

    @dg.job(name=broken.slug, description=broken.message)
    def job() -> None:
        cannot_be_used()

    return job
