"""`asset-owners run`, `apply` and `undo`: run a job of an instance in this process.

Dagster's UI shows the run, too. `apply` and `undo` follow an earlier one: its plan is applied, or what it
wrote is undone.
"""

from datetime import date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import polars as pl
import typer

from assets_defs.run_request import DOES_NOT_WRITE, today_of, window_of
from ownership.codes import SUCCESSES
from ownership.decisions import summary
from ownership.names import counted, printable, some_of
from ownership.windows import Window, gap_days
from pipelines.cli.options import (
    DetailedExitCode,
    DryRun,
    FailOn,
    HostNames,
    InstanceFile,
    Json,
    confirm,
    flag,
    is_on_terminal,
    note,
    number,
    own_tables,
    read_host_names,
)
from reports.run_results import plans_only
from resources.errors import ConfigurationError, PlanRefusedError
from resources.settings import Instance, load_instance, part_name
from resources.store.tables import Tables, short_run_id

SHOWN = 3
"""Hosts that are named where a person is asked."""


def run(
    path: InstanceFile,
    *,
    lookback_days: Annotated[
        int | None, number("Look-back window in calendar days.", most=3660, default="scan.lookback_days")
    ] = None,
    dry_run: DryRun = False,
    no_enrich: Annotated[bool, flag("--no-enrich", "Write no department and no criticality.")] = False,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="Last day of the window.", show_default="today")
    ] = None,
    force: Annotated[
        bool, flag("--force", "Write although the window ended over scan.late_days ago.")
    ] = False,
    limit: Annotated[int | None, number("Write at most this many hosts, to try it on a few.")] = None,
    hosts: HostNames = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SETTING=VALUE",
            help="With --dry-run: try a setting without changing the file, and show what would differ; "
            "repeatable; such as rules.share_threshold_percent=80.",
        ),
    ] = None,
    yes: Annotated[
        bool, flag("--yes", "Do not ask. The first run that would write asks on a terminal.")
    ] = False,
    detailed_exitcode: DetailedExitCode = False,
    fail_on: FailOn = None,
    as_json: Json = False,
) -> int:
    """Run the job over a window and print its result; return the exit status (rules 8.1).

    Exit status: 0 success, also when single writes failed, unless --fail-on says otherwise; 1 the run failed;
    2 the instance file, a secret or an argument is wrong; 3 see --detailed-exitcode.

    Example: --instance NAME --dry-run
    """
    if changes and not dry_run:
        raise ConfigurationError("--set: tries a setting with --dry-run; to write with it, change the file")
    _require_dry_run(detailed_exitcode=detailed_exitcode, dry_run=dry_run)
    instance = load_instance(path, changes or ())
    instance.require_secrets()
    window = chosen_window(instance, as_of, lookback_days)
    tables = own_tables(instance)
    asks = not (dry_run or yes or as_json) and _must_ask(instance, tables, window.last, force=force)
    options: dict[str, Any] = {
        "refetch": False,
        "force": force,
        "limit": limit,
        "hosts": read_host_names(hosts),
    }
    if is_on_terminal() and not as_json:  # Dagster takes seconds to load
        note("Fetching logons and both lists of assets")
    from pipelines.cli.results import execute, print_result, status_of
    from pipelines.dagster_gaps.console import HIDDEN
    from pipelines.jobs import launch_tags, run_config

    (HIDDEN.add if asks else HIDDEN.discard)(DOES_NOT_WRITE)
    options |= {"dry_run": True} if dry_run or asks else {}  # otherwise as the instance file says
    options |= {"enrich": False} if no_enrich else {}
    config = run_config(instance, lookback_days=window.days, **options)
    tags = launch_tags(instance, window)
    result = execute(instance, instance.slug, config, tags=tags, since=window.last)
    run_id = result.run_id
    decisions = tables.read_own("owner_decisions", run_id)
    found: dict[str, Any] = {
        "window": {"from": f"{window.first}", "to": f"{window.last}", "days": window.days},
        "decisions": summary(decisions),
        "conflicts": decisions.filter(action="conflict").height,
    }
    if hosts or limit:
        found["in_all"] = decisions.filter(action="write").height
    planned_only = any(map(plans_only, tables.rows("runs", run_id).to_dicts()))
    dry_run = planned_only or dry_run or instance.writes.dry_run
    again = ["run", *_host_arguments(hosts)]
    report = print_result(instance, tables, result, again, dry_run=dry_run, as_json=as_json, **found)
    status = status_of(report, detailed_exitcode=detailed_exitcode, fail_on=fail_on)
    if status or not asks or tables.run_writes(run_id).is_empty():
        return status
    return _ask_and_apply(instance, tables, run_id, window, fail_on=fail_on)


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


def _host_arguments(hosts: list[str] | None) -> list[str]:
    return [part for host in hosts or () for part in ("--host", host)]


def _require_dry_run(*, detailed_exitcode: bool, dry_run: bool) -> None:
    if detailed_exitcode and not dry_run:
        raise ConfigurationError(
            "--detailed-exitcode: tells whether a plan has anything to write; add --dry-run"
        )


def follow_up(
    context: typer.Context,
    path: InstanceFile,
    run_id: Annotated[
        str, typer.Argument(metavar="RUN_ID", help="Id of the run, or its first 8 characters.")
    ],
    *,
    hosts: HostNames = None,
    wrong: Annotated[
        bool, flag("--wrong", "With --host: the owner is wrong, and no run names them there again.")
    ] = False,
    allow_writes: Annotated[
        int | None, number("Maximum number of hosts to write; overrides max_writes and max_write_percent.")
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[
        bool, flag("--yes", "Do not ask. On a terminal undo of several hosts asks; apply does not.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why you do it; kept in `options` of the table runs.")
    ] = None,
    detailed_exitcode: DetailedExitCode = False,
    fail_on: FailOn = None,
    as_json: Json = False,
) -> int:
    """Apply the plan of an earlier run, or undo what it wrote, by the command's name; return the exit status.

    Example: --instance NAME 1a2b3c4d --dry-run
    """
    job = context.info_name or "apply"
    if wrong and not hosts:
        raise ConfigurationError("--wrong: name the hosts whose owners are wrong with --host")
    _require_dry_run(detailed_exitcode=detailed_exitcode, dry_run=dry_run)
    instance = load_instance(path)
    instance.require_secrets()
    tables = own_tables(instance)
    about = tables.run_id(run_id)
    chosen = read_host_names(hosts)
    rows = _rows_to_follow(instance, tables, job, about, chosen, wrong=wrong)
    if job == "undo" and rows.height > 1 and not (dry_run or yes or as_json) and is_on_terminal():
        names = some_of([printable(name or "no name") for name in rows["hostname"]], SHOWN)
        said = f"{rows.height:,} hosts that run {short_run_id(about)} wrote ({names}) will be undone in"
        if not _is_confirmed(f"{said} {instance.platform.address}. Undo them?"):
            return 0
    more = [] if allow_writes is None else ["--allow-writes", str(allow_writes)]
    more += ["--wrong"] if wrong else []
    again = [job, short_run_id(about), *_host_arguments(hosts), *more]
    config = {"allow_writes": allow_writes, "dry_run": dry_run, "reason": reason, "hosts": chosen}
    config |= {"wrong": True} if wrong else {}
    shown: dict[str, Any] = {"as_json": as_json, "detailed_exitcode": detailed_exitcode, "fail_on": fail_on}
    return _follow(instance, tables, job, {"run_id": about, **config}, again, **shown)


def _all_rows_to_follow(tables: Tables, job: str, about: str) -> pl.DataFrame:
    """Return the rows of owner_writes that a job applies or undoes, if it is of all hosts."""
    rows = tables.run_writes(about)
    return rows.filter(pl.col("outcome").is_in(SUCCESSES)) if job == "undo" else rows


def _rows_to_follow(
    instance: Instance, tables: Tables, job: str, about: str, hosts: list[str], *, wrong: bool
) -> pl.DataFrame:
    """Return the rows of owner_writes that a job is about; a wrong argument fails before there is a run."""
    from assets_defs.plans import rows_to_apply, rows_to_undo

    if job == "apply":
        return rows_to_apply(instance, tables, about, hosts)
    if "intended" in tables.run_writes(about)["outcome"]:
        return _all_rows_to_follow(tables, job, about)  # cut off: the job finds out what there is to undo
    rows = rows_to_undo(instance, tables, about, hosts, run_id=about, wrong=wrong)
    return rows.filter(outcome="planned")


def _is_confirmed(question: str) -> bool:
    """Ask a person; say so where nothing is written."""
    confirmed = confirm(question)
    if not confirmed:
        print("Nothing was written.")
    return confirmed


def _follow(
    instance: Instance,
    tables: Tables,
    job: str,
    config: dict[str, Any],
    again: list[str],
    *,
    as_json: bool = False,
    detailed_exitcode: bool = False,
    fail_on: str | None = None,
) -> int:
    """Run the job `apply` or `undo`, and print its result; return the exit status."""
    from assets_defs.sink import FOLLOW_UPS
    from pipelines.cli.results import execute, print_result, status_of

    about, dry_run = config["run_id"], config.get("dry_run", False)
    some = {"in_all": _all_rows_to_follow(tables, job, about).height} if config.get("hosts") else {}
    ops = {part_name(instance, FOLLOW_UPS[job].__name__): {"config": config}}
    result = execute(instance, part_name(instance, job), {"ops": ops})
    report = print_result(
        instance, tables, result, again, dry_run=dry_run, as_json=as_json, about=about, **some
    )
    return status_of(report, detailed_exitcode=detailed_exitcode, fail_on=fail_on)


def _must_ask(instance: Instance, tables: Tables, last: date, *, force: bool) -> bool:
    """Return whether a run is to ask before it writes: on a terminal, where none has written yet."""
    if instance.writes.dry_run or not is_on_terminal():
        return False
    if not force and last < today_of(instance) - timedelta(days=instance.scan.late_days):
        return False  # it does not write
    return tables.all_runs("runs").filter(pl.col("written") > 0).head(1).collect().is_empty()


def _ask_and_apply(
    instance: Instance, tables: Tables, run_id: str, window: Window, *, fail_on: str | None
) -> int:
    """Ask whether the plan that was just printed is to be written, and apply it."""
    days = tables.logon_days(window, run_id=run_id)
    lost = gap_days(days, timezone=instance.scan.timezone) if instance.scan.require_complete_window else ()
    if lost:  # to apply the plan nevertheless is a word of its own
        raise PlanRefusedError(
            f"Nothing was written. These days have no events, or hardly any ({', '.join(map(str, lost))}), "
            "and scan.require_complete_window is on. If there never were any, apply the plan"
        )
    number = tables.run_writes(run_id).height
    if not _is_confirmed(
        f"{counted(number, 'owner')} will be written to {instance.platform.address}. Write them?"
    ):
        return 0
    apply = ["apply", short_run_id(run_id)]
    return _follow(instance, tables, "apply", {"run_id": run_id}, apply, fail_on=fail_on)


apply = undo = follow_up
