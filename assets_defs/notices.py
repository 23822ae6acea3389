"""What people are told when a run has ended, or none has succeeded: counts, why it failed, and links."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ownership.names import printable
from reports.run_results import counts_in_words, plans_only
from resources.notify import Kind, send_notices
from resources.settings import Instance, command_line, ui_url
from resources.store.tables import short_run_id


def announce(instance: Instance, row: Mapping[str, Any], log: logging.Logger) -> None:
    """Tell the addresses of `notify` what came of a run, by its row of `runs`; never fails the run."""
    if text := run_notice(instance, row):
        tell(instance, text, log, kind="failure" if row["status"] == "failed" else "info")


def tell(instance: Instance, text: str, log: logging.Logger, *, kind: Kind) -> None:
    """Send a text to the addresses of `notify`, and warn of those that did not get it."""
    try:
        for setting, reason in send_notices(instance, text, kind=kind).items():
            log.warning(f"A notice was not delivered ({setting}): {reason}")
    except Exception as error:  # noqa: BLE001  (such as no thread left; the run has done its work)
        log.warning(f"Notices were not sent (notify): {printable(str(error))}")


def run_notice(instance: Instance, row: Mapping[str, Any]) -> str | None:
    """Return what to tell of a run that failed, wrote owners, or found new conflicts; None: nothing.

    A run that does not write is reported only if it failed, and only if no run of the instance writes.
    """
    is_expected_to_plan = instance.writes.dry_run and row["kind"] == "dry_run"
    if not instance.notify or (plans_only(row) and not is_expected_to_plan):
        return None
    failed, conflicts = row["status"] == "failed", row["new_conflicts"] or 0
    if not failed and not row["written"] and not conflicts:
        return None
    result = [words for words in counts_in_words(row) if not words.startswith("0 ")]
    if conflicts:
        result.append(f"{conflicts:,} new conflict{'s' * (conflicts != 1)}")
    what = row["kind"] if row["kind"] in {"apply", "undo"} else "run"
    more = [command_line(instance, "runs" if failed else "report")]
    if url := ui_url():
        more.insert(0, f"{url}/runs/{row['run_id']}")
    if failed and row["message"]:
        why = row["message"].removeprefix("Nothing was written. ").partition("\n")[0]
        more.insert(0, f"{why.partition('. ')[0].removesuffix('.')}.")
    return "\n".join([f"{what} {short_run_id(row['run_id'])}: {', '.join(result)}", *more])


def overdue_notice(instance: Instance, tick: datetime) -> str:
    """Return what to tell where no run has succeeded since the schedule's last tick."""
    at = f"{tick.astimezone(ZoneInfo(instance.scan.timezone)):%Y-%m-%d %H:%M} ({instance.scan.timezone})"
    more = ui_url() or command_line(instance, "runs")
    return f"No run has succeeded since the schedule's last tick, {at}\n{more}"
