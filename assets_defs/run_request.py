"""What a run is asked to do: its days, its steps and the tags to find it by, and whether it may write."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from ownership.windows import Window, days_of, look_back_window
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, part_name
from resources.store.tables import SNAPSHOTS

INPUTS = ("logons", *SNAPSHOTS, "blocking_check")
"""The steps that a plan rests on: a run that writes executes all of them."""
SINK = "owner_writes"
SCANNED = ("logon_counts", "logon_days", *SNAPSHOTS, SINK)  # the tables that a scan fills
DOES_NOT_WRITE = "This run does not write"

Kind = Literal["run", "dry_run", "backfill"]  # what a scan is, as in the table `runs`


@dataclass(frozen=True)
class Mode:
    """What a scan is, and what follows for it."""

    kind: Kind
    why_no_writes: str | None  # to the inventory, and publishes no table; None: it may do both
    missing_steps: tuple[str, ...]  # those that its plan rests on and it does not execute
    plans: bool  # or only fills tables, without the sink


def mode_of(
    steps: Collection[str],
    *,
    dry_run: bool,
    always_dry: str | None,  # why, whatever was chosen
    force: bool,
    days_named: int,
    is_of_backfill: bool,  # with a run for each day
    ended: date | None,  # the last day of a window that ended more than `late_days` ago
    late_days: int,
    whole_run: str,  # the command that executes all steps
) -> Mode:
    """Return what a run may do that executes these steps itself (rules 4.2, 4.3, 7.6, 7.11)."""
    plans = SINK in steps
    decides = not {*SNAPSHOTS, SINK}.isdisjoint(steps)
    missing = tuple(step for step in (*INPUTS, SINK) if decides and step not in steps)
    kind: Kind = "dry_run"
    why: str | None
    if dry_run:
        why = f"{DOES_NOT_WRITE}, because {always_dry}" if always_dry else DOES_NOT_WRITE
    elif missing:
        why = (
            "This run does not write to the inventory, nor publish a table: it does not execute "
            f"{', '.join(missing)}, and tables of other runs may be out of date. A run that may write "
            f"executes all steps: {whole_run}"
        )
    elif not force and (days_named > 1 or is_of_backfill):
        days = f"of {days_named} days" if days_named > 1 else "with a run for each day"
        kind = "backfill"
        why = f"Backfill {days}: it fetches, decides and plans. It does not write, because `force` is off"
    elif not force and ended:
        why = (
            f"This run does not write: the window ended on {ended}, more than {late_days} days ago, "
            "and `force` is off"
        )
    else:
        kind, why = "run", None
    if not plans:  # it fills tables only; without the steps that decide it publishes the days it fetches
        kind, why = "backfill", why if missing or dry_run else None
    return Mode(kind, why, missing, plans)


INSTANCE_TAG = "asset_owners/instance"  # the tag of a run that has the name of its instance
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
    steps = {step: part_name(instance, step) for step in (*INPUTS, SINK)}
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
