"""One job an instance, and one for each instance file that cannot be used."""

from typing import TYPE_CHECKING, NoReturn

import dagster as dg

from resources.settings import BrokenInstance, Instance

if TYPE_CHECKING:  # Dagster exports the function and not its type
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def scan_job(instance: Instance) -> "UnresolvedAssetJobDefinition":
    """The job of an instance: all its assets, from the days of the run to the writes."""
    return dg.define_asset_job(
        instance.slug,
        selection=dg.AssetSelection.groups(instance.slug),
        description=f"Fills in the owners of host assets from the logon events of {instance.name}.",
        run_tags={"asset_owners/instance": instance.name, "asset_owners/sensor": instance.sensor},
    )


def broken_job(broken: BrokenInstance) -> dg.JobDefinition:
    """A job that fails with the message for the file's author, so that the other instances still load."""

    @dg.op(name=f"{broken.slug}_cannot_be_used")
    def cannot_be_used() -> NoReturn:
        raise dg.Failure(broken.message, allow_retries=False)

    @dg.job(name=broken.slug, description=broken.message)
    def job() -> None:
        cannot_be_used()

    return job
