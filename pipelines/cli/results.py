"""Prints the results of `run`, `apply` and `undo`: what a run did, its plan, why it failed."""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import polars as pl
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from assets_defs.asset_specs import LOCATION
from assets_defs.plans import NOT_PLANNED, WRONG_HOSTS
from assets_defs.record import RunRecord, failure_message
from assets_defs.tuning import HOW_SURE, how_sure
from ownership.codes import OUTCOME, SUCCESSES
from ownership.names import counted, printable, printable_lines, some_of
from ownership.plan import exceeded_limit
from ownership.tuning.confidence import MIN_ANSWERED
from pipelines.cli.diff import compare
from pipelines.cli.options import message_and_status, own_tables, print_lines, print_message
from pipelines.dagster_gaps.console import take_warnings
from pipelines.dagster_gaps.launcher import locked_run
from pipelines.dagster_gaps.log_lines import LOGGER
from pipelines.dagster_gaps.repository import REPOSITORY
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from reports.plan import (
    SHOWN_HOSTS,
    changes,
    differences_in_words,
    plan_in_words,
    planned_hosts,
    settings_as_lines,
)
from reports.run_results import count_conflicts, decisions_in_words, not_stable_in_words, writes_in_words
from reports.sentences import display_names, host_name
from resources.errors import AssetOwnersError
from resources.locks import end_if_stuck
from resources.settings import Instance, command_line, home, journal_url
from resources.store.retention import recent_answers, runs_by_file
from resources.store.tables import Tables, short_run_id


@end_if_stuck()
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
            query = command_line(instance, "sql", f"FROM owner_writes WHERE run_id = '{run_id}'")
            said = f"Somebody deleted run {run_id} in Dagster while it worked"
            raise AssetOwnersError(f"{said}, so it ended. What it wrote: {query}")
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
        if event.asset_check_evaluation_data.blocking  # others do not fail their step
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
            print_message(failure.error.to_string(), level="error", is_trace=True)
            message = (failure.error.cause or failure.error).message.strip()
            yield f"an error in the program: {printable(message)}"
    if not result.success and not result.get_step_failure_events():
        yield f"run {result.run_id} failed before its first step; its log says why"


SKIPPED = ~pl.col("outcome").is_in([*SUCCESSES, "planned"]) | (pl.col("kept").list.len() > 0)
"""Hosts that were skipped, or undone in part."""


def status_of(report: Mapping[str, Any], *, detailed_exitcode: bool, fail_on: str | None) -> int:
    """Return the status for what `print_result` printed (rules 8.1).

    `detailed_exitcode`: 3 tells of a plan with something to write. `fail_on`: an outcome with which it is 1.
    """
    if "error" in report or fail_on in report["writes"]:
        # Of the arguments, whether hosts are known is found out last.
        return 2 if report.get("error", "").startswith(WRONG_HOSTS) else 1
    return 3 if detailed_exitcode and report.get("plan") else 0


def print_result(
    instance: Instance,
    tables: Tables,
    result: dg.ExecuteInProcessResult,
    again: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
    about: str | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Print the result of a run, as one object or in words, and why it failed; return the object.

    The command `again` settles and writes the rest. `about` is the run that was applied or undone, which knew
    the people of its plan. `facts` are what the object has of a scan alone, and `in_all`: of how many hosts
    it would be without a choice of some.
    """
    run_id = result.run_id
    writes = tables.run_writes(run_id)
    outcomes = dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
    report: dict[str, Any] = {"instance": instance.name, "run_id": run_id, "dry_run": dry_run}
    report |= {"writes": outcomes, **facts}
    if about:
        skipped = writes.filter(SKIPPED).select("host_id", "outcome", "message")
        report |= {"about_run_id": about, "left_alone": skipped.to_dicts()}
    planned = dict[str, Any]()  # people do not see that of most failed runs
    if dry_run or "planned" in outcomes:
        users = tables.view(about or run_id).read("inventory_users").collect()
        # An undo decides nothing, and keeps the order of what it undoes.
        decided_by = run_id if again[0] == "undo" else tables.decided_by(run_id)
        decisions = tables.read_own("owner_decisions", decided_by)
        plan = planned_hosts(writes, users, decisions)
        planned = {"plan": plan, "changes": changes(plan)}
        if result.success or (plan and _too_large(instance, tables, run_id, plan)):
            report |= planned
    last = next(runs_by_file(tables, failed=False), None) if instance.changes and result.success else None
    if last:
        report |= {"compared_with": last, **compare(tables, last, run_id)}
    if not result.success:
        message = "\n".join(dict.fromkeys(errors(result)))
        summary = failure_summary(instance, tables, run_id, *again, message=message)
        report["error"] = f"{message}\n{summary}".lstrip()
    if as_json:
        print(json.dumps(report | planned))
    elif result.success or "plan" in report or (about and outcomes):
        print_lines(map(printable_lines, take_warnings(NOT_PLANNED)))  # of hosts that were asked for
        lines = _follow_up_lines(instance, writes, report) if about else _scan_lines(instance, tables, report)
        print_lines(lines)
        if "diff" in report:
            last, this = (short_run_id(each) for each in (report["compared_with"], run_id))
            print(f"Compared with run {last}:")
            see_all, runs = command_line(instance, "diff", last, this), (f"run {last}", "this run")
            print_lines(differences_in_words(report, runs, see_all))
            print(f"Why, for one host:\n    {command_line(instance, 'explain', 'HOST', '--run', this)}")
        if report.get("plan") or ("plan" in report and "diff" not in report):
            apply = again if about else ["apply", short_run_id(run_id)]
            print_lines(_describe_plan(instance, tables, report, apply, is_new=not about))
            if not about:
                print_lines(commands_to_review(instance, tables, report, decisions))
        print_lines(next_steps(instance, tables, report, again))
    if "error" in report:
        print_message(report["error"], level="error", run_id=run_id, instance=instance.name)
    print_warnings(report.get("error", ""))
    return report


def print_warnings(error: str = "") -> None:
    """Print on standard error what the steps of a run warned of, except what its error says."""
    warned = (text.removeprefix("Check ") for text in take_warnings())
    warnings = [text for text in warned if text.partition(": ")[2] not in error.splitlines()]
    if warnings:
        sys.stdout.flush()
        number = f"{counted(len(warnings), 'warning')}:"
        print_lines([number, *(f"  - {printable_lines(text)}" for text in warnings)], sys.stderr)


def next_steps(
    instance: Instance, tables: Tables, report: Mapping[str, Any], again: Sequence[str]
) -> Iterator[str]:
    """Yield how to undo what a run wrote, and what the next run does about what is undone."""
    outcomes = report["writes"]
    if "written" in outcomes:
        yield f"To undo it:\n    {command_line(instance, 'undo', short_run_id(report['run_id']))}"
    if "--wrong" in again and "error" not in report:
        about, this = report["about_run_id"], report["run_id"]
        undone = tables.run_writes(about).join(tables.run_writes(this), on="host_id", how="semi")
        names = display_names(tables.view(about).read("inventory_users").collect())
        owners = undone.select(pl.coalesce("hostname", "host_id"), pl.col("new_values").struct.field("owner"))
        them = some_of([printable(f"{host} to {names.get(owner, owner)}") for host, owner in owners.rows()])
        give = "would give" if report["dry_run"] else "gives"
        no_run = f"For {instance.keep.history_days} days no run of {printable(instance.name)}"
        yield f"{no_run} {give} {them} again; another instance may"
        yield "To end that: set the owner in the inventory, or say yes on an audit sheet with the host"
    elif again[0] == "undo" and (undone := outcomes.get("planned" if report["dry_run"] else "undone")):
        them = ("these owners", "the hosts") if undone > 1 else ("this owner", "the host")
        yield "The next run writes {} again, unless rules.exclude_hosts names {}".format(*them)
        wrong = command_line(instance, *again, *(() if "--host" in again else ("--host", "HOST")), "--wrong")
        yield f"If an owner is wrong, so that no run of this instance writes them there again:\n    {wrong}"


def _scan_lines(instance: Instance, tables: Tables, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a scan decided and, unless it only planned, wrote."""
    window, run_id = report["window"], report["run_id"]
    days = f"{window['from']} to {window['to']} ({window['days']} days)"
    yield f"{printable(instance.name)}: {days}, run {run_id}"
    in_run = sum(report["writes"].values()) if "in_all" in report else None
    yield from decisions_in_words(report["decisions"], in_run=in_run)
    decisions = tables.read_own("owner_decisions", run_id)
    if report["conflicts"]:
        yield count_conflicts(decisions, tables.read("acknowledged_conflicts").collect())
        yield f"    {command_line(instance, 'conflicts', '--run', short_run_id(run_id))}"
    see = partial(command_line, instance, "sql", "--run", short_run_id(run_id))
    yield from not_stable_in_words(decisions, see)
    if "plan" not in report:
        yield f"Writes: {writes_in_words(tables.run_writes(run_id))}"


def _follow_up_lines(instance: Instance, writes: pl.DataFrame, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outcomes, and which hosts were skipped and why."""
    run_id, skipped = report["run_id"], writes.filter(SKIPPED)
    some = f", {writes.height:,} of {counted(report['in_all'], 'host')}" if "in_all" in report else ""
    yield f"{printable(instance.name)}: run {run_id}{some}"
    if "plan" not in report or not skipped.is_empty():
        yield f"{writes_in_words(writes)}."
    shown = skipped.head(SHOWN_HOSTS).group_by("message", "outcome", maintain_order=True)
    for (message, outcome), rows in shown:
        reason = str(message or OUTCOME[str(outcome)]).removesuffix(".")
        yield printable(f"  - {reason}: {', '.join(map(host_name, rows.iter_rows(named=True)))}")
    if skipped.height > SHOWN_HOSTS:
        yield f"  and {skipped.height - SHOWN_HOSTS:,} more: {_see_all(instance, run_id)}"


def _describe_plan(
    instance: Instance, tables: Tables, report: Mapping[str, Any], apply: Sequence[str], *, is_new: bool
) -> Iterator[str]:
    """Return a plan as lines; `apply` is the command that writes it, and a scan's `is_new`."""
    hosts, run_id = report["plan"], report["run_id"]
    if "--allow-writes" not in apply and _too_large(instance, tables, run_id, hosts):
        apply = [*apply, "--allow-writes", str(len(hosts))]
    brief = not logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    how = [f"To apply it, write these settings into {instance.file}:", ""]
    how += [*(f"    {line}" for line in settings_as_lines(instance.changes)), "", "Then:"]
    return plan_in_words(
        hosts,
        sure=how_sure(instance, tables.view(run_id), brief=brief) if hosts and is_new else [],
        is_undo=apply[0] == "undo",
        how=how if instance.changes else ["To apply it:"],
        in_all=report.get("in_all", 0),
        apply=command_line(instance, *apply),
        see_all=_see_all(instance, run_id),
    )


def commands_to_review(
    instance: Instance, tables: Tables, report: Mapping[str, Any], decisions: pl.DataFrame
) -> Iterator[str]:
    """Yield the commands that show a plan as a sheet, and how sure each owner is, or why it is not known."""
    run, is_known = ("--run", short_run_id(report["run_id"])), decisions["confidence"].count() > 0
    if report["plan"]:
        yield f"As a sheet for a colleague:\n    {command_line(instance, 'report', *run, '--format', 'xlsx')}"
    if report["plan"] and is_known:
        yield f"How sure each owner is:\n    {command_line(instance, 'sql', *run, HOW_SURE)}"
    elif not is_known and recent_answers(tables, instance.keep.history_days)["seed"].count() >= MIN_ANSWERED:
        yield "How sure each owner is: not known, because too few answers to audits are about these settings"


def _too_large(instance: Instance, tables: Tables, run_id: str, hosts: Sequence[Any]) -> bool:
    """Return whether a plan is over the limits of a run."""
    # What apply and undo see of the inventory is not stored, only its size, which the limits need.
    listed = int(tables.rows("runs", run_id)["hosts"].sum())
    return exceeded_limit(len(hosts), listed, instance.writes, what="hosts") is not None


def _see_all(instance: Instance, run_id: str) -> str:
    return command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")


def failure_summary(instance: Instance, tables: Tables, run_id: str, *again: str, message: str = "") -> str:
    """Return what a failed run wrote, and which command to use next, unless its `message` names one."""
    failed = f"Run {short_run_id(run_id)} failed."
    try:
        outcomes = tables.run_writes(run_id)["outcome"].to_list()
    except Exception as error:  # noqa: BLE001  (the reason why the run failed must be printed all the same)
        reason, _ = message_and_status(error)
        return f"{failed} What it wrote cannot be read: {reason}. Next: {command_line(instance, *again)}"
    done, unknown = sum(map(outcomes.count, SUCCESSES)), outcomes.count("intended")
    if not done and not unknown:
        known = re.search(f"--instance|sandbox up|^{WRONG_HOSTS}", message) or again[0] != "run"
        next_step = "" if known else f" Next: {command_line(instance, 'check')}"
        return f"{failed} Nothing was written.{next_step}"
    what = "Undone" if again[0] == "undo" else "Written"
    counts = f"{done:,}; not known yet: {unknown:,}; not written: {len(outcomes) - done - unknown:,}"
    return f"{failed} {what}: {counts}. Next: {command_line(instance, *again)} (settles the rest)"
