"""Plans: what a run would write or undo, one row for each host, and every reason to refuse it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, Protocol

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import empty
from ownership.names import did_you_mean, escape_id, is_stand_in, near_names, normalise_hostname
from ownership.rules import first_that_holds
from ownership.tables import OwnerWrites

CLOCK_SKEW = timedelta(minutes=5)
"""How far apart the clocks of two machines that share a home may be."""

Command = Literal["run", "apply", "undo"]
"""What writes a plan: the run that made it, or a person later."""

Remedy = Literal[
    "point the instance back", "plan again", "write settings", "run again", "apply", "allow", "read owners"
]
"""What a person does about a refusal; the executor words it, with the commands."""


Change = Literal["set", "replaced", "lowered", "cleared"]
"""What a write does to a field of a host."""


class _Limits(Protocol):
    """The settings below `writes` that bound a plan, with these names."""

    @property
    def max_writes(self) -> int: ...
    @property
    def max_write_percent(self) -> float | None: ...
    @property
    def plan_days(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows that a run may write, and what they rest on.

    Attributes:
        rows: Of `owner_writes`, of the run that writes; those that are `planned` are to be written.
        of_run: The run that planned it, or whose writes it undoes.
        settings: Fingerprint of the settings that decided; None: nothing was decided, or it is not known.
        tried: Settings that decided and that the instance does not have, in words.
        missing_steps: Steps that a plan rests on and that `of_run` did not make itself.
        gaps: Days that look like lost events, where the instance asks for a complete window.
        allowed: The most hosts to write that a person allowed, in place of the instance's limits.
        hosts: The only hosts that a person asked to write or undo; empty: all of the plan.
    """

    rows: pl.DataFrame
    command: Command
    of_run: str
    settings: str | None = None
    tried: Sequence[str] = ()
    missing_steps: Sequence[str] = ()
    gaps: Sequence[date] = ()
    allowed: int | None = None
    hosts: Sequence[str] = ()

    @property
    def to_write(self) -> int:
        """How many hosts are to be written."""
        return self.rows.filter(outcome="planned").height

    @property
    def what(self) -> str:
        """What it writes, for messages."""
        many = "s" * (self.to_write != 1)
        return f"host{many} to undo" if self.command == "undo" else f"owner{many}"


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The state of instance and inventory when a plan is about to be written.

    Attributes:
        target: The inventory to which the instance points (rules 7.8).
        settings: Fingerprint of the instance's settings.
        is_file_unchanged: Whether the instance file says what it said when the run began.
        hosts: How many hosts the inventory lists; None: not listed yet.
        hidden_owners: Hosts whose owner the list shows, and reading them one by one does not.
    """

    at: datetime
    target: str
    settings: str
    limits: _Limits
    is_file_unchanged: bool = True
    hosts: int | None = None
    hidden_owners: Sequence[str] = ()


@dataclass(frozen=True)
class Refusal:
    """The reason why a plan may not be written now, as a sentence, and what a person does about it."""

    reason: str
    remedy: Remedy


def refusals(plan: Plan, now: Conditions) -> Iterator[Refusal]:
    """Yield every reason why a plan may not be written now (rules 7.7, 7.8, 7.10, 7.11)."""
    for target in sorted(set(plan.rows["target"].fill_null("an unknown inventory")) - {now.target}):
        yield Refusal(
            f"The plan of run {plan.of_run} is for {target}, and the instance now points to {now.target}: "
            "another platform.url, platform.tenant_id, platform.contract or name of a host field",
            "point the instance back",
        )
    made_at, days = plan.rows["intended_at"], now.limits.plan_days
    if not made_at.is_between(now.at - timedelta(days=days), now.at + CLOCK_SKEW).all():
        yield Refusal(
            f"The plan of run {plan.of_run} was made at {made_at.min():%F %R} UTC: older than "
            f"writes.plan_days ({days}), or dated in the future",
            "plan again",
        )
    if plan.tried or plan.settings not in {None, now.settings}:
        yield Refusal(
            f"The plan of run {plan.of_run} was made with other settings than the instance has now",
            "write settings" if plan.tried else "plan again",
        )
    if plan.missing_steps:
        yield Refusal(
            f"Run {plan.of_run} did not make {', '.join(plan.missing_steps)} itself, and what other runs "
            "made may be out of date",
            "run again",
        )
    if plan.gaps:
        yield Refusal(
            f"These days have no events, or hardly any ({', '.join(map(str, plan.gaps))}), and "
            "scan.require_complete_window is on",
            "apply",
        )
    if not now.is_file_unchanged:
        yield Refusal("The instance file was changed while this run worked", "run again")
    if now.hosts is not None and (
        reason := exceeded_limit(plan.to_write, now.hosts, now.limits, what=plan.what, allowed=plan.allowed)
    ):
        yield Refusal(reason, "allow")
    if now.hidden_owners:
        yield Refusal(
            f"The list shows owners of the hosts {', '.join(now.hidden_owners)}, and reading each of "
            "them shows none, so a write could overwrite an owner",
            "read owners",
        )


def exceeded_limit(
    to_write: int, hosts: int, limits: _Limits, *, what: str, allowed: int | None = None
) -> str | None:
    """Return why a person must allow so many writes of `what` among so many hosts first (rules 7.10).

    `allowed` is the number that somebody allowed, in place of the limits.
    """
    planned, percent = (
        f"{to_write} {what} {'is' if to_write == 1 else 'are'} planned",
        limits.max_write_percent,
    )
    if allowed is not None:
        return f"{planned}, more than were allowed ({allowed})" if to_write > allowed else None
    if to_write > limits.max_writes:
        return f"{planned}, more than writes.max_writes ({limits.max_writes})"
    if percent is not None and 100 * to_write > percent * hosts:
        return f"{planned} for {hosts} hosts, more than writes.max_write_percent ({percent:g}%)"
    return None


def select_hosts(rows: pl.DataFrame, asked: Sequence[str], decisions: pl.DataFrame) -> pl.DataFrame:
    """Return rows of a plan, or decisions, of some hosts, each asked for by id or by a name in any spelling.

    `decisions` know further names of the hosts, and further hosts. A name without its domain will do where it
    is one host's.

    Raises:
        KeyError: a host that is asked for is not among the rows.
        LookupError: it is not known, or is one by its id and another one by its name; those that may be
            meant are given.
    """
    name, planned, chosen = pl.col("name"), {*rows["host_id"]}, set[str]()
    with_forms = {"full": normalise_hostname(name), "short": normalise_hostname(name, short=True)}
    listed = decisions.select("host_id", name="hostnames").explode("name").drop_nulls("host_id")
    names = pl.concat([rows.select("host_id", name="hostname"), listed]).unique(maintain_order=True)
    names = names.with_columns(**with_forms, id=pl.col("host_id").str.to_lowercase())
    ids, full, short = (
        dict(names.drop_nulls(form).group_by(form).agg(pl.col("host_id").unique()).iter_rows())
        for form in ("id", "full", "short")
    )
    given = pl.DataFrame({"name": [*asked]}, schema={"name": pl.String}).with_columns(**with_forms)
    for asked_name, asked_full, asked_short in given.iter_rows():
        text = asked_name.strip()
        in_any_case = {*ids.get(text.lower(), [])}
        by_id = in_any_case & {text} or in_any_case
        found = by_id.union(full.get(asked_full, []))
        found = found or {*(short if asked_full == asked_short else full).get(asked_short, [])}
        if len(found) > 1 and (by_id or asked_full not in full):
            each = names.filter(pl.col("host_id").is_in(found)).unique("host_id", keep="first")
            called = ", ".join(sorted(f"{row['host_id']} ({row['name']})" for row in each.to_dicts()))
            raise LookupError(f"{asked_name!r} may be each of the hosts {called}; name it in another way")
        if not found:
            meant = did_you_mean(near_names(text, [*full, *ids]))
            raise LookupError(f"no host {asked_name!r} is known; name it as the inventory does.{meant}")
        if not found & planned:
            raise KeyError(text)
        chosen |= found
    return rows.filter(pl.col("host_id").is_in(chosen))


_LEVELS = {
    word: level
    for level, words in enumerate(
        ("none", "info informational", "low minor", "medium moderate normal", "high major", "critical severe")
    )
    for word in words.split()
}
"""The usual words for how critical a host is, from none upwards."""


def enrichment_change(field: str, before: str | None, after: str | None) -> Change | None:
    """Return what a write does to a field of a host: null is not sent, an empty text clears it.

    None: the field stays as it is. A criticality is lowered where both values are numbers, or usual words.
    """
    if after is None or after == (before or ""):
        return None
    if not before:
        return "set"
    if not after:
        return "cleared"
    old, new = _level(before), _level(after)
    is_lower = old is not None and new is not None and new < old
    return "lowered" if field == "criticality" and is_lower else "replaced"


def _level(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return _LEVELS.get(value.strip().casefold())


KEPT = ("keep", "confirm")
"""Changes of `compare_plans` by which a host keeps its owner."""


def compare_plans(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Return how the owners that two runs give differ, from their decisions: a row for each such host.

    A run gives an owner where it plans to write one, or finds it there already. A host that has an owner,
    whom one of the runs chooses and the other one does not, keeps it: no run overwrites it.

    Columns: host_id, hostname and change (`add`, `drop` or `change`; `keep` where the first run chooses the
    owner that the host keeps, `confirm` where the second one does); owner and what it rests on of the second
    run, and with `_before` of the first. Of a host that keeps its owner, these are whom each run chooses.
    Hosts for which neither run gives an owner are not part of it.
    """
    given = pl.when(pl.col("action").is_in(["write", "agree"])).then("resolved_owner")
    why = ("evidence", "match", "action", "share", "events", "active_days", "named_since", "stable_on")
    only_here = ("resolved_owner", "existing_owner", "decided_at")
    before, after = (
        rows.drop_nulls("host_id").select("host_id", "hostname", "confidence", *why, *only_here, owner=given)
        for rows in (first, second)
    )
    old, new = pl.col("owner_before"), pl.col("owner")
    planned_before, planned = (pl.col(name).eq_missing("write") for name in ("action_before", "action"))
    # Whichever run is named first: the one that read the inventory last knows who owns the host.
    is_reversed = pl.col("decided_at") < pl.col("decided_at_before")
    owners = pl.when(is_reversed).then("existing_owner_before").otherwise("existing_owner").str.split(",")
    chosen_before, chosen = pl.col("resolved_owner_before"), pl.col("resolved_owner")
    owns_before, owns = (
        owners.list.contains(escape_id(user)).fill_null(value=False) for user in (chosen_before, chosen)
    )
    is_other = chosen_before.ne_missing(chosen)
    has_none = owners.is_null() & is_reversed.is_not_null()  # a host that both runs know
    change = (
        ("keep", owns_before & is_other),
        ("drop", new.is_null() & (planned_before | (old.is_not_null() & has_none))),
        ("change", (old != new) & (planned | planned_before)),
        ("confirm", new.is_not_null() & owns & is_other),
        ("add", new.is_not_null() & old.is_null() & has_none),
        ("add", (old.is_null() | (old == new)) & planned & ~planned_before & ~owns),
    )
    return (
        after.join(before, on="host_id", how="full", coalesce=True, suffix="_before")
        .with_columns(pl.coalesce("hostname", "hostname_before"), change=first_that_holds(change))
        .with_columns(
            pl.when(pl.col("change").is_in(KEPT)).then(name).otherwise(given).alias(given_as)
            for given_as, name, given in (("owner", chosen, new), ("owner_before", chosen_before, old))
        )
        .drop_nulls("change")
        .drop("hostname_before", *only_here, *(f"{name}_before" for name in only_here))
        .sort("change", "hostname", "host_id")
    )


def plan_writes(
    decisions: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    enrich: bool,
    takes: Collection[str],
    run_id: str,
    target: str,
    intended_at: datetime,
) -> pl.DataFrame:
    """Plan the writes of new owners (rules 2.2, 2.5, 2.6): rows of `owner_writes`, `planned`.

    With `enrich` the department and criticality of the owner, where not empty, are written as well, as far as
    the inventory `takes` them. A null in `new_values` is not sent.
    """
    copied = (
        pl.when(enrich and field in takes, pl.col(column).str.strip_chars() != "").then(column).alias(field)
        for field, column in (("department", "user_department"), ("criticality", "criticality_copied"))
    )
    planned = (
        decisions.lazy()
        .filter(action="write")
        .join(hosts.lazy().select("host_id", "department", "criticality"), on="host_id", how="left")
        .join(users.lazy(), left_on="resolved_owner", right_on="user_id", how="left", suffix="_copied")
        .sort("hostname", "host_id")
        .select(
            "host_id",
            "hostname",
            outcome=pl.lit("planned"),
            old_values=pl.struct(pl.lit(None, pl.String).alias("owner"), "department", "criticality"),
            new_values=pl.struct(pl.col("resolved_owner").alias("owner"), *copied),
        )
    )
    return _rows(planned.collect(), run_id=run_id, target=target, intended_at=intended_at)


def plan_undo(
    writes: pl.DataFrame, history: pl.DataFrame, *, run_id: str, target: str, intended_at: datetime
) -> pl.DataFrame:
    """Plan to undo what a run wrote: its new values become the old ones, and the other way round.

    A host that was undone since, or may have been written since, or whose owner was forgotten, is skipped:
    `not_written` with the reason.
    `history` has the rows of all runs on the same inventory. In `new_values` an empty text clears the field,
    and null stands for a field that was not written.
    """

    def undone_value(field: str) -> pl.Expr:
        written = pl.col("new_values").struct.field(field)
        before = pl.col("old_values").struct.field(field)
        return pl.when(written.is_not_null()).then(before.fill_null("")).alias(field)

    changes = history.filter(pl.col("outcome").is_in([*SUCCESSES, "intended"])).sort(
        pl.coalesce("completed_at", "intended_at")
    )
    last_change = changes.group_by("host_id").agg(last_run=pl.last("run_id"), last_outcome=pl.last("outcome"))
    # By the clocks the write itself may be the last change although it was undone.
    undone = changes.filter(outcome="undone").group_by("host_id", "undoes").agg(undone_by=pl.last("run_id"))
    changed_since = pl.col("last_run") != pl.col("run_id")
    written_again = changed_since & (pl.col("last_outcome") != "undone")
    is_forgotten = is_stand_in(pl.col("new_values").struct.field("owner"))
    overtaken = pl.format("skipped: {} by run {}", "what", "overtaken_by")
    is_skipped = pl.col("message").is_not_null()
    planned = (
        writes.filter(outcome="written")
        .select("host_id", "hostname", "run_id", "old_values", "new_values", undoes="run_id")
        .join(last_change, on="host_id", how="left", maintain_order="left")
        .join(undone, on=["host_id", "undoes"], how="left", maintain_order="left")
        .with_columns(
            overtaken_by=pl.when(changed_since).then("last_run").otherwise("undone_by"),
            what=pl.when(written_again)
            .then(pl.lit("written again since"))
            .otherwise(pl.lit("already undone")),
        )
        .with_columns(
            message=pl.when(is_forgotten)
            .then(pl.lit("skipped: its owner was forgotten"))
            .otherwise(overtaken)
        )
        .select(
            "host_id",
            "hostname",
            "undoes",
            "message",
            outcome=pl.when(is_skipped).then(pl.lit("not_written")).otherwise(pl.lit("planned")),
            old_values=pl.col("new_values").struct.with_fields(owner=escape_id(pl.field("owner"))),
            new_values=pl.struct(undone_value(field) for field in ("owner", "department", "criticality")),
            completed_at=pl.when(is_skipped).then(pl.lit(intended_at, pl.Datetime("us", "UTC"))),
        )
    )
    return _rows(planned, run_id=run_id, target=target, intended_at=intended_at)


def _rows(planned: pl.DataFrame, **of_all: str | datetime) -> pl.DataFrame:
    """Return rows of `owner_writes`, with values that all of them have; unplanned ones are null."""
    rows = planned.with_columns(pl.lit(value).alias(name) for name, value in of_all.items())
    return pl.concat([empty(OwnerWrites), rows], how="diagonal")
