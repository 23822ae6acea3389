"""Plans of the three commands, from stored tables: new owners, a plan that a run stored, and an undo."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import polars as pl

from assets_defs.evidence import missing_days, with_history
from assets_defs.run import MISSING_STEPS, InstanceRun, Progress, ScanRun, as_tried, settings_fingerprint
from ownership.decisions import HAS_OWNER
from ownership.names import counted, host_arguments, printable
from ownership.plan import Conditions, Plan, plan_undo, plan_writes, refusals, select_hosts
from ownership.resolution import Resolution
from ownership.windows import gap_days
from reports.plan import SHOWN_HOSTS
from reports.run_results import writes_in_words
from reports.sheets import answered_wrong
from reports.story import describe_hosts
from resources.errors import AssetOwnersError, ConfigurationError, PlanRefusedError, ServiceError
from resources.ledger.ledger import Ledger
from resources.settings import Instance, changes_in_words, command_line, load_instance, present_of
from resources.store.retention import decided_with, publish_plan, row_of_run
from resources.store.tables import SNAPSHOTS, Tables, short_run_id
from resources.writeback.decide import (
    decide_apply,
    decide_undo,
    decide_write,
    is_undo,
    settle_leftovers,
    without_changed_hosts,
)
from resources.writeback.target_lock import locked_ledger
from resources.writeback.workers import write_all
from resources.writeback.writer import OWNED_HOSTS_READ, Writer

NOT_PLANNED = "Nothing to write for "
"""How a warning begins that says why a host that a run was asked for is not planned."""
WRONG_HOSTS = "hosts: "
"""How an error begins that says which host of those that a run was asked for it cannot be about."""


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
    rows = every
    if names := run.options.hosts:
        asked = _select_hosts(run.instance, decisions.drop_nulls("host_id"), names, decisions)
        rows = every.join(asked, on="host_id", how="semi", maintain_order="left")
        _tell_not_planned(run, asked.join(every, on="host_id", how="anti", maintain_order="left"))
    rows = rows[: run.options.limit]
    run.store("owner_writes", rows)
    left = every.height - rows.height
    why = " and ".join(f"`{name}`" for name in ("hosts", "limit") if getattr(run.options, name))
    more = f" and {left:,} more for later runs, because of {why}" if left else ""
    run.log.info(f"Plan: {counted(rows.height, 'owner')} to write{more}")
    plan = Plan(
        rows=rows,
        command="run",
        of_run=run.run_id,
        settings=row["settings_fingerprint"],
        missing_steps=tuple(dict.fromkeys((*run.mode.missing_steps, *missing))),
        gaps=gaps,
    )
    return plan, hosts


def _tell_not_planned(run: ScanRun, decisions: pl.DataFrame) -> None:
    """Warn of hosts that a run was asked for and that it does not write, with the reason."""
    some, writes = decisions.head(SHOWN_HOSTS), run.tables.all_runs("owner_writes")
    told = describe_hosts(some, run.read, writes, present_of(run.instance))
    for host in told.iter_rows(named=True):
        name = printable(host["name"])
        why, advice = host["summary"].removeprefix(f"{name} "), host["what_would_change"][:1]
        run.log.warning(" ".join([f"{NOT_PLANNED}{name}, which {why}", *advice]))
    if more := decisions.height - some.height:
        why = command_line(run.instance, "explain", "HOST", "--run", short_run_id(run.run_id))
        run.log.warning(f"{NOT_PLANNED}{counted(more, 'further host')} either; why: {why}")


def _select_hosts(
    instance: Instance,
    rows: pl.DataFrame,
    hosts: Sequence[str],
    decisions: pl.DataFrame,
    lacks: str = "nothing is planned for",
) -> pl.DataFrame:
    """Return the rows of some hosts, or all; `lacks` begins the ConfigurationError for a host without one."""
    try:
        return select_hosts(rows, hosts, decisions) if hosts else rows
    except KeyError as error:
        why = command_line(instance, "explain", error.args[0])
        raise ConfigurationError(f"{WRONG_HOSTS}{lacks} {error}. Why: {why}") from error
    except LookupError as error:
        raise ConfigurationError(f"{WRONG_HOSTS}{error}") from error


def rows_to_apply(instance: Instance, tables: Tables, plan_id: str, hosts: Sequence[str]) -> pl.DataFrame:
    """Return the plan that a run stored, or of some hosts; ConfigurationError: there is nothing to apply."""
    _refuse_undo(instance, plan_id, tables.run_writes(plan_id))
    planned = tables.read_own("owner_writes", plan_id).filter(outcome="planned")
    if planned.is_empty():
        raise ConfigurationError(f"Run {plan_id} of {instance.name} stored no plan with anything to write")
    decisions = tables.read_own("owner_decisions", tables.decided_by(plan_id))
    lacks = f"the plan of run {short_run_id(plan_id)} has nothing for"
    return _select_hosts(instance, planned, hosts, decisions, lacks)


def rows_to_undo(
    instance: Instance,
    tables: Tables,
    undone_id: str,
    hosts: Sequence[str],
    *,
    run_id: str,
    wrong: bool = False,
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
            # Of no other hosts than these.
            same = [*host_arguments("--host", hosts), *["--wrong"][:wrong]]
            undo = (command_line(instance, "undo", applied, *same) for applied in applied_by)
            runs = f"run{'s' * (len(applied_by) > 1)} {', '.join(applied_by)}"
            said += f"; its plan was applied by {runs}. To undo that: {'; '.join(undo)}"
        raise ConfigurationError(said)
    written_to = pl.lit(writes["target"].item(0), pl.String)  # the plan is refused where that is elsewhere
    decisions = tables.read_own("owner_decisions", tables.decided_by(undone_id))
    lacks = f"run {short_run_id(undone_id)} did not write"
    return _select_hosts(instance, planned, hosts, decisions, lacks).with_columns(target=written_to)


def skip_changed_hosts(run: InstanceRun, plan: Plan) -> tuple[Plan, pl.DataFrame]:
    """Skip the hosts of a stored plan that changed, or are decided otherwise now; list and return hosts."""
    # Before services are asked.
    _require_safe(run, plan)
    inventory = run.inventory()
    hosts = inventory.hosts()
    decisions = _decide_again(run, plan, hosts, inventory.users()) if plan.command == "apply" else None
    plan = replace(plan, rows=without_changed_hosts(plan.rows, hosts, decisions))
    owned = hosts.filter(HAS_OWNER).height
    run.record.add(hosts=hosts.height, owned_before=owned, to_write=plan.to_write)
    skipped = plan.rows.height - plan.to_write
    more = f", {counted(skipped, 'host')} skipped" if skipped else ""
    run.log.info(f"Plan: {plan.to_write:,} {plan.what}{more}")
    run.store("owner_writes", plan.rows)
    return plan, hosts


def _decide_again(run: InstanceRun, plan: Plan, hosts: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Decide by the logons and rules of a plan about the inventory as it is listed now (rules 7.7)."""
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
    """Return the whole id of the run that another one follows, and record it."""
    run_id = run.tables.run_id(given)
    run.record.add(of_run=run_id)
    # A person's explicit word overrides it (rules 7.7).
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


def write_planned(run: ScanRun) -> pl.DataFrame:
    """Plan, and write the plan where the run may; return its rows of owner_writes.

    Raises:
        PlanRefusedError: `ownership.plan.refusals` found something; nothing was written.
        RunEndedError: Dagster no longer counts the run as running; the next run writes the rest.
        ServiceError: the writing stopped early; the next run writes the rest.
    """
    plan, hosts = plan_of_run(run)
    if run.may_write:
        return execute_plan(run, lambda _: (plan, hosts))
    if not run.mode.missing_steps:  # otherwise nobody can apply the plan, and it is only shown
        _require_safe(run, replace(plan, gaps=()))
    return plan.rows


def apply_plan(
    run: InstanceRun, plan_id: str, allow_writes: int | None, hosts: Sequence[str] = ()
) -> pl.DataFrame:
    """Write the plan that an earlier run stored; return rows of owner_writes, errors as `write_planned`.

    Of some `hosts` alone: the rest of the plan stays as it is.
    """

    def make_plan(_: Ledger) -> tuple[Plan, pl.DataFrame]:
        of_run = _followed_run(run, "apply", plan_id)
        planned = rows_to_apply(run.instance, run.tables, of_run, hosts)
        made_by = row_of_run(run.tables, run.tables.decided_by(of_run))
        options = json.loads(made_by["options"])
        if not options.get("enrich", run.instance.scan.enrich):
            unsent = pl.lit(None, pl.String)
            owner_only = pl.col("new_values").struct.with_fields(department=unsent, criticality=unsent)
            planned = planned.with_columns(new_values=owner_only)
        tried = as_tried(run.instance, made_by["options"])
        differs = tried.model_dump() != run.instance.model_dump()  # the file may say meanwhile what was tried
        plan = Plan(
            rows=planned.with_columns(run_id=pl.lit(run.run_id)),
            command="apply",
            of_run=of_run,
            hosts=hosts,
            settings=made_by["settings_fingerprint"],
            tried=[*changes_in_words(tried)] if differs else (),
            missing_steps=options.get(MISSING_STEPS) or (),
            allowed=allow_writes,
        )
        return skip_changed_hosts(run, plan)

    return execute_plan(run, make_plan, before_writing=partial(_show_plan, run))


def undo_run(
    run: InstanceRun,
    undone_id: str,
    allow_writes: int | None,
    hosts: Sequence[str] = (),
    *,
    wrong: bool = False,
) -> pl.DataFrame:
    """Undo what an earlier run wrote, or of some `hosts` alone; rows and errors as `apply_plan`.

    `wrong`: their owners count as answered no, also where a host does not hold them any more (rules 1.12).
    """
    if wrong and not hosts:
        raise ConfigurationError("wrong: name in `hosts` whose owners are wrong")

    def make_plan(ledger: Ledger) -> tuple[Plan, pl.DataFrame]:
        of_run = _followed_run(run, "undo", undone_id)
        if not run.may_write and of_run in ledger.targets():  # otherwise it is settled now
            short = short_run_id(of_run)
            raise ConfigurationError(
                f"Run {short} was cut off while writing; what it wrote is not known yet. The next run finds "
                f"out, and so does undo without --dry-run: {command_line(run.instance, 'undo', short)}"
            )
        rows = rows_to_undo(run.instance, run.tables, of_run, hosts, run_id=run.run_id, wrong=wrong)
        plan = Plan(rows=rows, command="undo", of_run=of_run, hosts=hosts, allowed=allow_writes)
        return skip_changed_hosts(run, plan)

    # Stored first: a run that is cut off must not leave a known wrong owner to the next one.
    return execute_plan(run, make_plan, before_writing=partial(_answer_no, run) if wrong else None)


def _answer_no(run: InstanceRun, plan: Plan) -> None:
    """Store that the owners that a plan undoes are wrong."""
    tables, at, by = run.tables, datetime.now(UTC), run.record.row()["by"].removeprefix("user ")
    undone = tables.run_writes(plan.of_run).join(plan.rows, on="host_id", how="semi")
    decisions = tables.read_own("owner_decisions", tables.decided_by(plan.of_run))
    with tables.changing():
        sample = tables.read("audit_sample").collect()
        tables.write("audit_sample", answered_wrong(sample, undone, decisions, at=at, by=by))


def execute_plan(
    run: InstanceRun,
    make_plan: Callable[[Ledger], tuple[Plan, pl.DataFrame]],
    before_writing: Callable[[Plan], None] | None = None,
) -> pl.DataFrame:
    """Make a plan while nobody else writes, refuse it or write it; return its rows of owner_writes.

    The only way to the writer: of a run, also one that is resumed, of apply and of undo. `before_writing` is
    called once the plan is about to be written, even if no host is left to write.
    """
    with locked_ledger(run.tables, run.instance.platform, run.run_id) as ledger:
        if run.may_write:  # otherwise no table that analysts see is changed
            _settle_earlier_runs(run, ledger)
        if (written := _written_before(run, ledger)) is not None:
            return written
        plan, hosts = make_plan(ledger)
        if not run.may_write:
            return plan.rows
        writer = run.writer(run.inventory(), ledger, run.instance.writes.read_back_seconds)
        hidden_owners = _hidden_owners(run, writer, hosts) if plan.to_write else ()
        _require_safe(run, plan, hosts=hosts.height, hidden_owners=hidden_owners)
        if before_writing:
            before_writing(plan)
        return _write(run, ledger, plan, writer)


def _show_plan(run: InstanceRun, plan: Plan) -> None:
    """Publish what the run decided whose plan is about to be applied, unless nothing of it is."""
    if not plan.to_write:
        return
    plan_id = run.tables.decided_by(plan.of_run)
    lost = publish_plan(run.tables, plan_id, applied_by=run.run_id, at=datetime.now(UTC))
    if lost:
        run.log.warning(
            f"Run {short_run_id(plan_id)}, whose plan is applied, no longer has these tables: "
            f"{', '.join(lost)}. Tables and report still show what was published last"
        )


def _settle_earlier_runs(run: InstanceRun, ledger: Ledger) -> None:
    """Settle what runs on the target left pending that were cut off, and count their outcomes again."""
    target, runs = run.instance.target, ledger.targets()
    if elsewhere := [run_id for run_id, other in runs.items() if other != target]:
        run.log.warning(
            f"Writes of the runs {', '.join(sorted(elsewhere))} to another target have no known outcome, and "
            f"stay pending until {run.instance.name} points there again"
        )
    if not (cut_off := [run_id for run_id in runs if run_id not in elsewhere]):
        return
    inventory = run.inventory()
    hosts, settled = inventory.hosts(), 0
    for run_id in cut_off:  # the last one first: it had read that no owner was there
        writes, began = run.tables.writes_to(target), run.tables.rows("runs", run_id)["started_at"]
        settled += settle_leftovers(ledger, run_id, hosts, inventory, writes, began=began)
        run.tables.publish_writes(run_id)
        if run_id != run.run_id:
            run.record.recount(run_id)
    if settled:
        run.log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")


def _written_before(run: InstanceRun, ledger: Ledger) -> pl.DataFrame | None:
    """Return what this very run wrote when it was started before; fail if it failed then."""
    # A run may be resumed under its own id, and a queue may deliver a step twice.
    written = ledger.rows("owner_writes", run.run_id)
    if written.is_empty():
        return None
    row = run.record.row()
    if row["status"] == "failed":
        raise AssetOwnersError(row["message"])
    run.log.warning("This run was started before: its writes are stored, and the next run writes the rest")
    return written


def _require_safe(
    run: InstanceRun, plan: Plan, *, hosts: int | None = None, hidden_owners: tuple[str, ...] = ()
) -> None:
    """Fail if anything speaks against writing a plan now, with every reason and what to do about it."""
    instance, now = run.instance, datetime.now(UTC)
    conditions = Conditions(
        at=now,
        target=instance.target,
        settings=settings_fingerprint(instance),
        limits=instance.writes,
        is_file_unchanged=instance.file is None or load_instance(instance.file, instance.changes) == instance,
        hosts=hosts,
        hidden_owners=hidden_owners,
    )
    if not (found := list(refusals(plan, conditions))):
        return
    apply = ["undo" if plan.command == "undo" else "apply", short_run_id(plan.of_run)]
    query = command_line(instance, "sql", "--run", short_run_id(run.run_id), "FROM write_history")
    of_hosts = host_arguments("--host", plan.hosts)
    allow = command_line(instance, *apply, "--allow-writes", str(plan.to_write), *of_hosts)
    remedies = {
        "point the instance back": "Point the instance there again",
        "plan again": f"Make a new plan: {command_line(instance, 'run', '--dry-run')}",
        "write settings": f"Write {', '.join(plan.tried)} into {instance.file}, or make a new plan",
        "run again": f"Run all steps again: {command_line(instance, 'run')}",
        "apply": "Fetch the days again once their events are back or, if there never were any, apply the "
        f"plan: {command_line(instance, *apply)}",
        "allow": f"Read the plan ({query}), then {apply[0]} it: {allow}",
        "read owners": f"Check {run.inventory().how_read}" if hidden_owners else "",
    }
    said = " ".join(f"{refusal.reason}. {remedies[refusal.remedy]}." for refusal in found)
    raise PlanRefusedError(f"Nothing was written. {said.removesuffix('.')}")


def _hidden_owners(run: InstanceRun, writer: Writer, hosts: pl.DataFrame) -> tuple[str, ...]:
    """Return listed hosts with an owner if reading them one by one shows none, also by a list made now."""
    inventory = run.inventory()
    if not inventory.reads_single_hosts:
        return ()  # the list is all that is read

    def owned(listed: pl.DataFrame) -> tuple[str, ...]:
        readable = listed.filter(HAS_OWNER, pl.col("problem").is_null())
        return tuple(readable["host_id"].head(OWNED_HOSTS_READ))

    if writer.shows_an_owner(owned(hosts)):
        return ()
    listed = owned(inventory.hosts())
    return () if writer.shows_an_owner(listed) else listed


def _write(run: InstanceRun, ledger: Ledger, plan: Plan, writer: Writer) -> pl.DataFrame:
    limits = run.instance.writes
    try:
        ended_by = write_all(
            plan.rows.with_columns(by=pl.lit(run.record.row().get("by"))),
            writer,
            {"run": decide_write, "apply": decide_apply, "undo": decide_undo}[plan.command],
            ledger,
            concurrency=limits.concurrency,
            max_failed_writes=limits.max_failed_writes,
            require_running=run.record.require_running,
            on_progress=Progress(run.log.info, "Hosts written"),
        )
    finally:  # also where the run was interrupted
        run.tables.publish_writes(run.run_id)
        run.record.count_writes()
        written = ledger.rows("owner_writes", run.run_id)
        _log_writes(run, written, writer)
    if ended_by:
        raise ServiceError(
            f"{ended_by}; the run stopped, and the next run writes the rest. The messages are in owner_writes"
        )
    return written


def _log_writes(run: InstanceRun, written: pl.DataFrame, writer: Writer) -> None:
    log = run.log
    outcomes = dict(written["outcome"].value_counts().iter_rows())
    log.info(f"Writes: {writes_in_words(written)}")
    if "written" in outcomes:
        log.info(f"To undo them: {command_line(run.instance, 'undo', short_run_id(run.run_id))}")
    if (longest := writer.longest_read_to_write_seconds) is not None:
        log.info(f"Longest time between reading a host and its write: {1000 * longest:,.0f} ms")
    if "failed" in outcomes:
        first = written.filter(outcome="failed").row(0, named=True)
        log.warning(f"{outcomes['failed']} writes failed, that of {first['host_id']}: {first['message']}")
    if "intended" in outcomes:
        log.warning(f"{outcomes['intended']} writes have no known outcome; the next run settles them")
