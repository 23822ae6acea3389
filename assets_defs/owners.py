"""The owners: which user asset each user name stands for, and what follows for each host."""

from datetime import UTC, datetime

import dagster as dg

from assets_defs.scan import resource_keys, scan_of, told_to_the_operator
from assets_defs.specs import asset_key, described
from ownership.decisions import owner_decisions, summary
from ownership.matching import username_matches
from resources.settings import Instance


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
                scan.tables.scan("host_user_shares", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_users", run_id=scan.run_id).collect(),
                user_value_field=instance.platform_user_value_field,
            )
            scan.tables.write("username_matches", frame, run_id=scan.run_id, publish=scan.may_write)
        unmatched = frame["user_id"].null_count()
        names = frame["username"].n_unique()
        context.log.info(f"Matches: {names - unmatched} of {names} user names stand for a user asset")
        return dg.MaterializeResult(
            metadata={"dagster/row_count": frame.height, "unmatched_users": unmatched}
        )

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
        with told_to_the_operator():
            frame = owner_decisions(
                scan.tables.scan("host_user_shares", run_id=scan.run_id).collect(),
                scan.tables.scan("username_matches", run_id=scan.run_id).collect(),
                scan.tables.scan("inventory_hosts", run_id=scan.run_id).collect(),
                rules=instance.rules.as_rules(),
                window=scan.window,
                decided_at=datetime.now(UTC),
                run_id=scan.run_id,
            )
            scan.tables.write("owner_decisions", frame, run_id=scan.run_id, publish=scan.may_write)
        counts = dict(frame["action"].value_counts().sort("action").iter_rows())
        context.log.info(f"Decisions: {frame.height} hosts, {counts}")
        for host_id, existing, resolved in (
            frame.filter(action="conflict").select("host_id", "existing_owner", "resolved_owner").iter_rows()
        ):
            context.log.warning(
                f"Conflict: host {host_id} has owner {existing}, the evidence names {resolved}"
            )
        return dg.MaterializeResult(
            metadata={"dagster/row_count": frame.height, "decisions": summary(frame), **counts}
        )

    return [matches, decisions]
