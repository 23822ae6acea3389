"""`asset-owners apply` and `asset-owners undo`: apply the plan of an earlier run, or undo what it wrote."""

from typing import Annotated

import typer

from pipelines.cli.options import DryRun, InstanceFile, Json, number


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
    from pipelines.cli.results import SKIPPED, print_result
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
    skipped = tables.run_writes(result.run_id).filter(SKIPPED).select("host_id", "outcome", "message")
    return print_result(
        instance,
        tables,
        result,
        (job, short_run_id(about), *allowed),
        {"about_run_id": about, "left_alone": skipped.to_dicts()},
        dry_run=dry_run,
        as_json=as_json,
        about=about,
    )


apply = undo = follow_up
