"""What the ops of `sink` do, without Dagster: plan, write, carry out a stored plan, undo.

Whoever writes is the only one to do so for the target and the instance, and first settles what a run that was
cut off left open.
"""

import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from assets_defs.evidence import unsettled
from assets_defs.progress import Progress
from assets_defs.record import count_again
from assets_defs.run import LEFT_OUT, InstanceRun, ScanRun, today_of
from ownership.codes import OUTCOME_IN_LOG
from ownership.plan import limit_exceeded, plan_undo, plan_writes
from ownership.windows import days_of, gaps
from resources.errors import AssetOwnersError, ConfigurationError, ServiceError
from resources.inventory.adapter import Inventory
from resources.settings import Instance, command_line, journal_url
from resources.store.history import delete_outdated_changes, delete_outdated_writes
from resources.store.tables import BLOCKING_CHECK, short_run_id
from resources.writeback.journal import Journal, Result
from resources.writeback.journals import has_journal, open_journal, take_over
from resources.writeback.leftovers import runs_on_target, settle_leftovers, without_changed_hosts
from resources.writeback.one_writer import one_writer
from resources.writeback.outcomes import Row, is_undo
from resources.writeback.run import write_all
from resources.writeback.writer import OWNED_HOSTS_READ, Writer

CLOCK_SKEW = timedelta(minutes=5)
"""How far apart the clocks of two machines that share a home may be."""

MAX_RUN_TIME = timedelta(hours=12)
"""How long ago the oldest input of a plan may have been made; `run_monitoring` ends a run after as long."""

SNAPSHOTS = ("inventory_hosts", "inventory_users", "host_user_shares", "username_matches", "owner_decisions")
MADE = (*SNAPSHOTS, BLOCKING_CHECK)
"""What a plan rests on besides the days of its window."""


@dataclass(frozen=True)
class Written:
    """What became of a plan: rows of owner_writes, and the longest time between a look and its write."""

    rows: pl.DataFrame
    longest_read_to_write_seconds: float | None = None


def store_plan(run: ScanRun, log: logging.Logger) -> pl.DataFrame:
    """Plan the writes of new owners from what this run decided; store and return rows of owner_writes.

    The rows bear the time from which on the run has made what the plan rests on, by which a plan is too old.

    Raises:
        AssetOwnersError: the run has not made that itself; of a run that lacks steps, the decisions.
    """
    if not run.left_out:
        _require_own_inputs(run)
    elif not run.tables.holds("owner_decisions", run.run_id):
        raise AssetOwnersError(_not_made_by_this_run(run, ["owner_decisions"]))
    planned = plan_writes(
        run.tables.of_run("owner_decisions", run.run_id),
        run.tables.read("inventory_hosts", run_id=run.run_id).collect(),
        run.tables.read("inventory_users", run_id=run.run_id).collect(),
        enrich=run.options.enrich,
        takes=run.inventory().takes,
        run_id=run.run_id,
        target=run.instance.target,
        intended_at=run.record.evidence_since(),
    )
    planned = planned.head(planned.height if run.options.limit is None else run.options.limit)
    run.tables.write("owner_writes", planned, run_id=run.run_id, publish=False)
    log.info(f"Plan: {planned.height:,} owners to write, {run.seconds}")
    return planned


def write_planned(run: ScanRun, log: logging.Logger) -> Written:
    """Write what the run planned, where it may.

    Raises:
        AssetOwnersError: the run has not made itself what the plan rests on, the plan is too large, or the
            window has gaps; nothing was written.
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    if run.tables.holds("owner_writes", run.run_id):
        planned = run.tables.of_run("owner_writes", run.run_id)
    else:
        planned = store_plan(run, log)
    _report_other_targets(run, log)
    # What a plan rests on is kept as long as the plan may be applied: each copy is as large as the tables.
    run.tables.delete_inputs_before(datetime.now(UTC) - timedelta(days=run.instance.writes.plan_days))
    if run.only_plans:
        log.info(run.only_plans)
        return Written(planned)
    with _writing(run, log) as journal:
        if (written := _written_before(run, log)) is not None:
            return written
        _require_own_inputs(run)
        _require_complete_window(run)
        plan = _Plan(planned, Writer.write, "owners", f"The plan of run {run.run_id}", ("apply", run.run_id))
        if not run.record.executes_again():  # otherwise its list may be some hours old
            plan.hosts = run.tables.of_run("inventory_hosts", run.run_id)
        written = _carry_out(run, log, journal, plan)
    _delete_outdated(run, log)
    return written


def _written_before(run: InstanceRun, log: logging.Logger) -> Written | None:
    """What this very run wrote when it was started before; hosts with a row are not planned again under it.

    A run may be resumed under its own id, and a queue may deliver a step twice.
    """
    if not run.tables.has_written(run.run_id):
        return None
    log.warning("This run was started before: its writes have their rows, and the next run writes the rest")
    return Written(run.tables.appended("owner_writes", run.run_id))


def _require_own_inputs(run: ScanRun) -> None:
    """Refuse to write from what other runs made: owners, hosts and people may have changed since.

    Made by this run is what the run made that it executes again, too, for as long as a run may take.

    Raises:
        AssetOwnersError: naming what is missing or old, and how to go on.
    """
    missing = [table for table in MADE if not run.tables.holds(table, run.run_id)]
    since = run.record.evidence_since()
    days = days_of(run.window)
    fetched = run.tables.logon_days(run.window, run_id=run.run_id)
    fetched = fetched.filter(pl.col("fetched_at") >= since - CLOCK_SKEW)["day"].to_list()
    stale = set(unsettled(run.instance, run.tables, days, run_id=run.run_id)) - set(fetched)
    if stale:
        missing.append(f"logon_counts ({len(stale)} days that are not settled, the first {min(stale)})")
    if missing:
        raise AssetOwnersError(_not_made_by_this_run(run, missing))
    if datetime.now(UTC) - since > MAX_RUN_TIME:
        raise AssetOwnersError(
            f"Nothing was written: what the plan rests on was made from {since:%Y-%m-%d %H:%M} UTC on, more "
            f"than {MAX_RUN_TIME // timedelta(hours=1)} hours ago. Run again: "
            f"{command_line(run.instance, 'run')}"
        )


def _not_made_by_this_run(run: ScanRun, missing: list[str]) -> str:
    return (
        f"Nothing was written: this run did not make {', '.join(missing)} itself, and what other runs made "
        "may be out of date. Launch the whole job again (all steps, not from failure): "
        f"{command_line(run.instance, 'run')}; or carry out a plan that a run stored: "
        f"{command_line(run.instance, 'apply')} RUN_ID"
    )


def apply_plan(
    run: InstanceRun, log: logging.Logger, plan_id: str, *, allow_writes: int | None, dry_run: bool
) -> Written:
    """Carry out the plan that an earlier run stored; it becomes the plan of this run.

    Args:
        run: this run.
        log: receives what is done.
        plan_id: the earlier run, or the first characters of its id.
        allow_writes: hosts that may be written in spite of writes.max_writes and max_write_percent.
        dry_run: only tell what would be written.

    Raises:
        ConfigurationError: the earlier run planned nothing, or to put back what another one wrote, or from
            what other runs had made, or it planned for another target or too long ago.
        AssetOwnersError: the plan is too large; nothing was written.
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    plan_id = run.tables.run_id(plan_id)
    run.record.add(of_run=plan_id)
    _log_that_runs_only_plan(run.instance, log, "apply", dry_run=dry_run)
    stored = run.tables.of_run("owner_writes", plan_id)
    if refused := _of_an_undo(run, plan_id, run.tables.run_writes(plan_id)):
        raise ConfigurationError(refused)
    planned = stored.filter(outcome="planned")
    if planned.is_empty():
        raise ConfigurationError(
            f"Run {plan_id} of {run.instance.name} stored no plan with anything to write"
        )
    _require_whole_run(run, plan_id)
    with _writing(run, log, dry_run=dry_run) as journal:
        plan = _Plan(
            planned.with_columns(run_id=pl.lit(run.run_id)),
            Writer.apply,
            "owners",
            f"The plan of run {plan_id}",
            ("apply", plan_id),
            allowed=allow_writes,
            dry_run=dry_run,
        )
        return _written_before(run, log) or _carry_out(run, log, journal, plan)


def _require_whole_run(run: InstanceRun, plan_id: str) -> None:
    """Refuse the plan of a run that did not make itself what the plan rests on.

    Raises:
        ConfigurationError: naming what it did not make.
    """
    for options in run.tables.appended("runs", plan_id)["options"]:
        if left_out := json.loads(options).get(LEFT_OUT):
            raise ConfigurationError(
                f"Run {plan_id} lacked the steps {', '.join(left_out)}, so its plan may be out of date; "
                f"nothing was written. Make a new plan: {command_line(run.instance, 'run', '--dry-run')}"
            )


def undo_run(
    run: InstanceRun, log: logging.Logger, undone_id: str, *, allow_writes: int | None, dry_run: bool
) -> Written:
    """Put back what an earlier run wrote, also one that was cut off.

    Args:
        run: this run.
        log: receives what is done.
        undone_id: the earlier run, or the first characters of its id.
        allow_writes: hosts that may be written in spite of writes.max_writes and max_write_percent.
        dry_run: only plan.

    Raises:
        ConfigurationError: the earlier run wrote nothing, or to another target.
        AssetOwnersError: the plan is too large; nothing was written.
        ServiceError: the writing ended early.
    """
    undone_id = run.tables.run_id(undone_id)
    run.record.add(of_run=undone_id)
    _log_that_runs_only_plan(run.instance, log, "undo", dry_run=dry_run)
    # Under the lock: what a run wrote is known once it has ended and its leftovers are settled.
    with _writing(run, log, dry_run=dry_run) as journal:
        if (written := _written_before(run, log)) is not None:
            return written
        writes = run.tables.run_writes(undone_id)
        whose = f"What run {undone_id} wrote"
        _require_own_target(run.instance, writes, whose, old_rows_are_own=True)
        if dry_run and undone_id in journal.targets():
            raise ConfigurationError(
                f"Run {short_run_id(undone_id)} was cut off amid writing; what it wrote is not known yet. "
                "The next run finds out, and so does undo without --dry-run, before it puts anything back: "
                f"{command_line(run.instance, 'undo', short_run_id(undone_id))}"
            )
        planned = plan_undo(
            writes,
            run.tables.writes_to(run.instance.target).collect(),
            run_id=run.run_id,
            target=run.instance.target,
            intended_at=datetime.now(UTC),
        )
        if planned.is_empty():
            refused = _of_an_undo(run, undone_id, writes)
            raise ConfigurationError(refused or _nothing_to_undo(run, undone_id, writes))
        plan = _Plan(
            planned,
            Writer.undo,
            "hosts to put back",
            whose,
            ("undo", undone_id),
            allowed=allow_writes,
            dry_run=dry_run,
        )
        return _carry_out(run, log, journal, plan)


def _of_an_undo(run: InstanceRun, run_id: str, rows: pl.DataFrame) -> str | None:
    """Say of a run that put something back, or was to, what to do instead of naming it; None for others."""
    if not any(map(is_undo, rows.head(1).iter_rows(named=True))):
        return None
    undone = next(iter(rows["undoes"].drop_nulls()), None)  # versions before 0.3.0 did not store it
    whose, what = short_run_id(run_id), f"run {short_run_id(undone)}" if undone else "an earlier run"
    if "undone" in rows["outcome"]:
        return (
            f"Run {whose} put back what {what} wrote. There is nothing in it to apply or to undo; nothing "
            f"was written. A run writes these owners again: {command_line(run.instance, 'run')}"
        )
    undo = command_line(run.instance, "undo", short_run_id(undone) if undone else "RUN_ID")
    return (
        f"Run {whose} is an undo of {what} that put nothing back. There is nothing in it to apply or to "
        f"undo; nothing was written. To put back what {what} wrote: {undo}"
    )


def _nothing_to_undo(run: InstanceRun, undone_id: str, writes: pl.DataFrame) -> str:
    """Say why there is nothing to undo of a run, and which run was meant where that is known."""
    whose = f"Run {short_run_id(undone_id)} of {run.instance.name}"
    if "planned" not in writes["outcome"]:
        return f"{whose} wrote nothing, so there is nothing to undo"
    carried_out_by = run.tables.carried_out_by(undone_id)
    if carried_out_by is None:
        return f"{whose} only planned and wrote nothing, so there is nothing to undo"
    meant = short_run_id(carried_out_by)
    undo = command_line(run.instance, "undo", meant)
    return f"{whose} only planned; its plan was carried out by run {meant}. To undo that: {undo}"


def _log_that_runs_only_plan(instance: Instance, log: logging.Logger, what: str, *, dry_run: bool) -> None:
    """Say that a person's explicit word goes beyond what runs do (rules 7.7)."""
    if instance.writes.dry_run and not dry_run:
        log.info(f"writes.dry_run is on: runs of {instance.name} only plan. This {what} writes all the same")


def _require_own_target(
    instance: Instance, rows: pl.DataFrame, whose: str, *, old_rows_are_own: bool
) -> None:
    """Refuse rows of owner_writes that are for another inventory, or for one that is not known.

    Raises:
        ConfigurationError: naming both targets, and how to go on.
    """
    for target in rows["target"].unique():
        if target is None and not old_rows_are_own:
            raise ConfigurationError(
                f"{whose} was made by a version before 0.2.0 and does not say for which inventory; nothing "
                f"was written. Make a new plan: {command_line(instance, 'run', '--dry-run')}"
            )
        if target not in {None, instance.target}:
            raise ConfigurationError(
                f"{whose} is for {target}, and {instance.name} now points to {instance.target}: another "
                "platform.url, platform.tenant_id, platform.contract or name of a host field. Nothing was "
                "written. Point the instance there again, or make a new plan: "
                f"{command_line(instance, 'run', '--dry-run')}"
            )


def _require_recent(instance: Instance, planned: pl.DataFrame, whose: str) -> None:
    """Refuse a plan that is older than writes.plan_days.

    Raises:
        ConfigurationError: with the command that makes a new plan.
    """
    if planned.is_empty():
        return
    made_at, now = planned["intended_at"].min(), datetime.now(UTC)
    limit = instance.writes.plan_days
    if not isinstance(made_at, datetime) or not now - timedelta(days=limit) <= made_at <= now + CLOCK_SKEW:
        raise ConfigurationError(
            f"{whose} was made at {made_at:%Y-%m-%d %H:%M} UTC, and plans older than "
            f"writes.plan_days ({limit}) or of the future are not carried out; nothing was written. Make a "
            f"new one: {command_line(instance, 'run', '--dry-run')}"
        )


def _without_vanished_owners(planned: pl.DataFrame, inventory: Inventory) -> pl.DataFrame:
    """Leave hosts alone whose planned owner is no user asset any more."""
    owner = pl.col("new_values").struct.field("owner")
    given = ((pl.col("outcome") == "planned") & (owner != "")).fill_null(value=False)
    if planned.filter(given).is_empty():
        return planned
    vanished = given & ~owner.is_in(inventory.users()["user_id"].implode())
    reason = pl.format("left alone: {} is no user asset any more", owner)
    return planned.with_columns(
        outcome=pl.when(vanished).then(pl.lit("not_written")).otherwise("outcome"),
        message=pl.when(vanished).then(reason).otherwise("message"),
        completed_at=pl.when(vanished)
        .then(pl.lit(datetime.now(UTC), pl.Datetime("us", "UTC")))
        .otherwise("completed_at"),
    )


def _report_other_targets(run: InstanceRun, log: logging.Logger) -> None:
    """Warn of writes without a known outcome that this instance cannot settle: they went elsewhere."""
    if not has_journal(run.tables):
        return
    with open_journal(run.tables) as journal:
        own = runs_on_target(journal, run.instance.target)
        for run_id, target in journal.targets().items():
            left = 0 if run_id in own else journal.rows(run_id).filter(outcome="intended").height
            if left:
                log.warning(
                    f"{left} writes of run {run_id} to {target} have no known outcome. They stay open until "
                    f"{run.instance.name} points there again; it now points to {run.instance.target}"
                )


@contextmanager
def _writing(run: InstanceRun, log: logging.Logger, *, dry_run: bool = False) -> Generator[Journal]:
    """Give the journal while nobody else writes, with nothing open from earlier runs on the target.

    A dry run settles nothing: it changes no table that analysts look at.

    Raises:
        AssetOwnersError: another run does not come to its end.
    """
    # Everybody waits for the instance first, then for the target, so that no two wait for each other.
    with (
        run.tables.writing(run.run_id),
        open_journal(run.tables) as journal,
        one_writer(run.instance.platform, journal),
    ):
        if not dry_run:
            take_over(journal, run.tables)
        if not journal_url() and run.tables.has_journal_key():
            log.warning(
                "ASSET_OWNERS_JOURNAL is not set, and earlier runs of this instance kept their journal in a "
                "database: writes that are open there are not settled, and other machines are not kept from "
                "writing at the same time"
            )
        if not dry_run and (cut_off := runs_on_target(journal, run.instance.target)):
            inventory = run.inventory()
            settled = settle_leftovers(journal, run.tables, inventory.hosts(), run.instance.target, inventory)
            for run_id in set(cut_off) - {run.run_id}:
                count_again(run.tables, run_id)
            if settled:
                log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")
        yield journal


@dataclass
class _Plan:
    """What is to be written: rows of owner_writes of this run, how, and what messages call it.

    `command` of the command line carries it out: its name, and the run that it is about. `allowed` hosts may
    be written in spite of the limits. `hosts` are the inventory_hosts that it was made from, where this run
    has listed them; otherwise hosts and users are listed anew.
    """

    rows: pl.DataFrame
    method: Callable[[Writer, Row], Result]
    what: str
    whose: str
    command: tuple[str, str]
    allowed: int | None = None
    dry_run: bool = False
    hosts: pl.DataFrame | None = None


def _carry_out(run: InstanceRun, log: logging.Logger, journal: Journal, plan: _Plan) -> Written:
    """Check a plan against its target, its age, the inventory and the limits, then write it.

    The only way to the writer: of a run, of one that is executed again or resumed, of apply and undo.

    Raises:
        ConfigurationError: the plan is for another target, or too old.
        AssetOwnersError: the plan is too large.
        ServiceError: the look that guards the writes shows no owners, and nothing was written; or the writing
            ended early, and the rest is left for the next run.
    """
    _require_own_target(run.instance, plan.rows, plan.whose, old_rows_are_own=False)
    _require_recent(run.instance, plan.rows, plan.whose)
    planned, hosts = plan.rows, plan.hosts
    if hosts is None:
        planned = _without_vanished_owners(planned, run.inventory())
        planned = without_changed_hosts(planned, hosts := run.inventory().hosts())
        log.info(f"Plan: {planned.filter(outcome='planned').height:,} of {planned.height:,} {plan.what}")
    run.tables.write("owner_writes", planned, run_id=run.run_id, publish=False)
    to_write = planned.filter(outcome="planned")
    owned = hosts.filter(pl.col("owner_ids").list.len() > 0)
    run.record.add(hosts=hosts.height, owned_before=owned.height, to_write=to_write.height)
    if plan.dry_run:
        return Written(planned)
    _require_within_limits(run, to_write.height, hosts.height, plan)
    return _write(run, log, journal, planned, hosts, plan.method)


def _write(
    run: InstanceRun,
    log: logging.Logger,
    journal: Journal,
    planned: pl.DataFrame,
    hosts: pl.DataFrame,
    method: Callable[[Writer, Row], Result],
) -> Written:
    """Write the planned hosts; `hosts` are the rows of inventory_hosts that this run has listed."""
    limits = run.instance.writes
    writer = run.writer(run.inventory(), journal)
    if "planned" in planned["outcome"]:
        _require_visible_owners(run, writer, hosts)
    try:
        ended_by = write_all(
            planned,
            writer,
            method,
            journal,
            concurrency=limits.concurrency,
            max_failed_writes=limits.max_failed_writes,
            on_progress=Progress(log.info, "Hosts written"),
        )
    finally:  # also where the run was interrupted: what it did is reported
        written = journal.rows(run.run_id)
        run.tables.append_writes(written, run_id=run.run_id)
    if "intended" not in written["outcome"]:
        journal.delete(run.run_id)
    outcomes = _outcome_counts(written)
    counts = ", ".join(f"{number:,} {OUTCOME_IN_LOG[outcome]}" for outcome, number in outcomes.items())
    log.info(f"Writes: {counts or 'nothing to write'}, {run.seconds}")
    longest = writer.longest_read_to_write_seconds
    if longest is not None:
        log.info(f"Longest time between the look at a host and its write: {1000 * longest:,.0f} ms")
    if "failed" in outcomes:
        log.warning(f"{outcomes['failed']} writes failed; owner_writes has their messages")
    if "intended" in outcomes:
        log.warning(f"{outcomes['intended']} writes have no known outcome; the next run settles them")
    if ended_by:
        raise ServiceError(
            f"{ended_by}; the run ended, the rest is left for the next run. The messages are in owner_writes"
        )
    return Written(written, longest)


def _require_visible_owners(run: InstanceRun, writer: Writer, hosts: pl.DataFrame) -> None:
    """Refuse to write when the look that guards each write shows no owner where the list shows one.

    A list of some time ago may be out of date, so that one made now has the last word.

    Raises:
        ServiceError: naming the setting to fix.
    """
    inventory = run.inventory()
    if not inventory.reads_single_hosts:
        return  # the look is the list itself

    def owned(listed: pl.DataFrame) -> list[str]:
        readable = listed.filter(pl.col("problem").is_null(), pl.col("owner_ids").list.len() > 0)
        return readable["host_id"].head(OWNED_HOSTS_READ).to_list()

    if writer.shows_an_owner(owned(hosts)):
        return
    listed = owned(inventory.hosts())
    if not writer.shows_an_owner(listed):
        raise ServiceError(
            f"The list shows owners of the hosts {', '.join(listed)}, and reading one by itself shows none: "
            f"an owner would be overwritten unseen. Nothing was written. Check {inventory.how_read}"
        )


def _require_complete_window(run: ScanRun) -> None:
    """Refuse to write from days that look like lost events; the check `no_gaps` warns of them.

    Raises:
        AssetOwnersError: the window has gaps and scan.require_complete_window is on.
    """
    if not run.instance.scan.require_complete_window:
        return
    days = gaps(run.tables.logon_days(run.window, run_id=run.run_id), timezone=run.instance.scan.timezone)
    if days:
        named = ", ".join(map(str, days))
        raise AssetOwnersError(
            f"Nothing was written: these days have no events, or hardly any ({named}), and "
            "scan.require_complete_window is on. Fetch the days again once their events are back, or, when "
            "there never were any, carry out the plan: "
            f"{command_line(run.instance, 'apply', short_run_id(run.run_id))}"
        )


def _require_within_limits(run: InstanceRun, to_write: int, hosts: int, plan: _Plan) -> None:
    """Refuse a plan that is too large to carry out unseen.

    Raises:
        AssetOwnersError: saying how to look at the plan and how to carry it out.
    """
    if plan.allowed is not None and to_write <= plan.allowed:
        return
    limits = run.instance.writes
    reason = limit_exceeded(
        to_write,
        hosts,
        what=plan.what,
        max_writes=limits.max_writes,
        max_write_percent=limits.max_write_percent,
    )
    if reason:
        name, about = plan.command
        look = command_line(run.instance, "sql", "--run", short_run_id(run.run_id), "FROM write_history")
        allow = ("--allow-writes", str(to_write))
        carry_out = command_line(run.instance, name, short_run_id(about), *allow)
        not_enough = f", and more than were allowed ({plan.allowed})" if plan.allowed is not None else ""
        raise AssetOwnersError(
            f"{reason}{not_enough}; nothing was written. Look at the plan ({look}), then carry it out: "
            f"{carry_out}"
        )


def _delete_outdated(run: ScanRun, log: logging.Logger) -> None:
    """Delete what the instance does not keep, never a day of the run's own window."""
    keep, now = run.instance.keep, datetime.now(UTC)
    run.tables.delete_inputs(run.run_id)
    history_before = now - timedelta(days=keep.history_days)
    deleted = run.tables.delete_outdated(
        evidence_before=min(today_of(run.instance) - timedelta(days=keep.evidence_days), run.window.first),
        history_before=history_before,
    )
    deleted += delete_outdated_changes(run.tables, before=history_before)
    deleted += delete_outdated_writes(run.tables, before=history_before)
    if deleted:
        log.info(f"Deleted {deleted} files and folders that are older than keep allows")


def _outcome_counts(writes: pl.DataFrame) -> dict[str, int]:
    """Count rows of owner_writes by outcome, sorted."""
    return dict(writes["outcome"].value_counts().sort("outcome").iter_rows())
