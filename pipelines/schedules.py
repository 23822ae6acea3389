"""The schedules of an instance: one run over the whole look-back window, and tuning."""

from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.run import PARTITION, resource_keys, scan_tags, window_of
from ownership.windows import Window
from resources.settings import Instance, named


def scan_schedule(instance: Instance) -> dg.ScheduleDefinition:
    """Start a run over the look-back window that ends with the day of the tick.

    The schedule is stopped until somebody switches it on.
    """
    assert instance.scan.schedule is not None  # noqa: S101  (the caller asks only then)

    @dg.schedule(
        name=instance.slug,
        job_name=instance.slug,
        cron_schedule=instance.scan.schedule,
        execution_timezone=instance.scan.timezone,
        description="Fetches the days that are missing or not settled, decides, and writes.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        today = context.scheduled_execution_time.astimezone(ZoneInfo(instance.scan.timezone)).date()
        tags = launch_tags(instance, window_of(instance, today))
        return dg.RunRequest(tags=tags, run_config=run_config(instance, refetch=False))

    return schedule


TUNING_CRON = "0 12 * * 0"
"""Sundays at noon: long after the night's run, and when nobody waits for the machine."""


def tuning_schedule(instance: Instance) -> dg.ScheduleDefinition:
    """Run the job for tuning once a week; stopped until somebody switches it on."""
    return dg.ScheduleDefinition(
        name=named(instance, "tuning"),
        job_name=named(instance, "tuning"),
        cron_schedule=TUNING_CRON,
        execution_timezone=instance.scan.timezone,
        description="Tells how often owners would be wrong, and what other settings would change.",
    )


def launch_tags(instance: Instance, window: Window) -> dict[str, str]:
    """The tags that make a run of the job look at a window: it names the last day and fetches what lacks."""
    return {PARTITION: window.last.isoformat(), **scan_tags(instance, window)}


def run_config(instance: Instance, **options: Any) -> dict[str, Any]:
    """The run configuration with some of the options of `assets_defs.run.ScanOptions` chosen."""
    return {"resources": {resource_keys(instance).scan: {"config": options}}}
