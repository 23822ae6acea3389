"""The Dagster resources of an instance: the options of a run, its tables, and both services."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from typing import Any, NamedTuple

import dagster as dg
from pydantic import Field

from resources.errors import ConfigurationError
from resources.inventory import open_inventory
from resources.inventory.adapter import Inventory
from resources.search import open_source
from resources.search.source import Logs, OpenSource
from resources.settings import MAX_LOOKBACK_DAYS, Instance, named
from resources.store.tables import Tables

OpenInventory = Callable[[Instance], AbstractContextManager[Inventory]]


class ScanOptions(dg.Config):
    """What an operator may choose for one run, as the launchpad describes it; all steps of the run see it."""

    lookback_days: int = Field(
        description="Look-back window: calendar days that end with the last day of the run, or today."
    )
    enrich: bool = Field(description="Copy the owner's department and criticality to the host.")
    dry_run: bool = Field(description="Plan only: decide and store what would be written, write nothing.")
    refetch: bool = Field(True, description="Fetch every day named; off: only those missing or not settled.")
    force: bool = Field(
        False,
        description="Write although the run names several days, or a last day long past (scan.late_days).",
    )
    limit: int | None = Field(None, description="Write at most this many hosts of the plan.")
    hosts: list[str] = Field([], description="Plan and write these hosts only, by name or id; none: all.")

    def require_within_bounds(self) -> None:
        """Fail for numbers that the launchpad accepts and the command line does not."""
        if not 1 <= self.lookback_days <= MAX_LOOKBACK_DAYS:
            raise ConfigurationError(
                f"lookback_days: {self.lookback_days} is not valid; give 1 to {MAX_LOOKBACK_DAYS:,} days"
            )
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError(
                f"limit: {self.limit} would write nothing; give 1 or more, or switch `dry_run` on to see "
                "what would be written"
            )


class SearchService(dg.ConfigurableResource):
    """Where the logons are. The instance file says so, and how to log in there."""

    url: str = Field(description="Address of the search service.")
    index: str = Field(description="Index pattern of each of the logs.")


class InventoryService(dg.ConfigurableResource):
    """Where hosts are listed and owners written. The instance file says so, and how to log in there."""

    url: str = Field(description="Address of the inventory service.")
    tenant: str = Field(description="Tenant whose hosts these are.")


class ResourceKeys(NamedTuple):
    """Keys of an instance's Dagster resources."""

    scan: str
    tables: str
    search: str
    inventory: str


def resource_keys(instance: Instance) -> ResourceKeys:
    """Name the resources. Dagster takes identifiers only; a slug may begin with a digit, never with `_`."""
    keys = (named(instance, part) for part in ResourceKeys._fields)
    return ResourceKeys(*(key if key.isidentifier() else f"_{key}" for key in keys))


def scan_resources(
    instance: Instance,
    tables: Tables,
    *,
    source: OpenSource = open_source,
    inventory: OpenInventory = open_inventory,
) -> dict[str, Any]:
    """Return the Dagster resources of an instance, by key.

    `source` opens the source of one log, `inventory` the inventory.
    """
    logs = partial(Logs, open_source=source)
    services = opened_once(instance, logs), opened_once(instance, inventory)
    return dict(zip(resource_keys(instance), (_options_resource(instance), tables, *services), strict=True))


def default_options(instance: Instance) -> ScanOptions:
    """Return the options as the instance file has them."""
    scan = instance.scan
    dry_run = instance.writes.dry_run
    return ScanOptions(lookback_days=scan.lookback_days, enrich=scan.enrich, dry_run=dry_run)


def shown_resources(instance: Instance) -> dict[str, dg.ResourceDefinition]:
    """Return what Dagster's page of resources shows of an instance, by key.

    Runs have `scan_resources`: with these, each launchpad would offer another address.
    """
    keys, platform = resource_keys(instance), instance.platform
    index = ", ".join(one.index for one in instance.sources.values())
    inventory = InventoryService(url=platform.url, tenant=platform.tenant_id)
    return {
        keys.scan: _options_resource(instance),
        keys.search: SearchService(url=instance.url, index=index).get_resource_definition(),
        keys.inventory: inventory.get_resource_definition(),
    }


def _options_resource(instance: Instance) -> dg.ResourceDefinition:
    """Return the options of a run as a resource, whose defaults are the instance's (not of a class)."""
    defaults = default_options(instance).model_dump()
    fields = {
        name: dg.Field(field.config_type, default_value=defaults[name], description=field.description)
        for name, field in ScanOptions.to_fields_dict().items()
    }

    def chosen(context: dg.InitResourceContext) -> ScanOptions:
        given = {name: value for name, value in context.resource_config.items() if value is not None}
        return ScanOptions(**given)  # Dagster takes nothing, as in `hosts:`, for what has a default

    return dg.ResourceDefinition(chosen, fields)


def opened_once(
    instance: Instance, client: Callable[[Instance], AbstractContextManager[Any]]
) -> dg.ResourceDefinition:
    """Return a function that opens a client at its first call, probes the service, and returns the client.

    The assets of a run share it, and with it one log-in. A secret that is not set fails the first step that
    needs it with a message.
    """

    @dg.resource
    def client_resource(_: dg.InitResourceContext) -> Generator[Callable[[], Any]]:
        with ExitStack() as open_clients:

            @cache
            def opened() -> Any:
                service = open_clients.enter_context(client(instance))
                service.probe()
                return service

            yield opened

    return client_resource
