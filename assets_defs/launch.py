"""What Dagster says of a run: the days it names, the steps it executes, the tags to find it by."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from assets_defs.mode import INPUTS, SINK
from ownership.windows import Window, days_of, look_back_window
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, named

INSTANCE_TAG = "asset_owners/instance"
"""The tag of a run that has the name of its instance."""
PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
BACKFILL = "dagster/backfill"
WINDOW_TAG = "asset_owners/window"


def days_named(tags: Mapping[str, str], today: date) -> list[date]:
    """Return the days of a run's partitions, or the running day where it has none."""
    first, last = (
        date.fromisoformat(tags.get(end) or tags.get(PARTITION) or today.isoformat())
        for end in (RANGE_START, RANGE_END)
    )
    if first > last:
        raise ConfigurationError(f"{first} is later than {last}; name the first day first")
    if last > today:
        raise ConfigurationError(f"{last} is in the future; choose days up to {today}")
    return days_of(Window(first, last))


def executed_steps(context: Any, instance: Instance) -> set[str]:
    """Return the steps of `INPUTS`, and the sink, that a run executes: from a failure, not all of its job.

    Raises:
        ConfigurationError: the run is one of all instances, which Dagster has a job for.
    """
    slugs = sorted(
        slug for slug, _, part in (n.name.partition("__") for n in context.job_def.nodes) if part == SINK
    )
    if len(slugs) > 1:
        commands = "; ".join(command_line(None, "run", "--instance", slug) for slug in slugs)
        raise ConfigurationError(
            f"This run is of {' and '.join(slugs)}, and a run is for one instance. Nothing was done. Launch "
            f"the job of each, or on a terminal: {commands}"
        )
    again = {key.partition(".")[0] for key in context.run.step_keys_to_execute or ()}
    steps = {step: named(instance, step) for step in (*INPUTS, SINK)}
    return {
        step
        for step, node in steps.items()
        if context.job_def.has_node_named(node) and (not again or node in again)
    }


def is_of_backfill(context: Any) -> bool:
    """Return whether a run is one of a backfill with a run for each day, or executes one of these again."""
    # Once the backfill has ended, only its own runs have Dagster's tag.
    first = context.run.root_run_id and context.instance.get_run_by_id(context.run.root_run_id)
    return any(BACKFILL in run.tags for run in (context.run, first) if run)


def today_of(instance: Instance, at: datetime | None = None) -> date:
    """Return the running day in the instance's time zone, or the day of another moment."""
    return (at or datetime.now(UTC)).astimezone(ZoneInfo(instance.scan.timezone)).date()


def window_of(instance: Instance, last: date, *, lookback_days: int | None = None) -> Window:
    """Return the look-back window that ends with a day, none before scan.first_day (rules 4.2)."""
    try:
        return look_back_window(last, lookback_days or instance.scan.lookback_days, instance.scan.first_day)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def scan_tags(instance: Instance, window: Window) -> dict[str, str]:
    """Return the tags of a run over a window."""
    return {**run_tags(instance), WINDOW_TAG: f"{window.first}/{window.last}"}


def run_tags(instance: Instance) -> dict[str, str]:
    """Return the tags by which an operator finds the runs of an instance."""
    return {INSTANCE_TAG: instance.name}
