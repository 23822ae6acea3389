"""The whole story of one host in words, from the counts to the write.

It tells what the tables hold and decides nothing itself.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

_SHOWN_USERS = 10

_EVIDENCE = {
    "no_hostname": "The asset has no host name, so no logon can be its own.",
    "excluded_host": "Host names like this are excluded (exclude_hosts).",
    "hostname_collision": "The short name stands for hosts of different domains; nobody is guessed.",
    "no_logons": "Nobody logged on in the window.",
    "too_few_events": "{total_events} is fewer logon events than min_events asks for.",
    "single_user": "{username} is the only user, with all of the logon events ({total_events}).",
    "majority": "{username} has {events} of {total_events} logon events ({share}), over "
    "{threshold_percent}%.",
    "no_majority": "No user has over {threshold_percent}% of the {total_events} logon events; "
    "{username} comes first with {events} ({share}).",
}
_MATCH = {
    "matched": "{username} is the user asset {resolved_owner}, found by {matched_by}.",
    "no_user_asset": "No user asset has the name {username}.",
    "ambiguous_user": "By {matched_by}, {username} may be any of {candidate_ids}; nobody is guessed.",
}
_ACTION = {
    "write": "The host had no owner, so {resolved_owner} is to be written.",
    "agree": "The host has that owner already ({existing_owner}); nothing to do.",
    "conflict": "The host has another owner ({existing_owner}), who stays: a conflict.",
    "keep": "The host keeps its owner {existing_owner}.",
    "none": "The host stays without an owner.",
    "no_host": "No host asset has this name, so there is nothing to write to.",
}
_OUTCOME = {
    "planned": "Planned, not written",
    "intended": "Begun, outcome not known yet",
    "written": "Written",
    "owned_meanwhile": "Not written, the host had got an owner meanwhile",
    "failed": "Refused by the service",
    "not_written": "Not written, the run ended before",
    "undone": "Written and undone",
}


def explain_host(
    hostname: str,
    *,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    writes: pl.DataFrame,
) -> str:
    """Tell how the owner of one host was decided, and what was written.

    Control and direction characters in names are shown as escapes.

    Args:
        hostname: Folded host name.
        decisions: The host's rows of `owner_decisions`, one for each asset that bears the name.
        shares: Rows of `host_user_shares` for all names of these assets.
        matches: Rows of `username_matches` for the users who lead these decisions.
        writes: The host's rows of `owner_writes`.

    Returns:
        Lines of text; a sentence that says so when there is no decision.
    """
    if decisions.is_empty():
        return f"{_shown(hostname)}: the last decisions know no such host, in the inventory or in the logons."
    lines = [_shown(hostname)]
    for (name,), users in shares.group_by("hostname", maintain_order=True):
        lines += [
            "",
            f"Logon events on {_shown(name)}, {users['total_events'][0]} in all:",
            *_users_table(users),
        ]
    for decision in decisions.iter_rows(named=True):
        lines += ["", *_decision(decision, matches)]
        of_asset = writes.filter(pl.col("host_id") == pl.lit(decision["host_id"], pl.String))
        lines += [_write(write) for write in of_asset.iter_rows(named=True)]
    return "\n".join(lines)


def _users_table(users: pl.DataFrame) -> Iterator[str]:
    rows = [("user", "events", "share", "first seen", "last seen", "spelled")]
    rows += [
        (
            _shown(user["username"]),
            str(user["events"]),
            f"{user['share']:.1%}",
            str(user["first_seen"]),
            str(user["last_seen"]),
            _shown(user["username_spellings"]),
        )
        for user in users.head(_SHOWN_USERS).iter_rows(named=True)
    ]
    width, *_ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, events, share, first, last, spelled in rows:
        yield f"  {name:<{width}}  {events:>8}  {share:>6}  {first:<10}  {last:<10}  {spelled}"
    if users.height > _SHOWN_USERS:
        yield f"  and {users.height - _SHOWN_USERS} more users"


def _decision(decision: Mapping[str, Any], matches: pl.DataFrame) -> Iterator[str]:
    values = {name: _shown(value) for name, value in decision.items()}
    if decision["share"] is not None:
        values["share"] = f"{decision['share']:.1%}"
    subject = "No host asset" if decision["host_id"] is None else f"Host asset {values['host_id']}"
    yield (
        f"{subject}, window {decision['window_from']} to {decision['window_to']}, "
        f"decided {_instant(decision['decided_at'])} by run {values['run_id']}:"
    )
    yield "  " + _EVIDENCE[decision["evidence"]].format(**values)
    if decision["match"]:
        yield "  " + _MATCH[decision["match"]].format(**values)
        later = matches.filter(~pl.col("decisive"), username=decision["username"]).drop_nulls("user_id")
        for (field,), users in later.group_by("matched_by", maintain_order=True):
            yield f"  Not asked any more: {_shown(field)}, which says {_shown(users['user_id'].to_list())}."
    yield "  " + _ACTION[decision["action"]].format(**values)


def _write(write: Mapping[str, Any]) -> str:
    old, new = write["old_values"], write["new_values"]
    fields = ", ".join(
        f"{name} {_shown(value)}" + (f" (before: {_shown(old[name])})" if old[name] else "")
        for name, value in new.items()
        if value is not None
    )
    when = _instant(write["completed_at"] or write["intended_at"])
    said = f" ({_shown(write['message'])})" if write["message"] else ""
    return f"  {_OUTCOME[write['outcome']]}, {when}, run {_shown(write['run_id'])}: {fields}{said}."


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def _shown(value: object) -> str:
    """Text that cannot act on a terminal: what does not print is escaped."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
