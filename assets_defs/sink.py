"""The sink: the ops that plan what is to be written, and write it host by host.

`owner_writes` does both in a run of the job. A stored plan is carried out later by `apply_op`, and what a run
wrote is put back by `undo_op`. How each of them goes about it is in `writing`.
"""

import dagster as dg

from assets_defs.findings import of_writes
from assets_defs.scan import resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described, made
from assets_defs.writing import apply_plan, store_plan, undo_run, write_planned
from resources.settings import Instance, named


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes: a graph of an op that plans and an op, the sink, that writes."""

    @dg.op(
        name=named(instance, "plan"),
        ins={"owner_decisions": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=set(resource_keys(instance)),
    )
    def plan(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            store_plan(scan, context.log)

    @dg.op(
        name=named(instance, "sink"),
        ins={"planned": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=set(resource_keys(instance)),
        pool=write_pool(instance),
    )
    def sink(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            written = write_planned(scan, context.log)
        decisions = scan.tables.scan("owner_decisions", run_id=scan.run_id).collect()
        found = of_writes(written, decisions)
        context.add_output_metadata(made(instance, "owner_writes", rows=written.height, **found))

    @dg.graph_asset(
        **described(instance, "owner_writes", kinds={"rest"}),
        ins={
            "owner_decisions": dg.AssetIn(asset_key(instance, "owner_decisions"), dagster_type=dg.Nothing),
        },
    )
    def owner_writes(owner_decisions: None) -> None:
        return sink(plan(owner_decisions))

    return owner_writes


def apply_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that carries out a plan that an earlier run stored."""

    @dg.op(
        name=named(instance, "apply_plan"),
        config_schema={
            "run_id": dg.Field(str, description="The run whose plan is to be carried out."),
            "allow_writes": dg.Field(
                dg.Noneable(int),
                default_value=None,
                description="Hosts that may be written in spite of writes.max_writes and max_write_percent.",
            ),
        },
        required_resource_keys=set(resource_keys(instance)),
        pool=write_pool(instance),
    )
    def apply_stored(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        options = context.op_config
        with told_to_the_operator():
            apply_plan(scan, context.log, options["run_id"], allow_writes=options["allow_writes"])

    return apply_stored


def undo_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that puts back what a run wrote."""

    @dg.op(
        name=named(instance, "undo_run"),
        config_schema={
            "run_id": dg.Field(str, description="The run whose writes are to be put back."),
            "dry_run": dg.Field(bool, default_value=False, description="Plan only; write nothing."),
        },
        required_resource_keys=set(resource_keys(instance)),
        pool=write_pool(instance),
    )
    def undo_writes(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        options = context.op_config
        with told_to_the_operator():
            undo_run(scan, context.log, options["run_id"], dry_run=options["dry_run"])

    return undo_writes


def write_pool(instance: Instance) -> str:
    """Name the Dagster pool of whatever writes for an instance; its limit is set by the operator."""
    return named(instance, "writes")
