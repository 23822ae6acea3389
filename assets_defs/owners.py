"""The owners: which user asset each user name stands for, and what follows for each host."""

import time
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice, pairwise
from typing import Any

import dagster as dg
import polars as pl
from dagster._utils.schedules import cron_string_iterator

from assets_defs.evidence import require_evidence, resolution_of, with_history
from assets_defs.metadata import decisions_metadata, hosts_metadata, listed
from assets_defs.report import sheet_of, where_reported
from assets_defs.run import InstanceRun, ScanRun
from assets_defs.specs import table_asset
from ownership.codes import MOVED
from ownership.names import printable
from reports.run_results import count_conflicts
from resources.settings import Instance
from resources.store.retention import store_decisions
from resources.store.run_state import OVERDUE_AFTER

MAX_WARNINGS = 10
"""New conflicts that are warned of one by one."""

MAX_CONFLICTS = 1_000
"""Conflicts in one entry of the run's log, where each entry costs as much as deciding about many hosts."""


def owner_assets(instance: Instance) -> list[dg.AssetsDefinition]:
    """Define username_matches and owner_decisions."""
    stale = _freshness(instance.scan.schedule, instance.scan.timezone)
    return [
        table_asset(instance, "username_matches", _match),
        table_asset(instance, "owner_decisions", _decide, freshness=stale),
    ]


@cache
def _freshness(schedule: str | None, timezone: str) -> dg.FreshnessPolicy | None:
    """Return when decisions are stale: after the schedule's longest pause, such as a weekend, and more."""
    if schedule is None:
        return None
    ticks = islice(cron_string_iterator(time.time(), schedule, timezone), 1_000)
    pause = max(later - tick for tick, later in pairwise(tick.astimezone(UTC) for tick in ticks))
    return dg.FreshnessPolicy.time_window(pause + OVERDUE_AFTER)


def _match(run: ScanRun) -> dict[str, Any]:
    """Find the user asset of each user name of the evidence."""
    usernames = run.read("host_user_shares").select("username").collect()
    frame = resolution_of(run).match_usernames(usernames)
    run.store("username_matches", frame)
    users, unmatched = frame["username"].n_unique(), frame["user_id"].null_count()
    run.log.info(f"Matches: {users - unmatched:,} of {users:,} users stand for a user asset")
    return {"dagster/row_count": frame.height, "users": users, "unmatched_users": unmatched}


def _decide(run: ScanRun) -> dict[str, Any]:
    """Decide about each host, publish and keep the decisions, and warn of new conflicts."""
    decided_at = datetime.now(UTC)
    matches = run.read("username_matches").collect()
    resolution = with_history(resolution_of(run), run.instance, run.tables, run_id=run.run_id)
    frame = resolution.decide(matches, decided_at=decided_at, run_id=run.run_id)
    require_evidence(run)
    frame = store_decisions(
        run.tables, frame, decided_at=decided_at, run_id=run.run_id, publish=run.may_write
    )
    conflicts = frame.filter(action="conflict")
    run.record.add(
        hosts=frame["host_id"].count(),
        conflicts=conflicts.height,
        new_conflicts=frame["new_conflict"].sum(),
        owned_before=frame.filter(pl.col("host_id").is_not_null())["existing_owner"].count(),
    )
    found = shown_decisions(run, frame, run.run_id)
    counted = count_conflicts(frame, run.tables.read("acknowledged_conflicts").collect())
    run.log.info(
        f"Decisions: {frame['host_id'].count():,} hosts, and {frame['host_id'].null_count():,} not in the "
        f"inventory; {found['hosts_to_write']:,} to write, {counted}, "
        f"{found['hosts_owned_percent']}% have an owner"
    )
    if moved := frame.filter(pl.col("named_since").is_null(), evidence="not_stable").height:
        run.log.warning(f"Moves: {moved:,} hosts name nobody (not_stable). {MOVED} (rules 1.13)")
    _log_conflicts(run, conflicts)
    return found | {
        "window_from": run.window.first.isoformat(),
        "window_to": run.window.last.isoformat(),
    }


def shown_decisions(run: InstanceRun, decisions: pl.DataFrame, decided_by: str) -> dict[str, Any]:
    """Return what Dagster shows of the decisions of a run, also where another one applies its plan."""
    shares = run.tables.read("host_user_shares", run_id=decided_by)
    see_all = listed(run, "FROM owner_decisions")
    return {
        "dagster/row_count": decisions.height,
        **decisions_metadata(decisions, events=shares.select(pl.sum("events")).collect().item()),
        "report": where_reported(run),
        **hosts_metadata(decisions, partial(sheet_of, run), see_all=see_all),
    }


def _log_conflicts(run: ScanRun, conflicts: pl.DataFrame) -> None:
    """Warn of the first conflicts that are new; the run's log keeps all, below what a terminal shows."""
    log = run.log
    new = conflicts.filter("new_conflict").sort("host_id")
    if not new.is_empty():
        log.warning(_conflicts(new.head(MAX_WARNINGS)))
        more = f"the first {MAX_WARNINGS} of {new.height:,}" if new.height > MAX_WARNINGS else "these"
        query = "FROM conflicts WHERE is_new"
        log.warning(
            f"New conflicts: {more} are shown by host. All of them, with owners: {listed(run, query)}"
        )
    if known := conflicts.height - new.height:
        log.info(f"Conflicts: {known:,} were there in the last run, too: {listed(run, 'FROM conflicts')}")
    for some in conflicts.iter_slices(MAX_CONFLICTS):
        log.debug(_conflicts(some))


def _conflicts(conflicts: pl.DataFrame) -> str:
    """Return a line for each conflict; whom they are about, the tables say and the log does not."""
    hosts = map(printable, conflicts["host_id"])
    return "\n".join(f"Conflict: host {host} has another owner than the logons name" for host in hosts)
