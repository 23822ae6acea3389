"""`asset-owners run`: run the job of an instance in this process, recorded where Dagster's UI shows it."""

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
    found = {
        "window": {"from": f"{window.first}", "to": f"{window.last}", "days": window.days},
        "decisions": summary(decisions),
        "conflicts": decisions.filter(action="conflict").height,
    }
    planned_only = any(map(plans_only, tables.appended("runs", run_id).to_dicts()))
    dry_run = planned_only or dry_run or instance.writes.dry_run
    return print_result(instance, tables, result, ["run"], found, dry_run=dry_run, as_json=as_json)
