"""The owners: which user asset each user name stands for, and what follows for each host."""

from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, Literal

import dagster as dg
import polars as pl

from assets_defs.asset_specs import (
    decisions_metadata,
    hosts_metadata,
    list_command,
    table_asset,
)
from assets_defs.evidence import require_evidence, resolution_of, with_history
from assets_defs.report import sheet_of, where_reported
from assets_defs.run import InstanceRun, ScanRun
from ownership.codes import MOVED
from ownership.names import counted, printable
from reports.run_results import count_conflicts
from resources.settings import Instance, time_between_runs
from resources.store.retention import OVERDUE_AFTER, store_decisions
from resources.store.tables import INVENTORY, short_run_id


def inventory_asset(instance: Instance, kind: Literal["hosts", "users"]) -> dg.AssetsDefinition:
    """Define inventory_hosts or inventory_users."""
    table = f"inventory_{kind}"

    def list_assets(run: ScanRun) -> dict[str, Any]:
        run.record.require_none_failed()
        inventory = run.inventory()
        frame = inventory.hosts() if kind == "hosts" else inventory.users()
        run.tables.prepare()
        run.store(table, frame)
        if all(run.tables.holds(each, run.run_id) for each in INVENTORY):
            run.tables.store_current_owners(run_id=run.run_id, publish=run.may_write)
        run.log.info(f"Inventory: {frame.height:,} {kind} read")
        return {"dagster/row_count": frame.height}

    return table_asset(instance, table, list_assets, kind="rest")


MAX_CONFLICTS = 1_000
"""Conflicts in one entry of the run's log, where each entry costs as much as deciding about many hosts."""


def owner_assets(instance: Instance) -> list[dg.AssetsDefinition]:
    """Define username_matches and owner_decisions."""
    pause = longest_pause(instance.scan.schedule, instance.scan.timezone)
    stale = dg.FreshnessPolicy.time_window(pause) if pause else None
    return [
        table_asset(instance, "username_matches", _match),
        table_asset(instance, "owner_decisions", _decide, freshness=stale),
    ]


@cache
def longest_pause(schedule: str | None, timezone: str) -> timedelta | None:
    """Return how old results may be: the longest pause of a schedule, such as a weekend, and more."""
    if schedule is None:
        return None
    windows, at, pauses = time_between_runs(schedule, timezone), datetime.now(UTC), []
    until = at + timedelta(days=3_653)  # a schedule of leap days would soon be in years that no date has
    while (
        at < until
        and len(pauses) < 1_000
        and (window := windows.get_next_partition_window(at, respect_bounds=False))
    ):
        at = window.end.astimezone(UTC)
        pauses.append(at - window.start.astimezone(UTC))
    return max(pauses) + OVERDUE_AFTER


def _match(run: ScanRun) -> dict[str, Any]:
    usernames = run.read("host_user_shares").select("username").collect()
    frame = resolution_of(run).match_usernames(usernames)
    run.store("username_matches", frame)
    users, unmatched = frame["username"].n_unique(), frame["user_id"].null_count()
    run.log.info(f"Matches: {users - unmatched:,} of {counted(users, 'user')} matched to a user asset")
    return {"dagster/row_count": frame.height, "users": users, "unmatched_users": unmatched}


def _decide(run: ScanRun) -> dict[str, Any]:
    """Decide about each host, publish and keep the decisions, and log the conflicts."""
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
    found: dict[str, Any] = {"as_of": "the hosts as this run found them; what it then wrote: owner_writes"}
    if not run.may_write:  # so the tables go on showing other decisions (rules 7.6)
        shown = run.tables.published_run()
        still = f"still show run {short_run_id(shown)}" if shown else "show this plan until a run may write"
        kind = "run of some assets" if run.mode.missing_steps else run.mode.kind.replace("_", " ")
        found["as_of"] = f"{run.window.last}: this page shows the plan of this {kind}"
        found["published"] = f"the tables and the report {still}"
    found |= shown_decisions(run, frame, run.run_id)
    conflicts_now = count_conflicts(frame, run.tables.read("acknowledged_conflicts").collect())
    unknown = frame["host_id"].null_count()
    more = f". Not in the inventory: {counted(unknown, 'name')} in the logons" if unknown else ""
    get = f"{found['hosts_to_write']:,} get{'s' * (found['hosts_to_write'] == 1)} an owner"
    run.log.info(f"Decided {counted(frame['host_id'].count(), 'host')}: {get}, {conflicts_now}{more}")
    if moved := frame.filter(pl.col("named_since").is_null(), evidence="not_stable").height:
        run.log.warning(f"Moves: {moved:,} hosts get no owner (not_stable). {MOVED} (rules 1.13)")
    for some in conflicts.iter_slices(MAX_CONFLICTS):  # below what a terminal shows
        ids = some.select("host_id", "existing_owner", "resolved_owner").iter_rows()
        rows = (map(printable, each) for each in ids)
        run.log.debug(
            "\n".join(
                f"Conflict: host {host} has the owner {has}, and not {user}" for host, has, user in rows
            )
        )
    return found | {
        "window_from": run.window.first.isoformat(),
        "window_to": run.window.last.isoformat(),
    }


def shown_decisions(
    run: InstanceRun, decisions: pl.DataFrame, decided_by: str, *, written: int = 0
) -> dict[str, Any]:
    """Return what Dagster shows of the decisions of a run, also once another one has `written` its plan."""
    shares = run.tables.read("host_user_shares", run_id=decided_by)
    events = shares.select(pl.sum("events")).collect().item()
    see_all = list_command(run, "FROM owner_decisions")
    return {
        "dagster/row_count": decisions.height,
        **decisions_metadata(decisions, events=events, written=written),
        "report": where_reported(run),
        **hosts_metadata(decisions, partial(sheet_of, run), see_all=see_all),
    }
