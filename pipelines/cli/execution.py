"""Run a job of an instance in this process, and say why it failed."""

import logging
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from assets_defs.launch import today_of, window_of
from assets_defs.record import RunRecord
from assets_defs.specs import LOCATION
from assets_defs.step_failures import failure_message
from ownership.names import printable
from ownership.windows import Window
from pipelines.cli.exit_status import print_trace
from pipelines.cli.stored import own_tables
from pipelines.dagster_gaps.launcher import locked_run
from pipelines.dagster_gaps.repository import REPOSITORY
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import Instance, command_line, home, journal_url
from resources.watchdog import watched


@watched()
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
    with dagster_instance(home()) as recorded, locked_run(Path(recorded.root_directory), run_id) as lock:
        result = definitions.resolve_job_def(job).execute_in_process(
            run_id=run_id,
            instance=recorded,
            tags={**(tags or {}), **lock},
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
    location = RegisteredCodeLocationOrigin(LOCATION)  # ty: ignore  (a field implements its abstract property)
    repository = RemoteRepositoryOrigin(location, REPOSITORY)
    # The caller has seen the failure and decides: the daemon does not retry.
    never_again = {"dagster/will_retry": "false", "dagster/max_retries": "0"}
    recorded.add_run_tags(run_id, {".dagster/repository": repository.get_label()} | never_again)
    if run := recorded.get_run_by_id(run_id):
        recorded.run_storage.replace_job_origin(run, RemoteJobOrigin(repository, job))


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
            print_trace(failure.error.to_string())
            message = (failure.error.cause or failure.error).message.strip()
            yield f"an error in the program: {printable(message)}"
    if not result.success and not result.get_step_failure_events():
        yield f"run {result.run_id} failed before its first step; its log says why"


def chosen_window(instance: Instance, as_of: str | None, lookback_days: int | None) -> Window:
    """Return the window of a run: it ends with `as_of` in the instance's time zone, or today (rules 4.2)."""
    today, zone = today_of(instance), ZoneInfo(instance.scan.timezone)
    try:
        moment = datetime.fromisoformat(as_of or str(today))
        last = (moment.astimezone(zone) if moment.tzinfo else moment).date()
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"--as-of: {as_of!r} is not a day; write it as 2026-01-31") from error
    if last > today:
        raise ConfigurationError(f"--as-of: {last} is in the future; name a day up to {today}")
    return window_of(instance, last, lookback_days=lookback_days)
