"""The jobs of an instance: the scan, and what may follow it; and one for each file that cannot be used."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets_defs.run import failure, resource_keys, run_tags
from assets_defs.sink import apply_op, undo_op
from assets_defs.tuning import tuning_op
from pipelines.console import console
from reports.markdown import literal
from resources.errors import ConfigurationError
from resources.settings import BrokenInstance, Instance, named

LOGGERS = {"console": console}
"""Of every job. Dagster makes a job anew when it is given executor and loggers later."""


def scan_job(instance: Instance, executor: dg.ExecutorDefinition) -> Any:
    """The job of an instance: all its assets, from the days of the run to the writes.

    What Dagster makes of a selection of assets has a type that it does not export.
    """
    return dg.define_asset_job(
        instance.slug,
        selection=dg.AssetSelection.groups(instance.slug),
        executor_def=executor,
        description=f"""\
Finds the owner of each host asset in the logon events of {literal(instance.name)}, and writes the owners of
hosts that have none. A host that has an owner keeps it.{_runs_only_plan(instance)}

**First steps**

1. On a terminal: `asset-owners check --instance FILE` tries both services and writes nothing.
2. Here: the arrow beside *Materialize all…*, *Open launchpad*: choose the last day, set `dry_run: true`, \
*Materialize*. The *Events* of the asset `owner_writes` then show the first owners that would be \
written; on a terminal, `asset-owners runs` names the run, and `asset-owners report --run` shows all.
3. *Materialize all…*, *Latest*, *Launch 1 run*. The run fetches the days of its window itself.
4. *Automation* in the menu switches the schedule on.

A run over several days is a backfill: it fetches, decides and plans, and writes only with `force`. A run of
some of the assets only plans, too. The first line of a run's log says whether it writes.

The job `{named(instance, "apply")}` carries out a stored plan, `{named(instance, "undo")}` takes back what a
run wrote.

Below, under *Metadata*: which services, index, tenant and window this instance has.

Guides, in the folder of the program: `docs/operations.md` (the daily work), `docs/rules.md` (how owners are
decided), `docs/configuration.md` (every setting).""",
        tags=run_tags(instance),
        run_tags=run_tags(instance),
        metadata=_facts(instance),
    )


def tuning_job(
    instance: Instance, resources: Mapping[str, Any], executor: dg.ExecutorDefinition
) -> dg.JobDefinition:
    """The job that tells how often the rules are wrong, and what other settings would have led to.

    An op and no asset: a job of assets offers the options of a scan in its launchpad, which do nothing here.
    """
    tables = resource_keys(instance).tables

    @dg.job(
        name=named(instance, "tuning"),
        description=f"Tells how often {instance.name} would be wrong, and what other settings would change.",
        run_tags=run_tags(instance),
        resource_defs={tables: resources[tables]},
        executor_def=executor,
        logger_defs=LOGGERS,
    )
    def job() -> None:
        tuning_op(instance)()

    return job


def _facts(instance: Instance) -> dict[str, str]:
    """What an operator wants to know of an instance; no secret is among it."""
    scan, platform = instance.scan, instance.platform
    return {
        "search service": instance.url,
        "index": instance.index,
        "inventory service": platform.url,
        "tenant": platform.tenant_id,
        "window": f"{scan.lookback_days} days, the running one included ({scan.timezone})",
        "schedule": f"{scan.schedule} ({scan.timezone})" if scan.schedule else "none",
        "runs": "only plan (writes.dry_run is on)" if instance.writes.dry_run else "write owners",
    }


def _runs_only_plan(instance: Instance) -> str:
    return " **Runs only plan now: `writes.dry_run` is on.**" if instance.writes.dry_run else ""


def _how_to_follow_up(command: str) -> str:
    return f"""

*Launchpad*: write the id of that run, or its first 8 characters, between the quotes of `run_id` (*Runs* in
the menu lists them), and `dry_run: true` to look first. It writes also where `writes.dry_run` is on. On a
terminal: `asset-owners {command} --instance FILE RUN_ID`.
"""


def apply_job(
    instance: Instance, resources: Mapping[str, Any], executor: dg.ExecutorDefinition
) -> dg.JobDefinition:
    """The job that carries out a plan that an earlier run stored."""
    does = (
        f"Carries out a plan that a run of {literal(instance.name)} stored, such as a dry run; hosts that "
        "changed since are left alone."
    )
    return _follow_up_job(instance, "apply", does, apply_op(instance), resources, executor)


def undo_job(
    instance: Instance, resources: Mapping[str, Any], executor: dg.ExecutorDefinition
) -> dg.JobDefinition:
    """The job that puts back what a run wrote."""
    does = (
        f"Puts back what a run of {literal(instance.name)} wrote, field by field, where hosts still hold it."
    )
    return _follow_up_job(instance, "undo", does, undo_op(instance), resources, executor)


def _follow_up_job(
    instance: Instance,
    command: str,
    does: str,
    op: dg.OpDefinition,
    resources: Mapping[str, Any],
    executor: dg.ExecutorDefinition,
) -> dg.JobDefinition:
    """A job of one op, whose launchpad shows first what is to be filled in."""
    needed = resource_keys(instance).of_follow_up

    @dg.job(
        name=named(instance, command),
        # In quotes no beginning of an id is taken for a number.
        config={"ops": {op.name: {"config": {"run_id": "", "dry_run": False}}}},
        description=does + _how_to_follow_up(command),
        tags=run_tags(instance),
        run_tags=run_tags(instance),
        metadata=_facts(instance),
        # The launchpad offers the resources of its own job alone.
        resource_defs={key: resources[key] for key in needed},
        executor_def=executor,
        logger_defs=LOGGERS,
    )
    def job() -> None:
        op()

    return job


def broken_job(broken: BrokenInstance) -> dg.JobDefinition:
    """A job that fails with the message for the file's author, so that the other instances still load."""

    @dg.op(name=named(broken, "cannot_be_used"))
    def cannot_be_used() -> None:  # NoReturn is no type of output to Dagster
        raise failure(broken.message) from ConfigurationError()

    @dg.job(name=broken.slug, description=broken.message)
    def job() -> None:
        cannot_be_used()

    return job
