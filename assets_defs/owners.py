"""The owners: which user asset each user name stands for, and what follows for each host."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import polars as pl

from assets_defs.findings import of_decisions, of_matches
from assets_defs.scan import resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described, made
from ownership.decisions import owner_decisions
from ownership.identities import printable
from ownership.matching import username_matches
from resources.settings import Instance

MOST_CONFLICTS = 1_000
"""Conflicts in one entry of the run's log, where each entry costs as much as deciding about many hosts."""


def owner_assets(instance: Instance) -> list[dg.AssetsDefinition]:
    """Define username_matches and owner_decisions."""

    @dg.asset(
        **described(instance, "username_matches", kinds={"polars"}),
        deps=[asset_key(instance, "host_user_shares"), asset_key(instance, "inventory_users")],
        required_resource_keys=set(resource_keys(instance)),
    )
    def matches(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        scan = scan_of(context, instance)
        with told_to_the_operator():
            frame = username_matches(
                scan.tables.scan("host_user_shares", run_id=scan.run_id).select("username").collect(),
                scan.tables.scan("inventory_users", run_id=scan.run_id).collect(),
                user_value_field=instance.platform_user_value_field,
            )
            scan.tables.write("username_matches", frame, run_id=scan.run_id, publish=scan.may_write)
        found = of_matches(frame)
        users, unmatched = found["users"], found["unmatched_users"]
        context.log.info(
            f"Matches: {users - unmatched:,} of {users:,} users stand for a user asset, {scan.seconds}"
        )
        return dg.MaterializeResult(metadata=made(instance, "username_matches", rows=frame.height, **found))

    @dg.asset(
        **described(instance, "owner_decisions", kinds={"polars"}),
        deps=[
            asset_key(instance, "host_user_shares"),
            asset_key(instance, "username_matches"),
            asset_key(instance, "inventory_hosts"),
        ],
        required_resource_keys=set(resource_keys(instance)),
    )
    def decisions(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        scan = scan_of(context, instance)
        decided_at = datetime.now(UTC)
        with told_to_the_operator():
            shares = scan.tables.scan("host_user_shares", run_id=scan.run_id)
            shares = shares.drop("username_spellings").collect()  # the largest column, and of no use here
            frame = owner_decisions(
                shares,
                scan.tables.scan("username_matches", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_hosts", run_id=scan.run_id).collect(),
                rules=instance.rules.as_rules(),
                window=scan.window,
                decided_at=decided_at,
                run_id=scan.run_id,
            )
            scan.tables.write("owner_decisions", frame, run_id=scan.run_id, publish=scan.may_write)
            if scan.may_write:
                scan.tables.append_history(frame, decided_at=decided_at, run_id=scan.run_id)
        found = of_decisions(frame, events=int(shares["events"].sum()))
        context.log.info(
            f"Decisions: {frame.height:,} hosts, {found['hosts_to_write']:,} to write, "
            f"{found['conflicts']:,} conflicts, {found['hosts_owned_percent']}% have an owner, "
            f"{scan.seconds}"
        )
        for some in frame.filter(action="conflict").iter_slices(MOST_CONFLICTS):
            context.log.warning("\n".join(_conflicts(some)))
        window = {"window_from": scan.window.first.isoformat(), "window_to": scan.window.last.isoformat()}
        return dg.MaterializeResult(
            metadata=made(instance, "owner_decisions", rows=frame.height, **found, **window)
        )

    return [matches, decisions]


def _conflicts(decisions: pl.DataFrame) -> Iterator[str]:
    told = decisions.select("host_id", "existing_owner", "resolved_owner")
    for ids in told.iter_rows():
        host_id, existing, resolved = (printable(str(one)) for one in ids)
        yield f"Conflict: host {host_id} has owner {existing}, the evidence names {resolved}"
