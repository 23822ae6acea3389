"""The sink: the asset that plans and writes, and the ops that apply a stored plan and undo a run.

How each of them does it is in `plans`.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import dagster as dg
import polars as pl
import yaml
from pydantic import Field

from assets_defs.asset_specs import (
    LOCATION,
    asset_arguments,
    asset_key,
    departments_metadata,
    hosts_metadata,
    list_command,
    writes_metadata,
)
from assets_defs.cleanup import delete_old
from assets_defs.owners import longest_pause, shown_decisions
from assets_defs.plans import apply_plan, undo_run, write_planned
from assets_defs.record import as_dagster_failure
from assets_defs.report import reporting, sheet_of, where_reported
from assets_defs.run import InstanceRun, ScanRun, follow_up_run, resource_keys, scan_run
from assets_defs.run_request import is_of_backfill
from assets_defs.tuning import table_filled
from ownership.codes import SUCCESSES
from ownership.decisions import HAS_OWNER
from ownership.names import counted, printable, some_of
from ownership.plan import exceeded_limit, select_hosts
from reports.run_results import result_in_words
from resources.errors import AssetOwnersError
from resources.locks import end_if_stuck
from resources.settings import Instance, command_line, part_name, slug_of
from resources.store.retention import read_run_state
from resources.store.tables import Tables, short_run_id

FOLLOW_UPS = {"apply": apply_plan, "undo": undo_run}
WRITTEN_IN_TIME, WRITING = "owners_are_written_in_time", ("run", "apply")  # a check, and what it looks for


def sink_asset(instance: Instance) -> dg.AssetsDefinition:
    """Define owner_writes, and its check: Dagster takes a plan of a backfill for fresh writes."""
    key = asset_key(instance, "owner_writes")
    rule = "While there are owners to write, a run writes within the schedule's longest pause."

    @dg.asset(
        **asset_arguments(instance, "owner_writes", kind="rest"),
        required_resource_keys={*resource_keys(instance)},
        pool=write_pool(instance),
        output_required=False,  # a plan is observed: the page goes on opening with what was written last
        check_specs=[dg.AssetCheckSpec(WRITTEN_IN_TIME, asset=key, description=rule)],
    )
    def owner_writes(context: dg.AssetExecutionContext) -> Iterator[Any]:
        run = scan_run(context, instance)
        with end_if_stuck(), reporting(run), as_dagster_failure(run.record, last=True):
            try:
                rows = write_planned(run)
                in_time, metadata = _written_in_time(run, rows), _shown(run, rows)
                delete_old(run)
            except AssetOwnersError:
                plan = run.tables.read_own("owner_writes", run.run_id)
                if plan.height and not run.tables.has_written(run.run_id):  # the page shows it nevertheless
                    yield dg.AssetObservation(context.asset_key, metadata=_shown(run, plan))
                    yield _written_in_time(run, plan)
                raise
        yield in_time
        if run.may_write or is_of_backfill(context):  # Dagster counts a backfill as failed that lacks one
            yield dg.MaterializeResult(metadata=metadata)
        else:
            yield dg.AssetObservation(context.asset_key, metadata=metadata)

    return owner_writes


def _written_in_time(run: ScanRun, rows: pl.DataFrame) -> dg.AssetCheckResult:
    """Return whether a run wrote lately, if `rows` has owners to write; before the first write it passes."""
    scan, succeeded = run.instance.scan, read_run_state(run.tables)["succeeded"]
    number = rows.filter(outcome="planned").height
    last = max(succeeded.get(kind, 0) for kind in WRITING)
    pause = None if run.instance.writes.dry_run else longest_pause(scan.schedule, scan.timezone)
    is_late = bool(number and last and pause and time.time() - last > pause.total_seconds())
    since = f"{datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M} UTC"
    said = f"{counted(number, 'owner')} to write, and no run has written since {since}" if is_late else None
    return dg.AssetCheckResult(passed=not is_late, severity=dg.AssetCheckSeverity.WARN, description=said)


def _shown(run: InstanceRun, rows: pl.DataFrame, **known: Any) -> dict[str, Any]:
    """Return the outcomes of a plan's hosts as metadata of the asset; `known` replaces entries."""
    scan, short, tables = run if isinstance(run, ScanRun) else None, short_run_id(run.run_id), run.tables
    plan_id = tables.decided_by(run.run_id)
    decisions = tables.read_own("owner_decisions", plan_id)
    asked = scan.options.hosts if scan else ()
    shown = decisions.filter(pl.col("host_id").is_in(rows["host_id"].implode()))
    if asked and decisions.height:
        shown = select_hosts(decisions.drop_nulls("host_id"), asked, decisions)
    owners = tables.read("current_owners", run_id=run.run_id).collect()
    # Without decisions, which may be no longer kept, it has none.
    hosts = hosts_metadata(shown, partial(sheet_of, run), see_all=list_command(run, "FROM write_history"))
    is_undo, written = "undo" in run.record.row()["kind"], tables.writes().select(pl.len()).collect().item()
    return {
        "result": _result(run, rows),
        **({"asked_for": some_of([*map(printable, asked)]), **hosts} if asked else {}),
        **_written_last(run, owners),
        "run": run.run_id,
        **({"report": where_reported(run)} if scan or run.may_write else {}),
        **(_to_apply(scan, rows, decisions) if scan else {}),
        **({"to_undo": command_line(run.instance, "undo", short)} if "written" in rows["outcome"] else {}),
        # An undo without the old decisions that it undoes, some hosts without the funnel of all.
        **writes_metadata(
            rows,
            decisions.clear() if is_undo else decisions,
            _still_written(tables, plan_id),
            has_funnel=not asked,
        ),
        **known,
        **departments_metadata(owners),
        **hosts,
        "dagster/row_count": written,
    }


def _result(run: InstanceRun, rows: pl.DataFrame) -> str:
    """Return what a run wrote or would write."""
    if set(rows["outcome"]) - {"planned"}:
        return f"{counted(rows.filter(outcome='written').height, 'host')} written"
    if run.may_write and rows.is_empty():
        return "This run may write, but there is no host to write"
    what, number = "Stopped" if run.may_write else "Plan only", counted(rows.height, "host")
    if isinstance(run, ScanRun) and (asked := run.options.hosts):
        number = f"{rows.height:,} of {counted(len(asked), 'host')} asked for"
    return f"{what}: {number} would be written"


def _written_last(run: InstanceRun, owners: pl.DataFrame) -> dict[str, Any]:
    """Return the last run that wrote owners, and how many hosts still have them; of `current_owners`."""
    wrote = run.tables.all_runs("runs").filter(pl.col("written") > 0, pl.col("kind") != "undo")
    said = "nothing yet"
    for row in wrote.sort("started_at").tail(1).collect().iter_rows(named=True):
        hosts, by = counted(row["written"], "host"), short_run_id(row["run_id"])
        said = f"{hosts} by run {by}, {row['started_at']:%Y-%m-%d %H:%M} UTC"
    held = owners.filter(HAS_OWNER, source="asset-owners")  # an undo is ours, too
    return {"written_last": said, "hosts_with_written_owner": held.height}


def _to_apply(run: ScanRun, planned: pl.DataFrame, decisions: pl.DataFrame) -> dict[str, Any]:
    """Return how to apply the plan of a run: the command, and a link to the filled-in launchpad."""
    if run.mode.missing_steps or "planned" not in planned["outcome"]:
        return {}
    number = planned.height
    hosts = decisions["host_id"].count()
    too_large = exceeded_limit(number, hosts, run.instance.writes, what="owners")
    allow = ("--allow-writes", str(number)) if too_large else ()
    chosen = {"run_id": run.run_id, "dry_run": False} | ({"allow_writes": number} if too_large else {})
    ops = {part_name(run.instance, apply_plan.__name__): {"config": chosen}}
    config, job = quote(yaml.safe_dump({"ops": ops})), part_name(run.instance, "apply")
    launched = run.record.recorded.get_run_by_id(run.run_id) if run.record.recorded else None
    origin = launched.remote_job_origin if launched else None
    location = origin.location_name if origin else LOCATION  # another one in a project of somebody else's
    address = f"/locations/{location}/jobs/{job}/playground/setup?config={config}"
    return {
        "when_applied": f"reads the inventory again, and uses the logons up to {run.window.last}",
        "to_apply": command_line(run.instance, "apply", short_run_id(run.run_id), *allow),
        "open_in_launchpad": dg.MetadataValue.md(f"[Open the launchpad of {job}]({address})"),
    }


class FollowUpConfig(dg.Config):
    """What an operator chooses for a run that follows another one."""

    run_id: str = Field(description="In quotes: the run whose plan is applied, or which is undone.")
    dry_run: bool = Field(default=False, description="Plan only; write nothing.")
    allow_writes: int | None = Field(
        default=None,
        description="The most hosts to write, in place of writes.max_writes and max_write_percent.",
    )
    hosts: list[str] = Field(
        default=[], description="These hosts only, by name or id; none: all of the plan."
    )
    reason: str | None = Field(default=None, description="Why; the table runs keeps it among the options.")


class UndoConfig(FollowUpConfig):
    """What an operator chooses for a run that undoes another one."""

    wrong: bool = Field(default=False, description="Their owners are wrong: no run names them there again.")


def follow_up_op(instance: Instance, command: Literal["apply", "undo"]) -> dg.OpDefinition:
    """Define the op that applies a plan that an earlier run stored, or undoes what a run wrote."""
    act, keys = FOLLOW_UPS[command], resource_keys(instance)

    @end_if_stuck()
    def follow_up(context: dg.OpExecutionContext, config: FollowUpConfig) -> None:
        options = config.model_dump(exclude={"run_id"}, exclude_defaults=True)
        run = follow_up_run(context, instance, command, config.run_id, options)
        is_wrong = {"wrong": config.wrong} if isinstance(config, UndoConfig) else {}
        with reporting(run), as_dagster_failure(run.record, last=True):
            written = act(run, config.run_id, config.allow_writes, config.hosts, **is_wrong)
        key = asset_key(instance, "owner_writes")
        if run.may_write:
            if not written.filter(pl.col("outcome").is_in(SUCCESSES)).is_empty():
                _show_decisions(context, run, {"apply": "applied", "undo": "undid"}[command])
            check: Any = dg.AssetCheckEvaluation(check_name=WRITTEN_IN_TIME, asset_key=key, passed=True)
            context.log_event(check)
        if options.get("wrong"):
            context.log_event(
                table_filled(instance, "audit_sample", run.tables.read("audit_sample").collect())
            )
        event = dg.AssetObservation if config.dry_run else dg.AssetMaterialization
        context.log_event(event(key, metadata=_followed(run, written)))

    follow_up.__annotations__["config"] = UndoConfig if command == "undo" else FollowUpConfig
    name, needed = part_name(instance, act.__name__), {keys.tables, keys.inventory}
    return dg.op(name=name, required_resource_keys=needed, pool=write_pool(instance))(follow_up)


def _show_decisions(context: dg.OpExecutionContext, run: InstanceRun, done: str) -> None:
    """Show the decisions of a plan that was applied, or undone, as the last ones, with its checks."""
    tables, plan_id = run.tables, run.tables.decided_by(run.run_id)
    if tables.published_run() != plan_id:
        return
    key, written = asset_key(run.instance, "owner_decisions"), _still_written(tables, plan_id)
    decisions = tables.read_own("owner_decisions", plan_id)
    as_of = {"as_of": f"after run {short_run_id(run.run_id)} {done} this plan: {written:,} written"}
    shown = as_of | shown_decisions(run, decisions, plan_id, written=written)
    context.log_event(dg.AssetMaterialization(key, metadata=shown))
    for entry in context.instance.all_logs(plan_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        checked: Any = entry.get_dagster_event().asset_check_evaluation_data
        if checked.asset_key == key:
            context.log_event(checked)


def _still_written(tables: Tables, plan_id: str) -> int:
    """Return how many hosts of a run's plan were written, in however many parts, and not undone since."""
    written, undone = tables.written_and_undone(plan_id)
    return written - undone.height


def _followed(run: InstanceRun, written: pl.DataFrame) -> dict[str, Any]:
    """Return the outcome of each host of a run that followed another one."""
    row = run.record.row()
    said = f"{result_in_words(row)}; this run followed run {short_run_id(row['of_run'])}"
    known = dict[str, Any](result=said)
    if row["hosts"]:  # as listed by this run: the plan, or what is undone, may be days old
        owned = row["owned_before"] if row["owned_after"] is None else row["owned_after"]
        known["hosts_owned_percent"] = round(100 * owned / row["hosts"], 1)
    return _shown(run, written, **known)


def write_pool(instance: Instance) -> str:
    """Name the Dagster pool of whatever writes to the instance's target; the operator sets its limit."""
    return f"{slug_of(instance.platform.key)}__writes"
