"""A run of one instance, as its steps see it.

The first step makes it from Dagster's context (`scan_run`) and begins its row in `runs` (`record`). All work
within `record.as_dagster_failure`, which turns an error into its message and ends the row.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, partial
from typing import Any, NamedTuple

import dagster as dg
import polars as pl
from pydantic import Field

from assets_defs.record import RunRecord, announce, as_dagster_failure
from assets_defs.run_request import (
    DOES_NOT_WRITE,
    SINK,
    Mode,
    days_named,
    executed_steps,
    is_of_backfill,
    mode_of,
    scan_tags,
    today_of,
    window_of,
)
from ownership.windows import Window
from resources.errors import AssetOwnersError, ConfigurationError, TransientError
from resources.inventory import open_inventory
from resources.inventory.adapter import Inventory
from resources.ledger.ledger import Ledger
from resources.search import open_source
from resources.search.source import Logs, OpenSource, extraction_fingerprints
from resources.settings import (
    MAX_LOOKBACK_DAYS,
    BrokenInstance,
    Instance,
    changes_in_words,
    command_line,
    home,
    journal_url,
    load_instance,
    part_name,
)
from resources.store.retention import CHANGES, Retention
from resources.store.tables import INVENTORY, Tables
from resources.writeback.writer import Writer

OpenInventory = Callable[[Instance], AbstractContextManager[Inventory]]
PLAN = "plan"
"""The job of an instance whose runs never write."""


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


class Service(dg.ConfigurableResource):
    """A service that a run uses. The instance file says where it is, and how to log in there."""

    place: str = Field(description="Its address, and the index pattern of each log, or the tenant.")


class ResourceKeys(NamedTuple):
    """Keys of an instance's Dagster resources."""

    scan: str
    tables: str
    search: str
    inventory: str


def resource_keys(instance: Instance | BrokenInstance) -> ResourceKeys:
    """Name the resources. Dagster takes identifiers only; a slug may begin with a digit, never with `_`."""
    keys = (part_name(instance, part) for part in ResourceKeys._fields)
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
    return ScanOptions(lookback_days=scan.lookback_days, enrich=scan.enrich, dry_run=instance.writes.dry_run)


def shown_resources(instance: Instance | BrokenInstance) -> dict[str, dg.ResourceDefinition]:
    """Return what Dagster's page of resources shows of an instance, by key."""
    # Runs have others: with these, each launchpad would offer another address.
    keys = resource_keys(instance)
    if isinstance(instance, BrokenInstance):
        shown_as: Any = BrokenInstance  # as type; nobody calls it
        invalid = dg.ResourceDefinition(shown_as, description=instance.message)
        return dict.fromkeys((keys.scan, keys.search, keys.inventory), invalid)
    return {
        keys.scan: _options_resource(instance),
        keys.search: Service(place=instance.source_place).get_resource_definition(),
        keys.inventory: Service(place=instance.platform.place).get_resource_definition(),
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

    return dg.ResourceDefinition(chosen, fields, "What may be chosen for a run, in its launchpad.")


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
                try:
                    service.probe()
                except TransientError as error:
                    if instance.ca_file and home() / "sandbox" in instance.ca_file.parents:
                        up = command_line(None, "sandbox", "up")
                        said = f"{error}. The demo's services, unless they run already: {up}"
                        raise TransientError(said) from error
                    raise
                return service

            yield opened

    return client_resource


SECONDS_BETWEEN_LINES = 10  # how often a long step says how far it is
MISSING_STEPS = "missing_steps"
"""In the options of a run, as `runs` keeps them: the steps that it did not execute."""


@dataclass(frozen=True, kw_only=True)
class InstanceRun:
    """A run of one instance; `writer` makes what writes its plan."""

    instance: Instance
    run_id: str
    tables: Tables
    inventory: Callable[[], Inventory]
    record: RunRecord
    log: logging.Logger
    why_no_writes: str | None  # to the inventory, and publishes no table; None: it may do both
    writer: Callable[[Inventory, Ledger, float], Writer] = Writer

    @property
    def may_write(self) -> bool:
        """Whether the run publishes its tables and may write owners."""
        return self.why_no_writes is None

    def store(self, table: str, frame: pl.DataFrame) -> None:
        """Store what the run made of a table; analysts see it where the run may write."""
        self.tables.write(table, frame, run_id=self.run_id, publish=self.may_write)


@dataclass(frozen=True, kw_only=True)
class ScanRun(InstanceRun):
    """A run of one instance over one look-back window; `days_named` are its partitions, or today."""

    options: ScanOptions
    days_named: Sequence[date]
    window: Window
    mode: Mode
    search: Callable[[], Logs]

    @property
    def private_days_of(self) -> str | None:
        """The id under which a run keeps the days it fetches; None: analysts see them (rules 4.2, 7.11)."""
        return self.run_id if self.options.dry_run or self.mode.missing_steps else None

    def read(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table as this run made it, or else as it was published last."""
        return self.tables.read(table, run_id=self.run_id)

    def days(self, days: Window | Sequence[date]) -> pl.DataFrame:
        """Return rows of logon_days, by day; those that the run keeps to itself come first."""
        return self.tables.logon_days(days, run_id=self.run_id)

    def counts(self, days: Window | Sequence[date]) -> pl.LazyFrame:
        """Return rows of logon_counts; those that the run keeps to itself come first."""
        return self.tables.logon_counts(days, run_id=self.run_id)


class Progress:
    """Log how far a long step is, how fast, and how long it still takes; a short one never.

    Call it with how many are done and how many there are. `what` is counted, such as "Hosts written".
    """

    def __init__(
        self, log: Callable[[str], None], what: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._started = self._logged_at = clock()

    def __call__(self, done: int, total: int) -> None:
        """Log the progress, when it is time to."""
        now = self._clock()
        if now - self._logged_at < SECONDS_BETWEEN_LINES or not done:
            return
        self._logged_at = now
        rate = done / (now - self._started)
        self._log(
            f"{self._what}: {done:,} of {total:,} ({done / total:.0%}), {rate:,.1f} a second, "
            f"about {timedelta(seconds=round((total - done) / rate))} left"
        )


def scan_run(context: Any, instance: Instance) -> ScanRun:
    """Return the run that a context belongs to, of an asset, an op or a check; the first begins its record.

    Raises:
        dagster.DagsterUserCodeExecutionError: the tables are another instance's, the last day is before
            scan.first_day or in the future, an option is out of bounds, ASSET_OWNERS_JOURNAL is not an
            address of a database, or the instance file says something else than when the run began.
        dagster.DagsterExecutionInterruptedError: somebody terminated the run.
    """
    options: ScanOptions
    tables: Tables
    options, tables, search, inventory = (getattr(context.resources, key) for key in resource_keys(instance))
    always_dry = None
    if instance.writes.dry_run:  # a run that is executed again, or an old page, may know an earlier setting
        always_dry = "writes.dry_run is on"
    elif context.run.job_name == part_name(instance, PLAN):
        always_dry = f"the job {context.run.job_name} only plans"
    if always_dry:
        options = options.model_copy(update={"dry_run": True})
    record = run_record(context, instance, tables)
    with as_dagster_failure():
        options.require_within_bounds()
        journal_url()  # a wrong one would end the run when all but the writing is done
        tables.require_own()
        # All steps agree on the running day: midnight may pass while the run works.
        begun = record.row()
        today = today_of(instance, begun.get("started_at"))
        days = days_named(context.run.tags, today)
        window = window_of(instance, days[-1], lookback_days=options.lookback_days)
        steps = executed_steps(context, instance)
    late_days = instance.scan.late_days
    mode = mode_of(
        steps,
        dry_run=options.dry_run,
        always_dry=always_dry,
        force=options.force,
        days_named=len(days),
        is_of_backfill=is_of_backfill(context),
        ended=window.last if window.last < today - timedelta(days=late_days) else None,
        late_days=late_days,
        whole_run=command_line(instance, "run"),
    )
    run = ScanRun(
        instance=instance,
        run_id=context.run.run_id,
        tables=tables,
        inventory=inventory,
        record=record,
        log=context.log,
        why_no_writes=mode.why_no_writes,
        options=options,
        days_named=days,
        window=window,
        mode=mode,
        search=search,
    )
    with as_dagster_failure(record):
        if not begun:
            _begin(context, run, steps)
        else:
            record.require_running()
            now = [mode.kind, window.first, window.last, settings_fingerprint(instance)]
            before = [begun[name] for name in ("kind", "window_from", "window_to", "settings_fingerprint")]
            if before[-1] is not None and before != now:
                raise AssetOwnersError(
                    f"The instance file of {instance.name} was changed while this run worked; nothing more "
                    f"is done. Run again: {command_line(instance, 'run')}"
                )
    return run


def run_record(context: Any, instance: Instance, tables: Tables) -> RunRecord:
    """Return the record of the run that a context belongs to; people are told how it ends."""
    tell = partial(announce, instance, log=context.log)
    kept = Retention.of_instance(instance).model_dump()
    return RunRecord(tables, context.run.run_id, context.instance, context.log, announce=tell, settings=kept)


def settings_fingerprint(instance: Instance) -> str:
    """Return a hash of the settings that decide what a run concludes about the same inventory."""
    fields = instance.decisive_user_field, instance.platform_hostname_field
    rules = instance.rules.model_dump_json()
    parts = [*fields, rules, instance.target, *extraction_fingerprints(instance).values()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _begin(context: Any, run: ScanRun, steps: set[str]) -> None:
    """Begin the record of a run, log whether it writes, and try what it needs before the first step works."""
    mode = run.mode
    known: dict[str, Any] = {"window": Window(run.days_named[0], run.days_named[-1])}
    if mode.plans or mode.missing_steps:  # one that only fetches days, or checks tables, lacks no step
        known = {
            "window": run.window,
            "rules": run.instance.rules.as_rules(),
            "options": _chosen(run),
            "settings_fingerprint": settings_fingerprint(run.instance),
        }
    context.instance.add_run_tags(run.run_id, scan_tags(run.instance, known["window"]))
    fills = "This run fills tables only, and writes no owner"
    writes = f"Owners are written to {run.instance.platform.address}" if mode.plans else fills
    message = mode.why_no_writes
    if message and run.instance.changes:
        # Values that may name people stand in the options only.
        message += f"; tried: {', '.join(changes_in_words(run.instance))}"
    if run.record.begin(mode.kind, message=message, **known):
        context.log.info(message or writes)
    if "logons" in steps:
        run.search()
    if not steps.isdisjoint({*INVENTORY, SINK}):
        run.inventory()


def _chosen(run: ScanRun) -> dict[str, Any]:
    """Return the options that differ from what the instance file says, and the steps that are missing."""
    usual = default_options(run.instance).model_dump()
    differing = {
        name: chosen for name, chosen in sorted(run.options.model_dump().items()) if chosen != usual[name]
    }
    differing.pop("refetch", None)  # it says how days are fetched, not what the run finds
    if run.window == window_of(run.instance, run.window.last):
        differing.pop("lookback_days", None)  # the command line names what the window has
    differing |= {"days": len(run.days_named)} if run.mode.kind == "backfill" else {}
    differing |= {CHANGES: run.instance.changes} if run.instance.changes else {}
    return differing | ({MISSING_STEPS: run.mode.missing_steps} if run.mode.missing_steps else {})


def as_tried(instance: Instance, options: str) -> Instance:
    """Return the instance with the settings that a run tried, by its `options` in the table runs."""
    changes = json.loads(options).get(CHANGES)
    return load_instance(instance.file, changes) if changes and instance.file else instance


def follow_up_run(
    context: dg.OpExecutionContext, instance: Instance, command: str, of_run: str, options: Mapping[str, Any]
) -> InstanceRun:
    """Return the run that the context of `apply` or `undo` belongs to, and begin its record."""
    keys = resource_keys(instance)
    tables: Tables = getattr(context.resources, keys.tables)
    record = run_record(context, instance, tables)
    dry_run = options.get("dry_run")
    with as_dagster_failure():
        tables.require_own()
        record.begin(f"dry_run_of_{command}" if dry_run else command, of_run=of_run, options=options)
    return InstanceRun(
        instance=instance,
        run_id=context.run.run_id,
        tables=tables,
        inventory=getattr(context.resources, keys.inventory),
        record=record,
        log=context.log,
        why_no_writes=DOES_NOT_WRITE if dry_run else None,
    )
