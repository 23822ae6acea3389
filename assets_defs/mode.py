"""What a run may do, decided once from its options, its days and its steps: plain values, without Dagster."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Literal

from resources.store.tables import SNAPSHOTS

INPUTS = ("logons", *SNAPSHOTS, "blocking_check")
"""The steps that a plan rests on: a run that writes executes all of them."""
SINK = "owner_writes"
NOTHING_SENT = "Nothing is sent to the inventory"

Kind = Literal["run", "dry_run", "backfill"]
"""What a scan is, as in the table `runs`."""


@dataclass(frozen=True)
class Mode:
    """What a scan is, and what follows for it.

    `why_no_writes` says why it writes nothing to the inventory and publishes no table; None: it may do both.
    `missing_steps` are those that its plan rests on and it does not execute. Without the sink it only fills
    tables (`plans`).
    """

    kind: Kind
    why_no_writes: str | None
    missing_steps: tuple[str, ...]
    plans: bool


def mode_of(
    steps: Collection[str],
    *,
    dry_run: bool,
    is_always_dry: bool,
    force: bool,
    days_named: int,
    is_of_backfill: bool,
    ended: date | None,
    late_days: int,
    whole_run: str,
) -> Mode:
    """Return what a run may do that executes these steps itself (rules 4.2, 4.3, 7.6, 7.11).

    `dry_run` is an operator's option, or `writes.dry_run` of the instance file (`is_always_dry`). `force`
    allows to write for several days (`days_named`, `is_of_backfill`: one run for each), or for a window that
    `ended` more than `late_days` ago. `whole_run` is the command that executes all steps.
    """
    plans = SINK in steps
    decides = not {*SNAPSHOTS, SINK}.isdisjoint(steps)
    missing = tuple(step for step in (*INPUTS, SINK) if decides and step not in steps)
    kind: Kind = "dry_run"
    why: str | None
    if dry_run:
        why = NOTHING_SENT
        why += ", because writes.dry_run is on" if is_always_dry else ""
    elif missing:
        why = (
            "Nothing is sent to the inventory, and no table is published: this run does not execute "
            f"{', '.join(missing)}, and tables of other runs may be out of date. A run that may write "
            f"executes all steps: {whole_run}"
        )
    elif not force and (days_named > 1 or is_of_backfill):
        days = f"of {days_named} days" if days_named > 1 else "with a run for each day"
        kind = "backfill"
        why = (
            f"Backfill {days}: it fetches, decides and plans. Nothing is sent to the inventory, because "
            "`force` is off"
        )
    elif not force and ended:
        why = (
            f"Nothing is sent to the inventory: the window ended on {ended}, more than {late_days} days ago, "
            "and `force` is off"
        )
    else:
        kind, why = "run", None
    if not plans:  # it fills tables only; without the steps that decide it publishes the days it fetches
        kind, why = "backfill", why if missing or dry_run else None
    return Mode(kind, why, missing, plans)
