"""One scan: a run of one instance over one look-back window, as its assets see it.

How a run goes: the step that comes first reads the run off Dagster's context (`scan_run`), finds out
whether it may write, and begins its row in `runs` (`record`). Then each step makes its table: `evidence`
fetches the days that are wanted and adds up shares, `inventory` lists hosts and users, `owners` matches
names and decides, `checks` looks for faults, `sink` plans and writes through the one gate in `writing`, and
`report` leaves the page. Every step works within `as_dagster_failure`, which turns an error into its
message and ends the row.

What an operator chooses in the launchpad is `ScanOptions`; which days a run names, and with which one its
window ends, follows from its partitions. What is done with them is up to the assets.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl

from assets_defs.record import RunRecord
from ownership.declaration import InvalidTableError
from ownership.names import printable
from ownership.windows import Window, days_of, look_back_window
from resources.errors import AssetOwnersError, ConfigurationError, TransientError
from resources.failures import operator_message
from resources.inventory import open_inventory
from resources.inventory.adapter import Inventory
from resources.search import open_source
from resources.search.source import EvidenceSource, extraction_fingerprint
from resources.settings import MAX_LOOKBACK_DAYS, Instance, command_line, journal_url, load_instance, named
from resources.store.tables import SNAPSHOTS, Tables, short_run_id
from resources.writeback.journal import Journal
from resources.writeback.journals import try_journal
from resources.writeback.writer import Writer

PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
BACKFILL = "dagster/backfill"
WINDOW_TAG = "asset_owners/window"

INPUTS = ("logons", *SNAPSHOTS, "blocking_check")
"""The steps that a plan rests on: a run that writes has all of them."""
SINK = "owner_writes"
Kind = Literal["run", "dry_run", "backfill"]
"""What a scan is, as in the table `runs`."""
LEFT_OUT = "left_out"
"""In the options of a run: the steps that were not chosen, of `INPUTS` and the sink."""


@dataclass(frozen=True)
class ScanOptions:
    """What an operator may choose for one run."""

    lookback_days: int
    enrich: bool
    dry_run: bool
    refetch: bool = True
    force: bool = False
    limit: int | None = None


OPTIONS = {
    "lookback_days": "Look-back window: calendar days that end with the last day of the run, or today.",
    "enrich": "Enrich host information by asset owner: copy the owner's department and criticality.",
    "dry_run": "Plan only: decide and store what would be written, write nothing.",
    "refetch": "Fetch every day named; off: only those missing or not settled.",
    "force": "Write although the run names several days, or a last day long past (scan.late_days).",
    "limit": "Write at most this many hosts of the plan.",
}
"""The options as the launchpad describes them."""


class ResourceKeys(NamedTuple):
    """Keys of an instance's Dagster resources."""

    scan: str
    tables: str
    search: str
    inventory: str


@dataclass(frozen=True, kw_only=True)
class InstanceRun:
    """A run of one instance, whatever it does; `writer` makes what writes its plan.

    `only_plans` says why the run sends nothing to the inventory and publishes no table (None: it may).
    """

    instance: Instance
    run_id: str
    tables: Tables
    inventory: Callable[[], Inventory]
    record: RunRecord
    log: logging.Logger
    only_plans: str | None
    writer: Callable[[Inventory, Journal, float], Writer] = Writer

    @property
    def may_write(self) -> bool:
        """Whether the run publishes its tables and may write owners."""
        return self.only_plans is None


@dataclass(frozen=True, kw_only=True)
class ScanRun(InstanceRun):
    """A run of one instance over one look-back window.

    `left_out` are the steps that it lacks. `days_named` are those of its partitions, or today where it has
    none. `plans` is false where the sink was not chosen.
    """

    options: ScanOptions
    days_named: Sequence[date]
    window: Window
    kind: Kind
    left_out: Sequence[str]
    plans: bool
    search: Callable[[], EvidenceSource]

    @property
    def own_days(self) -> str | None:
        """The id under which the run keeps to itself the days that it fetches; None: analysts see them.

        They are what the index holds, whatever the run may write, but a dry run changes no table that
        analysts look at (rules 4.2, 7.6).
        """
        return self.run_id if self.options.dry_run and self.plans else None

    def table(self, name: str) -> pl.DataFrame:
        """The rows of a table as this run made it, or else as it was published last."""
        return self.tables.read(name, run_id=self.run_id).collect()

    def made(self, name: str) -> pl.LazyFrame:
        """The rows of a table from which a step goes on: as this run made it, where its plan counts."""
        if self.plans and not self.left_out and not self.tables.holds(name, self.run_id):
            raise AssetOwnersError(not_made_by_this_run(self, [name]))
        return self.tables.read(name, run_id=self.run_id)

    def days(self, days: Window | Sequence[date]) -> pl.DataFrame:
        """Rows of logon_days, by day; those that the run keeps to itself come first."""
        return self.tables.logon_days(days, run_id=self.run_id)

    def counts(self, days: Window | Sequence[date]) -> pl.LazyFrame:
        """Rows of logon_counts; those that the run keeps to itself come first."""
        return self.tables.logon_counts(days, run_id=self.run_id)

    def store(self, table: str, frame: pl.DataFrame) -> None:
        """Store what the run made of a table; analysts see it where the run may write."""
        self.tables.write(table, frame, run_id=self.run_id, publish=self.may_write)


def scan_run(context: Any, instance: Instance) -> ScanRun:
    """Read the run off the context of an asset, an op or a check; the first to do so begins its record.

    Raises:
        dagster.DagsterUserCodeExecutionError: the tables are another instance's, the last day is before
            scan.first_day or in the future, an option is out of bounds, ASSET_OWNERS_JOURNAL is no address of
            a database, or the instance file says something else than when the run began.
    """
    options: ScanOptions
    tables: Tables
    options, tables, search, inventory = (getattr(context.resources, key) for key in resource_keys(instance))
    record = RunRecord(tables, context.run.run_id, context.instance, context.log)
    tags = context.run.tags
    with as_dagster_failure():
        _require_within_bounds(options)
        journal_url()  # a wrong one would end the run when all but the writing is done
        tables.require_own()
        # All steps agree on the running day: midnight may pass while the run works.
        started_at = record.get("started_at")
        today = today_of(instance, started_at)
        first, last = (
            date.fromisoformat(tags.get(end) or tags.get(PARTITION) or today.isoformat())
            for end in (RANGE_START, RANGE_END)
        )
        if first > last:
            raise ConfigurationError(f"{first} is later than {last}; name the first day first")
        if last > today:
            raise ConfigurationError(f"{last} is in the future; choose days up to {today}")
        window = window_of(instance, last, lookback_days=options.lookback_days)
    days_named = days_of(Window(first, last))
    chosen = {step for step in (*INPUTS, SINK) if has_step(context, instance, step)}
    plans = SINK in chosen
    # A run that only fetches days, or looks at tables, lacks nothing.
    left_out = [step for step in (*INPUTS, SINK) if chosen & {*SNAPSHOTS, SINK} and step not in chosen]
    kind, only_plans = _restriction(
        instance,
        options,
        left_out=left_out,
        days_named=len(days_named),
        one_of_many=_of_a_backfill(context),
        ended=window.last if window.last < today - timedelta(days=instance.scan.late_days) else None,
    )
    run = ScanRun(
        instance=instance,
        run_id=context.run.run_id,
        tables=tables,
        inventory=inventory,
        record=record,
        log=context.log,
        only_plans=only_plans if left_out or plans else None,
        options=options,
        days_named=days_named,
        window=window,
        kind=kind if plans else "backfill",
        left_out=left_out,
        plans=plans,
        search=search,
    )
    with as_dagster_failure(run):
        if started_at is not None:
            _require_as_begun(run)
            return run
        _begin(context, run)
        if plans:
            try_journal(tables)
        # Before the first step is begun, so that none works in vain for minutes.
        if "logons" in chosen:
            run.search()
        if chosen & {"inventory_hosts", "inventory_users", SINK}:
            run.inventory()
    return run


def _restriction(
    instance: Instance,
    options: ScanOptions,
    *,
    left_out: Sequence[str],
    days_named: int,
    one_of_many: bool,
    ended: date | None,
) -> tuple[Kind, str | None]:
    """What a run is, and why it sends nothing to the inventory, as its first log line says it."""
    if options.dry_run:
        why = ", because writes.dry_run is on" if instance.writes.dry_run else ""
        return "dry_run", f"Dry run: nothing is sent to the inventory{why}"
    if left_out:
        return "dry_run", (
            f"Nothing is sent to the inventory, and no table is published: this run lacks the steps "
            f"{', '.join(left_out)}, and what other runs made may be out of date. A run that may write: "
            f"{command_line(instance, 'run')}"
        )
    if options.force:
        return "run", None
    if days_named > 1 or one_of_many:
        days = f"of {days_named} days" if days_named > 1 else "with a run for each day"
        return "backfill", (
            f"Backfill {days}: it fetches, decides and plans. Nothing is sent to the inventory, because "
            "`force` is off"
        )
    if ended:
        return "dry_run", (
            f"Nothing is sent to the inventory: the window ended on {ended}, more than "
            f"{instance.scan.late_days} days ago, and `force` is off"
        )
    return "run", None


def _of_a_backfill(context: Any) -> bool:
    """Whether a run is one of a backfill with a run for each day, or executes one of these again.

    Once the backfill has ended, Dagster leaves its tag out of what executes its runs again.
    """
    first = context.run.root_run_id and context.instance.get_run_by_id(context.run.root_run_id)
    return any(BACKFILL in run.tags for run in (context.run, first) if run)


def has_step(context: Any, instance: Instance, step: str) -> bool:
    """Whether a step was chosen for a run, by whichever selection of assets, checks or ops."""
    return context.job_def.has_node_named(named(instance, step))


def _begin(context: Any, run: ScanRun) -> None:
    """Begin the record of a run, and say in its first line whether it writes."""
    context.instance.add_run_tags(run.run_id, scan_tags(run.instance, run.window))
    if not run.plans and not run.left_out:
        run.record.begin(run.kind, window=Window(run.days_named[0], run.days_named[-1]))
        return
    begun = run.record.begin(
        run.kind,
        window=run.window,
        rules=run.instance.rules.as_rules(),
        options=_chosen(run),
        message=run.only_plans,
        settings_fingerprint=settings_fingerprint(run.instance),
        **_adopted(context, run),
    )
    if begun:
        context.log.info(run.only_plans or f"Owners are written to {run.instance.platform.address}")


def _require_as_begun(run: ScanRun) -> None:
    """Refuse to go on by other settings than the run began by: each process of a run reads the file anew.

    What the run said of itself, or what it made, would not be true any more.
    """
    row = run.tables.appended("runs", run.run_id).row(0, named=True)
    if row["settings_fingerprint"] and not _is_like(row, run):
        raise _changed_meanwhile(run.instance)


def require_as_filed(run: InstanceRun) -> None:
    """Refuse to write by an instance file that says something else by now, such as `dry_run`."""
    file = run.instance.file
    if file and load_instance(file) != run.instance:
        raise _changed_meanwhile(run.instance)


def _changed_meanwhile(instance: Instance) -> AssetOwnersError:
    return AssetOwnersError(
        f"The instance file of {instance.name} was changed while this run worked; nothing more is done. Run "
        f"again: {command_line(instance, 'run')}"
    )


def _is_like(row: Mapping[str, Any], run: ScanRun) -> bool:
    """Whether a row of `runs` has the kind, the window and the settings of a run."""
    names = ("kind", "window_from", "window_to", "settings_fingerprint")
    now = run.kind, run.window.first, run.window.last, settings_fingerprint(run.instance)
    return tuple(row[name] for name in names) == now


def _adopted(context: Any, run: ScanRun) -> dict[str, Any]:
    """Take over what the run has made that this one executes again in part; return what `runs` holds of it.

    What that one made as another kind of run, for another window, by other settings, or of what other runs
    had made, is left where it is; the plan then lacks it.
    """
    parent, again = context.run.parent_run_id, context.run.step_keys_to_execute
    if not parent or not again:
        return {}
    row = next(run.tables.appended("runs", parent).iter_rows(named=True), None)
    if not row or not _is_like(row, run) or LEFT_OUT in json.loads(row["options"]):
        return {}
    run.tables.adopt(parent, run_id=run.run_id, publish=run.may_write)
    # What the check let through is not what comes of steps that are done again.
    checked = {named(run.instance, step) for step in INPUTS}.isdisjoint(again)
    return {"of_run": parent, "checked_at": row["checked_at"] if checked else None}


def settings_fingerprint(instance: Instance) -> str:
    """Hash of the settings that decide what a run concludes about the same inventory."""
    fields = instance.platform_user_value_field, instance.platform_hostname_field
    rules = instance.rules.model_dump_json()
    parts = [*fields, rules, instance.target, extraction_fingerprint(instance)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _chosen(run: ScanRun) -> dict[str, Any]:
    """The options of a run that differ from what the instance file says, and what was left out of it."""
    chosen = asdict(run.options).items() - asdict(default_options(run.instance)).items()
    differing = dict(sorted(chosen))
    differing.pop("refetch", None)  # it says how days are looked at, not what comes of the run
    if run.window == window_of(run.instance, run.window.last):
        differing.pop("lookback_days", None)  # the command line names what the window has
    return differing | ({LEFT_OUT: run.left_out} if run.left_out else {})


def follow_up_run(
    context: dg.OpExecutionContext, instance: Instance, command: str, of_run: str, options: Mapping[str, Any]
) -> InstanceRun:
    """Read the run off the context of an op that follows a scan, and begin its record."""
    keys = resource_keys(instance)
    tables: Tables = getattr(context.resources, keys.tables)
    record = RunRecord(tables, context.run.run_id, context.instance, context.log)
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
        only_plans="Dry run: nothing is sent to the inventory" if dry_run else None,
    )


def _require_within_bounds(options: ScanOptions) -> None:
    """Refuse numbers of days or hosts that the command line refuses, and that the launchpad lets through."""
    if not 1 <= options.lookback_days <= MAX_LOOKBACK_DAYS:
        raise ConfigurationError(
            f"lookback_days: {options.lookback_days} is no number of days; give 1 to {MAX_LOOKBACK_DAYS:,}"
        )
    if options.limit is not None and options.limit < 1:
        raise ConfigurationError(
            f"limit: {options.limit} would write nothing; give 1 or more, or switch `dry_run` on to see "
            "what would be written"
        )


def not_made_by_this_run(run: InstanceRun, missing: Sequence[str]) -> str:
    """Say what a run would have to make itself before it may write, and how to go on."""
    return (
        f"Nothing was written: this run did not make {', '.join(missing)} itself, and what other runs made "
        "may be out of date. Launch the whole job again (all steps, not from failure): "
        f"{command_line(run.instance, 'run')}; or carry out a plan that a run stored: "
        f"{command_line(run.instance, 'apply')} RUN_ID"
    )


def listed(run: InstanceRun, query: str) -> str:
    """The command that lists what a run's tables hold."""
    return command_line(run.instance, "sql", "--run", short_run_id(run.run_id), query)


def today_of(instance: Instance, at: datetime | None = None) -> date:
    """The running day in the instance's time zone, or the day of another moment."""
    return (at or datetime.now(UTC)).astimezone(ZoneInfo(instance.scan.timezone)).date()


def window_of(instance: Instance, last: date, *, lookback_days: int | None = None) -> Window:
    """The look-back window that ends with a day, none before scan.first_day (rules 4.2)."""
    try:
        return look_back_window(last, lookback_days or instance.scan.lookback_days, instance.scan.first_day)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def scan_tags(instance: Instance, window: Window) -> dict[str, str]:
    """The tags of a run over a window, by which an operator finds it."""
    return {**run_tags(instance), WINDOW_TAG: f"{window.first}/{window.last}"}


def run_tags(instance: Instance) -> dict[str, str]:
    """The tags by which an operator finds the runs of an instance."""
    return {"asset_owners/instance": instance.name}


def resource_keys(instance: Instance) -> ResourceKeys:
    """Name the resources. Dagster takes identifiers only; a slug may begin with a digit, never with `_`."""
    keys = (named(instance, part) for part in ResourceKeys._fields)
    return ResourceKeys(*(key if key.isidentifier() else f"_{key}" for key in keys))


def scan_resources(
    instance: Instance,
    tables: Tables,
    *,
    source: Callable[[Instance], EvidenceSource] = open_source,
    inventory: Callable[[Instance], Inventory] = open_inventory,
) -> dict[str, Any]:
    """The Dagster resources of an instance, by key; `source` and `inventory` open its services."""
    keys = resource_keys(instance)
    return {
        keys.scan: _options_resource(instance),
        keys.tables: tables,
        keys.search: opened_once(instance, source),
        keys.inventory: opened_once(instance, inventory),
    }


def default_options(instance: Instance) -> ScanOptions:
    """The options as the instance file has them."""
    scan = instance.scan
    return ScanOptions(scan.lookback_days, enrich=scan.enrich, dry_run=instance.writes.dry_run)


def _options_resource(instance: Instance) -> dg.ResourceDefinition:
    """The options of a run, chosen once for all of its steps."""
    defaults = asdict(default_options(instance))
    fields = {
        name: dg.Field(
            dg.Noneable(int) if name == "limit" else type(defaults[name]),
            default_value=defaults[name],
            description=description,
        )
        for name, description in OPTIONS.items()
    }

    def chosen(context: dg.InitResourceContext) -> ScanOptions:
        options = ScanOptions(**context.resource_config)
        # A run that is executed again, or a page that was opened before, may know an earlier setting.
        return replace(options, dry_run=options.dry_run or instance.writes.dry_run)

    return dg.ResourceDefinition(chosen, fields)


def opened_once(
    instance: Instance, client: Callable[[Instance], AbstractContextManager[Any]]
) -> dg.ResourceDefinition:
    """A function that opens a client at its first call and gives the same one afterwards.

    The assets of a run share the client, and with it one log-in. It is opened by the asset that needs it
    first, so that a secret that is not set fails a step with a message, which names all that are missing. A
    service that hangs is told then, before anything long is asked of it.
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


@contextmanager
def as_dagster_failure(run: InstanceRun | None = None, *, last: bool = False) -> Generator[None]:
    """Turn what an operator can fix into a failure that the UI shows as a message without a stack trace.

    Names in it come from outside: none acts on a terminal, or makes a line of its own in a log.

    The record of `run` gets the reason; where the step is its `last`, also that all went well.
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
            run.record.fail(
                message or printable(f"an error in the program: {type(error).__name__}: {error}"),
                may_go_well_later=isinstance(error, TransientError) and not last,
            )
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
    """The message in what Dagster keeps of the error of a step; nothing for an error in the program."""
    if error is None or error.cls_name != dg.DagsterUserCodeExecutionError.__name__:
        return ""
    # Python puts the name of the class before a message, and nothing after it where there is none.
    return error.message.partition(f"{error.cls_name}: ")[2].strip()
