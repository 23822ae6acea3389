"""`asset-owners run`: the job of an instance as Dagster would run it, recorded where its UI looks."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl

from assets_defs.record import RunRecord, plans_only
from assets_defs.run import failure_message, today_of, window_of
from assets_defs.specs import LOCATION
from ownership.decisions import summary
from ownership.names import printable, printable_lines
from ownership.windows import Window
from pipelines.cli.errors import how_it_ended, message_and_status, print_error
from pipelines.cli.plans import plan_of, told_plan
from pipelines.cli.stored import tables_of
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from pipelines.launcher import process_tag
from pipelines.repository import REPOSITORY
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
from resources.store.tables import short_run_id


def run(
    given: str | None,
    *,
    lookback_days: int | None,
    dry_run: bool,
    no_enrich: bool,
    as_of: str | None,
    force: bool,
    limit: int | None,
    as_json: bool,
) -> int:
    """Run the job and print what came of it; return the exit status (rules 8.1).

    `given` is the instance as the user names it; None: the only one. What --json prints has a `plan` only of
    a run that planned and wrote nothing, and an `error` only of one that failed.
    """
    nothing = {"instance": None, "run_id": None, "window": None, "decisions": {}, "writes": {}}
    report: dict[str, Any] = {**nothing, "conflicts": 0, "dry_run": dry_run}
    instance, status = None, 0
    try:
        instance = load_instance(instance_path(given))
        report["instance"] = instance.name
        options = _options(dry_run=dry_run, enrich=not no_enrich, force=force, limit=limit)
        instance.require_secrets()
        window = chosen_window(instance, as_of, lookback_days)
        report["window"] = {"from": f"{window.first}", "to": f"{window.last}", "days": window.days}
        _run_scan(instance, window, options, report)
        status = 1 if "error" in report else 0
    except Exception as error:  # noqa: BLE001  (whatever it was, it belongs in the object that --json prints)
        report["error"], status = message_and_status(error)
    if as_json:
        print(json.dumps(report))
    elif instance and ("plan" in report or "error" not in report):
        print(*_in_words(instance, report), sep="\n")
    if "error" in report:
        print_error(report["error"])
    return status


def _options(*, dry_run: bool, enrich: bool, force: bool, limit: int | None) -> dict[str, Any]:
    """The options of the run that were chosen; the others are those of the instance file."""
    if limit == 0:
        raise ConfigurationError(
            "--limit: 0 would write nothing; give 1 or more, or --dry-run to see what would be written"
        )
    options: dict[str, Any] = {"refetch": False, "force": force, "limit": limit}
    options |= {"dry_run": True} if dry_run else {}
    return options | ({} if enrich else {"enrich": False})


def _run_scan(instance: Instance, window: Window, options: Mapping[str, Any], report: dict[str, Any]) -> None:
    """Run the job over a window and report what the tables hold afterwards."""
    tables = tables_of(instance)
    config = run_config(instance, lookback_days=window.days, **options)
    tags = launch_tags(instance, window)
    result = execute(instance, instance.slug, config, tags=tags, since=window.last)
    report["run_id"] = run_id = result.run_id
    if not result.success:
        ended = how_it_ended(instance, tables, run_id, "run")
        report["error"] = "\n".join(dict.fromkeys([*errors(result), ended]))
    decisions = tables.of_run("owner_decisions", run_id)
    report["decisions"] = summary(decisions)
    report["conflicts"] = decisions.filter(action="conflict").height
    report["writes"] = outcomes_of(tables.run_writes(run_id))
    planned_only = any(map(plans_only, tables.appended("runs", run_id).to_dicts()))
    report["dry_run"] = planned_only or report["dry_run"] or instance.writes.dry_run
    if "planned" in report["writes"] or report["dry_run"]:
        plan = plan_of(instance, tables, run_id, succeeded=result.success)
        report |= {} if plan is None else {"plan": plan}


def outcomes_of(writes: pl.DataFrame) -> dict[str, int]:
    """Numbers of hosts by the outcome of their writes."""
    return dict(writes["outcome"].value_counts().sort("outcome").iter_rows())


def execute(
    instance: Instance,
    job: str,
    run_config: Mapping[str, Any],
    *,
    tags: Mapping[str, str] | None = None,
    since: date | None = None,
) -> dg.ExecuteInProcessResult:
    """Run a job of the instance in this process, recorded where the UI looks.

    `since` is a day of the past that it is to look at, where the UI shows later ones only.
    """
    tables = tables_of(instance)
    tables.claim()
    journal_url()  # a wrong address ends the run before all that it does until it writes
    definitions = build_definitions(
        [instance],
        home(),
        location=tables_location(),
        analysts=analysts_group(),
        since=since,
    )
    with dagster_instance(home()) as recorded:
        result = definitions.resolve_job_def(job).execute_in_process(
            instance=recorded,
            tags={**(tags or {}), **process_tag()},
            run_config={**run_config, "loggers": {"console": {}}},
            raise_on_error=False,
        )
        if not result.success:  # an interrupt may come between what the steps themselves record
            record = RunRecord(tables, result.run_id, recorded, logging.getLogger(__name__))
            record.fail("it ended early; its log says why")
        try:
            _give_to_job(recorded, result.run_id, job)
        except Exception as error:  # noqa: BLE001  (Dagster's; what the run did stands, whatever lists it)
            logging.getLogger(__name__).warning(f"The UI shows this run under Runs only: {error}")
    return result


def _give_to_job(recorded: dg.DagsterInstance, run_id: str, job: str) -> None:
    """Let the UI show a run with its job, on the timeline too, and execute it again by a click.

    Dagster records where its job is to be found only of runs that its own services begin, and has a command
    that adds it later, `dagster run migrate-repository`: this is what that does, without a code server.
    """
    location = {"__class__": "RegisteredRepositoryLocationOrigin", "location_name": LOCATION}
    repository = {"__class__": "ExternalRepositoryOrigin", "repository_location_origin": location}
    repository["repository_name"] = REPOSITORY
    origin = {"__class__": "ExternalPipelineOrigin", "external_repository_origin": repository}
    stored = json.dumps(origin | {"pipeline_name": job})
    # Who called this command has been told that it failed, and decides: the daemon tries nothing again.
    never_again = {"dagster/will_retry": "false", "dagster/max_retries": "0"}
    recorded.add_run_tags(run_id, {".dagster/repository": f"{REPOSITORY}@{LOCATION}"} | never_again)
    if run := recorded.get_run_by_id(run_id):
        found: Any = dg.deserialize_value(stored)
        recorded.run_storage.replace_job_origin(run, found)


def errors(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    """What each step that failed says, a blocking check included.

    Stack traces stay in the run's log; only that of an unexpected error is printed.
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


def chosen_window(instance: Instance, as_of: str | None, lookback_days: int | None) -> Window:
    """The window of a run: it ends with `as_of` in the instance's time zone, or today (rules 4.2)."""
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


def _in_words(instance: Instance, report: Mapping[str, Any]) -> Iterator[str]:
    window, run_id, tables = report["window"], report["run_id"], tables_of(instance)
    days = f"{window['from']} to {window['to']} ({window['days']} days)"
    yield f"{printable(instance.name)}: {days}, run {run_id}"
    yield from decisions_in_words(report["decisions"])
    if number := report["conflicts"]:
        new = tables.of_run("owner_decisions", run_id)["new_conflict"].sum()
        yield f"{number:,} conflict{'s' * (number != 1)}, {new:,} of them new"
        yield f"    {command_line(instance, 'conflicts', '--run', short_run_id(run_id))}"
    if "plan" in report:
        yield told_plan(instance, tables, run_id, report["plan"], command="apply", about=run_id)
    else:
        yield from ("Writes:", *(writes_in_words(report["writes"]) if report["writes"] else ["    none"]))
