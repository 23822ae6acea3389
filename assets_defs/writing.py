"""What the ops of `sink` do, without Dagster: write what a run planned, apply a stored plan, undo a run.

Each makes a plan (`make_plan`) for the one executor, `execute_plan`. One process at a time writes for a
target and an instance, and first settles what a run that was cut off left pending.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import polars as pl

from assets_defs.make_plan import plan_of_run, plan_to_apply, plan_to_undo, skip_changed_hosts
from assets_defs.run import InstanceRun, Progress, ScanRun, settings_fingerprint
from ownership.decisions import HAS_OWNER
from ownership.plan import Circumstances, Plan, refusals
from reports.audit import answered_wrong
from reports.run_results import writes_in_words
from resources.errors import AssetOwnersError, ConfigurationError, PlanRefusedError, ServiceError
from resources.ledger.ledger import Ledger
from resources.settings import command_line, host_arguments, load_instance
from resources.store.retention import publish_plan
from resources.store.tables import short_run_id
from resources.writeback.decide import decide_apply, decide_undo, decide_write
from resources.writeback.leftovers import settle_leftovers
from resources.writeback.workers import write_all
from resources.writeback.writer import OWNED_HOSTS_READ, Writer

DECIDE = {"run": decide_write, "apply": decide_apply, "undo": decide_undo}


def write_planned(run: ScanRun) -> pl.DataFrame:
    """Plan, and write the plan where the run may; return its rows of owner_writes.

    Raises:
        PlanRefusedError: `ownership.plan.refusals` found something; nothing was written.
        RunEndedError: Dagster no longer counts the run as running; the rest is left for the next run.
        ServiceError: the writing ended early; the rest is left for the next run.
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
        return _prepare_stored_plan(run, plan_to_apply(run, plan_id, allow_writes, hosts))

    return execute_plan(run, make_plan, before_writing=lambda plan: _show_plan(run, plan))


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
        return _prepare_stored_plan(run, plan_to_undo(run, undone_id, allow_writes, ledger, hosts))

    # Stored first: a run that is cut off must not leave an owner to the next one who is known to be wrong.
    return execute_plan(run, make_plan, before_writing=partial(_answer_no, run) if wrong else None)


def _answer_no(run: InstanceRun, plan: Plan) -> None:
    """Store that the owners that a plan undoes are wrong."""
    tables, by, at = run.tables, run.record.row().get("by"), datetime.now(UTC)
    undone = tables.run_writes(plan.of_run).join(plan.rows, on="host_id", how="semi")
    decisions = tables.of_run("owner_decisions", tables.decided_by(plan.of_run))
    with tables.changing():
        sample = tables.read("audit_sample").collect()
        tables.write("audit_sample", answered_wrong(sample, undone, decisions, at=at, by=by))


def _prepare_stored_plan(run: InstanceRun, plan: Plan) -> tuple[Plan, pl.DataFrame]:
    """Refuse a stored plan before services are asked, or skip its changed hosts; return plan and hosts."""
    _require_safe(run, plan)
    return skip_changed_hosts(run, plan)


def execute_plan(
    run: InstanceRun,
    make_plan: Callable[[Ledger], tuple[Plan, pl.DataFrame]],
    before_writing: Callable[[Plan], None] | None = None,
) -> pl.DataFrame:
    """Make a plan while nobody else writes, refuse it or write it; return its rows of owner_writes.

    The only way to the writer: of a run, also one that is resumed, of apply and of undo. `before_writing` is
    called once the plan is about to be written, even if no host is left to write.
    """
    with run.ledger() as ledger:
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
            f"Of run {short_run_id(plan_id)}, whose plan is applied, these tables are not kept: "
            f"{', '.join(lost)}. Tables and report go on showing what was published before"
        )


def _settle_earlier_runs(run: InstanceRun, ledger: Ledger) -> None:
    """Settle what runs on the target left pending that were cut off, and count again what came of them."""
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
        writes, began = run.tables.writes_to(target), run.tables.appended("runs", run_id)["started_at"]
        settled += settle_leftovers(ledger, run_id, hosts, inventory, writes, began=began)
        run.tables.publish_writes(run_id)
        if run_id != run.run_id:
            run.record.recount(run_id)
    if settled:
        run.log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")


def _written_before(run: InstanceRun, ledger: Ledger) -> pl.DataFrame | None:
    """Return what this very run wrote when it was started before; fail if it failed then.

    A run may be resumed under its own id, and a queue may deliver a step twice.
    """
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
    circumstances = Circumstances(
        at=now,
        target=instance.target,
        settings=settings_fingerprint(instance),
        limits=instance.writes,
        is_file_unchanged=instance.file is None or load_instance(instance.file, instance.changes) == instance,
        hosts=hosts,
        hidden_owners=hidden_owners,
    )
    if not (found := list(refusals(plan, circumstances))):
        return
    apply = ["undo" if plan.command == "undo" else "apply", short_run_id(plan.of_run)]
    look = command_line(instance, "sql", "--run", short_run_id(run.run_id), "FROM write_history")
    allow = command_line(instance, *apply, "--allow-writes", str(plan.to_write), *host_arguments(plan.hosts))
    remedies = {
        "point the instance back": "Point the instance there again",
        "plan again": f"Make a new plan: {command_line(instance, 'run', '--dry-run')}",
        "run again": f"Run all steps again: {command_line(instance, 'run')}",
        "apply": "Fetch the days again once their events are back or, if there never were any, apply the "
        f"plan: {command_line(instance, *apply)}",
        "allow": f"Look at the plan ({look}), then {apply[0]} it: {allow}",
        "read owners": f"Check {run.inventory().how_read}" if hidden_owners else "",
    }
    said = " ".join(f"{refusal.reason}. {remedies[refusal.remedy]}." for refusal in found)
    raise PlanRefusedError(f"Nothing was written. {said.removesuffix('.')}")


def _hidden_owners(run: InstanceRun, writer: Writer, hosts: pl.DataFrame) -> tuple[str, ...]:
    """Return listed hosts with an owner if reading them one by one shows none, also by a list made now."""
    inventory = run.inventory()
    if not inventory.reads_single_hosts:
        return ()  # the list is all that is read

    def owned(listed: pl.DataFrame) -> list[str]:
        readable = listed.filter(HAS_OWNER, pl.col("problem").is_null())
        return readable["host_id"].head(OWNED_HOSTS_READ).to_list()

    if writer.shows_an_owner(owned(hosts)):
        return ()
    listed = owned(inventory.hosts())
    return () if writer.shows_an_owner(listed) else tuple(listed)


def _write(run: InstanceRun, ledger: Ledger, plan: Plan, writer: Writer) -> pl.DataFrame:
    """Write the planned hosts and store what became of each."""
    limits = run.instance.writes
    try:
        ended_by = write_all(
            plan.rows.with_columns(by=pl.lit(run.record.row().get("by"))),
            writer,
            DECIDE[plan.command],
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
            f"{ended_by}; the run ended, the rest is left for the next run. The messages are in owner_writes"
        )
    return written


def _log_writes(run: InstanceRun, written: pl.DataFrame, writer: Writer) -> None:
    """Log what became of the planned hosts, and how to undo it."""
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
