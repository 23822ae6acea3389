"""`asset-owners apply` and `asset-owners undo`: what may follow a run."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import polars as pl

from ownership.codes import LEFT_ALONE, OUTCOME, SUCCESSES
from ownership.names import printable
from pipelines.cli.errors import how_it_ended, print_error
from pipelines.cli.plans import plan_of, told_plan
from pipelines.cli.run import errors, execute, outcomes_of
from pipelines.cli.stored import tables_of
from reports.summary import writes_in_words
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, load_instance, named
from resources.store.tables import short_run_id

LEFT = ~pl.col("outcome").is_in([*SUCCESSES, "planned"]) | pl.col("message").str.contains(LEFT_ALONE)
"""Hosts that were left alone, or were put back in part."""
SHOWN = 10
"""Reasons, and hosts of each of them, that are printed."""
OPS = {"apply": "apply_plan", "undo": "undo_run"}
"""The op of each job."""


def _follow_up(
    job: Literal["apply", "undo"],
    path: Path,
    run_id: str,
    *,
    allow_writes: int | None,
    dry_run: bool,
    reason: str | None = None,
    as_json: bool = False,
) -> int:
    """Carry out the plan of an earlier run, or put back what it wrote; return the exit status."""
    instance = load_instance(path)
    instance.require_secrets()
    tables = tables_of(instance)
    about = tables.run_id(run_id)
    if not tables.holds("owner_writes", about) and not tables.has_written(about):
        raise ConfigurationError(f"RUN_ID: run {about} of {instance.name} planned and wrote nothing")
    config = {"run_id": about, "allow_writes": allow_writes, "dry_run": dry_run, "reason": reason}
    ops = {named(instance, OPS[job]): {"config": config}}
    result = execute(instance, named(instance, job), {"ops": ops})
    said = list(errors(result))
    if not result.success:
        allowed = [] if allow_writes is None else ["--allow-writes", str(allow_writes)]
        said.append(how_it_ended(instance, tables, result.run_id, job, short_run_id(about), *allowed))
    error = "\n".join(said)
    writes = tables.run_writes(result.run_id)
    plan = None
    if dry_run or "planned" in writes["outcome"]:
        plan = plan_of(instance, tables, result.run_id, succeeded=result.success, people_of=about)
    if as_json:
        left_alone = writes.filter(LEFT).select("host_id", "outcome", "message")
        runs = {"instance": instance.name, "run_id": result.run_id, "about_run_id": about, "dry_run": dry_run}
        found = {**runs, "writes": outcomes_of(writes), "left_alone": left_alone.to_dicts()}
        also = {"plan": plan, "error": error or None}
        print(json.dumps(found | {key: value for key, value in also.items() if value is not None}))
    else:
        if result.success or not writes.is_empty():
            _print(writes, instance, result.run_id, job)
        if plan is not None:
            print(told_plan(instance, tables, result.run_id, plan, command=job, about=about))
    if error:
        print_error(error)
    return 0 if result.success else 1


apply, undo = partial(_follow_up, "apply"), partial(_follow_up, "undo")


def _print(writes: pl.DataFrame, instance: Instance, run_id: str, job: str) -> None:
    """Print what became of the writes, which hosts were left alone, and how to take the writes back."""
    outcomes = outcomes_of(writes)
    print(f"{printable(instance.name)}: run {run_id}", *writes_in_words(outcomes), sep="\n")
    left_alone = list(_left_alone(writes))
    if left_alone:
        print(*left_alone[:SHOWN], sep="\n")
    if len(left_alone) > SHOWN:
        see_all = command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        print(f"  The reason of each host: {see_all}")
    if job == "apply" and "written" in outcomes:
        print(f"To take it back:\n    {command_line(instance, 'undo', short_run_id(run_id))}")


def _left_alone(writes: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each reason for which hosts were left alone, that of most hosts first."""
    rows = writes.filter(LEFT).group_by(
        pl.coalesce("message", pl.col("outcome").replace_strict(OUTCOME)).alias("reason"),
        maintain_order=True,
    )
    hosts = rows.agg(hosts=pl.format("{} ({})", pl.coalesce("hostname", pl.lit("no name")), "host_id"))
    largest_first = hosts.sort(pl.col("hosts").list.len(), descending=True, maintain_order=True)
    for reason, names in largest_first.iter_rows():
        more = f" ... and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        number = f"{len(names):,} host{'s' * (len(names) != 1)}"
        yield printable(f"  {number}: {reason.rstrip('.')}: {', '.join(names[:SHOWN])}{more}")
