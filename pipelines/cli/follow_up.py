"""`asset-owners apply` and `asset-owners undo`: what may follow a run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ownership.codes import OUTCOME, SUCCESSES
from ownership.names import printable
from pipelines.cli.errors import how_it_ended, print_error
from pipelines.cli.plans import hosts_of_plan, told_plan, too_large
from pipelines.cli.run import NO_OVERRIDES, Overrides, errors, execute
from pipelines.cli.stored import tables_of
from reports.summary import writes_in_words
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, load_instance, named
from resources.store.tables import short_run_id

DONE = [*SUCCESSES, "planned"]
"""Outcomes of hosts that were not left alone."""
SHOWN = 10
"""Reasons, and hosts of each of them, that are printed."""
FEW_REASONS = 3
"""Of so many reasons with the same outcome each is told, of more those that many hosts share."""
OPS = {"apply": "apply_plan", "undo": "undo_run"}
"""The op of each job."""


def follow_up(
    path: Path,
    job: Literal["apply", "undo"],
    run_id: str,
    *,
    allow_writes: int | None,
    dry_run: bool,
    as_json: bool = False,
    overrides: Overrides | None = None,
) -> int:
    """Carry out the plan of an earlier run, or put back what it wrote; return the exit status.

    Raises:
        ConfigurationError: the instance file or a secret is wrong, or there is no such run.
    """
    instance = load_instance(path)
    instance.require_secrets()
    tables = tables_of(instance)
    run_id = tables.run_id(run_id)
    if not tables.has_run(run_id):
        raise ConfigurationError(f"RUN_ID: run {run_id} of {instance.name} planned and wrote nothing")
    config = {"run_id": run_id, "allow_writes": allow_writes, "dry_run": dry_run}
    ops = {named(instance, OPS[job]): {"config": config}}
    result = execute(instance, named(instance, job), {"ops": ops}, overrides=overrides or NO_OVERRIDES)
    told = list(errors(result))
    if not result.success:
        allowed = [] if allow_writes is None else ["--allow-writes", str(allow_writes)]
        told.append(how_it_ended(instance, tables, result.run_id, job, short_run_id(run_id), *allowed))
    writes = tables.run_writes(result.run_id)
    plan = None
    if dry_run or "planned" in writes["outcome"]:
        hosts = hosts_of_plan(tables, result.run_id, people_of=run_id)
        stopped = hosts and too_large(instance, tables, result.run_id, hosts)
        plan = hosts if result.success or stopped else None
    if as_json:
        print(_object(instance, result.run_id, run_id, writes, plan, told, dry_run=dry_run))
    else:
        if result.success or not writes.is_empty():
            _print(writes, instance, result.run_id, job)
        if plan is not None:
            print(told_plan(instance, tables, result.run_id, plan, command=job, about=run_id))
    if told:
        print_error("\n".join(told))
    return 0 if result.success else 1


def _object(
    instance: Instance,
    run_id: str,
    about: str,
    writes: pl.DataFrame,
    plan: list[dict[str, Any]] | None,
    told: list[str],
    *,
    dry_run: bool,
) -> str:
    """What `--json` prints, on one line; `plan` and `error` only where there is one."""
    left_alone = writes.filter(~pl.col("outcome").is_in(DONE)).select("host_id", "outcome", "message")
    report = {
        "instance": instance.name,
        "run_id": run_id,
        "about_run_id": about,
        "writes": dict(writes["outcome"].value_counts().sort("outcome").iter_rows()),
        "left_alone": left_alone.to_dicts(),
        "dry_run": dry_run,
    }
    report |= {"plan": plan} if plan is not None else {}
    return json.dumps(report | ({"error": "\n".join(told)} if told else {}))


def _print(writes: pl.DataFrame, instance: Instance, run_id: str, job: str) -> None:
    """Print what became of the writes, which hosts were left alone, and how to take the writes back."""
    print(f"{printable(instance.name)}: run {run_id}")
    outcomes = dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
    for line in writes_in_words(outcomes):
        print(line)
    rows = _with_reasons(writes.filter(~pl.col("outcome").is_in(DONE)))
    left_alone = list(_left_alone(rows))
    for line in left_alone[:SHOWN]:
        print(line)
    if len(left_alone) > SHOWN or not rows["told"].all():
        see_all = command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        print(f"  The reason of each host: {see_all}")
    if job == "apply" and "written" in outcomes:
        print(f"To take it back:\n    {command_line(instance, 'undo', short_run_id(run_id))}")


def _with_reasons(rows: pl.DataFrame) -> pl.DataFrame:
    """Add why each host was left alone, as it is told: `told` is false where only its outcome is.

    Messages name users and hosts, so that there may be as many of them as hosts.
    """
    reason = pl.coalesce("message", pl.col("outcome").replace_strict(OUTCOME))
    few = pl.col("message").n_unique().over("outcome") <= FEW_REASONS
    told = few | (pl.len().over("outcome", "message") > SHOWN)
    return rows.with_columns(
        told=told, reason=pl.when(told).then(reason).otherwise(pl.col("outcome").replace_strict(OUTCOME))
    )


def _left_alone(rows: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each reason for which hosts were left alone, that of most hosts first."""
    name = pl.format("{} ({})", pl.coalesce("hostname", pl.lit("no name")), "host_id")
    reasons = rows.group_by("reason", maintain_order=True).agg(name.alias("hosts"))
    for reason, hosts in reasons.sort(
        pl.col("hosts").list.len(), descending=True, maintain_order=True
    ).iter_rows():
        more = f" ... and {len(hosts) - SHOWN:,} more" if len(hosts) > SHOWN else ""
        number = f"{len(hosts):,} host{'s' * (len(hosts) != 1)}"
        yield printable(f"  {number}: {reason.rstrip('.')}: {', '.join(hosts[:SHOWN])}{more}")
