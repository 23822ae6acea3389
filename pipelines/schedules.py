"""The schedules of an instance: one run over the whole look-back window, and tuning.

A new schedule is stopped until somebody switches it on.
"""

from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.launch import PARTITION, scan_tags, window_of
from assets_defs.scan_resources import resource_keys
from ownership.windows import Window
from resources.settings import Instance, named

TUNING_CRON = "0 12 * * 0"
"""Sundays at noon: long after the night's run, when nobody waits for the machine."""


def schedules(instance: Instance) -> list[dg.ScheduleDefinition]:
    """Return the schedule of tuning and, if the instance has one, that of the scan."""
    scan = instance.scan
    tuning = dg.ScheduleDefinition(
        name=named(instance, "tuning"),
        job_name=named(instance, "tuning"),
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


def _description(instance: Instance) -> str:
    """Return what a run of the schedule does, where to, and how much of it."""
    does = "Fetches the days that are missing or not settled, decides, and"
    if instance.writes.dry_run:
        return f"{does} plans; `writes.dry_run` is on."
    limits, platform = instance.writes, instance.platform
    percent = f" or {limits.max_write_percent}% of them" if limits.max_write_percent else ""
    return (
        f"{does} writes the owners of hosts that have none to {platform.address}, tenant "
        f"{platform.tenant_id}: none if they would be more than {limits.max_writes:,} hosts{percent}, and no "
        f"more after {limits.max_failed_writes:,} failed writes in a row (`writes.max_failed_writes`)."
    )


def launch_tags(instance: Instance, window: Window) -> dict[str, str]:
    """Return the tags that give a run of the job its window; it fetches the missing days."""
    return {PARTITION: window.last.isoformat(), **scan_tags(instance, window)}


def run_config(instance: Instance, **options: Any) -> dict[str, Any]:
    """Return the run configuration with these of `assets_defs.scan_resources.ScanOptions`."""
    scan = {resource_keys(instance).scan: {"config": options}}
    return {"loggers": {"console": {}}, "resources": scan}
