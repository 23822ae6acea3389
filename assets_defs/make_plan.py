"""Plans of the three commands, from stored tables: new owners, a plan that a run stored, and an undo."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl

from assets_defs.evidence import missing_days, with_history
from assets_defs.run import MISSING_STEPS, InstanceRun, ScanRun
from ownership.decisions import HAS_OWNER
from ownership.plan import Plan, plan_undo, plan_writes, select_hosts
from ownership.resolution import Resolution
from ownership.windows import gap_days
from resources.errors import ConfigurationError, PlanRefusedError
from resources.ledger.ledger import Ledger
from resources.settings import Instance, command_line, load_instance
from resources.store.retention import CHANGES, decided_with
from resources.store.tables import SNAPSHOTS, Tables, short_run_id
from resources.writeback.decide import is_undo
from resources.writeback.leftovers import without_changed_hosts


def plan_of_run(run: ScanRun) -> tuple[Plan, pl.DataFrame]:
    """Return the plan of what a run decided, and the hosts; its rows are stored, and as old as the run."""
    row = run.record.row()
    hosts, days = run.read("inventory_hosts").collect(), run.days(run.window)
    scan = run.instance.scan
    gaps = gap_days(days, timezone=scan.timezone) if scan.require_complete_window else ()
    missing = [table for table in SNAPSHOTS if not run.tables.holds(table, run.run_id)]
    if not row["checked_at"]:
        missing.append("blocking_check")
    decisions = run.read("owner_decisions").collect()
    every = plan_writes(
        decisions,
        hosts,
        run.read("inventory_users").collect(),
        enrich=run.options.enrich,
        takes=run.inventory().takes,
        run_id=run.run_id,
        target=run.instance.target,
        intended_at=row["started_at"],
    )
    rows = _select_hosts(run.instance, every, run.options.hosts, decisions)[: run.options.limit]
    run.store("owner_writes", rows)
    left = every.height - rows.height
    why = " and ".join(f"`{name}`" for name in ("hosts", "limit") if getattr(run.options, name))
    more = f" and {left:,} more for later runs, because of {why}" if left else ""
    run.log.info(f"Plan: {rows.height:,} owner{'s' * (rows.height != 1)} to write{more}")
    plan = Plan(
        rows=rows,
        command="run",
        of_run=run.run_id,
        settings=row["settings_fingerprint"],
        missing_steps=tuple(dict.fromkeys((*run.mode.missing_steps, *missing))),
        gaps=gaps,
    )
    return plan, hosts


def _select_hosts(
    instance: Instance, rows: pl.DataFrame, hosts: Sequence[str], decisions: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows of some hosts; of all hosts where none is named."""
    try:
        return select_hosts(rows, hosts, decisions) if hosts else rows
    except LookupError as error:
        why = command_line(instance, "explain", "HOST")
        raise ConfigurationError(f"hosts: {error.args[0]}. Why a host is not planned: {why}") from error


def plan_to_apply(
    run: InstanceRun, plan_id: str, allow_writes: int | None, hosts: Sequence[str] = ()
) -> Plan:
    """Return the plan that an earlier run stored, as rows of this run; `allow_writes` hosts are its limit.

    `plan_id` may be the first characters of the run's id. With `hosts` the plan is of these alone.
    """
    plan_id = _followed_run(run, "apply", plan_id)
    planned = rows_to_apply(run.instance, run.tables, plan_id, hosts)
    made_by = run.tables.appended("runs", run.tables.decided_by(plan_id)).row(0, named=True)
    options = json.loads(made_by["options"])
    if not options.get("enrich", run.instance.scan.enrich):
        unsent = pl.lit(None, pl.String)
        owner_only = pl.col("new_values").struct.with_fields(department=unsent, criticality=unsent)
        planned = planned.with_columns(new_values=owner_only)
    return Plan(
        rows=planned.with_columns(run_id=pl.lit(run.run_id)),
        command="apply",
        of_run=plan_id,
        hosts=hosts,
        settings=made_by["settings_fingerprint"] if _has_settings(run, options.get(CHANGES)) else "tried",
        missing_steps=options.get(MISSING_STEPS) or (),
        allowed=allow_writes,
    )


def rows_to_apply(instance: Instance, tables: Tables, plan_id: str, hosts: Sequence[str]) -> pl.DataFrame:
    """Return the plan that a run stored, or of some hosts; ConfigurationError: there is nothing to apply."""
    _refuse_undo(instance, plan_id, tables.run_writes(plan_id))
    planned = tables.of_run("owner_writes", plan_id).filter(outcome="planned")
    if planned.is_empty():
        raise ConfigurationError(f"Run {plan_id} of {instance.name} stored no plan with anything to write")
    return _select_hosts(
        instance, planned, hosts, tables.of_run("owner_decisions", tables.decided_by(plan_id))
    )


def _has_settings(run: InstanceRun, changes: Sequence[str] | None) -> bool:
    """Return whether the instance file says now what a plan tried in its place."""
    file = run.instance.file
    return not changes or not file or load_instance(file, changes).model_dump() == run.instance.model_dump()


def plan_to_undo(
    run: InstanceRun,
    undone_id: str,
    allow_writes: int | None,
    ledger: Ledger,
    hosts: Sequence[str] = (),
) -> Plan:
    """Return the plan to undo what an earlier run wrote, also one that was cut off and is settled now.

    `undone_id` may be the first characters of its id. With `hosts` the plan is of these alone.
    """
    undone_id = _followed_run(run, "undo", undone_id)
    short = short_run_id(undone_id)
    if not run.may_write and undone_id in ledger.targets():
        raise ConfigurationError(
            f"Run {short} was cut off while writing; what it wrote is not known yet. The next run finds out, "
            f"and so does undo without --dry-run: {command_line(run.instance, 'undo', short)}"
        )
    rows = rows_to_undo(run.instance, run.tables, undone_id, hosts, run_id=run.run_id)
    return Plan(rows=rows, command="undo", of_run=undone_id, hosts=hosts, allowed=allow_writes)


def rows_to_undo(
    instance: Instance, tables: Tables, undone_id: str, hosts: Sequence[str], *, run_id: str
) -> pl.DataFrame:
    """Return the plan to undo what a run wrote, as `rows_to_apply`."""
    writes = tables.run_writes(undone_id)
    planned = plan_undo(
        writes,
        tables.writes_to(instance.target).collect(),
        run_id=run_id,
        target=instance.target,
        intended_at=datetime.now(UTC),
    )
    if planned.is_empty():
        _refuse_undo(instance, undone_id, writes)
        said = f"Run {short_run_id(undone_id)} of {instance.name} wrote nothing that could be undone"
        if applied_by := [*map(short_run_id, tables.applied_by(undone_id))]:
            undo = (command_line(instance, "undo", applied) for applied in applied_by)
            runs = f"run{'s' * (len(applied_by) > 1)} {', '.join(applied_by)}"
            said += f"; its plan was applied by {runs}. To undo that: {'; '.join(undo)}"
        raise ConfigurationError(said)
    written_to = pl.lit(writes["target"].item(0), pl.String)  # the plan is refused where that is elsewhere
    decisions = tables.of_run("owner_decisions", tables.decided_by(undone_id))
    return _select_hosts(instance, planned, hosts, decisions).with_columns(target=written_to)


def skip_changed_hosts(run: InstanceRun, plan: Plan) -> tuple[Plan, pl.DataFrame]:
    """Skip the hosts of a stored plan that changed, or are decided otherwise now; list and return hosts."""
    inventory = run.inventory()
    hosts = inventory.hosts()
    decisions = _decide_again(run, plan, hosts, inventory.users()) if plan.command == "apply" else None
    plan = replace(plan, rows=without_changed_hosts(plan.rows, hosts, decisions))
    owned = hosts.filter(HAS_OWNER).height
    run.record.add(hosts=hosts.height, owned_before=owned, to_write=plan.to_write)
    run.log.info(f"Plan: {plan.to_write:,} of {plan.rows.height:,} {plan.what}")
    run.store("owner_writes", plan.rows)
    return plan, hosts


def _decide_again(run: InstanceRun, plan: Plan, hosts: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Decide by the logons and rules of a plan about the inventory as it is listed now (rules 7.7).

    Rows of `owner_decisions` with the department and criticality of the owner.
    """
    instance, tables, decided_by = run.instance, run.tables, run.tables.decided_by(plan.of_run)
    window, rules = decided_with(tables, decided_by)
    if missing := missing_days(instance, tables, window, run_id=decided_by):
        raise PlanRefusedError(
            f"Nothing was written. The plan of run {plan.of_run} cannot be decided again: the logons of "
            f"{len(missing)} of its {window.days} days are not stored any more, the first {missing[0]}. "
            f"Make a new plan: {command_line(instance, 'run', '--dry-run')}"
        )
    resolution = Resolution(
        counts=tables.logon_counts(window, run_id=decided_by),
        read_inventory={"inventory_hosts": hosts.lazy(), "inventory_users": users.lazy()}.__getitem__,
        rules=rules,
        user_value_field=instance.decisive_user_field,
        window=window,
    )
    resolution = with_history(resolution, instance, tables, run_id=decided_by)
    matches = resolution.match_usernames(resolution.count_shares())
    decisions = resolution.decide(matches, decided_at=datetime.now(UTC), run_id=run.run_id)
    owners = users.select("user_id", "criticality", department="user_department")
    planned = decisions.join(plan.rows, on="host_id", how="semi")
    return planned.join(owners, left_on="resolved_owner", right_on="user_id", how="left")


def _followed_run(run: InstanceRun, command: str, given: str) -> str:
    """Return the whole id of the run that another one follows, and record it.

    A person's explicit word overrides writes.dry_run (rules 7.7), which is logged.
    """
    run_id = run.tables.run_id(given)
    run.record.add(of_run=run_id)
    if run.instance.writes.dry_run and run.may_write:
        run.log.info(
            f"writes.dry_run is on: runs of {run.instance.name} only plan. This {command} writes nevertheless"
        )
    return run_id


def _refuse_undo(instance: Instance, run_id: str, rows: pl.DataFrame) -> None:
    """Refuse a run that undid something, or was to, and say which command helps instead."""
    if rows.is_empty() or not is_undo(rows.row(0, named=True)):
        return
    undone = short_run_id(rows["undoes"].item(0))
    if "undone" in rows["outcome"]:
        instead = f"A run writes these owners again: {command_line(instance, 'run')}"
    else:
        instead = f"To undo what run {undone} wrote: {command_line(instance, 'undo', undone)}"
    raise ConfigurationError(
        f"Run {short_run_id(run_id)} is an undo of run {undone}. There is nothing in it to apply or to undo; "
        f"nothing was written. {instead}"
    )
