"""The sink: the ops that plan what is to be written, and write it host by host.

`owner_writes` does both in a run of the job. A stored plan is carried out later by `apply_op`, and what a run
wrote is put back by `undo_op`. How each of them goes about it is in `writing`.
"""

from collections.abc import Callable

import dagster as dg
import polars as pl
from pydantic import Field

from assets_defs.metadata import outcomes_metadata, planned_metadata, read_to_write_metadata, writes_metadata
from assets_defs.run import as_dagster_failure, follow_up_run, resource_keys, scan_run, tag_run
from assets_defs.specs import asset_arguments, asset_key
from assets_defs.writing import Written, apply_plan, store_plan, undo_run, write_planned
from resources.settings import Instance, named, slug_of


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes: a graph of an op that plans and an op, the sink, that writes."""

    @dg.op(
        name=named(instance, "plan"),
        ins={"owner_decisions": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={*resource_keys(instance)},
    )
    def plan(context: dg.OpExecutionContext) -> None:
        run = scan_run(context, instance)
        tag_run(context, run)
        with as_dagster_failure(run):
            store_plan(run, context.log)

    @dg.op(
        name=named(instance, "sink"),
        ins={"planned": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys={*resource_keys(instance)},
        pool=write_pool(instance),
    )
    def sink(context: dg.OpExecutionContext) -> None:
        run = scan_run(context, instance)
        with as_dagster_failure(run, last=True):
            written = write_planned(run, context.log)
            decisions = run.tables.of_run("owner_decisions", run.run_id)
            rows = run.tables.writes().select(pl.len()).collect().item()
        metadata = writes_metadata(written.rows, decisions, may_write=run.may_write)
        metadata |= read_to_write_metadata(written.longest_read_to_write_seconds)
        context.add_output_metadata({"dagster/row_count": rows, **metadata})

    @dg.graph_asset(
        **asset_arguments(instance, "owner_writes", kinds={"rest"}),
        ins={
            "owner_decisions": dg.AssetIn(asset_key(instance, "owner_decisions"), dagster_type=dg.Nothing),
        },
    )
    def owner_writes(owner_decisions: None) -> None:
        return sink(plan(owner_decisions))

    return owner_writes


class FollowUpConfig(dg.Config):
    """What an operator says of a run that follows another one."""

    dry_run: bool = Field(default=False, description="Plan only; write nothing.")
    allow_writes: int | None = Field(
        default=None,
        description="Hosts that may be written in spite of writes.max_writes and max_write_percent.",
    )


class ApplyConfig(FollowUpConfig):
    """Which plan is carried out, and how."""

    run_id: str = Field(description="In quotes: the run whose plan is to be carried out.")


class UndoConfig(FollowUpConfig):
    """What is put back, and how."""

    run_id: str = Field(description="In quotes: the run whose writes are to be put back.")


def apply_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that carries out a plan that an earlier run stored."""

    @dg.op(
        name=named(instance, "apply_plan"),
        required_resource_keys=resource_keys(instance).of_follow_up,
        pool=write_pool(instance),
    )
    def apply_stored(context: dg.OpExecutionContext, config: ApplyConfig) -> None:
        _follow_up(context, instance, "apply", apply_plan, config)

    return apply_stored


def undo_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that puts back what a run wrote."""

    @dg.op(
        name=named(instance, "undo_run"),
        required_resource_keys=resource_keys(instance).of_follow_up,
        pool=write_pool(instance),
    )
    def undo_writes(context: dg.OpExecutionContext, config: UndoConfig) -> None:
        _follow_up(context, instance, "undo", undo_run, config)

    return undo_writes


def _follow_up(
    context: dg.OpExecutionContext,
    instance: Instance,
    job: str,
    act: Callable[..., Written],
    config: ApplyConfig | UndoConfig,
) -> None:
    options = config.model_dump(exclude={"run_id"}, exclude_defaults=True)
    kind = f"dry_run_of_{job}" if config.dry_run else job
    run = follow_up_run(context, instance, kind, config.run_id, options)
    with as_dagster_failure(run, last=True):
        written = act(
            run, context.log, config.run_id, allow_writes=config.allow_writes, dry_run=config.dry_run
        )
    metadata = outcomes_metadata(written.rows) | planned_metadata(written.rows)
    metadata |= read_to_write_metadata(written.longest_read_to_write_seconds)
    context.add_output_metadata(metadata)


def write_pool(instance: Instance) -> str:
    """Name the Dagster pool of whatever writes to the instance's target; the operator sets its limit."""
    return f"{slug_of(f'{instance.platform.address} {instance.platform.tenant_id}')}__writes"
