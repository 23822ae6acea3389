"""The jobs of an instance: the scan, what may follow it, and one for each invalid file."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import dagster as dg

from assets_defs.launch import run_tags
from assets_defs.scan_resources import default_options
from assets_defs.sink import follow_up_op
from assets_defs.step_failures import failure
from assets_defs.tuning import tuning_op
from ownership.names import printable
from pipelines.dagster_gaps.console import console
from pipelines.schedules import run_config
from resources.errors import ConfigurationError
from resources.settings import BrokenInstance, Instance, executor, named

LOGGERS = {"console": console}
"""Passed to every job: Dagster makes a job again when it gets executor and loggers later."""


def run_executor() -> dg.ExecutorDefinition:
    """Return what executes the steps of a run, as ASSET_OWNERS_EXECUTOR says.

    By default one process: the steps share imports that cost more than they do.
    """
    match executor():
        case "multiprocess":
            return dg.multiprocess_executor
        case "celery":
            from dagster_celery import celery_executor  # noqa: PLC0415  (an extra)

            # By their variables: the URLs of the two services may hold passwords.
            services = ("broker", "backend")
            where = {service: {"env": f"ASSET_OWNERS_CELERY_{service.upper()}"} for service in services}
            return celery_executor.configured(where, name="celery")
    return dg.in_process_executor


def scan_job(instance: Instance) -> Any:
    """Return the job of all assets of an instance; Dagster does not export the type."""
    plan_only = " **Runs plan only: `writes.dry_run` is on.**" if instance.writes.dry_run else ""
    return dg.define_asset_job(
        instance.slug,
        selection=dg.AssetSelection.groups(instance.slug),
        executor_def=run_executor(),
        description=f"""\
Finds the owner of each host asset in the logon events of {literal(instance.name)}, and writes the owners of
hosts that have none. A host that has an owner keeps it.{plan_only}

**First steps**

1. On a terminal: `asset-owners check --instance FILE` tries both services and writes nothing.
2. Here: the arrow beside *Materialize all…*, *Open launchpad*: choose the last day, set `dry_run: true`, \
*Materialize*. The *Events* of the asset `owner_writes` then show the plan, and a link to apply it.
3. *Materialize all…*, *Latest*, *Launch 1 run*. The run fetches the days of its window itself.
4. *Automation* in the menu switches the schedule on.

A run over several days is a backfill: it fetches, decides and plans, and writes only with `force`. A run of
some of the assets only plans, too. The first line of a run's log says whether it writes.

The job `{named(instance, "apply")}` applies a stored plan, `{named(instance, "undo")}` undoes a run.

Guides, on a terminal: `asset-owners docs operations` (the daily work), `asset-owners docs rules` (how \
owners are decided), `asset-owners docs configuration` (every setting).""",
        tags=run_tags(instance),
        run_tags=run_tags(instance),
        config=run_config(instance, **asdict(default_options(instance))),
        metadata=_facts(instance),
    )


def other_jobs(instance: Instance, resources: Mapping[str, Any]) -> list[dg.JobDefinition]:
    """Return the jobs that apply a stored plan, undo a run, and tune."""
    name = literal(instance.name)
    applies = (
        f"Applies a plan that a run of {name} stored, such as a dry run; skips hosts that changed since."
    )
    undoes = f"Undoes what a run of {name} wrote, field by field, where hosts still hold it."
    tunes = f"Estimates how many owners of {name} would be wrong, and what other settings would change."
    return [
        _op_job(
            instance, "apply", follow_up_op(instance, "apply"), applies + _HOW_TO.format("apply"), resources
        ),
        _op_job(instance, "undo", follow_up_op(instance, "undo"), undoes + _HOW_TO.format("undo"), resources),
        _op_job(instance, "tuning", tuning_op(instance), tunes, resources),
    ]


def _op_job(
    instance: Instance, part: str, op: dg.OpDefinition, description: str, resources: Mapping[str, Any]
) -> dg.JobDefinition:
    """Return a job of one op, not of assets: its launchpad would have the options of a scan."""
    # Without a default of the whole: it would have to name a run, and an empty name would pass.
    loggers = dg.Field({"console": dict}, default_value={"console": {}})
    schema = {"loggers": loggers, "ops": {op.name: {"config": op.config_schema.as_field()}}}
    return dg.GraphDefinition(named(instance, part), node_defs=[op]).to_job(
        config=dg.ConfigMapping(lambda chosen: chosen, schema),
        description=description,
        tags=run_tags(instance),
        run_tags=run_tags(instance),
        metadata=_inventory(instance),
        resource_defs={key: resources[key] for key in op.required_resource_keys},
        executor_def=run_executor(),
        logger_defs=LOGGERS,
    )


def literal(name: str) -> str:
    """Return a name as a code span of Markdown, where nothing but the backtick has a meaning."""
    return "`" + printable(name).replace("`", "'") + "`"


_HOW_TO = """

*Launchpad*: *Scaffold missing config* adds `run_id`; write the id of that run, or its first 8 characters,
between its quotes (*Runs* in the menu lists them), and `dry_run: true` to look first. It writes even if
`writes.dry_run` is on. On a terminal: `asset-owners {} --instance FILE RUN_ID`.
"""


def _inventory(instance: Instance) -> dict[str, str]:
    """Return where the owners are; no secret."""
    return {"inventory service": instance.platform.url, "tenant": instance.platform.tenant_id}


def _facts(instance: Instance) -> dict[str, str]:
    """Return what the page of a scan's job shows."""
    scan = instance.scan
    return {
        "search service": instance.url,
        "index": ", ".join(one.index for one in instance.sources),
        **_inventory(instance),
        "sensor": instance.sensor,
        "window": f"{scan.lookback_days} days, the running one included ({scan.timezone})",
        "schedule": f"{scan.schedule} ({scan.timezone})" if scan.schedule else "none",
        "runs": "plan only (writes.dry_run is on)" if instance.writes.dry_run else "write owners",
    }


def broken_job(broken: BrokenInstance) -> dg.JobDefinition:
    """Return a job that fails with the message for the file's author, so that other instances still load."""

    @dg.op(name=named(broken, "cannot_be_used"))
    def cannot_be_used() -> None:  # NoReturn is no type of output to Dagster
        raise failure(broken.message) from ConfigurationError()

    graph = dg.GraphDefinition(broken.slug, node_defs=[cannot_be_used])
    return graph.to_job(description=broken.message)
