"""What would change the outcome for a host: how many logons, which user asset, which setting.

What was decided, and why, is explained in `explanations`. All counts are for the window that was decided on.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import polars as pl

from ownership.matching import FieldNames
from ownership.names import printable
from ownership.rules import DAYS_AFTER_SKIPPED, Rules, days_of_events_needed, events_needed
from reports.sentences import either

_NEXT_RUN_WRITES = "The next run that may write sets {owner}."
_AFTER: Mapping[str | None, str] = {
    None: _NEXT_RUN_WRITES,
    "planned": _NEXT_RUN_WRITES,
    "not_written": _NEXT_RUN_WRITES,
    "intended": "The next run finds out whether {owner} was written.",
    "failed": "Correct what the service complained about; the next run tries again.",
    "owned_meanwhile": "The next run compares {owner} with the owner that the host has now.",
    "undone": "The next run writes {owner} again, unless rules.exclude_hosts names the host by then.",
}
"""What follows, by the outcome of the last write."""


Candidates = Mapping[str, Sequence[Mapping[str, Any]]]
"""The user assets that may be meant by each user name: rows of `username_matches`."""


def candidates_of(matches: pl.DataFrame) -> Candidates:
    """Bring rows of `username_matches` together by their user names, ordered by id."""
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in matches.drop_nulls("user_id").sort("user_id").iter_rows(named=True):
        found[row["username"]].append(row)
    return found


@dataclass(frozen=True)
class Remedy:
    """A change that would lead to another outcome: a word for programs, and a text for people.

    `events` and `days` with a logon are what the user lacks; null: none, or not known.
    """

    change: str
    text: str
    username: str | None = None
    events: int | None = None
    days: int | None = None


def remedies(
    decision: Mapping[str, Any],
    owners: Sequence[str] | None,
    *,
    candidates: Candidates,
    namesakes: Sequence[str],
    outcome: str | None,
    rules: Rules,
    fields: FieldNames,
) -> Iterator[Remedy]:
    """What would lead to another outcome for one host, by the rules as they are now.

    `owners` are those by now (None: not known, or no host asset), `outcome` that of the last write since the
    decision. `namesakes` are names in the logons, or for a name that no asset has, ids of host assets, that
    differ from the host's in the domain part only.
    """
    evidence, hostname = decision["evidence"], _shown(decision["hostname"])
    if evidence == "unreadable_asset":
        yield _corrected("host", decision["host_id"], decision["problem"])
    elif evidence == "no_hostname":
        yield Remedy("hostname", f"Give the asset a host name in {fields.hostname}.")
    elif evidence == "excluded_host":
        setting, _, value = decision["excluded_by"].partition(": ")
        yield Remedy(setting, f"Take {_shown(value)} out of rules.{setting}.")
    elif evidence == "hostname_collision":
        yield Remedy(
            "hostname_match",
            "Compare whole names (rules.hostname_match: exact), or give the hosts different short names.",
        )
    elif evidence == "no_logons":
        events, days = _needed(0, 0, 0, 0, rules)
        on_days = f" on at least {days:,} days" if days > 1 else ""
        yield Remedy(
            "more_logons",
            f"{_logons(events, 0, rules)} of one user{on_days} would make that user the owner.",
            events=events,
            days=days,
        )
    elif evidence == "not_primary_device":
        best = either(decision["primary_hostnames"] or [])
        text = f"{_shown(decision['username'])} must have more days with a logon here than on {best}"
        yield Remedy("primary_devices", f"{text}, or rules.primary_devices must be greater or null.")
    elif evidence in {"too_few_events", "no_majority"}:
        yield from _to_win(decision, candidates, rules)
    if namesakes and evidence == "no_logons":
        yield Remedy(
            "hostname",
            f"The logons know {either(namesakes)}: if that is this host, put the name into "
            f"{fields.hostname}, or compare short names (rules.hostname_match: short).",
        )
    if decision["match"] == "no_user_asset":
        yield _user_asset(decision["username"], fields)
    if decision["match"] == "ambiguous_user":
        yield from _one_candidate(decision, candidates, fields)
    if decision["action"] == "no_host":
        known = f"; host asset {either(namesakes)} has it with another domain part" if namesakes else ""
        yield Remedy("host_asset", f"There must be a host asset with {hostname} in {fields.hostname}{known}.")
    else:
        yield from _to_be_written(decision, owners, outcome, fields)


def _corrected(kind: str, asset_id: str, problem: str) -> Remedy:
    return Remedy(
        "correct_asset", f"Correct {kind} asset {_shown(asset_id)} in the inventory: {_shown(problem)}."
    )


def _to_win(decision: Mapping[str, Any], candidates: Candidates, rules: Rules) -> Iterator[Remedy]:
    """What would make one of the two foremost users the owner."""
    first, second = decision["username"], decision["runner_up_username"]
    total, events = decision["total_weight"], decision["total_events"]
    weights = {first: decision["weight"], second: decision["runner_up_weight"]}
    # On how many days the runner-up logged on is not in a decision.
    active_days = {first: decision["active_days"], second: None}
    if rules.skip_account_kinds and decision["skipped_username"]:
        rules = replace(rules, min_active_days=max(rules.min_active_days, DAYS_AFTER_SKIPPED))
    least_days = rules.min_active_days
    for username in (first, second) if second else (first,):
        lacking, days = _needed(weights[username], total, events, active_days[username], rules)
        who, besides = _stands_for(username, candidates)
        if active_days[username] is None and days < least_days > 1:
            besides = [f"logons on at least {least_days:,} days in all", *besides]
        if lacking:
            needs = " and ".join([f"needs {_logons(lacking, days, rules)}", *besides])
            text = f"{who} {needs} to become the owner."
            yield Remedy("more_logons", text, username, lacking, days or None)
        else:
            then = f", who {' and '.join(besides)} for that" if besides else ""
            text = f"By the present rules the logons name {who}{then}: run again."
            yield Remedy("run", text, username)
    without_second = events - decision["runner_up_events"] if second else events
    if second and not any(
        _needed(weights[first], total - weights[second], without_second, active_days[first], rules)
    ):
        yield Remedy(
            "exclude_users",
            f"If {_shown(second)} is no person, list it in rules.exclude_users: {_shown(first)} would win.",
            second,
        )


@lru_cache(maxsize=10_000)
def _needed(
    weight: int, total_weight: int, total_events: int, active_days: int | None, rules: Rules
) -> tuple[int, int]:
    """How many logon events a user lacks, and on how many further days they have to be."""
    row = pl.select(
        weight=weight,
        total_weight=total_weight,
        total_events=total_events,
        active_days=pl.lit(active_days, pl.Int64),
    )
    rules = replace(rules, skip_account_kinds=())
    return row.select(events=events_needed(rules), days=days_of_events_needed(rules)).row(0)


def _user_asset(username: str, fields: FieldNames) -> Remedy:
    return Remedy(
        "user_asset",
        f"Give {_shown(username)} a user asset, one with this name in {either(fields.asked)}; if it is no "
        "person, list it in rules.exclude_users.",
        username,
    )


def _one_candidate(
    decision: Mapping[str, Any], candidates: Candidates, fields: FieldNames
) -> Iterator[Remedy]:
    """All must be readable, and the field that decided must name one of them, or a field before it."""
    odd = {row["user_id"]: row["problem"] for row in candidates[decision["username"]] if row["problem"]}
    for user_id, problem in odd.items():
        yield _corrected("user", user_id, problem)
    readable = [user_id for user_id in decision["candidate_ids"] if user_id not in odd]
    if len(readable) < 2:
        return
    matched_by, username = decision["matched_by"], _shown(decision["username"])
    text = f"Remove the name {username} in {matched_by} from all but one of {either(readable)}"
    if earlier := fields.asked[: fields.asked.index(matched_by)]:
        text += f", or enter it for the right one in {either(earlier)}, which is asked first"
    yield Remedy("one_candidate", f"{text}.", decision["username"])


def _to_be_written(
    decision: Mapping[str, Any], owners: Sequence[str] | None, outcome: str | None, fields: FieldNames
) -> Iterator[Remedy]:
    """What would lead to another owner in the inventory, whatever it held when the run decided."""
    host, named = _shown(decision["host_id"]), decision["resolved_owner"]
    owner = _shown(named)
    if owners and named is None:
        yield Remedy("clear_owner", f"Clear {fields.owner} of host {host}, too: no run replaces an owner.")
    elif owners and named in owners:
        yield Remedy("set_owner", f"Set another owner in {fields.owner} by hand: no run replaces an owner.")
    elif owners:
        yield Remedy("clear_owner", f"Clear {fields.owner} of host {host}: the next run would write {owner}.")
    elif named is not None and owners is not None:
        yield Remedy("run", _AFTER.get(outcome, _NEXT_RUN_WRITES).format(owner=owner))


def _stands_for(username: str, candidates: Candidates) -> tuple[str, list[str]]:
    """Who a user name is, and what the user asset lacks for an owner, as parts of a sentence."""
    assets = [row for row in candidates[username] if row["decisive"]]
    who, user_ids = _shown(username), [row["user_id"] for row in assets]
    if unreadable := [row["user_id"] for row in assets if row["problem"]]:
        return who, [f"must not fit the unreadable {either(unreadable)}"]
    if not user_ids:
        return who, ["must have a user asset"]
    if len(user_ids) == 1:
        return f"{who} ({_shown(user_ids[0])})", []
    return who, [f"must be only one of the user assets {either(user_ids)}"]


def _logons(events: int, days: int, rules: Rules) -> str:
    of_kinds = " without a weight" if rules.logon_type_weights else ""
    more_days = f"{days:,} more day{'s' * (days != 1)}"
    if days == events:
        return f"logons{of_kinds} on {more_days}"
    on_days = f" on at least {more_days}" if days else ""
    return f"{events:,} more logon{'s' * (events != 1)}{of_kinds}{on_days}"


def _shown(name: str | None) -> str:
    return printable(name or "")
