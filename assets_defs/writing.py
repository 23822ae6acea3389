"""What the ops of `sink` do, without Dagster: plan, write, carry out a stored plan, undo.

Whoever writes is the only one to do so for the target and the instance, and first settles what a run that was
cut off left open.
"""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import polars as pl

from assets_defs.dagster_records import MAX_AT_ONCE, delete_runs, runs_of
from assets_defs.evidence import unsettled
from assets_defs.progress import Progress
from assets_defs.record import count_again
from assets_defs.run import (
    LEFT_OUT,
    InstanceRun,
    ScanRun,
    not_made_by_this_run,
    require_as_filed,
    settings_fingerprint,
    today_of,
)
from ownership.matching import candidates, username_matches
from ownership.plan import plan_undo, plan_writes
from ownership.windows import days_of, gaps
from resources.errors import AssetOwnersError, ConfigurationError, ServiceError
from resources.settings import Instance, command_line, journal_url
from resources.store.history import delete_inputs, delete_outdated
from resources.store.tables import SNAPSHOTS, short_run_id
from resources.writeback.journal import Journal
from resources.writeback.journals import has_shared_one, take_over
from resources.writeback.leftovers import runs_on_target, settle_leftovers, without_changed_hosts
from resources.writeback.one_writer import only_writer
from resources.writeback.outcomes import Decide, is_undo, still_held, unless_changed, unless_owned
from resources.writeback.workers import write_all
from resources.writeback.writer import OWNED_HOSTS_READ, Writer

CLOCK_SKEW = timedelta(minutes=5)
"""How far apart the clocks of two machines that share a home may be."""

MAX_RUN_TIME = timedelta(hours=12)
"""How long ago the oldest input of a plan may have been made; `run_monitoring` ends a run after as long."""

DECIDE = {"run": unless_owned, "apply": unless_changed, "undo": still_held}


@dataclass(frozen=True)
class _Plan:
    """What is to be written: rows of owner_writes of this run, by which command, and about which run.

    `allowed` hosts are its limit in place of the instance's. `hosts` are the inventory_hosts that it was made
    from, where this run has listed them; otherwise hosts and users are listed again.
    """

    rows: pl.DataFrame
    command: Literal["run", "apply", "undo"]
    about: str
    allowed: int | None = None
    hosts: pl.DataFrame | None = None

    @property
    def what(self) -> str:
        return "hosts to put back" if self.command == "undo" else "owners"


def store_plan(run: ScanRun) -> pl.DataFrame:
    """Plan the writes of new owners from what this run decided; store and return rows of owner_writes.

    A plan is as old as the start of the run that made what it rests on.
    """
    if not run.left_out:
        _require_own_inputs(run)
        if days := _days_of_other_runs(run):
            days_told = f"logon_counts ({len(days)} days that are not settled, the first {min(days)})"
            raise AssetOwnersError(not_made_by_this_run(run, [days_told]))
    elif not run.tables.holds("owner_decisions", run.run_id):
        raise AssetOwnersError(not_made_by_this_run(run, ["owner_decisions"]))
    whole = plan_writes(
        run.tables.of_run("owner_decisions", run.run_id),
        run.made("inventory_hosts").collect(),
        run.made("inventory_users").collect(),
        enrich=run.options.enrich,
        takes=run.inventory().takes,
        run_id=run.run_id,
        target=run.instance.target,
        intended_at=run.record.evidence_since(),
    )
    planned = whole[: run.options.limit]
    run.tables.write("owner_writes", planned, run_id=run.run_id, publish=False)
    left = whole.height - planned.height
    more = f" and {left:,} more for later runs, because of `limit`" if left else ""
    run.log.info(f"Plan: {planned.height:,} owner{'s' * (planned.height != 1)} to write{more}")
    return planned


def write_planned(run: ScanRun) -> pl.DataFrame:
    """Write what the run planned, where it may; return its rows of owner_writes.

    A run that is started again under its own id has planned already.

    Raises:
        AssetOwnersError: the run has not made itself what the plan rests on, the plan is too large, or the
            window has gaps; nothing was written.
        ServiceError: the writing ended early; the rest is left for the next run.
    """
    if run.tables.holds("owner_writes", run.run_id):
        planned = run.tables.of_run("owner_writes", run.run_id)
    else:
        planned = store_plan(run)
    # What a plan rests on is kept as long as the plan may be applied: each copy is as large as the tables.
    delete_inputs(run.tables, before=datetime.now(UTC) - timedelta(days=run.instance.writes.plan_days))
    if run.only_plans:
        run.log.info(run.only_plans)
        _delete_old_records(run)
        return planned

    def own_plan(_: Journal) -> _Plan:
        _require_own_inputs(run)
        _require_complete_window(run)
        # Of a run that is executed again the list may be some hours old.
        again = run.record.get("of_run")
        hosts = None if again else run.tables.of_run("inventory_hosts", run.run_id)
        return _Plan(planned, "run", run.run_id, hosts=hosts)

    written = _carry_out(run, own_plan)
    _delete_outdated(run)
    _delete_old_records(run)
    return written


def _written_before(run: InstanceRun) -> pl.DataFrame | None:
    """What this very run wrote when it was started before, unless it failed then.

    A run may be resumed under its own id, and a queue may deliver a step twice; hosts with a row are not
    planned again under it.
    """
    if not run.tables.has_written(run.run_id):
        return None
    if run.record.get("status") == "failed":
        raise AssetOwnersError(run.record.get("message"))
    run.log.warning(
        "This run was started before: its writes have their rows, and the next run writes the rest"
    )
    return run.tables.appended("owner_writes", run.run_id)


def _require_own_inputs(run: ScanRun) -> None:
    """Refuse to write from what other runs made: hosts and people may have changed since (rules 7.11).

    What a run made that this one executes again is its own, too, for as long as a run may take.
    """
    missing = [table for table in SNAPSHOTS if not run.tables.holds(table, run.run_id)]
    if not run.record.get("checked_at"):
        missing.append("blocking_check")
    if missing:
        raise AssetOwnersError(not_made_by_this_run(run, missing))
    since = run.record.evidence_since()
    if datetime.now(UTC) - since > MAX_RUN_TIME:
        raise AssetOwnersError(
            f"Nothing was written: what the plan rests on was made from {since:%Y-%m-%d %H:%M} UTC on, more "
            f"than {MAX_RUN_TIME // timedelta(hours=1)} hours ago. Run again: "
            f"{command_line(run.instance, 'run')}"
        )


def _days_of_other_runs(run: ScanRun) -> set[date]:
    """Days of the window that were missing, torn or not settled, and that the run has not fetched itself."""
    since = run.record.evidence_since() - CLOCK_SKEW
    fetched = run.days(run.window).filter(pl.col("fetched_at") >= since)
    open_days = unsettled(run, days_of(run.window))
    return set(open_days) - set(fetched["day"])


def apply_plan(run: InstanceRun, plan_id: str, allow_writes: int | None) -> pl.DataFrame:
    """Carry out the plan that an earlier run stored; it becomes the plan of this run.

    `plan_id` may be the first characters of its id. With `allow_writes`, so many hosts are the limit.
    """
    plan_id = _about(run, "apply", plan_id)
    stored = run.tables.of_run("owner_writes", plan_id)
    _refuse_undo(run, plan_id, run.tables.run_writes(plan_id))
    planned = stored.filter(outcome="planned")
    if planned.is_empty():
        raise ConfigurationError(
            f"Run {plan_id} of {run.instance.name} stored no plan with anything to write"
        )
    for options in run.tables.appended("runs", plan_id)["options"]:
        if left_out := json.loads(options).get(LEFT_OUT):
            raise ConfigurationError(
                f"Run {plan_id} lacked the steps {', '.join(left_out)}, so its plan may be out of date; "
                f"nothing was written. Make a new plan: {command_line(run.instance, 'run', '--dry-run')}"
            )
    plan = _Plan(planned.with_columns(run_id=pl.lit(run.run_id)), "apply", plan_id, allow_writes)
    return _carry_out(run, lambda _: plan)


def undo_run(run: InstanceRun, undone_id: str, allow_writes: int | None) -> pl.DataFrame:
    """Put back what an earlier run wrote, also one that was cut off; otherwise as `apply_plan`."""
    undone_id = _about(run, "undo", undone_id)

    def undoing(journal: Journal) -> _Plan:
        writes = run.tables.run_writes(undone_id)
        _require_own_target(run, writes, f"What run {undone_id} wrote")
        if not run.may_write and undone_id in journal.targets():
            raise ConfigurationError(
                f"Run {short_run_id(undone_id)} was cut off while writing; what it wrote is not known yet. "
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
            _refuse_undo(run, undone_id, writes)
            said = f"Run {short_run_id(undone_id)} of {run.instance.name} wrote nothing that could be undone"
            if meant := run.tables.carried_out_by(undone_id):
                undo = command_line(run.instance, "undo", short_run_id(meant))
                said += f"; its plan was carried out by run {short_run_id(meant)}. To undo that: {undo}"
            raise ConfigurationError(said)
        return _Plan(planned, "undo", undone_id, allow_writes)

    # What a run wrote is known once it has ended and its leftovers are settled.
    return _carry_out(run, undoing)


def _about(run: InstanceRun, command: str, given: str) -> str:
    """Return the whole id of the run that another one follows, and record it.

    A person's explicit word goes beyond what runs do (rules 7.7), which is said first.
    """
    run_id = run.tables.run_id(given)
    run.record.add(of_run=run_id)
    if run.instance.writes.dry_run and run.may_write:
        run.log.info(
            f"writes.dry_run is on: runs of {run.instance.name} only plan. This {command} writes nevertheless"
        )
    return run_id


def _refuse_undo(run: InstanceRun, run_id: str, rows: pl.DataFrame) -> None:
    """Refuse a run that put something back, or was to, saying what to do instead of naming it."""
    if rows.is_empty() or not is_undo(rows.row(0, named=True)):
        return
    undone = short_run_id(rows["undoes"].item(0))
    if "undone" in rows["outcome"]:
        instead = f"A run writes these owners again: {command_line(run.instance, 'run')}"
    else:
        instead = f"To put back what run {undone} wrote: {command_line(run.instance, 'undo', undone)}"
    raise ConfigurationError(
        f"Run {short_run_id(run_id)} is an undo of run {undone}. There is nothing in it to apply or to undo; "
        f"nothing was written. {instead}"
    )


def _require_own_target(run: InstanceRun, rows: pl.DataFrame, whose: str) -> None:
    """Refuse rows of owner_writes for another inventory, naming both."""
    instance = run.instance
    for target in set(rows["target"]) - {instance.target}:
        raise ConfigurationError(
            f"{whose} is for {target}, and {instance.name} now points to {instance.target}: another "
            "platform.url, platform.tenant_id, platform.contract or name of a host field. Nothing was "
            "written. Point the instance there again"
        )


def _require_current(run: InstanceRun, plan: _Plan) -> None:
    """Refuse a plan that is too old, or that other settings made, with the command that makes a new one."""
    limit, now = run.instance.writes.plan_days, datetime.now(UTC)
    oldest, newest = now - timedelta(days=limit), now + CLOCK_SKEW
    made_at, made_by = (
        plan.rows["intended_at"],
        run.tables.appended("runs", run.tables.decided_by(plan.about)),
    )
    made_with = made_by["settings_fingerprint"].drop_nulls()
    if not made_at.is_between(oldest, newest).all():
        reason = f"made at {made_at.min():%F %R} UTC, longer ago than writes.plan_days ({limit}), or to come"
    elif plan.command != "undo" and not made_with.is_in([settings_fingerprint(run.instance)]).all():
        reason = f"made by other settings than {run.instance.name} has now"
    else:
        return
    raise ConfigurationError(
        f"The plan of run {plan.about} was {reason}; nothing was written. "
        f"Make a new one: {command_line(run.instance, 'run', '--dry-run')}"
    )


def _without_other_owners(run: InstanceRun, plan: _Plan) -> pl.DataFrame:
    """Leave hosts alone whose user name stands for another user asset by now than the planned owner, or none.

    The id may belong to somebody else, as where a directory was imported anew. So are hosts whose owner has
    another department or criticality than is to be copied.
    """
    new = pl.col("new_values").struct
    owner = new.field("owner")
    given = ((pl.col("outcome") == "planned") & (owner != "")).fill_null(value=False)
    if plan.rows.filter(given).is_empty():
        return plan.rows
    decided_by = run.tables.decided_by(plan.about)
    decided = run.tables.of_run("owner_decisions", decided_by).select("host_id", "username")
    users = run.inventory().users()
    matches = username_matches(decided, users, user_value_field=run.instance.platform_user_value_field)
    now = (
        decided.join(candidates(matches.lazy()).collect(), on="username")
        .join(users, left_on="resolved_owner", right_on="user_id", how="left")
        .select("host_id", "resolved_owner", department="user_department", criticality="criticality")
    )
    vanished = owner.ne_missing(pl.col("resolved_owner"))
    differs = pl.any_horizontal(
        new.field(name).is_not_null() & new.field(name).ne_missing(pl.col(name))
        for name in ("department", "criticality")
    )
    why = pl.when(vanished).then(pl.lit("is not the one user asset of the user's name any more"))
    changes = {
        "outcome": pl.lit("not_written"),
        "message": pl.format("left alone: {} {}", owner, why.otherwise(pl.lit("has other values by now"))),
        "completed_at": pl.lit(datetime.now(UTC), pl.Datetime("us", "UTC")),
    }
    return (
        plan.rows.join(now, on="host_id", how="left", maintain_order="left")
        .with_columns(
            pl.when(given & (vanished | differs)).then(value).otherwise(column).alias(column)
            for column, value in changes.items()
        )
        .select(plan.rows.columns)
    )


@contextmanager
def _writing(run: InstanceRun) -> Generator[Journal]:
    """Open the journal while nobody else writes, with nothing open from earlier runs on the target.

    A dry run settles nothing: it changes no table that analysts look at.
    """
    with only_writer(run.tables, run.instance.platform, run.run_id) as journal:
        if not journal_url() and has_shared_one(run.tables):
            run.log.warning(
                "ASSET_OWNERS_JOURNAL is not set, and earlier runs of this instance kept their journal in a "
                "database: writes that are open there are not settled, and other machines are not kept from "
                "writing at the same time"
            )
        if run.may_write:
            take_over(journal, run.tables)
            _settle(run, journal)
        yield journal


def _settle(run: InstanceRun, journal: Journal) -> None:
    """Find out what became of the writes of runs that were cut off on this target."""
    cut_off = runs_on_target(journal, run.instance.target)
    if elsewhere := journal.targets().keys() - cut_off:
        run.log.warning(
            f"Writes of the runs {', '.join(sorted(elsewhere))} to another target have no known outcome, and "
            f"stay open until {run.instance.name} points there again"
        )
    if not cut_off:
        return
    inventory = run.inventory()
    settled = settle_leftovers(journal, run.tables, inventory.hosts(), run.instance.target, inventory)
    for run_id in set(cut_off) - {run.run_id}:
        count_again(run.tables, run_id)
    if settled:
        run.log.warning(f"{settled} writes of an earlier run that had no known outcome are settled")


def _carry_out(run: InstanceRun, plan_of: Callable[[Journal], _Plan]) -> pl.DataFrame:
    """Make a plan while nobody else writes, check it against target, age, inventory and limits, and write.

    The only way to the writer: of a run, of one that is executed again or resumed, of apply and undo.
    """
    with _writing(run) as journal:
        if (written := _written_before(run)) is not None:
            return written
        plan = plan_of(journal)
        _require_own_target(run, plan.rows, f"The plan of run {plan.about}")
        _require_current(run, plan)
        planned, hosts = plan.rows, plan.hosts
        if hosts is None:
            planned = _without_other_owners(run, plan)
            planned = without_changed_hosts(planned, hosts := run.inventory().hosts())
            to_write = planned.filter(outcome="planned").height
            run.log.info(f"Plan: {to_write:,} of {planned.height:,} {plan.what}")
            run.tables.write("owner_writes", planned, run_id=run.run_id, publish=False)
        to_write = planned.filter(outcome="planned").height
        owned = hosts.filter(pl.col("owner_ids").list.len() > 0).height
        run.record.add(hosts=hosts.height, owned_before=owned, to_write=to_write)
        if not run.may_write:
            return planned
        require_as_filed(run)
        _require_within_limits(run, to_write, hosts.height, plan)
        writer = run.writer(run.inventory(), journal, run.instance.writes.read_back_seconds)
        if to_write:
            _require_visible_owners(run, writer, hosts)
        return _write(run, journal, planned, writer, DECIDE[plan.command])


def _write(
    run: InstanceRun,
    journal: Journal,
    planned: pl.DataFrame,
    writer: Writer,
    decide: Decide,
) -> pl.DataFrame:
    """Write the planned hosts and store what became of each."""
    limits, log = run.instance.writes, run.log
    try:
        ended_by = write_all(
            planned,
            writer,
            decide,
            journal,
            concurrency=limits.concurrency,
            max_failed_writes=limits.max_failed_writes,
            on_progress=Progress(log.info, "Hosts written"),
        )
    finally:  # also where the run was interrupted: what it did is reported
        written = journal.rows(run.run_id)
        run.tables.append_writes(written, run_id=run.run_id)
    outcomes = dict(written["outcome"].value_counts().sort("outcome").iter_rows())
    if "intended" not in outcomes:
        journal.delete(run.run_id)
    counts = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.items())
    log.info(f"Writes: {counts or 'nothing to write'}")
    if (longest := writer.longest_read_to_write_seconds) is not None:
        log.info(f"Longest time between the look at a host and its write: {1000 * longest:,.0f} ms")
    if "failed" in outcomes:
        first = written.filter(outcome="failed").row(0, named=True)
        log.warning(f"{outcomes['failed']} writes failed, that of {first['host_id']}: {first['message']}")
    if "intended" in outcomes:
        log.warning(f"{outcomes['intended']} writes have no known outcome; the next run settles them")
    if ended_by:
        raise ServiceError(
            f"{ended_by}; the run ended, the rest is left for the next run. The messages are in owner_writes"
        )
    return written


def _require_visible_owners(run: InstanceRun, writer: Writer, hosts: pl.DataFrame) -> None:
    """Refuse to write when the look that guards each write shows no owner where the list shows one.

    A list of some time ago may be out of date, so that one made now has the last word.
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
    """Refuse to write from days that look like lost events, where scan.require_complete_window is on."""
    if not run.instance.scan.require_complete_window:
        return
    days = gaps(run.days(run.window), timezone=run.instance.scan.timezone)
    if days:
        named = ", ".join(map(str, days))
        raise AssetOwnersError(
            f"Nothing was written: these days have no events, or hardly any ({named}), and "
            "scan.require_complete_window is on. Fetch the days again once their events are back, or, when "
            "there never were any, carry out the plan: "
            f"{command_line(run.instance, 'apply', short_run_id(run.run_id))}"
        )


def _require_within_limits(run: InstanceRun, to_write: int, hosts: int, plan: _Plan) -> None:
    """Refuse a plan that is too large to carry out unseen."""
    if plan.allowed is None:
        reason = over_limits(run.instance, to_write, hosts, what=plan.what)
    else:
        more = f"{to_write} {plan.what} are planned, more than were allowed ({plan.allowed})"
        reason = more if to_write > plan.allowed else None
    if reason:
        name = "undo" if plan.command == "undo" else "apply"
        look = command_line(run.instance, "sql", "--run", short_run_id(run.run_id), "FROM write_history")
        allow = ("--allow-writes", str(to_write))
        carry_out = command_line(run.instance, name, short_run_id(plan.about), *allow)
        raise AssetOwnersError(
            f"{reason}; nothing was written. Look at the plan ({look}), then carry it out: {carry_out}"
        )


def over_limits(instance: Instance, to_write: int, hosts: int, *, what: str) -> str | None:
    """Say why a plan needs a person's word before it is carried out (rules 7.10); None when it does not."""
    limits = instance.writes
    if to_write > limits.max_writes:
        return f"{to_write} {what} are planned, more than writes.max_writes ({limits.max_writes})"
    percent = limits.max_write_percent
    if percent is not None and 100 * to_write > percent * hosts:
        return (
            f"{to_write} {what} are planned for {hosts} hosts, more than writes.max_write_percent "
            f"({percent:g}%)"
        )
    return None


def _delete_outdated(run: ScanRun) -> None:
    """Delete what the instance does not keep, never a day of the run's own window."""
    keep, now = run.instance.keep, datetime.now(UTC)
    delete_inputs(run.tables, of_run=run.run_id)
    deleted = delete_outdated(
        run.tables,
        evidence_before=min(today_of(run.instance) - timedelta(days=keep.evidence_days), run.window.first),
        history_before=now - timedelta(days=keep.history_days),
    )
    if deleted:
        run.log.info(f"Deleted {deleted} files and folders that are older than keep allows")


def _delete_old_records(run: ScanRun) -> None:
    """Delete what Dagster knows of runs that are older than the instance keeps them: it may name people."""
    if dagster := run.record.recorded:
        oldest = datetime.now(UTC) - timedelta(days=run.instance.keep.runs_days)
        if runs := runs_of(dagster, run.instance.name, before=oldest, limit=MAX_AT_ONCE):
            delete_runs(dagster, runs)
            run.log.info(f"Deleted Dagster's records of {len(runs)} runs that are older than keep.runs_days")
