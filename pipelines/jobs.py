"""The jobs of an instance and its schedules: scan, plan, what may follow them, and tuning; and the clean-up.

An invalid instance file gives jobs that fail, and assets with a failed check. A new schedule is stopped
until somebody switches it on; only that of the clean-up is on.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.asset_specs import asset_key, asset_place, service_specs
from assets_defs.cleanup import ALL_INSTANCES, delete_old_of_all, require_plausible_clock, runs_of
from assets_defs.record import as_dagster_failure, failure, overdue_notice, tell
from assets_defs.run import PLAN, resource_keys
from assets_defs.run_request import INSTANCE_TAG, PARTITION, SCANNED, SINK, run_tags, scan_tags, window_of
from assets_defs.sink import follow_up_op
from assets_defs.tuning import TUNING_TABLES, tuning_op
from ownership.names import printable
from ownership.windows import Window
from pipelines.dagster_gaps.console import console
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.settings import (
    BrokenInstance,
    Instance,
    command_line,
    executor,
    instances_folder,
    load_instances,
    part_name,
)
from resources.store.retention import OVERDUE_AFTER, read_run_state
from resources.store.tables import tables_of

LOGGERS = {"console": console}
"""Passed to every job: Dagster makes a job again when it gets executor and loggers later."""

TUNING_CRON = "0 12 * * 0"
"""Sundays at noon: long after the night's run, when the machine is idle."""

MAINTENANCE, MAINTENANCE_CRON = "maintenance__daily", "0 13 * * *"
"""The job that belongs to no instance, and when it runs (UTC)."""


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


def jobs_of(instance: Instance, resources: Mapping[str, Any]) -> list[Any]:
    """Return the jobs of an instance; Dagster does not export the type of those of assets."""
    return [*_scan_jobs(instance), *_other_jobs(instance, resources)]


def _scan_jobs(instance: Instance) -> list[Any]:
    """Return the jobs of all assets of an instance: that which writes, and that which only plans."""
    scan, dry_run, plan = instance.scan, instance.writes.dry_run, part_name(instance, PLAN)
    plan_only = " **Runs plan only: `writes.dry_run` is on.**" if dry_run else ""
    facts = {
        "search service": instance.source_place,
        "inventory service": instance.platform.place,
        "sensor": instance.sensor,
        "window": f"{scan.lookback_days} days, the running one included ({scan.timezone})",
    }
    schedule = f"{scan.schedule} ({scan.timezone})" if scan.schedule else "none"
    runs = "plan only (writes.dry_run is on)" if dry_run else "write owners"
    define = partial(
        dg.define_asset_job,
        selection=dg.AssetSelection.groups(instance.slug),
        executor_def=run_executor(),
        tags=run_tags(instance),
        run_tags=run_tags(instance),
    )
    # Without `config`: the launchpad would put it over what is typed once a day is chosen, and Dagster would
    # refuse a backfill with options. These have the instance's defaults anyway.
    writing = define(
        instance.slug,
        metadata={**facts, "schedule": schedule, "runs": runs},
        description=f"""\
Finds the owner of each host in the logon events of {literal(instance.name)}, and writes the owners of
hosts that have none. A host that has an owner keeps it.{plan_only}

**First steps**

1. On a terminal: `{command_line(instance, "check")}` tries both services and writes nothing.
2. The job `{plan}` shows what a run would write.
3. Here: *Materialize all…*, *Latest*, *Launch 1 run* writes. The run fetches the days of its window itself.
4. *Automation* in the menu switches the schedule on.

*Launch backfill*, for several days, only fetches, decides and plans, unless `force` is on; its dialog does
not say so. A run of some of the assets does not write. The first line of a run's log says whether it writes.

The job `{part_name(instance, "apply")}` applies a stored plan, `{part_name(instance, "undo")}` undoes a run.

Guides, on a terminal: `{command_line(None, "docs", "operations")}` (the daily work); `rules` in its place \
says how owners are decided, `configuration` lists every setting.""",
    )
    planning = define(
        plan,
        config=run_config(instance, dry_run=True),
        metadata=facts,
        description=_what_it_does(instance, PLAN, "run", "--dry-run"),
    )
    return [writing, planning]


_HOW_TO = """

*Launchpad*: *Scaffold missing config* adds `run_id`; write the id of that run, or its first 8 characters,
between its quotes (*Runs* in the menu lists them), and `dry_run: true` to plan first. It writes even if
`writes.dry_run` is on. On a terminal: `{command} RUN_ID`.
"""
_DOES = {
    PLAN: "Plans what a run of {name} would write, and writes nothing, whatever `dry_run` says.\n\n"
    "*Materialize all…*, *Latest*, *Launch 1 run*. Then the *Events* of the asset `owner_writes` show the "
    "plan, and a link to apply it. For some hosts only: the arrow beside *Materialize all…*, *Open "
    "launchpad*, choose the last day, and name them in `hosts`. On a terminal: `{command}`.",
    "apply": "Applies a plan that a run of {name} stored, such as a dry run; skips hosts that changed since."
    + _HOW_TO,
    "undo": "Undoes what a run of {name} wrote, field by field, where hosts still hold it." + _HOW_TO,
    "tuning": "Estimates how many owners of {name} would be wrong, and what other settings would change.\n\n"
    "*Launchpad*, *Launch Run* fills the tables of the group of this name. They have no *Materialize*: one "
    "step fills them together. On a terminal: `{command}`.",
}


def _what_it_does(instance: Instance, job: str, *command: str) -> str:
    return _DOES[job].format(name=literal(instance.name), command=command_line(instance, *command))


def _other_jobs(instance: Instance, resources: Mapping[str, Any]) -> list[dg.JobDefinition]:
    """Return the jobs that apply a stored plan, undo a run, and tune."""
    apply, undo = follow_up_op(instance, "apply"), follow_up_op(instance, "undo")
    loggers = dg.Field({"console": dict}, default_value={"console": {}})
    return [
        # Of one op, not of assets: its launchpad would have the options of a scan.
        dg.GraphDefinition(part_name(instance, job), node_defs=[op]).to_job(
            # Without a default of the whole: it would have to name a run, and an empty name would pass.
            config=dg.ConfigMapping(
                lambda chosen: chosen,
                {"loggers": loggers, "ops": {op.name: {"config": op.config_schema.as_field()}}},
            ),
            description=_what_it_does(instance, job, "tune" if job == "tuning" else job),
            tags=run_tags(instance),
            run_tags=run_tags(instance),
            metadata={"inventory service": instance.platform.place},
            resource_defs={key: resources[key] for key in op.required_resource_keys},
            executor_def=run_executor(),
            logger_defs=LOGGERS,
        )
        for job, op in {"apply": apply, "undo": undo, "tuning": tuning_op(instance)}.items()
    ]


@cache
def maintenance_job() -> dg.JobDefinition:
    """Return the job that deletes old data of all instances in the home."""

    @dg.op(name="maintenance__delete_old")
    def delete_old(context: dg.OpExecutionContext) -> None:
        with as_dagster_failure():
            require_plausible_clock(context.instance, context.job_name)
            found = load_instances(instances_folder())
            instances = [instance for instance in found if isinstance(instance, Instance)]
            delete_old_of_all(instances, context.instance, context.log)

    return dg.GraphDefinition(MAINTENANCE, node_defs=[delete_old]).to_job(
        description="Deletes what is older than `keep` allows of all instances in the home, also of those "
        "whose runs fail, or whose files are gone.",
        tags={INSTANCE_TAG: ALL_INSTANCES},  # by which its own records are deleted
        executor_def=dg.in_process_executor,  # the home is of this machine
        logger_defs=LOGGERS,
    )


def maintenance_schedule() -> dg.ScheduleDefinition:
    """Return the schedule of the clean-up, which is on unless somebody switches it off."""
    return dg.ScheduleDefinition(
        name=MAINTENANCE,
        job_name=MAINTENANCE,
        cron_schedule=MAINTENANCE_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def literal(name: str) -> str:
    """Return a name as a code span of Markdown, where nothing but the backtick has a meaning."""
    return "`" + printable(name).replace("`", "'") + "`"


def broken_definitions(broken: BrokenInstance) -> dg.Definitions:
    """Define what is seen of an invalid instance file, so that other instances still load.

    Its assets keep their places and histories. Each says what is wrong, as does a failed check of the last
    one: a sensor reports it, without a run.
    """
    todo = "No run of this instance starts until its file is corrected and reloaded (*Deployment*, *Reload*)."
    said = f"{todo}\n{broken.message}".replace("\n", "\n\n")  # Markdown
    # Also that of a run before the file was changed.
    any_config = dg.ConfigMapping(lambda _: {}, dg.Permissive())
    name, last = "instance_file_is_valid", asset_key(broken, SINK)
    specs = [dg.AssetSpec(**asset_place(broken, one), description=said) for one in (*SCANNED, *TUNING_TABLES)]

    @dg.asset_check(asset=last, name=name, description=said)
    def is_valid() -> dg.AssetCheckResult:
        raise failure(broken.message) from ConfigurationError()

    @dg.sensor(name=part_name(broken, name), default_status=dg.DefaultSensorStatus.RUNNING, description=said)
    def report_invalid(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        failed = dg.AssetCheckEvaluation(asset_key=last, check_name=name, passed=False, description=said)
        events, why = [failed] * (context.cursor != said), "A failed check says what is wrong."
        return dg.SensorResult(asset_events=events, cursor=said, skip_reason=why)

    @dg.op(name=part_name(broken, "instance_file"))
    def refuse() -> None:
        raise failure(broken.message) from ConfigurationError()

    jobs = [broken.slug, *(part_name(broken, job) for job in _DOES)]
    return dg.Definitions(
        assets=[*specs, *service_specs(broken, said, said)],
        asset_checks=[is_valid],
        jobs=[
            dg.GraphDefinition(job, node_defs=[refuse]).to_job(config=any_config, description=said)
            for job in jobs
        ],
        sensors=[report_invalid],
        executor=run_executor(),
        loggers=LOGGERS,
    )


def schedules(instance: Instance) -> list[dg.ScheduleDefinition]:
    """Return the schedule of tuning and, if the instance has one, that of the scan."""
    scan = instance.scan
    tuning = dg.ScheduleDefinition(
        name=part_name(instance, "tuning"),
        job_name=part_name(instance, "tuning"),
        cron_schedule=TUNING_CRON,
        execution_timezone=scan.timezone,
        description="Estimates how many owners would be wrong, and what other settings would change.",
        run_config={"loggers": {"console": {}}},
    )
    if scan.schedule is None:
        return [tuning]

    def request_run(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        today = context.scheduled_execution_time.astimezone(ZoneInfo(scan.timezone)).date()
        tags = launch_tags(instance, window_of(instance, today))
        if _last_run_failed(instance):  # its services may still be away: the others do not wait for it
            tags |= {"dagster/priority": "-1"}
        return dg.RunRequest(tags=tags, run_config=run_config(instance, refetch=False))

    daily = dg.ScheduleDefinition(
        name=instance.slug,
        job_name=instance.slug,
        cron_schedule=scan.schedule,
        execution_timezone=scan.timezone,
        description=_description(instance),
        execution_fn=request_run,
    )
    return [daily, tuning]


def _last_run_failed(instance: Instance) -> bool:
    """Return whether the last run failed; what cannot be read fails the run, and not its tick."""
    try:
        state = read_run_state(tables_of(instance), dry_run=instance.writes.dry_run)
    except Exception as error:
        if operator_message(error) is None:
            raise
        return False
    return bool(state["failing_since"])


def sensors(instance: Instance) -> list[dg.SensorDefinition]:
    """Return what tells the addresses of `notify` that the schedule's run has not succeeded; it is on."""
    if not instance.notify or instance.scan.schedule is None:
        return []

    @dg.sensor(
        name=part_name(instance, "overdue"),
        minimum_interval_seconds=900,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells `notify` when no run has succeeded, or said that it failed, since the last tick.",
    )
    def overdue(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        tick = last_tick(context.instance, instance.slug)
        if not tick or datetime.now(UTC) - tick < OVERDUE_AFTER:
            return dg.SkipReason("No run is overdue.")
        if context.cursor == tick.isoformat():
            return dg.SkipReason(f"Nobody is told a second time of the tick at {tick}.")
        state = read_run_state(tables_of(instance), dry_run=instance.writes.dry_run)
        context.update_cursor(tick.isoformat())
        if (state["last_run_success"] or 0) >= tick.timestamp():
            return dg.SkipReason(f"A run has succeeded since the tick at {tick}.")
        to_come = runs_of(context.instance, instance.name, finished=False, limit=1)  # such as the next try
        if _failure_was_told(instance, state["last_run"], tick) and not to_come:
            return dg.SkipReason(f"A run has failed since the tick at {tick}: `notify` was told then.")
        tell(instance, overdue_notice(instance, tick), context.log, kind="failure")
        return dg.SkipReason(f"No run has succeeded since {tick}: the addresses of `notify` were told.")

    return [overdue]


def _failure_was_told(instance: Instance, last_run: Mapping[str, Any] | None, tick: datetime) -> bool:
    """Return whether the last run began after the tick and failed, unless somebody only tried something."""
    is_scheduled = last_run and (last_run["kind"] == "run" or instance.writes.dry_run)
    return bool(is_scheduled and last_run["started_at"] >= tick.timestamp())


def last_tick(dagster: dg.DagsterInstance, schedule: str) -> datetime | None:
    """Return when a schedule began its last run; None: it is off, or has begun none."""
    for state in dagster.all_instigator_state():
        if state.instigator_name == schedule and state.status.value == "RUNNING":
            for tick in dagster.get_ticks(state.instigator_origin_id, state.selector_id, limit=1):
                return datetime.fromtimestamp(tick.timestamp, UTC)
    return None


def _description(instance: Instance) -> str:
    """Return what a run of the schedule does, where to, and how much of it."""
    does = "Fetches the days that are missing or not settled, decides, and"
    if instance.writes.dry_run:
        return f"{does} plans; writes.dry_run is on."
    limits, place = instance.writes, instance.platform.place
    percent = f" or {limits.max_write_percent}% of them" if limits.max_write_percent else ""
    return (
        f"{does} writes the owners of hosts that have none to {place}. It writes nothing if that would be "
        f"more than {limits.max_writes:,} hosts{percent}, and stops after {limits.max_failed_writes:,} "
        "failed writes in a row (writes.max_failed_writes)."
    )


def launch_tags(instance: Instance, window: Window) -> dict[str, str]:
    """Return the tags that give a run of the job its window; it fetches the missing days."""
    return {PARTITION: window.last.isoformat(), **scan_tags(instance, window)}


def run_config(instance: Instance, **options: Any) -> dict[str, Any]:
    """Return the run configuration with these of `assets_defs.run.ScanOptions`."""
    scan = {resource_keys(instance).scan: {"config": options}}
    return {"loggers": {"console": {}}, "resources": scan}
