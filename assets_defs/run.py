"""One scan: a run of one instance over one look-back window, as its assets see it.

What an operator chooses in the launchpad is `ScanOptions`; which days a run covers follows from its
partitions. What is done with them is told by the assets.
"""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from ownership.declaration import InvalidTableError
from ownership.names import printable
from ownership.windows import Window, is_past, look_back_window
from resources.failures import operator_message
from resources.inventory.adapter import Inventory, open_inventory
from resources.search.client import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance, named
from resources.store.tables import Tables

PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
WINDOW_TAG = "asset_owners/window"
DRY_RUN_TAG = "asset_owners/dry_run"


@dataclass(frozen=True)
class ScanOptions:
    """What an operator may choose for one run; see `scan_resource`."""

    lookback_days: int
    enrich: bool
    dry_run: bool
    refetch: bool
    force: bool
    limit: int | None


@dataclass(frozen=True, kw_only=True)
class InstanceRun:
    """A run of one instance, whatever it does."""

    instance: Instance
    run_id: str
    tables: Tables
    inventory: Callable[[], Inventory]
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> str:
        """How long the step has been at work, for the line that reports on it."""
        return f"{time.monotonic() - self.started:.1f} s"


@dataclass(frozen=True, kw_only=True)
class ScanRun(InstanceRun):
    """A run of one instance over one look-back window.

    `may_write` is false for a dry run and for a window of the past that is not forced; such a run publishes
    nothing that it made. The days that it fetched are what the index holds, so the run over a past window
    publishes those; a dry run changes no table that analysts look at (rules 4.2, 7.6) and keeps them as
    `own_days`, the run's id.
    """

    options: ScanOptions
    window: Window
    may_write: bool
    own_days: str | None
    search: Callable[[], EvidenceSource]


def scan_run(context: Any, instance: Instance) -> ScanRun:
    """Read the scan off the context of an asset, an op or a check.

    Raises:
        dagster.Failure: the tables are another instance's, or the last day is before scan.first_day.
    """
    options, tables, search, inventory = (getattr(context.resources, key) for key in resource_keys(instance))
    with as_dagster_failure():
        tables.claim()
    today = datetime.now(ZoneInfo(instance.scan.timezone)).date()
    tags = context.run.tags
    last = date.fromisoformat(tags.get(RANGE_END) or tags.get(PARTITION) or today.isoformat())
    try:
        window = look_back_window(last, options.lookback_days, instance.scan.first_day)
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    past = is_past(window, today, late_days=instance.scan.late_days)
    brought = scan_tags(instance, window, dry_run=options.dry_run)
    if not brought.items() <= tags.items():  # of a step that comes later, or of a job that brings them
        with as_dagster_failure():
            context.instance.add_run_tags(context.run.run_id, brought)
    return ScanRun(
        instance=instance,
        options=options,
        run_id=context.run.run_id,
        window=window,
        may_write=not options.dry_run and (options.force or not past),
        own_days=context.run.run_id if options.dry_run and _plans(context, instance) else None,
        tables=tables,
        search=search,
        inventory=inventory,
    )


def follow_up_run(context: dg.OpExecutionContext, instance: Instance) -> InstanceRun:
    """Read off the context of an op what follows a scan: the run, without window and options.

    Raises:
        dagster.Failure: the tables are another instance's.
    """
    tables, inventory = (getattr(context.resources, key) for key in follow_up_keys(instance))
    with as_dagster_failure():
        tables.claim()
    return InstanceRun(instance=instance, run_id=context.run.run_id, tables=tables, inventory=inventory)


def scan_tags(instance: Instance, window: Window, *, dry_run: bool) -> dict[str, str]:
    """The tags by which an operator finds the scan; a run that does not bring them gets them step by step."""
    return {
        **run_tags(instance),
        WINDOW_TAG: f"{window.first}/{window.last}",
        DRY_RUN_TAG: str(dry_run),
    }


def run_tags(instance: Instance) -> dict[str, str]:
    """The tags by which an operator finds the runs of an instance, and those of a sensor."""
    return {"asset_owners/instance": instance.name, "asset_owners/sensor": instance.sensor}


def _plans(context: Any, instance: Instance) -> bool:
    """Tell whether the run goes on to plan writes; one that only fetches days is no dry run of anything."""
    chosen = context.run.asset_selection
    return not chosen or dg.AssetKey([instance.slug, "owner_writes"]) in chosen


def resource_keys(instance: Instance) -> list[str]:
    """Keys of an instance's Dagster resources: scan, tables, search and inventory, in this order.

    Dagster takes identifiers only, and slugs may begin with a digit; none begins with an underscore.
    """
    keys = (named(instance, part) for part in ("scan", "tables", "search", "inventory"))
    return [key if key.isidentifier() else f"_{key}" for key in keys]


def follow_up_keys(instance: Instance) -> list[str]:
    """Keys of the resources of what follows a scan: tables and inventory, in this order."""
    _, tables, _, inventory = resource_keys(instance)
    return [tables, inventory]


def scan_resources(instance: Instance, tables: Tables) -> dict[str, Any]:
    """The Dagster resources of an instance, by key."""
    parts = (
        scan_resource(instance),
        tables,
        _opened_once(lambda: SearchClient(instance)),
        _opened_once(lambda: open_inventory(instance)),
    )
    return dict(zip(resource_keys(instance), parts, strict=True))


def _opened_once(client: Callable[[], AbstractContextManager[Any]]) -> dg.ResourceDefinition:
    """A function that opens a client at its first call and gives the same one afterwards.

    The assets of a run share the client, and with it one log-in. It is opened by the asset that needs it
    first, so that a secret that is not set fails a step with a message, not the run with a stack trace.
    """

    @dg.resource
    def opened_once(_: dg.InitResourceContext) -> Generator[Callable[[], Any]]:
        with ExitStack() as open_clients:
            yield cache(lambda: open_clients.enter_context(client()))

    return opened_once


def scan_resource(instance: Instance) -> dg.ResourceDefinition:
    """What an operator may choose in the launchpad; the defaults come from the instance file."""

    def option(kind: Any, default: Any, description: str) -> dg.Field:
        return dg.Field(kind, default_value=default, description=description)

    scan = instance.scan
    options = {
        "lookback_days": option(
            int,
            scan.lookback_days,
            "Look-back window: calendar days that end with the last day of the run (today without one).",
        ),
        "enrich": option(
            bool,
            scan.enrich,
            "Enrich host information by asset owner: copy the owner's department and criticality.",
        ),
        "dry_run": option(
            bool, instance.writes.dry_run, "Plan only: decide and store what would be written, write nothing."
        ),
        "refetch": option(
            bool, default=True, description="Fetch every day named; off: only those missing or not settled."
        ),
        "force": option(
            bool,
            default=False,
            description=f"Write although the last day is more than {scan.late_days} days ago.",
        ),
        "limit": option(
            dg.Noneable(int), default=None, description="Write the first so many hosts of the plan only."
        ),
    }

    @dg.resource(config_schema=options, description=f"Options of one run of {instance.name}.")
    def scan_options(context: dg.InitResourceContext) -> ScanOptions:
        return ScanOptions(**context.resource_config)

    return scan_options


@contextmanager
def as_dagster_failure() -> Generator[None]:
    """Turn what an operator can mend into Dagster failures: the UI shows a message instead of a stack trace.

    Names in it come from outside: none acts on a terminal, or makes a line of its own in a log.
    """
    try:
        yield
    except InvalidTableError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    except Exception as error:
        if (message := operator_message(error)) is None:
            raise
        raise dg.Failure(printable(message), allow_retries=False) from error
