"""One scan: a run of one instance over one look-back window, as its assets see it.

What an operator chooses in the launchpad is `ScanOptions`; which days a run names, and with which one its
window ends, follows from its partitions. What is done with them is up to the assets.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import Field, create_model

from ownership.declaration import InvalidTableError
from ownership.names import printable
from ownership.windows import Window, days_of, is_past, look_back_window
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.inventory.adapter import Inventory, open_inventory
from resources.search.client import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance, named
from resources.store.tables import Tables
from resources.writeback.journal import Journal
from resources.writeback.writer import Writer

PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
WINDOW_TAG = "asset_owners/window"
DRY_RUN_TAG = "asset_owners/dry_run"


class ScanOptions(dg.ConfigurableResource):
    """What an operator may choose for one run; the defaults come from the instance file."""

    lookback_days: int = Field(
        description="Look-back window: calendar days that end with the last day of the run, or today."
    )
    enrich: bool = Field(
        description="Enrich host information by asset owner: copy the owner's department and criticality."
    )
    dry_run: bool = Field(description="Plan only: decide and store what would be written, write nothing.")
    refetch: bool = Field(
        default=True, description="Fetch every day named; off: only those missing or not settled."
    )
    force: bool = Field(
        default=False, description="Write although the last day is more than scan.late_days ago."
    )
    limit: int | None = Field(default=None, description="Write the first so many hosts of the plan only.")


class ResourceKeys(NamedTuple):
    """Keys of an instance's Dagster resources."""

    scan: str
    tables: str
    search: str
    inventory: str

    @property
    def of_follow_up(self) -> set[str]:
        """Those of what follows a scan: apply and undo."""
        return {self.tables, self.inventory}


@dataclass(frozen=True, kw_only=True)
class InstanceRun:
    """A run of one instance, whatever it does; `writer` makes what writes its plan."""

    instance: Instance
    run_id: str
    tables: Tables
    inventory: Callable[[], Inventory]
    writer: Callable[[Inventory, Journal], Writer] = Writer
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
    `own_days`, the run's id. `days_named` are those of its partitions, or today where it has none.
    """

    options: ScanOptions
    days_named: Sequence[date]
    window: Window
    may_write: bool
    own_days: str | None
    search: Callable[[], EvidenceSource]


def scan_run(context: Any, instance: Instance) -> ScanRun:
    """Read the run off the context of an asset, an op or a check.

    Raises:
        dagster.Failure: the tables are another instance's, or the last day is before scan.first_day.
    """
    keys = resource_keys(instance)
    options: ScanOptions = getattr(context.resources, keys.scan)
    tables: Tables = getattr(context.resources, keys.tables)
    today, tags = today_of(instance), context.run.tags
    first, last = (
        date.fromisoformat(tags.get(end) or tags.get(PARTITION) or today.isoformat())
        for end in (RANGE_START, RANGE_END)
    )
    with as_dagster_failure():
        tables.claim()
        window = window_of(instance, last, lookback_days=options.lookback_days)
    past = is_past(window, today, late_days=instance.scan.late_days)
    return ScanRun(
        instance=instance,
        options=options,
        run_id=context.run.run_id,
        days_named=days_of(Window(first, last)),
        window=window,
        may_write=not options.dry_run and (options.force or not past),
        own_days=context.run.run_id if options.dry_run and _plans(context, instance) else None,
        tables=tables,
        search=getattr(context.resources, keys.search),
        inventory=getattr(context.resources, keys.inventory),
    )


def follow_up_run(context: dg.OpExecutionContext, instance: Instance) -> InstanceRun:
    """Read the run off the context of an op that follows a scan: without window and options.

    Raises:
        dagster.Failure: the tables are another instance's.
    """
    keys = resource_keys(instance)
    tables: Tables = getattr(context.resources, keys.tables)
    with as_dagster_failure():
        tables.claim()
    inventory = getattr(context.resources, keys.inventory)
    return InstanceRun(instance=instance, run_id=context.run.run_id, tables=tables, inventory=inventory)


def today_of(instance: Instance) -> date:
    """The running day in the instance's time zone."""
    return datetime.now(ZoneInfo(instance.scan.timezone)).date()


def window_of(instance: Instance, last: date, *, lookback_days: int | None = None) -> Window:
    """The look-back window that ends with a day (rules 4.2).

    Raises:
        ConfigurationError: the day is before scan.first_day.
    """
    try:
        return look_back_window(last, lookback_days or instance.scan.lookback_days, instance.scan.first_day)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def tag_run(context: Any, run: ScanRun) -> None:
    """Give a run the tags by which an operator finds it, where whoever launched it did not."""
    tags = scan_tags(run.instance, run.window, dry_run=run.options.dry_run)
    if not tags.items() <= context.run.tags.items():
        with as_dagster_failure():
            context.instance.add_run_tags(run.run_id, tags)


def scan_tags(instance: Instance, window: Window, *, dry_run: bool) -> dict[str, str]:
    """The tags of a run over a window, by which an operator finds it."""
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


def resource_keys(instance: Instance) -> ResourceKeys:
    """Name the resources. Dagster takes identifiers only; a slug may begin with a digit, never with `_`."""
    keys = (named(instance, part) for part in ResourceKeys._fields)
    return ResourceKeys(*(key if key.isidentifier() else f"_{key}" for key in keys))


def scan_resources(instance: Instance, tables: Tables) -> dict[str, Any]:
    """The Dagster resources of an instance, by key."""
    keys = resource_keys(instance)
    return {
        keys.scan: scan_options(instance),
        keys.tables: tables,
        keys.search: opened_once(lambda: SearchClient(instance)),
        keys.inventory: opened_once(lambda: open_inventory(instance)),
    }


def scan_options(instance: Instance) -> ScanOptions:
    """The options with the defaults of the instance file.

    They are defaults of the class: those of an object would be lost where a launchpad sets another option.
    """
    settings = {
        "lookback_days": instance.scan.lookback_days,
        "enrich": instance.scan.enrich,
        "dry_run": instance.writes.dry_run,
    }
    fields: dict[str, Any] = {
        name: (field.annotation, Field(default=settings[name], description=field.description))
        for name, field in ScanOptions.model_fields.items()
        if name in settings
    }
    return create_model("ScanOptions", __base__=ScanOptions, **fields)()


def opened_once(client: Callable[[], AbstractContextManager[Any]]) -> dg.ResourceDefinition:
    """A function that opens a client at its first call and gives the same one afterwards.

    The assets of a run share the client, and with it one log-in. It is opened by the asset that needs it
    first, so that a secret that is not set fails a step with a message, not the run with a stack trace.
    """

    @dg.resource
    def client_resource(_: dg.InitResourceContext) -> Generator[Callable[[], Any]]:
        with ExitStack() as open_clients:
            yield cache(lambda: open_clients.enter_context(client()))

    return client_resource


@contextmanager
def as_dagster_failure() -> Generator[None]:
    """Turn what an operator can fix into Dagster failures: the UI shows a message instead of a stack trace.

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
