"""The sink: what plans the writes and carries them out, host by host.

`owner_writes` does both in a run of the job. A stored plan is carried out later by the op of `apply`, and
what a run wrote is put back by that of `undo`. How each of them goes about it is in `writing`.
"""

from typing import Literal

import dagster as dg
import polars as pl
from pydantic import Field

from assets_defs.metadata import outcomes_metadata, writes_metadata
from assets_defs.run import as_dagster_failure, follow_up_run, resource_keys, scan_run
from assets_defs.specs import asset_arguments, asset_key
from assets_defs.writing import apply_plan, undo_run, write_planned
from resources.settings import Instance, named, slug_of

FOLLOW_UPS = {"apply": apply_plan, "undo": undo_run}


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes."""

    @dg.asset(
        **asset_arguments(instance, "owner_writes", kinds={"rest"}),
        deps=[asset_key(instance, "owner_decisions")],
        required_resource_keys={*resource_keys(instance)},
        pool=write_pool(instance),
    )
    def owner_writes(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        run = scan_run(context, instance)
        with as_dagster_failure(run, last=True):
            written = write_planned(run, context.log)
            decisions = run.tables.of_run("owner_decisions", run.run_id)
            rows = run.tables.writes().select(pl.len()).collect().item()
        metadata = writes_metadata(written, decisions, may_write=run.may_write)
        return dg.MaterializeResult(metadata={"dagster/row_count": rows, **metadata})

    return owner_writes


class FollowUpConfig(dg.Config):
    """What an operator says of a run that follows another one."""

    run_id: str = Field(
        description="In quotes: the run whose plan is carried out, or whose writes are put back."
    )
    dry_run: bool = Field(default=False, description="Plan only; write nothing.")
    allow_writes: int | None = Field(
        default=None,
        description="Hosts that may be written in spite of writes.max_writes and max_write_percent.",
    )


def follow_up_op(instance: Instance, command: Literal["apply", "undo"]) -> dg.OpDefinition:
    """Define the op that carries out a plan that an earlier run stored, or puts back what a run wrote."""
    act = FOLLOW_UPS[command]

    @dg.op(
        name=named(instance, act.__name__),
        required_resource_keys=resource_keys(instance).of_follow_up,
        pool=write_pool(instance),
    )
    def follow_up(context: dg.OpExecutionContext, config: FollowUpConfig) -> None:
        chosen = config.model_dump(exclude={"run_id"})
        options = config.model_dump(exclude={"run_id"}, exclude_defaults=True)
        kind = f"dry_run_of_{command}" if config.dry_run else command
        run = follow_up_run(context, instance, kind, config.run_id, options)
        with as_dagster_failure(run, last=True):
            written = act(run, context.log, config.run_id, **chosen)
        context.add_output_metadata(outcomes_metadata(written))

    return follow_up


def write_pool(instance: Instance) -> str:
    """Name the Dagster pool of whatever writes to the instance's target; the operator sets its limit."""
    return f"{slug_of(f'{instance.platform.address} {instance.platform.tenant_id}')}__writes"
