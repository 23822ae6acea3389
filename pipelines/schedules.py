"""One schedule an instance: one run over the whole look-back window."""

from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from assets_defs.run import RANGE_END, RANGE_START, resource_keys, scan_tags
from ownership.windows import Window, look_back_window
from resources.settings import Instance


def scan_schedule(instance: Instance) -> dg.ScheduleDefinition:
    """Start a run over the look-back window that ends with the day of the tick.

    It is stopped until somebody switches it on.
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
        window = look_back_window(today, instance.scan.lookback_days, instance.scan.first_day)
        told = scan_tags(instance, window, dry_run=instance.writes.dry_run)
        return dg.RunRequest(
            tags={**window_tags(window), **told}, run_config=run_config(instance, refetch=False)
        )

    return schedule


def window_tags(window: Window) -> dict[str, str]:
    """The tags that make a run of the job cover a range of days."""
    return {RANGE_START: window.first.isoformat(), RANGE_END: window.last.isoformat()}


def run_config(instance: Instance, **options: Any) -> dict[str, Any]:
    """The run configuration with some of the options of `assets_defs.run.ScanOptions` chosen."""
    scan_key = resource_keys(instance)[0]
    return {"resources": {scan_key: {"config": options}}}
