"""`asset-owners run`, `apply` and `undo`: run a job of an instance in this process.

Dagster's UI shows the run, too. `apply` and `undo` follow an earlier one: its plan is applied, or what it
wrote is undone.
"""

from typing import Annotated, Any

import typer

from pipelines.cli.options import DryRun, InstanceFile, Json, flag, number


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
    as_json: Json = False,
) -> int:
    """Run the job over a window and print its result; return the exit status (rules 8.1).

    Exit status: 0 success, also when single writes failed; 1 the run failed; 2 the instance file, a secret
    or an argument is wrong.

    Example: --instance NAME --dry-run
    """
    from ownership.decisions import summary
    from pipelines.cli.execution import chosen_window, execute
    from pipelines.cli.results import print_result
    from pipelines.cli.stored import own_tables
    from pipelines.jobs import launch_tags, run_config
    from reports.run_results import plans_only
    from resources.settings import load_instance

    instance = load_instance(path)
    instance.require_secrets()
    window = chosen_window(instance, as_of, lookback_days)
    options: dict[str, Any] = {"refetch": False, "force": force, "limit": limit}
    options |= {"dry_run": True} if dry_run else {}  # otherwise as the instance file says
    options |= {"enrich": False} if no_enrich else {}
    config = run_config(instance, lookback_days=window.days, **options)
    tags = launch_tags(instance, window)
    result = execute(instance, instance.slug, config, tags=tags, since=window.last)
    tables, run_id = own_tables(instance), result.run_id
    decisions = tables.of_run("owner_decisions", run_id)
    found: dict[str, Any] = {
        "window": {"from": f"{window.first}", "to": f"{window.last}", "days": window.days},
        "decisions": summary(decisions),
        "conflicts": decisions.filter(action="conflict").height,
    }
    planned_only = any(map(plans_only, tables.appended("runs", run_id).to_dicts()))
    dry_run = planned_only or dry_run or instance.writes.dry_run
    return print_result(instance, tables, result, ["run"], dry_run=dry_run, as_json=as_json, **found)


def follow_up(
    context: typer.Context,
    path: InstanceFile,
    run_id: Annotated[
        str, typer.Argument(metavar="RUN_ID", help="Id of the run, or its first 8 characters.")
    ],
    *,
    allow_writes: Annotated[
        int | None, number("The most hosts to write, in place of max_writes and max_write_percent.")
    ] = None,
    dry_run: DryRun = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why you do it; kept in `options` of the table runs.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Apply the plan of an earlier run, or undo what it wrote, by the command's name; return the exit status.

    Example: --instance NAME 1a2b3c4d --dry-run
    """
    from assets_defs.sink import FOLLOW_UPS
    from pipelines.cli.execution import execute
    from pipelines.cli.results import print_result
    from pipelines.cli.stored import own_tables
    from resources.errors import ConfigurationError
    from resources.settings import load_instance, named
    from resources.store.tables import short_run_id

    job = context.info_name or "apply"
    instance = load_instance(path)
    instance.require_secrets()
    tables = own_tables(instance)
    about = tables.run_id(run_id)
    if not tables.holds("owner_writes", about) and not tables.has_written(about):
        raise ConfigurationError(f"RUN_ID: run {about} of {instance.name} planned nothing and wrote nothing")
    config = {"run_id": about, "allow_writes": allow_writes, "dry_run": dry_run, "reason": reason}
    ops = {named(instance, FOLLOW_UPS[job].__name__): {"config": config}}
    result = execute(instance, named(instance, job), {"ops": ops})
    allowed = [] if allow_writes is None else ["--allow-writes", str(allow_writes)]
    again = (job, short_run_id(about), *allowed)
    return print_result(instance, tables, result, again, dry_run=dry_run, as_json=as_json, about=about)


apply = undo = follow_up
