"""The whole story of one host, from the counts to the write: as plain values, and in words.

It tells what the tables hold and decides nothing itself; `remedies` says what would change the outcome.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import polars as pl

from ownership.codes import EVIDENCE
from ownership.coverage import current_owners
from ownership.names import normalise_hostname, printable
from ownership.rules import Rules
from ownership.shares import ranked
from reports.remedies import FieldNames, remedies
from reports.sentences import either, instant, names_of, ownership_sentence, persons, time_of

_SHOWN_USERS = 10
MAX_COMPARED = 20_000

_EVIDENCE = {
    **EVIDENCE,
    "unreadable_asset": "The asset cannot be read: {problem}.",
    "excluded_host": "The host is left out by {excluded_by}.",
    "too_few_events": "{too_few}.",
    "single_user": "{username} is the only user, with all of the logon events ({total_events}).",
    "majority": "{username} has {own} of {total} {units} ({share}), over {threshold_percent}%.",
    "no_majority": "No user has over {threshold_percent}% of the {total} {units}; "
    "{username} comes first with {own} ({share}).",
}
_TOO_FEW = {
    "min_events": "{total_events} is fewer logon events than min_events asks for",
    "min_active_days": "{active_days} is fewer days with a logon of {username} than min_active_days asks for",
}
_TOO_FEW_THEN = (
    "{total_events} logon events, with those of {username} on {active_days} day{s}, were fewer than "
    "min_events or min_active_days asked for"
)
"""Where neither setting asks for more by now, so that one of them was changed since."""
_UNITS = {
    "events": "logon events",
    "days": "days on which a user logged on",
}
_MATCH = {
    "matched": "{username} is the user asset {resolved_owner}, found by {matched_by}.",
    "no_user_asset": "No user asset has the name {username}.",
    "ambiguous_user": "By {matched_by}, {username} may be any of {candidate_ids}; none is chosen.",
}
_ODD_USER = "{username} fits the user asset {user_id}, which cannot be read ({problem}); none is chosen."
_ACTION = {
    "write": "The host had no owner, so {resolved_owner} was to be written.",
    "agree": "The host had that owner already ({existing_owner}); there was nothing to do.",
    "conflict": "The host had another owner ({existing_owner}), who stayed: a conflict.",
    "keep": "The host kept its owner {existing_owner}.",
    "none": "The host stayed without an owner.",
    "no_host": "No host asset has this name, so there is nothing to write to.",
}
_LEFT_ALONE = "Nothing is written to an asset that cannot be read."
_OUTCOME = {
    "planned": "Planned, not written",
    "intended": "Begun, outcome not known yet",
    "written": "Written",
    "owned_meanwhile": "Not written",
    "failed": "Refused by the service",
    "not_written": "Not written",
    "undone": "Put back",
}
_NOT_SENT = {
    "owned_meanwhile": "the host had an owner by then",
    "not_written": "the run ended before",
}
"""Why nothing was sent, where the row does not say so itself."""
_SHOWN_WRITES = 5


def host_explanation(
    hostname: str,
    *,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame,
    rules: Rules,
    fields: FieldNames,
    known: Sequence[str] = (),
) -> dict[str, Any]:
    """Gather how the owner of one host was decided, what was written, and what would change the outcome.

    Args:
        hostname: What the host was asked for by: its normalised name, or the id of its asset.
        decisions: The host's rows of `owner_decisions`, one for each asset that bears the name.
        shares: Rows of `host_user_shares` for all names of these assets, and for names that differ from them
            in the domain part only.
        matches: Rows of `username_matches` for the users of these shares.
        hosts: Rows of `inventory_hosts` of these assets, and of those whose names differ from them in the
            domain part only.
        users: Rows of `inventory_users` of the candidates and of the owners of these assets.
        writes: Rows of `owner_writes` of these assets, the oldest first.
        rules: The instance's rules.
        fields: The instance's field names.
        known: All names and ids of hosts, for one that is not known.

    Returns:
        hostname, similar (known names that differ from it in the domain part only), near (known names and ids
        that look like one that is not known) and decisions, a list that is empty when the host is not known.
        Each has the columns of `owner_decisions`, and hostnames (as compared), users (most events first, each
        with user_assets), too_few (the settings that ask for more logons than there are), host_asset and
        user_assets (as the inventory held them), writes, what_would_change, summary (one sentence) and now
        (what the host holds by now, as far as is known).
    """
    frames = (shares, matches, hosts, users, writes)
    names = pl.concat([hosts.select(hostname="hostnames").explode("hostname"), shares.select("hostname")])
    similar = names.filter(_short(pl.col("hostname")).is_in(_normalised([hostname], short=True)))["hostname"]
    return {
        "hostname": hostname,
        "similar": sorted({*_normalised(similar.to_list())} - {hostname}),
        "near": near_names(hostname, known) if decisions.is_empty() else [],
        "decisions": [
            _decision_explanation(decision, *frames, rules, fields)
            for decision in decisions.iter_rows(named=True)
        ],
    }


def near_names(name: str, known: Sequence[str]) -> list[str]:
    """At most three known names that look most like a name, the nearest first."""
    # To compare takes a while: of very many names only those are compared that begin or end alike.
    alike = [each for each in known if abs(len(each) - len(name)) <= 3]
    if len(alike) > MAX_COMPARED:
        alike = [each for each in alike if each[:3] == name[:3] or each[-3:] == name[-3:]][:MAX_COMPARED]
    return difflib.get_close_matches(name, dict.fromkeys(alike), n=3, cutoff=0.75)


def in_words(story: Mapping[str, Any]) -> str:
    """Tell what `host_explanation` gathered, in lines of text: first what came of it, last what holds now.

    Control and direction characters in names are shown as escapes.
    """
    if not story["decisions"] and story.get("left_out_by"):
        return (
            f"{_shown(story['hostname'])}: rules.exclude_users ({_shown(story['left_out_by'])}) leaves user "
            "names like this out: their logons do not count."
        )
    if not story["decisions"]:
        similar = f" They know {_shown(story['similar'])}." if story["similar"] else ""
        near = "" if similar or not story["near"] else f" Did you mean {either(story['near'])}?"
        return (
            f"{_shown(story['hostname'])}: neither the inventory nor the logons know such a host or person."
            f"{similar}{near}"
        )
    lines, shown = [decision["summary"] for decision in story["decisions"]], []
    for decision in story["decisions"]:
        if decision["users"] and decision["hostnames"] not in shown:
            lines += ["", *_users_table(decision)]
            shown.append(decision["hostnames"])
        lines += ["", *_decision(decision), f"  {_now(decision)}"]
    return "\n".join(lines)


def _decision_explanation(
    decision: Mapping[str, Any],
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame,
    rules: Rules,
    fields: FieldNames,
) -> dict[str, Any]:
    is_asset = pl.col("host_id") == pl.lit(decision["host_id"], pl.String)
    asset = next(hosts.filter(is_asset).iter_rows(named=True), None)
    names = asset["hostnames"] or [] if asset else [decision["hostname"]]
    compared = _normalised(names, short=rules.short_hostnames)
    on_host = shares.filter(pl.col("hostname").is_in(compared))
    of_asset = writes.filter(is_asset)
    since = of_asset.filter(pl.coalesce("completed_at", "intended_at") >= decision["decided_at"])
    people = dict.fromkeys([*decision["candidate_ids"], *(asset["owner_ids"] or () if asset else ())])
    now = _state(hosts.filter(is_asset), of_asset)
    changes = remedies(
        decision,
        None if now is None else now["owner"],
        matches=matches,
        full_names=_normalised([*names, *on_host["hostname_spellings"].explode().drop_nulls()]),
        namesakes=_namesakes(decision, compared, shares, hosts),
        outcome=next(reversed(since["outcome"].to_list()), None),
        rules=rules,
        fields=fields,
    )
    name_of = names_of(users.iter_rows(named=True))
    return {
        **decision,
        "hostnames": compared,
        "users": _users(on_host, matches),
        "too_few": _too_few(decision, rules),
        "host_asset": asset,
        "user_assets": [_user_asset(user_id, users, fields) for user_id in people],
        "writes": of_asset.to_dicts(),
        "what_would_change": [asdict(change) for change in changes],
        "summary": ownership_sentence(decision, of_asset, now, name_of),
        "now": now,
        "owner_now": None if now is None else persons(now["owner"], name_of),
    }


def _too_few(decision: Mapping[str, Any], rules: Rules) -> list[str]:
    """The settings that ask for more logons than a host had; none where they do so no more."""
    if decision["evidence"] != "too_few_events":
        return []
    days = decision["active_days"]
    if days is None:  # decided by a version before 0.3.0, which asked for events only
        return ["min_events"]
    asks = {
        "min_events": decision["total_events"] < rules.min_events,
        "min_active_days": days < rules.min_active_days,
    }
    return [setting for setting, for_more in asks.items() if for_more]


def _state(asset: pl.DataFrame, writes: pl.DataFrame) -> dict[str, Any] | None:
    """What a host holds by now: of its owners, the ids; None: no such host."""
    now = current_owners(asset, writes.lazy()).select("department", "criticality", owner="owner_ids")
    state = next(now.iter_rows(named=True), None)
    if state and writes.height:
        last = writes.row(-1, named=True)  # what a look before a write saw is newer than the list
        seen = last["outcome"] == "owned_meanwhile" and last["old_values"]["owner"]
        if seen and time_of(last) >= asset["listed_at"].item():
            state["owner"] = seen.split(",")
    return state


def _now(decision: Mapping[str, Any]) -> str:
    now = decision["now"]
    if now is None:
        return "Now: the inventory has no such host."
    listed = instant(decision["host_asset"]["listed_at"])
    owner = "owner not known" if now["owner"] is None else f"owner {decision['owner_now'] or 'none'}"
    others = (f"{field} {_shown(now[field] or 'none')}" for field in ("department", "criticality"))
    return f"Now: {', '.join([owner, *others])} (as listed {listed}, and as written from here since)."


def _users(on_host: pl.DataFrame, matches: pl.DataFrame) -> list[dict[str, Any]]:
    """The users under all names of a host, the leader first, each with the user assets it may stand for."""
    together = (
        on_host.lazy()
        .group_by("username")
        .agg(
            pl.sum("events"),
            pl.coalesce("weight", "events").sum(),
            pl.min("first_seen"),
            pl.max("last_seen"),
            pl.col("username_spellings").explode().unique().sort(),
            host=pl.lit(0),
        )
    )
    known = (
        matches.lazy()
        .drop_nulls("user_id")
        .group_by("username")
        .agg(user_assets=pl.struct("user_id", "matched_by", "decisive", "problem"))
    )
    columns = ("username", "events", "share", "first_seen", "last_seen", "username_spellings")
    return (
        ranked(together, by="host")
        .join(known, on="username", how="left", maintain_order="left")
        .select(*columns, pl.col("user_assets").fill_null([]))
        .collect()
        .to_dicts()
    )


def _user_asset(user_id: str, users: pl.DataFrame, fields: FieldNames) -> dict[str, Any]:
    """A user asset as the inventory held it, by the names of its fields."""
    row = next(users.filter(user_id=user_id).iter_rows(named=True), None)
    if row is None:
        return {"user_id": user_id, "in_inventory": False}
    names = {field: row["user_value" if field == fields.user_value else field] for field in fields.asked}
    others = {field: row[field] for field in ("user_department", "criticality", "problem")}
    return {"user_id": user_id, "in_inventory": True} | names | others


def _namesakes(
    decision: Mapping[str, Any], compared: Sequence[str], shares: pl.DataFrame, hosts: pl.DataFrame
) -> list[str]:
    """Names in the logons, or for a name that no asset has assets, that differ in the domain part only."""
    shortened = _short(pl.col("hostname")).is_in(_normalised(compared, short=True))
    if decision["host_id"] is None:
        named = hosts.select(pl.col("host_id").alias("known"), hostname="hostnames").explode("hostname")
    else:
        named = shares.select("hostname", known="hostname").filter(~pl.col("hostname").is_in(compared))
    return named.filter(shortened)["known"].unique().sort().to_list()


def _short(hostname: pl.Expr) -> pl.Expr:
    return normalise_hostname(hostname, short=True)


def _normalised(names: Sequence[str], *, short: bool = False) -> list[str]:
    series = pl.Series("name", names, dtype=pl.String).to_frame()
    normalised = series.select(
        normalise_hostname(pl.col("name"), short=short).drop_nulls().unique(maintain_order=True)
    )
    return normalised["name"].to_list()


def _users_table(decision: Mapping[str, Any]) -> Iterator[str]:
    users, threshold = decision["users"], decision["threshold_percent"]
    total = sum(user["events"] for user in users)
    by_events = decision["evidence_metric"] in {None, "events"} and not decision["logon_type_weights"]
    enough = f"; more than {threshold}% is {threshold * total // 100 + 1} or more" if by_events else ""
    yield f"Logon events on {_shown(decision['hostnames'])}, {total} in all{enough}:"
    rows = [("user", "events", "share", "first seen", "last seen", "user asset", "spelled")]
    rows += [
        (
            _shown(user["username"]),
            str(user["events"]),
            f"{user['share']:.1%}",
            str(user["first_seen"]),
            str(user["last_seen"]),
            _stands_for(user["user_assets"]),
            _shown(user["username_spellings"]),
        )
        for user in users[:_SHOWN_USERS]
    ]
    name_width, *_, asset_width, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, events, share, first, last, asset, spelled in rows:
        yield (
            f"  {name:<{name_width}}  {events:>8}  {share:>6}  {first:<10}  {last:<10}  "
            f"{asset:<{asset_width}}  {spelled}"
        )
    if len(users) > _SHOWN_USERS:
        yield f"  and {len(users) - _SHOWN_USERS} more users"


def _stands_for(user_assets: Sequence[Mapping[str, Any]]) -> str:
    decisive = [asset for asset in user_assets if asset["decisive"]]
    if not decisive:
        return "none"
    ids = " or ".join(
        _shown(asset["user_id"]) + (" (unreadable)" if asset["problem"] else "") for asset in decisive
    )
    return f"{ids} by {decisive[0]['matched_by']}"


def _decision(decision: Mapping[str, Any]) -> Iterator[str]:
    values = {name: _shown(value) for name, value in decision.items()}
    values["excluded_by"] = _shown(decision["excluded_by"] or "exclude_hosts")
    too_few = [_TOO_FEW[setting] for setting in decision["too_few"]] or [_TOO_FEW_THEN]
    values["too_few"] = "; ".join(too_few).format(s="s" * (decision["active_days"] != 1), **values)
    if decision["share"] is not None:
        values["share"] = f"{decision['share']:.1%}"
        metric = decision["evidence_metric"] or "events"
        own, total = ("weight", "total_weight") if metric == "days" else ("events", "total_events")
        units = _UNITS[metric] + (", weighed by kind of logon" if decision["logon_type_weights"] else "")
        values |= {"own": values[own], "total": values[total], "units": units}
    subject = "No host asset" if decision["host_id"] is None else f"Host asset {values['host_id']}"
    yield (
        f"{subject}, window {decision['window_from']} to {decision['window_to']}, "
        f"decided {instant(decision['decided_at'])} by run {values['run_id']}:"
    )
    yield "  " + _EVIDENCE[decision["evidence"]].format(**values)
    if decision["logon_type_weights"]:
        yield f"  Weights by kind of logon: {values['logon_type_weights']}; all others 1."
    if decision["match"]:
        odd = list(_odd_candidates(decision))
        if not odd or len(decision["candidate_ids"]) > 1:
            yield "  " + _MATCH[decision["match"]].format(**values)
        yield from odd
        yield from _later_fields(decision)
    yield "  " + (_LEFT_ALONE if decision["problem"] else _ACTION[decision["action"]]).format(**values)
    yield from _writes(decision["writes"])
    yield from _inventory(decision)
    yield "  What would change that:"
    yield from (f"  - {change['text']}" for change in decision["what_would_change"])


def _odd_candidates(decision: Mapping[str, Any]) -> Iterator[str]:
    """The user assets that make the name ambiguous because they cannot be read whole."""
    for asset in _assets_of(decision):
        if asset["problem"]:
            values = {name: _shown(asset[name]) for name in ("user_id", "problem")}
            yield "  " + _ODD_USER.format(username=_shown(decision["username"]), **values)


def _assets_of(decision: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The user assets that the host's leading user may stand for."""
    for user in decision["users"]:
        if user["username"] == decision["username"]:
            yield from user["user_assets"]


def _later_fields(decision: Mapping[str, Any]) -> Iterator[str]:
    """What fields say that were not asked, because one before them knew the name."""
    later: dict[str, list[str]] = {}
    for asset in _assets_of(decision):
        if not asset["decisive"]:
            later.setdefault(asset["matched_by"], []).append(asset["user_id"])
    for field, ids in later.items():
        yield f"  Not asked any more: {field}, which says {_shown(ids)}."


def _writes(writes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What runs did to the host; the same again and again is told once, with the last of them.

    What sent nothing is told where nothing followed.
    """
    kept = [write for write in writes if write["outcome"] not in {"planned", *_NOT_SENT}]
    if writes and writes[-1] not in kept:
        kept.append(writes[-1])
    told = []
    for _, alike in groupby(kept, lambda write: (write["outcome"], write["new_values"], write["message"])):
        first, *_ = repeated = list(alike)
        again = f", {len(repeated)} times since {instant(time_of(first))}" if len(repeated) > 1 else ""
        told.append(_write(repeated[-1], again))
    if len(told) > _SHOWN_WRITES:
        earlier = len(told) - _SHOWN_WRITES
        yield f"  {earlier:,} earlier write{'s' * (earlier != 1)}; --json has all"
    yield from told[-_SHOWN_WRITES:]


def _write(write: Mapping[str, Any], again: str) -> str:
    begin = f"  {_OUTCOME[write['outcome']]}, {instant(time_of(write))}, run {_shown(write['run_id'])}{again}"
    if write["outcome"] in _NOT_SENT:
        return f"{begin}: {_shown(write['message'] or _NOT_SENT[write['outcome']])}."
    old, new = write["old_values"], write["new_values"]
    fields = ", ".join(
        f"{name} {_shown(value) if value else 'cleared'}"
        + (f" (before: {_shown(old[name])})" if old[name] else "")
        for name, value in new.items()
        if value is not None and value != (old[name] or "")
    )
    said = f" ({_shown(write['message'])})" if write["message"] else ""
    return f"{begin}: {fields or 'nothing changed'}{said}."


def _inventory(decision: Mapping[str, Any]) -> Iterator[str]:
    """What the inventory held about the host and the user assets in question."""
    host = decision["host_asset"]
    if host or decision["user_assets"]:
        yield "  The inventory held" + (f", {instant(host['listed_at'])}:" if host else ":")
    if host:
        held = {
            "host name": host["hostnames"],
            "owner": host["owner_ids"],
            "department": host["department"],
            "criticality": host["criticality"],
        }
        none = "no {} that can be read" if host["problem"] else "no {}"
        values = (f"{name} {_shown(value)}" if value else none.format(name) for name, value in held.items())
        yield f"  - host {_shown(host['host_id'])}: {', '.join(values)}"
    for asset in decision["user_assets"]:
        values = (
            f"{name} {_shown(value)}"
            for name, value in asset.items()
            if value and name not in {"user_id", "in_inventory", "problem"}
        )
        held = ", ".join(values) if asset["in_inventory"] else "no such user asset"
        yield f"  - user {_shown(asset['user_id'])}: {held}"


def _shown(value: object) -> str:
    """Text that cannot act on a terminal."""
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))
