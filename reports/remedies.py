"""What would change the outcome for a host: how many logons, which user asset, which setting.

All counts are for the window that was decided on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ownership.matching import FieldNames, people_by_account
from ownership.names import printable
from ownership.rules import Rules, events_needed, further_days_needed
from reports.sentences import either, person

_TO_WIN = {"no_logons", "too_few_events", "no_majority"}
_ADVICE: Mapping[str, str] = {
    "unreadable_asset": "Correct host asset {host_id} in the inventory: {problem}.",
    "no_hostname": "Give the asset a host name in {hostname_field}.",
    "excluded_host": "Remove from the instance file what excludes the host (rules.{excluded_by}).",
    "hostname_collision": "Compare whole names (rules.hostname_match: exact), or give the hosts different "
    "short names.",
    "not_primary_device": "{username} must have more days with a logon here than on {primary_hostnames}, or "
    "rules.primary_devices must be greater or null.",
    "idle_user": "{username} must log on to the host again, or rules.max_idle_days must be greater or null.",
    "low_confidence": "{username} must be on the host on more days, and others on fewer; or "
    "rules.min_confidence must be lower.",
    "no_user_asset": "Give {username} a user asset, one with this name in {user_fields}; if it is not a "
    "person, list it in rules.exclude_users.",
    "no_host": "There must be a host asset with {hostname} in {hostname_field}.",
}
"""By the code of evidence, match or action."""
_NEXT_RUN_WRITES = "The next run that may write sets {owner}."
_AFTER: Mapping[str, str] = {
    "intended": "The next run finds out whether {owner} was written.",
    "failed": "Correct what the service complained about; the next run tries again.",
    "owned_meanwhile": "The next run compares {owner} with the owner that the host has now.",
    "undone": "The next run writes {owner} again, unless rules.exclude_hosts names the host.",
}
"""By the outcome of the last write."""


def problems_of(users: pl.DataFrame) -> dict[str, str]:
    """Why user assets cannot be read, by id."""
    return dict(users.drop_nulls("problem").select("user_id", "problem").iter_rows())


def accounts_of(users: pl.DataFrame, fields: FieldNames) -> dict[str, str]:
    """The user asset for which each e-mail and account name stands, where it is one."""
    return dict(people_by_account(users, user_value_field=fields.decisive).iter_rows())


def with_needs(decisions: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Add what the primary user of each host lacks to be named, by the rules as they are now.

    needed_events, needed_days (further ones, on which these have to be), wins_without_runner_up.
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
    needed = {"needed_events": events_needed(rules), "needed_days": further_days_needed(rules)}
    wins = pl.sum_horizontal(needed.values(), ignore_nulls=False) == 0
    return decisions.hstack(asked.select(**needed)).hstack(without.select(wins_without_runner_up=wins))


def remedies(
    decision: Mapping[str, Any],
    owners: Sequence[str] | None,
    *,
    problems: Mapping[str, str],
    accounts: Mapping[str, str],
    name_of: Mapping[str, str],
    outcome: str | None,
    rules: Rules,
    fields: FieldNames,
) -> Iterator[str]:
    """What would lead to another outcome for one host, by the rules as they are now.

    `decision` is a row of `with_needs`, `owners` are the present ones (None: not known, or no host asset),
    `outcome` is that of the last write since the decision, `problems` are those of `problems_of`, `accounts`
    those of `accounts_of`, `name_of` has names of user assets.
    """
    names = ("host_id", "hostname", "username", "problem", "excluded_by")
    values = {name: printable(decision[name] or "") for name in names} | {
        "hostname_field": fields.hostname,
        "user_fields": either(fields.asked),
        "primary_hostnames": either(decision["primary_hostnames"] or ()),
    }
    for code in (decision["evidence"], decision["match"], decision["action"]):
        if code in _ADVICE:
            yield _ADVICE[code].format_map(values)
    if decision["evidence"] in _TO_WIN:
        yield from _to_win(decision, rules, accounts)
    if decision["match"] == "ambiguous_user":
        yield from _one_candidate(decision, problems, fields)
    yield from _to_be_written(decision, owners, name_of, outcome, fields)


def _to_win(decision: Mapping[str, Any], rules: Rules, accounts: Mapping[str, str]) -> Iterator[str]:
    """What would make the primary user the one whom the logons name."""
    who, second = printable(decision["username"] or "One user"), decision["runner_up_username"]
    if decision["needed_events"]:
        needed = _logons(decision["needed_events"], decision["needed_days"], rules)
        yield f"{who} would be named as the owner with {needed}."
    else:
        yield f"By the present rules the logons name {who}: run again."
    user_id = accounts.get(decision["username"] or "")
    if user_id and user_id == accounts.get(second or "") and not rules.unite_accounts:
        one = f"{who} and {printable(second)} are accounts of one person ({printable(user_id)})"
        yield f"{one}: with rules.unite_accounts they count as one user."
    elif second and decision["wins_without_runner_up"]:
        other = f"If {printable(second)} is not a person, list it in rules.exclude_users"
        yield f"{other}: {who} would get the host."


def _logons(events: int, days: int, rules: Rules) -> str:
    of_kinds = " without a weight" if rules.logon_type_weights else ""
    on_days = f" on at least {days:,} more day{'s' * (days != 1)}" if days else ""
    return f"{events:,} more logon{'s' * (events != 1)}{of_kinds}{on_days}"


def _one_candidate(
    decision: Mapping[str, Any], problems: Mapping[str, str], fields: FieldNames
) -> Iterator[str]:
    """All must be readable, and the fields that decided must name one of them, or a field before them."""
    candidates, matched_by = decision["candidate_ids"], decision["matched_by"]
    for user_id in candidates:
        if user_id in problems:
            problem = printable(problems[user_id])
            yield f"Correct user asset {printable(user_id)} in the inventory: {problem}."
    readable = [user_id for user_id in candidates if user_id not in problems]
    if len(readable) > 1:
        at = next(number for number, turn in enumerate(fields.turns) if matched_by in turn)
        name, earlier = printable(decision["username"]), [one for turn in fields.turns[:at] for one in turn]
        text = f"Remove the name {name} in {either(fields.turns[at])} from all but one of {either(readable)}"
        instead = f", or enter it for the right one in {either(earlier)}, which is asked first"
        choose = ", or write in platform_user_value_field which field is right"
        yield f"{text}{instead if earlier else choose if not fields.decisive else ''}."


def _to_be_written(
    decision: Mapping[str, Any],
    owners: Sequence[str] | None,
    name_of: Mapping[str, str],
    outcome: str | None,
    fields: FieldNames,
) -> Iterator[str]:
    """What would lead to another owner in the inventory, whatever it held when the run decided."""
    named = decision["resolved_owner"]
    owner = person(named, name_of) if named else ""
    if owners and named in owners:
        yield f"To change the owner, set it in the inventory ({fields.owner}): no run replaces an owner."
    elif owners:
        then = f"the next run would write {owner}" if named else "no run replaces an owner"
        host = f"{printable(decision['hostname'] or 'the host')} ({printable(decision['host_id'] or '')})"
        yield f"Clear {fields.owner} of {host} in the inventory: {then}."
    elif named and owners is not None:
        yield _AFTER.get(outcome or "", _NEXT_RUN_WRITES).format(owner=owner)
