"""One scan: a run of one instance over one look-back window, as its assets see it.

What an operator chooses in the launchpad is `ScanOptions`; which days a run names, and with which one its
window ends, follows from its partitions. What is done with them is up to the assets.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import Field, create_model

from assets_defs.record import RunRecord
from ownership.declaration import InvalidTableError
from ownership.names import printable
from ownership.windows import Window, days_of, is_past, look_back_window
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import operator_message
from resources.inventory.adapter import Inventory, open_inventory
from resources.search.client import SearchClient
from resources.search.source import EvidenceSource, extraction_fingerprint
from resources.settings import MAX_LOOKBACK_DAYS, Instance, command_line, journal_url, named
from resources.store.tables import Tables
from resources.writeback.journal import Journal
from resources.writeback.journals import try_journal
from resources.writeback.writer import Writer

PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
BACKFILL = "dagster/backfill"
WINDOW_TAG = "asset_owners/window"

INPUTS = (
    "logons",
    "inventory_hosts",
    "inventory_users",
    "host_user_shares",
    "username_matches",
    "owner_decisions",
    "blocking_check",
)
"""The steps that a plan rests on: a run that may write has all of them."""
LEFT_OUT = "left_out"
"""In the options of a run: the steps among `INPUTS` that were not chosen."""


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
        default=False,
        description="Write although the run names several days, or a last day long past (scan.late_days).",
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
    record: RunRecord
    writer: Callable[[Inventory, Journal], Writer] = Writer
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> str:
        """How long the step has been at work, for the line that reports on it."""
        return f"{time.monotonic() - self.started:.1f} s"


@dataclass(frozen=True, kw_only=True)
class ScanRun(InstanceRun):
    """A run of one instance over one look-back window.

    `only_plans` says why the run sends nothing to the inventory (None: it may write); such a run publishes
    nothing that it made. The days that it fetched are what the index holds, so it publishes those; but a dry
    run changes no table that analysts look at (rules 4.2, 7.6) and keeps them as `own_days`, the run's id.
    `left_out` are the steps that a plan rests on and that the run lacks. `days_named` are those of its
    partitions, or today where it has none. A run that does not go on to plan writes fills some tables only.
    """

    options: ScanOptions
    days_named: Sequence[date]
    window: Window
    only_plans: str | None
    left_out: Sequence[str]
    own_days: str | None
    plans: bool
    search: Callable[[], EvidenceSource]

    @property
    def may_write(self) -> bool:
        """Whether the run publishes its tables and may write owners."""
        return self.only_plans is None


def scan_run(context: Any, instance: Instance) -> ScanRun:
    """Read the run off the context of an asset, an op or a check; the first to do so begins its record.

    Raises:
        dagster.DagsterUserCodeExecutionError: the tables are another instance's, the last day is before
            scan.first_day, an option is out of bounds, or ASSET_OWNERS_JOURNAL is no address of a database.
    """
    keys = resource_keys(instance)
    options: ScanOptions = getattr(context.resources, keys.scan)
    tables: Tables = getattr(context.resources, keys.tables)
    tags, record = context.run.tags, _record(context, tables)
    with as_dagster_failure():
        _require_within_bounds(options)
        journal_url()  # a wrong one would end the run when all but the writing is done
        tables.claim()
        # All steps agree on the running day: midnight may pass while the run works.
        started_at = record.started_at()
        today = today_of(instance, started_at)
        first, last = (
            date.fromisoformat(tags.get(end) or tags.get(PARTITION) or today.isoformat())
            for end in (RANGE_START, RANGE_END)
        )
        window = window_of(instance, last, lookback_days=options.lookback_days)
    days_named = days_of(Window(first, last))
    # A run that only fetches days is no dry run of anything.
    plans = has_step(context, instance, "owner_writes")
    left_out = [step for step in INPUTS if plans and not has_step(context, instance, step)]
    run = ScanRun(
        instance=instance,
        options=options,
        run_id=context.run.run_id,
        record=record,
        days_named=days_named,
        window=window,
        only_plans=_why_only_planned(
            instance,
            options,
            window,
            today,
            left_out=left_out,
            days_named=len(days_named) if plans else 1,
            one_of_many=plans and BACKFILL in tags,
        ),
        left_out=left_out,
        own_days=context.run.run_id if options.dry_run and plans else None,
        plans=plans,
        tables=tables,
        search=getattr(context.resources, keys.search),
        inventory=getattr(context.resources, keys.inventory),
    )
    if started_at is None:
        with as_dagster_failure():
            _begin(context, run)
        with as_dagster_failure(run):
            if plans:
                try_journal(tables)
    return run


def _why_only_planned(
    instance: Instance,
    options: ScanOptions,
    window: Window,
    today: date,
    *,
    left_out: Sequence[str],
    days_named: int,
    one_of_many: bool,
) -> str | None:
    """Why a run sends nothing to the inventory, as its first log line says it; None where it may write."""
    if options.dry_run:
        return "Dry run: nothing is sent to the inventory"
    if left_out:
        return (
            f"Nothing is sent to the inventory: this run lacks the steps {', '.join(left_out)}, and what "
            f"other runs made may be out of date. A run that may write: {command_line(instance, 'run')}"
        )
    if options.force:
        return None
    if days_named > 1 or one_of_many:
        days = f"of {days_named} days" if days_named > 1 else "with a run for each day"
        return (
            f"Backfill {days}: it fetches, decides and plans. Nothing is sent to the inventory, because "
            "`force` is off"
        )
    if is_past(window, today, late_days=instance.scan.late_days):
        return (
            f"Nothing is sent to the inventory: the window ended on {window.last}, more than "
            f"{instance.scan.late_days} days ago, and `force` is off"
        )
    return None


def has_step(context: Any, instance: Instance, step: str) -> bool:
    """Tell whether a step was chosen for a run, by whichever selection of assets, checks or ops."""
    return context.job_def.has_node_named(named(instance, step))


def _begin(context: Any, run: ScanRun) -> None:
    """Begin the record of a run, and say in its first line whether it writes."""
    if not run.plans:
        run.record.begin("backfill", window=Window(run.days_named[0], run.days_named[-1]))
        return
    begun = run.record.begin(
        _kind(run),
        window=run.window,
        options=_chosen(run),
        of_run=_adopted(context, run),
        message=run.only_plans,
    )
    if begun:
        context.log.info(run.only_plans or f"Owners are written to {run.instance.platform.address}")


def _kind(run: ScanRun) -> str:
    if run.may_write:
        return "run"
    return "backfill" if run.only_plans and run.only_plans.startswith("Backfill") else "dry_run"


def _adopted(context: Any, run: ScanRun) -> str | None:
    """Take over the tables of the run that this one executes again in part; return its id, if there is one.

    What it had made for another window, or by other settings, is left where it is; the plan then misses it.
    """
    run.tables.note_settings(run.run_id, settings := _settings_fingerprint(run.instance))
    parent = context.run.parent_run_id
    if not parent or not context.run.step_keys_to_execute:
        return None
    row = run.tables.appended("runs", parent)
    if row.select("window_from", "window_to").rows() != [(run.window.first, run.window.last)]:
        return None
    if run.tables.settings_of(parent) != settings:
        return None
    run.tables.adopt(parent, run_id=run.run_id)
    return parent


def _settings_fingerprint(instance: Instance) -> str:
    """What tells settings apart by which a run decides otherwise about the same inventory."""
    fields = instance.platform_user_value_field, instance.platform_hostname_field
    rules = instance.rules.model_dump_json()
    told = [*fields, rules, instance.target, extraction_fingerprint(instance)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _chosen(run: ScanRun) -> dict[str, Any]:
    """The options of a run that differ from what the instance file says, and what was left out of it."""
    defaults = scan_options(run.instance)
    chosen = {name: getattr(run.options, name) for name in ScanOptions.model_fields}
    if run.window == window_of(run.instance, run.window.last):
        del chosen["lookback_days"]  # the command line names what the window has
    del chosen["refetch"]  # it says how days are looked at, not what comes of the run
    differing = {name: value for name, value in chosen.items() if value != getattr(defaults, name)}
    return differing | ({LEFT_OUT: run.left_out} if run.left_out else {})


def follow_up_run(
    context: dg.OpExecutionContext, instance: Instance, kind: str, of_run: str, options: Mapping[str, Any]
) -> InstanceRun:
    """Read the run off the context of an op that follows a scan, and begin its record.

    Raises:
        dagster.DagsterUserCodeExecutionError: the tables are another instance's.
    """
    keys = resource_keys(instance)
    tables: Tables = getattr(context.resources, keys.tables)
    with as_dagster_failure():
        tables.claim()
        record = _record(context, tables)
        record.begin(kind, of_run=of_run, options=options)
    return InstanceRun(
        instance=instance,
        run_id=context.run.run_id,
        record=record,
        tables=tables,
        inventory=getattr(context.resources, keys.inventory),
    )


def _record(context: Any, tables: Tables) -> RunRecord:
    def tag(tags: Mapping[str, str]) -> None:
        context.instance.add_run_tags(context.run.run_id, tags)

    def seconds_by_step() -> dict[str, float]:
        now, steps = time.time(), context.instance.get_run_step_stats(context.run.run_id)
        return {
            # The op of a graph has the graph before it; `named` put the instance before its name.
            one.step_key.rpartition(".")[2].partition("__")[2]: round(
                (one.end_time or now) - one.start_time, 3
            )
            for one in steps
            if one.start_time
        }

    return RunRecord(tables, context.run.run_id, tag=tag, seconds_by_step=seconds_by_step, log=context.log)


def _require_within_bounds(options: ScanOptions) -> None:
    """Refuse numbers of days or hosts that the command line refuses, and that the launchpad lets through.

    Raises:
        ConfigurationError: one is out of bounds.
    """
    if not 1 <= options.lookback_days <= MAX_LOOKBACK_DAYS:
        raise ConfigurationError(
            f"lookback_days: {options.lookback_days} is no number of days; give 1 to {MAX_LOOKBACK_DAYS:,}"
        )
    if options.limit is not None and options.limit < 1:
        raise ConfigurationError(
            f"limit: {options.limit} would write nothing; give 1 or more, or switch `dry_run` on to see "
            "what would be written"
        )


def today_of(instance: Instance, at: datetime | None = None) -> date:
    """The running day in the instance's time zone, or the day of another moment."""
    return (at or datetime.now(UTC)).astimezone(ZoneInfo(instance.scan.timezone)).date()


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
    tags = scan_tags(run.instance, run.window)
    if not tags.items() <= context.run.tags.items():
        with as_dagster_failure(run):
            context.instance.add_run_tags(run.run_id, tags)


def scan_tags(instance: Instance, window: Window) -> dict[str, str]:
    """The tags of a run over a window, by which an operator finds it."""
    return {**run_tags(instance), WINDOW_TAG: f"{window.first}/{window.last}"}


def run_tags(instance: Instance) -> dict[str, str]:
    """The tags by which an operator finds the runs of an instance, and those of a sensor."""
    return {"asset_owners/instance": instance.name, "asset_owners/sensor": instance.sensor}


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
        keys.search: opened_once(lambda: _with_all_secrets(instance, SearchClient)),
        keys.inventory: opened_once(lambda: _with_all_secrets(instance, open_inventory)),
    }


@contextmanager
def _with_all_secrets(
    instance: Instance, client: Callable[[Instance], AbstractContextManager[Any]]
) -> Generator[Any]:
    """Open a client; where a secret is missing, name the other missing ones of the instance, too."""
    with ExitStack() as opening:
        try:
            opened = opening.enter_context(client(instance))
        except ConfigurationError:
            instance.require_secrets()
            raise
        yield opened


def scan_options(instance: Instance) -> ScanOptions:
    """The options with the defaults of the instance file.

    They are defaults of the class: those of an object would be lost where a launchpad sets another option.
    """
    return _options_by_default(instance.scan.lookback_days, instance.scan.enrich, instance.writes.dry_run)


@cache  # a class takes long to make, and most instances have the same defaults
def _options_by_default(lookback_days: int, enrich: bool, dry_run: bool) -> ScanOptions:  # noqa: FBT001
    settings = {"lookback_days": lookback_days, "enrich": enrich, "dry_run": dry_run}
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
def as_dagster_failure(run: InstanceRun | None = None, *, last: bool = False) -> Generator[None]:
    """Turn what an operator can fix into a failure that the UI shows as a message without a stack trace.

    Names in it come from outside: none acts on a terminal, or makes a line of its own in a log.

    Args:
        run: its record is told why it failed.
        last: when the step goes well, so has the run.
    """
    try:
        yield
    except dg.DagsterExecutionInterruptedError:
        if run:
            run.record.fail("interrupted; the next run settles what was not known to be written")
        raise
    except Exception as error:
        if isinstance(error, InvalidTableError):
            message: str | None = str(error)
        else:
            message = operator_message(error)
            message = message and printable(message)
        if run:
            run.record.fail(message or printable(f"an error in the program: {type(error).__name__}: {error}"))
        if message is None:
            raise
        raise failure(message) from AssetOwnersError()
    else:
        if run and last:
            run.record.succeed()


def failure(message: str) -> dg.DagsterUserCodeExecutionError:
    """Make what fails a step with a message; raise it from an error that was not raised itself.

    Of such an error Dagster's UI shows the cause's stack trace alone, and that one has none. With a
    `dagster.Failure` it shows the framework's stack.
    """
    cause = AssetOwnersError(message)
    return dg.DagsterUserCodeExecutionError(
        message, user_exception=cause, original_exc_info=(type(cause), cause, None)
    )


def failure_message(error: Any) -> str:
    """The message of a step that failed with one; nothing for an error in the program.

    Args:
        error: What Dagster keeps of the error of a step.
    """
    if error is None or error.cls_name != dg.DagsterUserCodeExecutionError.__name__:
        return ""
    # Python puts the name of the class before a message, and nothing after it where there is none.
    return error.message.partition(f"{error.cls_name}: ")[2].strip()
