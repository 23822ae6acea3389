"""The hosts of a run as people look for them: who owns each now, its status, and what would change that."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from ownership.codes import ACTION, EVIDENCE, EXCLUDED_USER, MATCH, OUTCOME, SUCCESSES, reason_of, short_words
from ownership.data_checks import ANSWERED_AT, owners_answered_no, still_counts
from ownership.decisions import HAS_OWNER, least_certain_first
from ownership.history import ACKNOWLEDGED
from ownership.matching import SURNAME, Present, people_by_account
from ownership.names import STAND_IN, counted, either, printable
from ownership.rules import NAMING, events_needed, first_that_holds, further_days_needed
from reports.exports import printable_texts
from reports.sentences import NO_SUCH_ASSET, display_names, distinct_host, logons, names_of, percent, person

_TO_WIN = {"no_logons", "too_few_events", "no_majority"}
_STILL_EXCLUDED = "If it were not excluded (rules.{excluded_by}), no user would have enough of the logons."
_NOT_AGAIN = "so runs of this instance do not write it again until"


class Remedies:
    """Says what would lead to another outcome for a host.

    `users` are rows of `inventory_users`, `name_of` has names of them.
    """

    def __init__(self, users: pl.DataFrame, name_of: Mapping[str, str], present: Present) -> None:
        self._name_of = name_of
        self._rules, self._fields, self._present = present.rules, present.fields, present
        self._problems = dict(users.drop_nulls("problem").select("user_id", "problem").iter_rows())
        known = people_by_account(users, user_value_field=self._fields.decisive, rules=self._rules)
        self._user_of = dict(known.iter_rows())

    def with_needs(self, decisions: pl.DataFrame) -> pl.DataFrame:
        """Add what the primary user of each host lacks to be named.

        needed_events, needed_days (further ones, on which these have to be), named_alone.
        """
        counted = ("weight", "total_weight", "total_events")
        asked = decisions.with_columns(
            pl.col(*counted).fill_null(0),
            active_days=pl.when(pl.col("total_events") > 0).then("active_days").otherwise(0),
        )
        without = asked.with_columns(
            total_weight=pl.col("total_weight") - pl.col("runner_up_weight"),
            total_events=pl.col("total_events") - pl.col("runner_up_events"),
        )
        needed = {
            "needed_events": events_needed(self._rules),
            "needed_days": further_days_needed(self._rules),
        }
        is_named = pl.sum_horizontal(needed.values(), ignore_nulls=False) == 0
        return decisions.hstack(asked.select(**needed)).hstack(without.select(named_alone=is_named))

    def of_host(self, host: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each change that would lead to another outcome.

        `host` is a row of `reports.story.hosts_by_now` and `with_needs`.
        """
        names = ("host_id", "hostname", "username", "problem", "excluded_by")
        values = {name: printable(host[name] or "") for name in names} | {
            "hostname_field": self._fields.hostname,
            "user_fields": either(self._fields.asked),
            "primary_hostnames": either(host["primary_hostnames"] or ()),
        }
        values |= {name: str(host[name]) for name in ("named_since", "stable_on")}
        instead = host["instead_id"] and person(host["instead_id"], self._name_of)
        values["instead"] = f" (named instead: {instead})" if instead else ""
        undo = self._present.undo_as_wrong(host)
        if host["is_to_undo"]:
            yield f"Undo it as wrong, so that no run of this instance writes it here again: {undo}"
        is_lost = host["evidence"] == "excluded_host" and host["needed_events"] > 0
        reason = _STILL_EXCLUDED if is_lost else reason_of(host).advice
        who = (host[name] or "" for name in ("username", "resolved_owner"))
        if is_forgotten := any(re.match(STAND_IN, name) for name in who):
            reason = "The primary user was forgotten: no run names them, and their logons count as long as "
            reason += "they are in the window."
        for advice in filter(None, (reason, ACTION[host["action"]].advice)):
            yield advice.format_map(values)
        answered_no = EVIDENCE["answered_no"].advice.format_map(values)
        if not is_forgotten and (host["evidence"] in _TO_WIN or is_lost):
            is_no = self._user_of.get(host["username"] or "") in (host["no_ids"] or ())
            yield from [answered_no] if is_no else self._to_be_named(host)
        if host["match"] == "ambiguous_user":
            yield from self._one_candidate(host)
        if host["is_wrong"]:
            yield answered_no
        else:
            yield from self._to_be_written(host)
        if undo and not host["is_to_undo"]:
            yield f"If the owner is wrong: {undo}"

    def _to_be_named(self, decision: Mapping[str, Any]) -> Iterator[str]:
        """Yield what would make the primary user the owner."""
        who, second = printable(decision["username"] or "One user"), decision["runner_up_username"]
        threshold, share = self._rules.share_threshold_percent, decision["share"]
        if decision["evidence"] == "no_majority" and 200 * share < threshold:
            shared = f"{counted(decision['user_count'], 'user')} share this host, and no one is near the"
            by_hand = (
                f"Set the owner by hand ({self._fields.owner}), or list the host in rules.exclude_hosts."
            )
            yield f"{shared} threshold of {threshold}%: {who} has most, {percent(share)}. {by_hand}"
        elif events := decision["needed_events"]:
            days, weighed = decision["needed_days"], self._rules.logon_type_weights
            needed = f"{counted(events, 'more logon')}{' without a weight' if weighed else ''}"
            needed += f" on at least {counted(days, 'more day')}" if days else ""
            yield f"{who} would be named as the owner with {needed}."
        else:
            yield f"By the present rules {who} would be named as the owner: run again."
        user_id = self._user_of.get(decision["username"] or "")
        if user_id and user_id == self._user_of.get(second or "") and not self._rules.unite_accounts:
            one = f"{who} and {printable(second)} are accounts of one person ({printable(user_id)})"
            yield f"{one}: with rules.unite_accounts they count as one user."
        elif second and decision["named_alone"] and second not in self._user_of:
            other = f"If {printable(second)} is not a person, list it in rules.exclude_users"
            yield f"{other}: {who} would get the host."

    def _one_candidate(self, decision: Mapping[str, Any]) -> Iterator[str]:
        """Yield how to make one user asset match: all readable, and one field that names only one."""
        candidates, matched_by, turns = decision["candidate_ids"], decision["matched_by"], self._fields.turns
        for user_id in candidates:
            if user_id in self._problems:
                problem = printable(self._problems[user_id])
                yield f"Correct user asset {printable(user_id)} in the inventory: {problem}."
        readable = [user_id for user_id in candidates if user_id not in self._problems]
        if len(readable) > 1:
            at = next(number for number, turn in enumerate(turns) if matched_by in turn)
            name, earlier = printable(decision["username"]), [one for turn in turns[:at] for one in turn]
            people = either(person(user_id, self._name_of) for user_id in readable)
            text = f"Remove the name {name} in {either(turns[at])} from all but one of {people}"
            instead = f", or enter {name} for the right one in {either(earlier)}, which is compared first"
            choose = ", or write in platform_user_value_field which field is right"
            if matched_by == SURNAME:
                text = f"The surname {name} is that of {people}: set the owner by hand"
            yield f"{text}{instead if earlier else choose if not self._fields.decisive else ''}."

    def _to_be_written(self, host: Mapping[str, Any]) -> Iterator[str]:
        """Yield what would lead to another owner in the inventory, whatever it held when the run decided."""
        named, owners, field = host["resolved_owner"], host["owner_ids"], self._fields.owner
        owner, acknowledge = person(named, self._name_of) if named else "", self._present.acknowledge
        if owners and (named is None or named in owners):
            yield f"To change the owner, set it in the inventory ({field}): no run replaces an owner."
        elif named and re.match(STAND_IN, named):
            return
        elif owners and host["acknowledged_at"]:
            yield f"The conflict is acknowledged. To end that: {acknowledge(host['host_id'], undo=True)}"
        elif owners:
            name = f"{printable(host['hostname'] or 'the host')} ({printable(host['host_id'] or '')})"
            yield f"Clear {field} of {name} in the inventory: the next run would write {owner}."
            yield f"If the owner may stay: {acknowledge(host['host_id'])}"
        elif named and owners is not None:
            advice = OUTCOME[host["outcome"]].advice if host["outcome"] else ""
            yield (advice or "The next run that may write sets {owner}.").format(owner=owner)


STATUS: Mapping[str, str] = {
    "planned": "A run would write this owner; nothing is written yet.",
    "conflict": "The inventory has an owner, who stays; the primary user is another person.",
    "written": "asset-owners wrote the owner, and the host still has it.",
    "set by hand": "The inventory has an owner whom asset-owners did not write.",
    "no owner": "The inventory has no owner, or the host asset cannot be read.",
    "not in the inventory": "The logons have this host name, and the inventory does not.",
}
"""How a host stands, in the words of the page and of the sheet, and what that means."""
NEED_A_PERSON = ("planned", "conflict", "no owner")

NOT_WRITTEN_YET = "not written yet"
"""Why a host has no owner yet that a run of some hosts did not choose."""
_STOPPED = ("failed", "intended", "not_written", "undone", NOT_WRITTEN_YET)
"""Outcomes after which a host has no owner although the run decided on one."""


def hosts_by_now(
    decisions: pl.DataFrame, read: Callable[[str], pl.LazyFrame], writes: pl.LazyFrame, present: Present
) -> pl.DataFrame:
    """Return the decisions with each host's owners now and how it stands.

    Adds owner_ids, source, since, department, criticality, wrote_in (the run), planned_owner,
    planned_department and planned_criticality (null: stays), outcome and message (of the last write since the
    decision), of a conflict acknowledged_by, acknowledged_at and note, no_ids (who was answered no), is_wrong
    (resolved_owner was), no_until (the last day on which a no about the host counts), instead_id (who was
    named then), is_to_undo (so was an owner that asset-owners wrote), status (of `STATUS`) and why (in a few
    words). `read` gives stored tables, `writes` are rows of `owner_writes`. The order is the decisions'.
    """
    owners, acknowledged, answers = (
        read(table).collect() for table in ("current_owners", "acknowledged_conflicts", "audit_sample")
    )
    # What changed something, or may have, matters more than what left the host unchanged since.
    sent = pl.col("outcome").is_in([*SUCCESSES, "failed", "intended"])
    run_id, decided_at = decisions.select(pl.first("run_id"), pl.min("decided_at")).row(0)
    # A plan is as old as the start of its run, and so older than the decisions that it rests on.
    of_run, at = pl.col("run_id") == pl.lit(run_id, pl.String), pl.coalesce("completed_at", "intended_at")
    since = at >= pl.lit(decided_at, pl.Datetime("us", "UTC"))
    outcomes = (
        writes.filter(of_run | since | (pl.col("outcome") == "intended"))
        .sort(sent, at)
        .group_by("host_id")
        .agg(pl.last("outcome", "message", "old_values", "new_values"))
        .collect()
    )
    now = owners.select(
        *("host_id", "owner_ids", "source", "since", "department", "criticality"), wrote_in="run_id"
    )
    known = acknowledged.select(*ACKNOWLEDGED, "acknowledged_at", "note", acknowledged_by="by")
    answers = answers.filter(still_counts(present.history_days, present.now))
    last = (ANSWERED_AT.max() + pl.duration(days=present.history_days)).dt.date()
    instead_id, no = pl.col("instead_id").drop_nulls().last(), answers.filter(right=False)
    no = no.group_by("host_id").agg(no_ids="user_id", no_until=last, instead_id=instead_id)
    planned = pl.col("outcome").eq_missing("planned")
    old, new = (pl.col(values).struct for values in ("old_values", "new_values"))
    return (
        decisions.join(now, on="host_id", how="left", maintain_order="left")
        .join(outcomes, on="host_id", how="left", maintain_order="left")
        .join(known, on=ACKNOWLEDGED, how="left", maintain_order="left")
        .join(no, on="host_id", how="left", maintain_order="left")
        .with_columns(
            is_wrong=pl.col("resolved_owner").is_in("no_ids"),
            is_to_undo=pl.col("host_id").is_in(owners_answered_no(owners, answers)["host_id"].implode()),
            planned_owner=pl.when(planned).then(new.field("owner")),
            **{
                f"planned_{name}": pl.when(planned & new.field(name).ne_missing(old.field(name))).then(
                    new.field(name)
                )
                for name in ("department", "criticality")
            },
        )
        .with_columns(status=_status(), why=_why(has_plan=outcomes.height > 0))
        .drop("old_values", "new_values")
    )


def _status() -> pl.Expr:
    cases = (
        ("not in the inventory", pl.col("host_id").is_null()),
        ("planned", pl.col("planned_owner").is_not_null()),
        ("conflict", pl.col("action") == "conflict"),
        ("written", HAS_OWNER & (pl.col("source") == "asset-owners")),
        ("set by hand", HAS_OWNER),
    )
    return first_that_holds(cases).fill_null("no owner")


def _why(*, has_plan: bool) -> pl.Expr:
    is_stopped = (pl.col("action") == "write") & ~HAS_OWNER
    # A run that was asked for some hosts (`--host`, `--limit`) has no row for the others.
    outcome = pl.col("outcome").fill_null(NOT_WRITTEN_YET if has_plan else "planned")
    stopped = pl.when(is_stopped & outcome.is_in(_STOPPED)).then(outcome)
    excluded = pl.when((pl.col("match") == "no_user_asset") & pl.col("excluded_by").is_not_null())
    unmatched = excluded.then(pl.lit(EXCLUDED_USER.short)).when(pl.col("match") != "matched").then("match")
    wrong = pl.when("is_to_undo").then(pl.lit("answered_no"))
    noted = wrong.when(pl.col("acknowledged_at").is_not_null()).then(pl.lit("acknowledged"))
    return pl.coalesce(noted, stopped, unmatched, "evidence").replace(short_words(EVIDENCE, MATCH, OUTCOME))


def with_words(
    hosts: pl.DataFrame, users: pl.DataFrame, name_of: Mapping[str, str], present: Present
) -> pl.DataFrame:
    """Add to rows of `hosts_by_now` a sentence about the owner of each host, and what would change it.

    The other arguments are those of `Remedies`. Columns: name (with the id where several hosts have it),
    summary, what_would_change (sentences), and those of `Remedies.with_needs`.
    """
    remedies, known = Remedies(users, name_of, present), {*users["user_id"]}
    asked = remedies.with_needs(hosts.with_columns(name=distinct_host(hosts["hostname"])))
    rows = [
        (ownership_sentence(host, name_of, known), [*remedies.of_host(host)])
        for host in asked.iter_rows(named=True)
    ]
    schema = {"summary": pl.String, "what_would_change": pl.List(pl.String)}
    return asked.hstack(pl.DataFrame(rows, schema, orient="row"))


def describe_hosts(
    decisions: pl.DataFrame, read: Callable[[str], pl.LazyFrame], writes: pl.LazyFrame, present: Present
) -> pl.DataFrame:
    """Return decisions as `hosts_by_now` with their words, from stored tables."""
    users = read("inventory_users").collect()
    names = names_of(users.iter_rows(named=True))
    return with_words(hosts_by_now(decisions, read, writes, present), users, names, present)


def ownership_sentence(host: Mapping[str, Any], name_of: Mapping[str, str], known: Collection[str]) -> str:
    """Return whose a host is, why, and how the owner got there: in names, with the ids in parentheses.

    `host` is a row of `hosts_by_now` with its name, `name_of` has names of user assets, `known` the ids of
    all. The outcome of a pending write is not known.
    """
    name, named = printable(host["name"]), host["resolved_owner"]
    candidate = f"{person(named, name_of)}: {logons(host)}" if named else ""
    reason, owners = _reason(host), host["owner_ids"]
    if host["source"] is None:
        who = f"; its primary user is {candidate}" if named else f": {reason}"
        return f"{name} is not a host of the inventory{who}."
    if owners is None:
        return f"{name} cannot be read, so its owner is not known: {reason}."
    ours, is_pending = host["source"] == "asset-owners", host["outcome"] == "intended"
    day, unknown = f"{host['since']:%Y-%m-%d}" if ours else "", "is unknown until the next run"
    if not owners:
        primary = "" if named and re.match(STAND_IN, named) else f"; its primary user is {candidate}"
        then = f" yet{primary}" if named else f": {reason}"
        if is_pending:
            who = person(named, name_of) if named else "an owner"
            then = f" that is known: whether {who} was written {unknown}"
        elif ours:
            then = f": the owner that asset-owners wrote was undone on {day}"
            if host["no_until"] and (host["is_wrong"] or host["evidence"] == "answered_no"):
                then += f"; it was marked as wrong, {_NOT_AGAIN} {host['no_until']}"
        return f"{name} has no owner{then}."
    shown = (person(one, name_of) + f" ({NO_SUCH_ASSET})" * (one not in known) for one in owners)
    belongs = f"{name} belongs to {', '.join(shown)}"
    wrote = f"asset-owners wrote it on {day} (run {printable((host['wrote_in'] or '')[:8])})" if ours else ""
    wrote += f"; whether that was undone {unknown}" if ours and is_pending else ""
    if named in owners:
        found = f": {logons(host)}" if len(owners) == 1 else f"; its primary user is {candidate}"
        return f"{belongs}{found}; {wrote or 'the inventory had this owner already'}.{_remark(host)}"
    known = f"; {wrote}" if ours else " in the inventory"
    but = f", but its primary user is {candidate}" if named else f"; no owner is found: {reason}"
    return f"{belongs}{known}{but}.{_remark(host)}"


def _remark(host: Mapping[str, Any]) -> str:
    """Return who lets a conflict stay, since when and why, or that an owner is wrong; mostly empty."""
    if host["is_to_undo"] and host["evidence"] != "answered_no":
        return " Somebody answered no: this owner is wrong."
    if host["acknowledged_at"] is None:
        return ""
    by, note = printable(host["acknowledged_by"] or "Somebody"), host["note"]
    why = f": {printable(note)}" if note else ""
    return f" {by} acknowledged this conflict on {host['acknowledged_at']:%Y-%m-%d}{why}."


def _reason(host: Mapping[str, Any]) -> str:
    """Return why an owner is found or not, as a part of a sentence."""
    if host["problem"]:
        return printable(host["problem"])
    if host["evidence"] == "answered_no":
        until = f", {_NOT_AGAIN} {host['no_until']}" if host["no_until"] else ""
        return f"somebody said that this host is not {printable(host['username'])}'s{until}"
    sentence = reason_of(host)
    return sentence[0].lower() + sentence[1:].rstrip(".") + details_of(host)


def details_of(host: Mapping[str, Any]) -> str:
    """Return the values behind `reason_of` a host, in parentheses."""
    found = [printable(host[name]) for name in ("problem", "excluded_by") if host[name]]
    if host["username"] and host["total_events"] and host["evidence"] != "excluded_host":
        found.append(f"{printable(host['username'])}, {logons(host)}")
    return f" ({'; '.join(found)})" if found else ""


def hosts_sheet(hosts: pl.DataFrame, users: pl.DataFrame, present: Present) -> pl.DataFrame:
    """Return the rows of `hosts_by_now` as a table for a spreadsheet, in the words of the page."""
    names, owners, planned = display_names(users), pl.col("owner_ids"), pl.concat_list("planned_owner")
    addresses = names_of(users.iter_rows(named=True), ["user_email"])

    def texts(ids: pl.Expr, known: Mapping[str, str], default: pl.Expr | None = None) -> pl.Expr:
        each = pl.element().replace_strict(known, default=default, return_dtype=pl.String)
        return ids.list.eval(each).list.drop_nulls().list.join(", ").replace("", None)

    columns = {
        "Host": pl.col("hostname"),
        "Status": pl.col("status"),
        "Reason": pl.col("why"),
        "Owner": texts(owners, names, pl.element()),
        "Owner's address": texts(owners, addresses),
        "Planned owner": texts(planned, names, pl.element()),
        "Planned owner's address": texts(planned, addresses),
        "Share": ((pl.col("share") * 100 + 1e-9).floor() / 100).round(2),
        "Confidence": pl.col("confidence").round(2).clip(upper_bound=0.99),
        "User's last logon": pl.col("last_seen"),
        "Department": pl.col("department"),
        "Planned department": pl.col("planned_department"),
        "Criticality": pl.col("criticality"),
        "Planned criticality": pl.col("planned_criticality"),
        "In words": pl.col("summary"),
        "What would change it": pl.col("what_would_change").list.first(),
        "Message": pl.col("message"),
        "Conflict since": pl.col("conflict_since").dt.date(),
        "Acknowledged by": pl.col("acknowledged_by"),
        "Acknowledged on": pl.col("acknowledged_at").dt.date(),
        "Note": pl.col("note"),
        "Host id": pl.col("host_id"),
        "Owner's id": texts(owners, {}, pl.element()),
        "Planned owner's id": pl.col("planned_owner"),
    }
    told = with_words(hosts, users, names, present)
    return printable_texts(told.select(**columns))


def planned_first(hosts: pl.DataFrame) -> pl.DataFrame:
    """Sort rows of `hosts_by_now`: planned ones, the least certain first (rules 9.9), then others by name.

    Of the others those with a clear primary user come first, so that kiosks and servers do not.
    """
    planned, is_clear = pl.col("status") == "planned", pl.col("evidence").is_in(NAMING)
    others = sort_by_name(hosts.filter(~planned)).sort(is_clear, descending=True, maintain_order=True)
    return pl.concat([least_certain_first(hosts.filter(planned)), others])


def sort_by_name(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by hostname and host_id as people do, those without a name last."""
    names = frame.select("hostname", "host_id").rows()
    order = sorted(
        range(len(names)), key=lambda row: [(text is None, sort_key(text or "")) for text in names[row]]
    )
    return frame[order]


@lru_cache(maxsize=100_000)  # of one page, where names are sorted several times
def sort_key(text: str) -> tuple[str, str]:
    """Return a key that sorts texts as people do: without regard to case, and 2 before 10."""
    return re.sub("[0-9]+", lambda digits: digits[0].lstrip("0").zfill(20), text.casefold()), text
