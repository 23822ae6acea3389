"""`asset-owners apply` and `asset-owners undo`: what may follow a run."""

from pathlib import Path
from typing import Any

import polars as pl

from ownership.names import printable
from pipelines.cli.errors import print_error
from pipelines.cli.run import NO_OVERRIDES, Overrides, errors, execute, require_secrets
from pipelines.cli.stored import tables_of
from resources.errors import ConfigurationError
from resources.settings import Instance, load_instance, named


def apply_plan(
    path: Path, run_id: str, *, allow_writes: int | None, dry_run: bool, overrides: Overrides | None = None
) -> int:
    """Carry out the plan of an earlier run; return the exit status.

    Raises:
        ConfigurationError: the instance file or a secret is wrong, or there is no such run.
    """
    options = {"allow_writes": allow_writes, "dry_run": dry_run}
    return _follow_up(path, run_id, "apply", "apply_plan", options, overrides)


def undo(
    path: Path, run_id: str, *, allow_writes: int | None, dry_run: bool, overrides: Overrides | None = None
) -> int:
    """Put back what a run wrote; return the exit status.

    Raises:
        ConfigurationError: the instance file or a secret is wrong, or there is no such run.
    """
    options = {"allow_writes": allow_writes, "dry_run": dry_run}
    return _follow_up(path, run_id, "undo", "undo_run", options, overrides)


def _follow_up(
    path: Path, run_id: str, job: str, op: str, options: dict[str, Any], overrides: Overrides | None
) -> int:
    instance = load_instance(path)
    require_secrets(instance)
    tables = tables_of(instance)
    run_id = tables.run_id(run_id)
    if not tables.has_run(run_id):
        raise ConfigurationError(f"RUN_ID: run {run_id} of {instance.name} planned and wrote nothing")
    ops = {named(instance, op): {"config": {"run_id": run_id, **options}}}
    result = execute(instance, named(instance, job), {"ops": ops}, overrides=overrides or NO_OVERRIDES)
    for error in errors(result):
        print_error(error)
    _print(tables.run_writes(result.run_id), instance, result.run_id)
    return 0 if result.success else 1


def _print(writes: pl.DataFrame, instance: Instance, run_id: str) -> None:
    """Print the outcomes, and each host that was left alone."""
    print(f"{printable(instance.name)}: run {run_id}")
    for outcome, count in writes["outcome"].value_counts().sort("outcome").iter_rows():
        print(f"{count:>8}  {outcome}")
    left_alone = writes.filter(~pl.col("outcome").is_in(["written", "undone", "planned"]))
    for row in left_alone.iter_rows(named=True):
        print(printable(f"  {row['outcome']}: host {row['host_id']}: {row['message']}"))
