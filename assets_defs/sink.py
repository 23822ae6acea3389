"""The sink: what is to be written is planned first, then written host by host."""

from datetime import UTC, datetime

import dagster as dg
import polars as pl

from assets_defs.inventory import list_hosts
from assets_defs.scan import Scan, resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described
from ownership.plan import plan_writes
from resources.errors import ServiceError
from resources.journal import Journal
from resources.settings import Instance
from resources.writeback import Writer, settle_leftovers, write_owners

WRITES_BETWEEN_PROGRESS_LINES = 500


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes: a graph of an op that plans and an op, the sink, that writes."""
    needs = set(resource_keys(instance))

    @dg.op(
        name=f"{instance.slug}_plan",
        ins={"owner_decisions": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=needs,
    )
    def plan(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            frame = plan_writes(
                scan.tables.scan("owner_decisions", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_hosts", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_users", run_id=scan.run_id).collect(),
                enrich=scan.options.enrich,
                outcome="intended" if scan.may_write else "planned",
                run_id=scan.run_id,
                intended_at=datetime.now(UTC),
            )
            scan.tables.write("owner_writes", frame, run_id=scan.run_id, publish=False)
        context.log.info(f"Plan: {frame.height} owners to write")

    @dg.op(
        name=f"{instance.slug}_sink",
        ins={"planned": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=needs,
    )
    def sink(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            writes = write_plan(context, scan)
        outcomes = dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
        context.log.info(f"Writes: {outcomes or 'nothing to write'}")
        context.add_output_metadata({"dagster/row_count": writes.height, **outcomes})

    @dg.graph_asset(
        **described(instance, "owner_writes", kinds={"rest"}),
        ins={
            "owner_decisions": dg.AssetIn(asset_key(instance, "owner_decisions"), dagster_type=dg.Nothing),
        },
    )
    def owner_writes(owner_decisions: None) -> None:
        return sink(plan(owner_decisions))

    return owner_writes


def write_plan(context: dg.OpExecutionContext, scan: Scan) -> pl.DataFrame:
    """Write what the run planned, unless it may only plan; return its rows of owner_writes.

    Raises:
        ServiceError: too many writes failed one after another; the rest is left for the next run.
    """
    planned = scan.tables.scan("owner_writes", run_id=scan.run_id).collect()
    if not scan.may_write:
        why = "a dry run" if scan.options.dry_run else "its window is past and `force` is off"
        context.log.info(f"Nothing is written: this is {why}")
        return planned
    instance = scan.instance
    with scan.tables.writing(), Journal(scan.tables.journal) as journal:
        if journal.run_ids():
            settled = settle_leftovers(journal, scan.tables, list_hosts(scan))
            context.log.warning(f"{settled} writes of a run that was cut off are settled")
        finished = write_owners(
            planned,
            Writer(scan.inventory(), instance, lambda: list_hosts(scan)),
            journal,
            concurrency=instance.writes.concurrency,
            max_failed_writes=instance.writes.max_failed_writes,
            on_progress=lambda done, total: _log_progress(context, done, total),
        )
        writes = journal.rows(scan.run_id)
        scan.tables.append_writes(writes, run_id=scan.run_id)
        if "intended" not in writes["outcome"]:
            journal.forget(scan.run_id)
    if not finished:
        raise ServiceError(
            f"{instance.writes.max_failed_writes} writes failed one after another; the run ended, the rest "
            "is left for the next run. The messages are in owner_writes"
        )
    return writes


def _log_progress(context: dg.OpExecutionContext, done: int, total: int) -> None:
    if done % WRITES_BETWEEN_PROGRESS_LINES == 0:
        context.log.info(f"Writes: {done} of {total} hosts done")
