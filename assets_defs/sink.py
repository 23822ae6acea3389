"""The sink: what is to be written is planned first, then written host by host.

`owner_writes` does both in a run of the job. A stored plan is carried out later by `apply_op`, and what a run
wrote is put back by `undo_op`; all three write through `carry_out`.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl

from assets_defs.inventory import list_hosts
from assets_defs.scan import Scan, resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described
from ownership.plan import excess, plan_undo, plan_writes
from ownership.windows import gaps
from resources.errors import AssetOwnersError, ConfigurationError, ServiceError
from resources.journal import Journal, Result
from resources.settings import Instance
from resources.writeback import Row, Writer, settle_leftovers, write_all

WRITES_BETWEEN_PROGRESS_LINES = 500


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes: a graph of an op that plans and an op, the sink, that writes."""

    @dg.op(
        name=f"{instance.slug}_plan",
        ins={"owner_decisions": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=set(resource_keys(instance)),
    )
    def plan(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            frame = plan_writes(
                scan.tables.scan("owner_decisions", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_hosts", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_users", run_id=scan.run_id).collect(),
                enrich=scan.options.enrich,
                run_id=scan.run_id,
                intended_at=datetime.now(UTC),
            )
            frame = frame.head(frame.height if scan.options.limit is None else scan.options.limit)
            scan.tables.write("owner_writes", frame, run_id=scan.run_id, publish=False)
        context.log.info(f"Plan: {frame.height} owners to write")

    @dg.op(
        name=f"{instance.slug}_sink",
        ins={"planned": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        required_resource_keys=set(resource_keys(instance)),
        pool=write_pool(instance),
    )
    def sink(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        planned = scan.tables.of_run("owner_writes", scan.run_id)
        with told_to_the_operator():
            if scan.may_write:
                _require_complete_window(context, scan)
                _require_moderate(scan, planned, allowed=None)
                written = carry_out(context, scan, planned, lambda writer: writer.write)
                _forget_outdated(context, scan)
            else:
                why = "a dry run" if scan.options.dry_run else "its window is past and `force` is off"
                context.log.info(f"Nothing is written: this is {why}")
                written = planned
        context.add_output_metadata({"dagster/row_count": written.height, **_outcomes(written)})

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
        name=f"{instance.slug}_apply",
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
    def apply_plan(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        plan_id = context.op_config["run_id"]
        with told_to_the_operator():
            planned = scan.tables.of_run("owner_writes", plan_id)
            if planned.is_empty():
                raise ConfigurationError(
                    f"Run {plan_id} of {instance.name} stored no plan with anything to write"
                )
            planned = planned.with_columns(run_id=pl.lit(scan.run_id))
            _require_moderate(scan, planned, allowed=context.op_config["allow_writes"])
            carry_out(context, scan, planned, lambda writer: writer.apply)

    return apply_plan


def undo_op(instance: Instance) -> dg.OpDefinition:
    """Define the op that puts back what a run wrote."""

    @dg.op(
        name=f"{instance.slug}_undo",
        config_schema={
            "run_id": dg.Field(str, description="The run whose writes are to be put back."),
            "dry_run": dg.Field(bool, default_value=False, description="Plan only; write nothing."),
        },
        required_resource_keys=set(resource_keys(instance)),
        pool=write_pool(instance),
    )
    def undo_writes(context: dg.OpExecutionContext) -> None:
        scan = scan_of(context, instance)
        undone_id = context.op_config["run_id"]
        with told_to_the_operator():
            writes = scan.tables.run_writes(undone_id)
            planned = plan_undo(writes, run_id=scan.run_id, intended_at=datetime.now(UTC))
            if planned.is_empty():
                raise ConfigurationError(
                    f"Run {undone_id} of {instance.name} wrote nothing that could be undone"
                )
            scan.tables.write("owner_writes", planned, run_id=scan.run_id, publish=False)
            context.log.info(f"Plan: {planned.height} hosts to put back")
            if not context.op_config["dry_run"]:
                carry_out(context, scan, planned, lambda writer: writer.undo)

    return undo_writes


def write_pool(instance: Instance) -> str:
    """Name the Dagster pool of whatever writes for an instance; its limit is set by the operator."""
    return f"{instance.slug}_writes"


def carry_out(
    context: dg.OpExecutionContext,
    scan: Scan,
    planned: pl.DataFrame,
    method: Callable[[Writer], Callable[[Row], Result]],
) -> pl.DataFrame:
    """Write planned hosts while no other run of the instance writes; return the rows of owner_writes.

    Raises:
        ServiceError: too many writes failed one after another; the rest is left for the next run.
    """
    instance = scan.instance
    with scan.tables.writing(), Journal(scan.tables.journal) as journal:
        if journal.run_ids():
            settled = settle_leftovers(journal, scan.tables, list_hosts(scan))
            context.log.warning(f"{settled} writes of a run that was cut off are settled")
        finished = write_all(
            planned,
            method(Writer(scan.inventory(), instance, lambda: list_hosts(scan))),
            journal,
            concurrency=instance.writes.concurrency,
            max_failed_writes=instance.writes.max_failed_writes,
            on_progress=lambda done, total: _log_progress(context, done, total),
        )
        written = journal.rows(scan.run_id)
        scan.tables.append_writes(written, run_id=scan.run_id)
        if "intended" not in written["outcome"]:
            journal.forget(scan.run_id)
    outcomes = _outcomes(written)
    context.log.info(f"Writes: {outcomes or 'nothing to write'}")
    if "failed" in outcomes:
        context.log.warning(f"{outcomes['failed']} writes failed; owner_writes has their messages")
    if not finished:
        raise ServiceError(
            f"{instance.writes.max_failed_writes} writes failed one after another; the run ended, the rest "
            "is left for the next run. The messages are in owner_writes"
        )
    return written


def _require_complete_window(context: dg.OpExecutionContext, scan: Scan) -> None:
    """Warn of days that look like lost events; refuse to write where the instance asks for it.

    Raises:
        AssetOwnersError: the window has gaps and scan.require_complete_window is on.
    """
    days = gaps(scan.tables.logon_days(scan.window, run_id=scan.run_id), timezone=scan.instance.scan.timezone)
    if not days:
        return
    named = ", ".join(day.isoformat() for day in days)
    context.log.warning(f"Days of the window without events, or with hardly any: {named}")
    if scan.instance.scan.require_complete_window:
        raise AssetOwnersError(
            f"Nothing was written: these days have no events, or hardly any ({named}), and "
            "scan.require_complete_window is on. Fetch the days again once their events are back, or, when "
            f"there never were any, carry out the plan: asset-owners apply --instance FILE {scan.run_id}"
        )


def _require_moderate(scan: Scan, planned: pl.DataFrame, *, allowed: int | None) -> None:
    """Refuse a plan that is too large to carry out unseen.

    Raises:
        AssetOwnersError: saying how to look at the plan and how to apply it.
    """
    if allowed is not None and planned.height <= allowed:
        return
    limits = scan.instance.writes
    hosts = scan.tables.scan("inventory_hosts", run_id=scan.run_id).select(pl.len()).collect().item()
    reason = excess(
        planned.height, hosts, max_writes=limits.max_writes, max_write_percent=limits.max_write_percent
    )
    if reason:
        raise AssetOwnersError(
            f"{reason}; nothing was written. Look at the plan ({scan.tables.plan_file(scan.run_id)}), then "
            f"carry it out: asset-owners apply --instance FILE {scan.run_id} --allow-writes {planned.height}"
        )


def _forget_outdated(context: dg.OpExecutionContext, scan: Scan) -> None:
    """Delete what the instance does not keep, never a day of the run's own window."""
    keep, now = scan.instance.keep, datetime.now(UTC)
    scan.tables.drop_inputs(scan.run_id)
    deleted = scan.tables.forget(
        evidence_before=min(now.date() - timedelta(days=keep.evidence_days), scan.window.first),
        history_before=now - timedelta(days=keep.history_days),
    )
    if deleted:
        context.log.info(f"Kept long enough: {deleted} files and folders are deleted")


def _outcomes(writes: pl.DataFrame) -> dict[str, int]:
    return dict(writes["outcome"].value_counts().sort("outcome").iter_rows())


def _log_progress(context: dg.OpExecutionContext, done: int, total: int) -> None:
    if done % WRITES_BETWEEN_PROGRESS_LINES == 0:
        context.log.info(f"Writes: {done} of {total} hosts done")
