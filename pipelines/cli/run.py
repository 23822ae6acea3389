"""`asset-owners run`: the job of an instance as Dagster would run it, recorded where its UI looks."""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.record import RunRecord, plans_only
from assets_defs.run import failure_message, today_of, window_of
from ownership.decisions import summary
from ownership.names import printable, printable_lines
from ownership.windows import Window
from pipelines.cli.errors import how_it_ended, message_and_status, print_error
from pipelines.cli.plans import hosts_of_plan, told_plan, too_large
from pipelines.cli.stored import tables_of
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from pipelines.schedules import launch_tags, run_config
from reports.summary import decisions_in_words, writes_in_words
from resources.errors import ConfigurationError
from resources.settings import (
    Instance,
    analysts_group,
    command_line,
    home,
    instance_path,
    journal_url,
    load_instance,
    tables_location,
)
from resources.store.tables import Tables, short_run_id


@dataclass(frozen=True)
class Overrides:
    """Parts of a run that whoever calls a command in this process swaps; the program itself swaps none.

    Attributes:
        resources: Gives the resources of an instance to swap, by resource key.
        recorded_in: Opens the Dagster instance that keeps the run, given the home.
    """

    resources: Callable[[Instance], Mapping[str, Any]] = lambda _: {}
    recorded_in: Callable[[Path], AbstractContextManager[dg.DagsterInstance]] = dagster_instance


NO_OVERRIDES = Overrides()
SHOWN_CONFLICTS = 10


@dataclass
class Report:
    """What `--json` prints; dates are inclusive.

    `plan` is only there for a run that planned and wrote nothing, `error` only for one that failed.
    """

    instance: str | None = None
    run_id: str | None = None
    window: dict[str, str | int] | None = None
    decisions: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    conflicts: int = 0
    dry_run: bool = False
    plan: list[dict[str, Any]] | None = None
    error: str | None = None

    def as_json(self) -> str:
        """One line; without `plan` and `error` when there was none."""
        left_out = {name for name in ("plan", "error") if getattr(self, name) is None}
        return json.dumps({key: value for key, value in asdict(self).items() if key not in left_out})


def run(
    given: str | None,
    *,
    lookback_days: int | None,
    dry_run: bool,
    enrich: bool,
    as_of: str | None,
    force: bool,
    limit: int | None,
    as_json: bool,
    overrides: Overrides | None = None,
) -> int:
    """Run the job and print what came of it; return the exit status (rules 8.1).

    `given` is the instance as the user names it; None: the only one.
    """
    report, instance = Report(dry_run=dry_run), None
    try:
        instance = load_instance(instance_path(given))
        report.instance = instance.name
        require_a_host(limit)
        instance.require_secrets()
        window = chosen_window(instance, as_of, lookback_days)
        report.window = _shown(window)
        report = run_scan(
            instance,
            window,
            dry_run=dry_run,
            enrich=enrich,
            force=force,
            limit=limit,
            overrides=overrides or NO_OVERRIDES,
        )
        report.plan = _plan(instance, report)
        status = 1 if report.error else 0
    except Exception as error:  # noqa: BLE001  (whatever it was, a program that reads the object is told)
        report.error, status = message_and_status(error)
    if as_json:
        print(report.as_json())
    elif instance and (report.plan is not None or not report.error):
        print(_in_words(instance, report))
    if report.error:
        print_error(report.error)
    return status


def run_scan(
    instance: Instance,
    window: Window,
    *,
    dry_run: bool = False,
    enrich: bool = True,
    force: bool = False,
    limit: int | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> Report:
    """Run the job over a window and report what the tables hold afterwards."""
    options: dict[str, Any] = {"lookback_days": window.days, "refetch": False, "force": force, "limit": limit}
    if dry_run:
        options["dry_run"] = True
    if not enrich:
        options["enrich"] = False
    tables, dry_run = tables_of(instance), dry_run or instance.writes.dry_run
    result = execute(
        instance,
        instance.slug,
        run_config(instance, **options),
        tags=launch_tags(instance, window),
        since=window.last,
        overrides=overrides,
    )
    report = _report(instance, tables, window, result)
    report.dry_run = any(map(plans_only, tables.appended("runs", result.run_id).to_dicts())) or dry_run
    return report


def _shown(window: Window) -> dict[str, str | int]:
    return {"from": window.first.isoformat(), "to": window.last.isoformat(), "days": window.days}


def _report(instance: Instance, tables: Tables, window: Window, result: dg.ExecuteInProcessResult) -> Report:
    report = Report(instance=instance.name, run_id=result.run_id, window=_shown(window))
    if not result.success:
        ended = how_it_ended(instance, tables, result.run_id, "run")
        report.error = "\n".join(dict.fromkeys([*errors(result), ended]))
    decisions = tables.of_run("owner_decisions", result.run_id)
    report.decisions = summary(decisions)
    report.conflicts = decisions.filter(action="conflict").height
    writes = tables.run_writes(result.run_id)
    report.writes = dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
    return report


def execute(
    instance: Instance,
    job: str,
    run_config: Mapping[str, Any],
    *,
    tags: Mapping[str, str] | None = None,
    since: date | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> dg.ExecuteInProcessResult:
    """Run a job of the instance in this process, recorded where the UI looks.

    Args:
        instance: whose job.
        job: its name.
        run_config: what is chosen for the run.
        tags: of the run.
        since: a day of the past that it is to look at, where the UI shows later ones only.
        overrides: parts that the caller swaps.

    Raises:
        ConfigurationError: the instance's tables are those of another one, or ASSET_OWNERS_JOURNAL is no
            address of a database.
    """
    tables_of(instance).claim()
    journal_url()  # before all that a run does until it writes
    definitions = build_definitions(
        [instance],
        home(),
        location=tables_location(),
        analysts=analysts_group(),
        since=since,
        resource_overrides=overrides.resources(instance),
    )
    with overrides.recorded_in(home()) as recorded:
        result = definitions.resolve_job_def(job).execute_in_process(
            instance=recorded,
            tags=tags,
            run_config={**run_config, "loggers": {"console": {}}},
            raise_on_error=False,
        )
        if not result.success:  # an interrupt may come between what the steps themselves record
            record = RunRecord(
                tables_of(instance),
                result.run_id,
                tag=lambda tags: recorded.add_run_tags(result.run_id, tags),
                seconds_by_step=dict,
                log=logging.getLogger(__name__),
            )
            record.fail("it ended early; its log says why")
    return result


def errors(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    """What each step that failed says, a blocking check included.

    A stack trace stays in the run's log, but for an error that nobody expected: its trace is printed.
    """
    checked = {
        event.step_key: event.asset_check_evaluation_data.description
        for event in result.filter_events(lambda event: event.event_type_value == "ASSET_CHECK_EVALUATION")
    }
    for event in result.get_step_failure_events():
        failure = event.step_failure_data
        if message := failure_message(failure.error):
            yield message
        elif description := checked.get(event.step_key):
            yield description
        elif failure.error and failure.error.cls_name == "DagsterExecutionInterruptedError":
            yield "the run was interrupted"
        elif failure.error:
            print(printable_lines(failure.error.to_string()), file=sys.stderr)
            message = (failure.error.cause or failure.error).message.strip()
            yield f"an error in the program: {printable(message)}"
    if not result.success and not result.get_step_failure_events():
        yield f"run {result.run_id} failed before its first step; its log says why"


def require_a_host(limit: int | None) -> None:
    """Refuse to write the first 0 hosts.

    Raises:
        ConfigurationError: with the option that was meant.
    """
    if limit == 0:
        raise ConfigurationError(
            "--limit: 0 would write nothing; give 1 or more, or use --dry-run to see what would be written"
        )


def chosen_window(instance: Instance, as_of: str | None, lookback_days: int | None) -> Window:
    """The window of a run: it ends with `as_of` in the instance's time zone, or today (rules 4.2).

    Raises:
        ConfigurationError: `as_of` is no day, in the future, or before scan.first_day.
    """
    today = today_of(instance)
    last = _day(as_of, ZoneInfo(instance.scan.timezone)) if as_of else today
    if last > today:
        raise ConfigurationError(f"--as-of: {last} is in the future; name a day up to {today}")
    return window_of(instance, last, lookback_days=lookback_days)


def _day(text: str, zone: ZoneInfo) -> date:
    try:
        moment = datetime.fromisoformat(text)
        return (moment.astimezone(zone) if moment.tzinfo else moment).date()
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"--as-of: {text!r} is no day; write it as 2026-01-31") from error


def _plan(instance: Instance, report: Report) -> list[dict[str, Any]] | None:
    """The hosts that a run planned to write where it was not to write, or planned too many."""
    planned = "planned" in report.writes
    if not report.run_id or not (planned or report.dry_run):
        return None
    tables = tables_of(instance)
    hosts = hosts_of_plan(tables, report.run_id)
    stopped = planned and too_large(instance, tables, report.run_id, hosts)
    return hosts if stopped or not report.error else None


def _conflicts(instance: Instance, report: Report) -> Iterator[str]:
    """Yield how many conflicts there are, the first hosts of the new ones, and what lists them."""
    if not report.conflicts or not report.run_id:
        return
    decisions = tables_of(instance).of_run("owner_decisions", report.run_id)
    new = decisions.filter("new_conflict").sort("host_id")
    hosts = [printable(f"{name} ({host_id})") for name, host_id in new.select("hostname", "host_id").rows()]
    number = f"{report.conflicts:,} conflict{'s' * (report.conflicts != 1)}"
    queries = ["FROM conflicts"]
    if hosts:
        more = f" ... and {len(hosts) - SHOWN_CONFLICTS:,} more" if len(hosts) > SHOWN_CONFLICTS else ""
        yield f"{number}, {len(hosts):,} of them new: {', '.join(hosts[:SHOWN_CONFLICTS])}{more}"
        queries += ["FROM conflicts WHERE is_new"] if len(hosts) < report.conflicts else []
    else:
        yield f"{number}, none of them new"
    for query in queries:
        yield f"    {command_line(instance, 'sql', '--run', short_run_id(report.run_id), query)}"


def _in_words(instance: Instance, report: Report) -> str:
    window, run_id = report.window or {}, report.run_id or ""
    days = f"{window['from']} to {window['to']} ({window['days']} days)"
    lines = [
        f"{printable(instance.name)}: {days}, run {run_id}",
        *decisions_in_words(report.decisions),
    ]
    lines += _conflicts(instance, report)
    if report.plan is None:
        lines += ["Writes:", *(writes_in_words(report.writes) if report.writes else ["    none"])]
    else:
        told = told_plan(instance, tables_of(instance), run_id, report.plan, command="apply", about=run_id)
        lines.append(told)
    return "\n".join(lines)
