"""Running a job of an instance in this process, and printing its result."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl

from assets_defs.launch import today_of, window_of
from assets_defs.record import RunRecord
from assets_defs.specs import LOCATION
from assets_defs.step_failures import failure_message
from ownership.codes import OUTCOME, SUCCESSES
from ownership.names import printable, printable_lines
from ownership.windows import Window
from pipelines.cli.describe_plan import describe_plan, plan_of
from pipelines.cli.exit_status import failure_summary, print_error
from pipelines.cli.stored import own_tables
from pipelines.dagster_gaps.launcher import process_tag
from pipelines.dagster_gaps.repository import REPOSITORY
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from reports.summary import decisions_in_words, writes_in_words
from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import Instance, command_line, home, journal_url
from resources.store.tables import Tables, short_run_id

SKIPPED = ~pl.col("outcome").is_in([*SUCCESSES, "planned"]) | (pl.col("kept").list.len() > 0)
"""Hosts that were skipped, or undone in part."""
SHOWN = 20
"""How many of these hosts are printed."""


def report_of(
    instance: Instance,
    tables: Tables,
    result: dg.ExecuteInProcessResult,
    *again: str,
    dry_run: bool,
    people_of: str | None = None,
) -> dict[str, Any]:
    """Return what --json prints of a run: its `plan` if it does not write, its `error` if it failed.

    `again` is the command that settles and writes the rest. A plan names people as the run `people_of`, where
    it is given, knew them.
    """
    run_id = result.run_id
    outcomes = outcomes_of(tables.run_writes(run_id))
    report = {"instance": instance.name, "run_id": run_id, "dry_run": dry_run, "writes": outcomes}
    if dry_run or "planned" in outcomes:
        plan = plan_of(instance, tables, run_id, succeeded=result.success, people_of=people_of)
        report |= {} if plan is None else {"plan": plan}
    if not result.success:
        message = "\n".join(dict.fromkeys(errors(result)))
        report["error"] = (
            f"{message}\n{failure_summary(instance, tables, run_id, *again, message=message)}".lstrip()
        )
    return report


def print_report(report: Mapping[str, Any], words: Iterable[str], *, as_json: bool) -> int:
    """Print the result of a run, as one object or in words, and why it failed; return the exit status."""
    if as_json:
        print(json.dumps(report))
    else:
        for line in words:
            print(line)
    if "error" not in report:
        return 0
    print_error(report["error"])
    return 1


def outcomes_of(writes: pl.DataFrame) -> dict[str, int]:
    """Count the hosts by the outcome of their writes."""
    return dict(writes["outcome"].value_counts().sort("outcome").iter_rows())


def execute(
    instance: Instance,
    job: str,
    run_config: Mapping[str, Any],
    *,
    tags: Mapping[str, str] | None = None,
    since: date | None = None,
) -> dg.ExecuteInProcessResult:
    """Run a job of the instance in this process, recorded where the UI shows it.

    `since` is the first day that can be selected, if earlier than those that the UI shows.
    """
    tables = own_tables(instance)
    journal_url()  # a wrong address fails here, not after all the work before the first write
    definitions = build_definitions(instance, tables, since=since)
    run_id = str(uuid4())
    with dagster_instance(home()) as recorded:
        result = definitions.resolve_job_def(job).execute_in_process(
            run_id=run_id,
            instance=recorded,
            tags={**(tags or {}), **process_tag()},
            run_config={**run_config, "loggers": {"console": {}}},
            raise_on_error=False,
        )
        if recorded.get_run_by_id(run_id) is None:
            look = command_line(instance, "sql", f"FROM owner_writes WHERE run_id = '{run_id}'")
            raise AssetOwnersError(
                f"Somebody deleted run {run_id} in Dagster while it worked, so it ended. What it "
                f"wrote: {look}"
            )
        if not result.success:  # an interrupt may come between what the steps themselves record
            record = RunRecord(tables, run_id, recorded, logging.getLogger(__name__))
            record.fail("it ended early; its log says why")
        try:
            attach_to_job(recorded, result.run_id, job)
        except Exception as error:  # noqa: BLE001  (Dagster's; what the run did stands, whatever lists it)
            logging.getLogger(__name__).warning(f"The UI shows this run under Runs only: {error}")
    return result


def attach_to_job(recorded: dg.DagsterInstance, run_id: str, job: str) -> None:
    """Let the UI show a run with its job, on the timeline too, and execute it again by a click.

    Dagster records where its job is to be found only of runs that its own services begin, and has a command
    that adds it later, `dagster run migrate-repository`: this is what that does, without a code server.
    """
    location = {"__class__": "RegisteredRepositoryLocationOrigin", "location_name": LOCATION}
    repository = {"__class__": "ExternalRepositoryOrigin", "repository_location_origin": location}
    repository["repository_name"] = REPOSITORY
    origin = {"__class__": "ExternalPipelineOrigin", "external_repository_origin": repository}
    stored = json.dumps(origin | {"pipeline_name": job})
    # The caller has seen the failure and decides: the daemon does not retry.
    never_again = {"dagster/will_retry": "false", "dagster/max_retries": "0"}
    recorded.add_run_tags(run_id, {".dagster/repository": f"{REPOSITORY}@{LOCATION}"} | never_again)
    if run := recorded.get_run_by_id(run_id):
        found: Any = dg.deserialize_value(stored)
        recorded.run_storage.replace_job_origin(run, found)


def errors(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    """Yield the message of each step that failed, a blocking check included.

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
            _, _, ended = failure.error.message.partition(": ")
            yield ended.strip() or "the run was interrupted"
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
        raise ConfigurationError(f"--as-of: {text!r} is not a day; write it as 2026-01-31") from error


def run_in_words(instance: Instance, tables: Tables, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that tell the result of a scan, from what --json prints."""
    window, run_id = report["window"], report["run_id"]
    days = f"{window['from']} to {window['to']} ({window['days']} days)"
    yield f"{printable(instance.name)}: {days}, run {run_id}"
    yield from decisions_in_words(report["decisions"])
    if number := report["conflicts"]:
        new = tables.of_run("owner_decisions", run_id)["new_conflict"].sum()
        yield f"{number:,} conflict{'s' * (number != 1)}, {new:,} of them new"
        yield f"    {command_line(instance, 'conflicts', '--run', short_run_id(run_id))}"
    if "plan" in report:
        yield describe_plan(instance, tables, run_id, report["plan"], command="apply", about=run_id)
    else:
        yield from ("Writes:", *(writes_in_words(report["writes"]) if report["writes"] else ["    none"]))
    yield from undo_command(instance, run_id, report["writes"])


def undo_command(instance: Instance, run_id: str, outcomes: Mapping[str, int]) -> Iterator[str]:
    """Yield the command that undoes a run, if it wrote anything."""
    if "written" in outcomes:
        yield f"To undo it:\n    {command_line(instance, 'undo', short_run_id(run_id))}"


def follow_up_in_words(writes: pl.DataFrame, instance: Instance, run_id: str) -> Iterator[str]:
    """Yield the outcomes, which hosts were skipped and why, and how to undo the writes."""
    outcomes = outcomes_of(writes)
    yield f"{printable(instance.name)}: run {run_id}"
    yield from writes_in_words(outcomes)
    skipped = writes.filter(SKIPPED)
    for row in skipped.head(SHOWN).iter_rows(named=True):
        reason = row["message"] or OUTCOME[row["outcome"]]
        yield printable(f"  {row['hostname'] or 'no name'} ({row['host_id']}): {reason}")
    if skipped.height > SHOWN:
        see_all = command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        yield f"  and {skipped.height - SHOWN:,} more: {see_all}"
    yield from undo_command(instance, run_id, outcomes)
