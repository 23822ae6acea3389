"""The whole story of one host, from the counts to the write: as plain values, and in words.

Nothing is decided here; `remedies` says what would change the outcome.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl
from rapidfuzz import fuzz, process

from ownership.codes import ACTION, EVIDENCE, MATCH, OUTCOME
from ownership.coverage import current_owners
from ownership.matching import FieldNames
from ownership.names import normalise_hostname, printable
from ownership.rules import DAYS_AFTER_SKIPPED, Rules, least_majority, too_few
from ownership.shares import ranked
from ownership.windows import Window
from reports.remedies import candidates_of, remedies
from reports.sentences import either, in_columns, instant, names_of, ownership_sentence, persons, time_of

_SHOWN_USERS = 10
_SHOWN_WRITES = 5
_NOTHING_SENT = {"planned", "not_written", "owned_meanwhile"}
_NO_FIELDS = {"user_id", "in_inventory", "problem"}


def host_explanation(
    hostname: str,
    *,
    decisions: pl.DataFrame,
    shares: pl.DataFrame,
    matches: pl.DataFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    writes: pl.DataFrame,
    window: Window,
    decided_by: Rules,
    rules: Rules,
    fields: FieldNames,
    known: Sequence[str] = (),
) -> dict[str, Any]:
    """Gather how the owner of one host was decided, what was written, and what would change the outcome.

    `hostname` is what was asked for: a normalised name, or the id of an asset. `decisions` and `writes` (the
    oldest first) are the rows of its assets; `shares` and `hosts` those of all their names, and of names that
    differ in the domain part only; `matches` those of these users; `users` the candidates and owners; `known`
    all names and ids of hosts. `window` and `decided_by` are the run's, `rules` those of now.

    The values are hostname, similar (names that differ in the domain part only), near (names like one that
    is not known) and decisions: with the columns of `owner_decisions`, the run's window_from, window_to and
    rules, hostnames (as compared), users (most events first, with user_assets), too_few (the settings that
    ask for more logons), host_asset and user_assets, writes, what_would_change, summary and now.
    """
    frames = (shares, matches, hosts, users, writes)
    run = {"window_from": window.first, "window_to": window.last, "rules": json.loads(decided_by.as_json())}
    names = pl.concat([hosts.select(hostname="hostnames").explode("hostname"), shares.select("hostname")])
    similar = names.filter(_short(pl.col("hostname")).is_in(_normalised([hostname], short=True)))["hostname"]
    return {
        "hostname": hostname,
        "similar": sorted({*_normalised(similar.to_list())} - {hostname}),
        "near": near_names(hostname, known) if decisions.is_empty() else [],
        "decisions": [
            run | _decision_explanation(decision, *frames, rules, fields)
            for decision in decisions.iter_rows(named=True)
        ],
    }


def near_names(name: str, known: Sequence[str]) -> list[str]:
    """At most three known names that look most like a name, the nearest first."""
    near = process.extract(name, [*dict.fromkeys(known)], scorer=fuzz.ratio, limit=3, score_cutoff=75)
    return [found for found, *_ in near]


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
    matches = matches.filter(pl.col("username").is_in(on_host["username"].implode()))
    of_asset = writes.filter(is_asset)
    since = of_asset.filter(pl.coalesce("completed_at", "intended_at") >= decision["decided_at"])
    people = dict.fromkeys([*decision["candidate_ids"], *(asset["owner_ids"] or () if asset else ())])
    now = _state(hosts.filter(is_asset), of_asset)
    changes = remedies(
        decision,
        None if now is None else now["owner"],
        candidates=candidates_of(matches),
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
    """The settings that ask for more logons than a host had; none where they are met by now."""
    if decision["evidence"] != "too_few_events":
        return []
    counts = pl.DataFrame(
        {name: [decision[name]] for name in ("total_events", "active_days", "skipped_username")}
    )
    asks = counts.select(**too_few(rules)).row(0, named=True)
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


def _users(on_host: pl.DataFrame, matches: pl.DataFrame) -> list[dict[str, Any]]:
    """The users under all names of a host, the leader first, each with the user assets it may stand for."""
    together = (
        on_host.lazy()
        .group_by("username")
        .agg(
            pl.sum("events"),
            pl.sum("weight"),
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


def in_words(story: Mapping[str, Any]) -> str:
    """Put what `host_explanation` gathered into lines of text: first what came of it, last what holds now.

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
        lines += ["", *_decision(decision)]
    return "\n".join(lines)


def _users_table(decision: Mapping[str, Any]) -> Iterator[str]:
    users, rules = decision["users"], decision["rules"]
    threshold, total = rules["share_threshold_percent"], sum(user["events"] for user in users)
    by_events = rules["evidence_metric"] == "events" and not rules["logon_type_weights"]
    enough = f"; more than {threshold}% is {least_majority(threshold, total)} or more" if by_events else ""
    yield f"Logon events on {_shown(decision['hostnames'])}, {total} in all{enough}:"
    heads = ("user", "events", "share", "first seen", "last seen", "user asset", "spelled")
    rows = [
        (
            _shown(user["username"]),
            f"{user['events']:>6}",
            f"{user['share']:>6.1%}",
            str(user["first_seen"]),
            str(user["last_seen"]),
            _stands_for(user["user_assets"]),
            _shown(user["username_spellings"]),
        )
        for user in users[:_SHOWN_USERS]
    ]
    yield from in_columns([heads, *rows])
    if len(users) > _SHOWN_USERS:
        yield f"  and {len(users) - _SHOWN_USERS} more users"


def _stands_for(user_assets: Sequence[Mapping[str, Any]]) -> str:
    decisive = [asset for asset in user_assets if asset["decisive"]]
    if not decisive:
        return "none"
    ids = (asset["user_id"] + (" (unreadable)" if asset["problem"] else "") for asset in decisive)
    return f"{either(ids)} by {decisive[0]['matched_by']}"


def _decision(decision: Mapping[str, Any]) -> Iterator[str]:
    subject = "No host asset" if decision["host_id"] is None else f"Host asset {_shown(decision['host_id'])}"
    yield (
        f"{subject}, window {decision['window_from']} to {decision['window_to']}, "
        f"decided {instant(decision['decided_at'])} by run {_shown(decision['run_id'])}:"
    )
    yield f"  {EVIDENCE[decision['evidence']]}{_detail(decision)}"
    if decision["match"]:
        owners = decision["candidate_ids"]
        by = f" ({either(owners)}, by {decision['matched_by']})" if owners else ""
        yield f"  {MATCH[decision['match']]}{by}"
    existing = f" ({_shown(decision['existing_owner'])})" if decision["existing_owner"] else ""
    yield f"  {ACTION[decision['action']]}{existing}"
    yield from _writes(decision["writes"])
    yield from _inventory(decision)
    yield "  What would change that:"
    yield from (f"  - {change['text']}" for change in decision["what_would_change"])
    yield f"  {_now(decision)}"


def _detail(decision: Mapping[str, Any]) -> str:
    """The values behind the sentence on the evidence."""
    if decision["problem"] or decision["excluded_by"]:
        return f" ({_shown(decision['problem'] or decision['excluded_by'])})"
    if decision["share"] is None:
        return ""
    rules = decision["rules"]
    days = rules["evidence_metric"] == "days"
    own, total = (
        decision[name] for name in (("weight", "total_weight") if days else ("events", "total_events"))
    )
    weights = ", ".join(f"{kind}: {weight}" for kind, weight in rules["logon_type_weights"].items())
    weighed = f", weighed by kind of logon ({_shown(weights)}; all others 1)" if weights else ""
    asked = "".join(
        f", {name} {rules[name]}" for name in ("min_events", "min_active_days") if name in decision["too_few"]
    )
    if "skip_account_kinds" in decision["too_few"]:
        skipped = _shown(decision["skipped_username"])
        asked += (
            f", {DAYS_AFTER_SKIPPED} active days where skip_account_kinds leaves out {skipped}, who had most"
        )
    if decision["evidence"] == "not_primary_device":
        better = either(decision["primary_hostnames"])
        asked += f", primary_devices {rules['primary_devices']}: {better}"
    units = "days" if days else "logon events"
    return (
        f" ({_shown(decision['username'])} has {own} of {total} {units}{weighed}: "
        f"{decision['share']:.1%}, threshold {rules['share_threshold_percent']}%{asked})"
    )


def _writes(writes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What runs did to the host; what was not sent is shown only where it came last."""
    kept = [write for write in writes[:-1] if write["outcome"] not in _NOTHING_SENT] + list(writes[-1:])
    if len(kept) > _SHOWN_WRITES:
        yield f"  earlier writes: {len(kept) - _SHOWN_WRITES:,}; --json has all"
    for write in kept[-_SHOWN_WRITES:]:
        old, new = write["old_values"], write["new_values"]
        fields = ", ".join(
            f"{name} {_shown(value or 'cleared')}" + (f" (before: {_shown(old[name])})" if old[name] else "")
            for name, value in new.items()
            if value is not None and value != (old[name] or "")
        )
        parts = [OUTCOME[write["outcome"]], fields, _shown(write["message"] or "")]
        yield f"  {instant(time_of(write))}, run {_shown(write['run_id'])}: {' '.join(filter(None, parts))}"


def _inventory(decision: Mapping[str, Any]) -> Iterator[str]:
    """What the inventory held about the host and the user assets in question."""
    host = decision["host_asset"]
    if host:
        held = {
            "host name": host["hostnames"],
            "owner": host["owner_ids"],
            "department": host["department"],
            "criticality": host["criticality"],
        }
        values = (f"{name} {_shown(value or 'none')}" for name, value in held.items())
        yield f"  In the inventory, {instant(host['listed_at'])}: {', '.join(values)}"
    for asset in decision["user_assets"]:
        values = (
            f"{name} {_shown(value)}" for name, value in asset.items() if value and name not in _NO_FIELDS
        )
        held = ", ".join(values) if asset["in_inventory"] else "no such user asset"
        yield f"  In the inventory, user {_shown(asset['user_id'])}: {held}"


def _now(decision: Mapping[str, Any]) -> str:
    now = decision["now"]
    if now is None:
        return "Now: the inventory has no such host."
    owner = "not known" if now["owner"] is None else decision["owner_now"] or "none"
    others = (f"{field} {_shown(now[field] or 'none')}" for field in ("department", "criticality"))
    return f"Now: {', '.join([f'owner {owner}', *others])} (as listed, and as written from here since)."


def _shown(value: object) -> str:
    """Text that cannot act on a terminal."""
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))
