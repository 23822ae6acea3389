"""Explains one host, from the counts to the write, or one person: as values, and in words."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl

from ownership.codes import ACTION, OUTCOME, reason_of, short_words
from ownership.data_checks import hosts_named_alike
from ownership.matching import FIELDS, FieldNames, Present
from ownership.names import did_you_mean, either, normalise_hostname, printable
from ownership.persons import Person
from ownership.rules import Rules
from ownership.shares import rank_users
from ownership.windows import Window
from reports.plan import sent_changes
from reports.sentences import (
    COUNTS,
    NO_SUCH_ASSET,
    display_names,
    host_name,
    in_columns,
    logons,
    names_of,
    percent,
    person,
)
from reports.story import describe_hosts, details_of

_SHOWN_USERS = 10
SHOWN_ELSEWHERE = 20
_OF_PERSON = ("user_id", *FIELDS, "user_department", "criticality", "problem")
_NOTHING_SENT = {"planned", "not_written", "owned_meanwhile"}


def host_explanation(
    asked: str,
    read: Callable[[str], pl.LazyFrame],
    *,
    writes: pl.LazyFrame,
    window: Window,
    decided_by: Rules,
    present: Present,
) -> dict[str, Any]:
    """Gather how the owner of one host was decided, what was written, and what would change the outcome.

    `asked` is a name of the host or the id of its asset, `read` gives stored tables, `writes` are rows of
    `owner_writes`. `window` and `decided_by` are the run's.

    The values are hostname, similar (names that differ in the domain part only) and decisions: with the
    columns of `owner_decisions`, the run's window_from, window_to and rules, users (most events first, with
    user_assets), host_asset, user_assets, answers (no, to an audit or with an undo), answer (the one that
    decided), writes (with the reason that somebody gave), what_would_change, summary and now. There are no
    decisions where the host is not known.
    """
    run = {"window_from": window.first, "window_to": window.last, "rules": json.loads(decided_by.as_json())}
    name = pl.select(normalise_hostname(pl.lit(asked), short=decided_by.short_hostnames)).item()
    by_id = pl.col("host_id").str.to_lowercase() == asked.strip().lower()
    by_name = pl.col("hostnames").list.contains(name) | (pl.col("hostname") == pl.lit(name, pl.String))
    decisions = read("owner_decisions").filter(by_id | by_name).collect()
    names = {name or asked}.union(*(_names(decision) for decision in decisions.iter_rows(named=True)))
    short = pl.Series([*names]).to_frame("name").select(normalise_hostname(pl.col("name"), short=True))
    is_alike = normalise_hostname(pl.col("hostname"), short=True).is_in(short["name"].drop_nulls().implode())
    shares = read("host_user_shares").filter(is_alike).collect()
    matches, hosts, users, current = (
        read(table).collect()
        for table in ("username_matches", "inventory_hosts", "inventory_users", "current_owners")
    )
    told = read("audit_sample").filter(right=False).with_columns(pl.coalesce("answered_at", "drawn_at"))
    columns = ("host_id", "user_id", "instead_id", "answered_at", "answered_by")
    answered_no = told.select(columns).collect()
    of_assets = writes.filter(pl.col("host_id").is_in(decisions["host_id"].implode()))
    in_order = of_assets.sort(pl.coalesce("completed_at", "intended_at"))
    reasons = read("runs").select("run_id", reason=pl.col("options").str.json_path_match("$.reason"))
    sent = (
        in_order.with_columns(changes=pl.concat_list(sent_changes()).list.drop_nulls())
        .join(reasons, on="run_id", how="left", maintain_order="left")
        .collect()
    )

    def explained(decision: Mapping[str, Any]) -> dict[str, Any]:
        is_asset = pl.col("host_id") == pl.lit(decision["host_id"], pl.String)
        now = next(current.drop("hostname", "owner_emails").filter(is_asset).iter_rows(named=True), None)
        answers = answered_no.filter(is_asset)
        decisive = answers.filter(decision["evidence"] == "answered_no")
        owners = decision["owner_ids"] or ()
        shown = [*decision["candidate_ids"], *owners, *decisive["instead_id"].drop_nulls()]
        return {
            **run,
            **decision,
            "users": _users(shares.filter(pl.col("hostname").is_in(_names(decision))), matches),
            "host_asset": next(hosts.filter(is_asset).iter_rows(named=True), None),
            "user_assets": _user_assets(shown, users, present.fields),
            "answers": answers.to_dicts(),
            "answer": next(decisive.iter_rows(named=True), None),
            "writes": sent.filter(is_asset).to_dicts(),
            "now": now,
        }

    told = describe_hosts(decisions, read, writes, present)
    alike = hosts_named_alike(
        pl.Series([*names]), pl.concat([hosts["hostnames"].explode(), shares["hostname"]])
    )
    similar = {*alike["asset_name"]} - names
    return {
        "hostname": name or asked,
        "similar": [] if present.rules.short_hostnames else sorted(similar),
        "decisions": [*map(explained, told.iter_rows(named=True))],
    }


def _names(decision: Mapping[str, Any]) -> list[str]:
    """Return the names of a host, as compared."""
    return decision["hostnames"] or [decision["hostname"] or ""]


def _users(on_host: pl.DataFrame, matches: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the users of a host under all its names, the primary user first, and their user assets."""
    together = (
        on_host.lazy()
        .group_by("username")
        .agg(
            pl.sum("events", "weight"),
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
        .agg(user_assets=pl.struct("user_id", "matched_by", "decisive", "problem", "excluded_by"))
    )
    columns = ("username", "events", "share", "first_seen", "last_seen", "username_spellings")
    return (
        rank_users(together, by="host")
        .join(known, on="username", how="left", maintain_order="left")
        .select(*columns, pl.col("user_assets").fill_null([]))
        .collect()
        .to_dicts()
    )


def _user_assets(user_ids: Sequence[str], users: pl.DataFrame, fields: FieldNames) -> list[dict[str, Any]]:
    """Return user assets as the inventory holds them, by the instance's names of their fields."""
    asked = (pl.col("user_value" if name == fields.user_value else name).alias(name) for name in fields.asked)
    held = users.select("user_id", *asked, "user_department", "criticality", "problem")
    ids = pl.DataFrame({"user_id": [*dict.fromkeys(user_ids)]}, schema={"user_id": pl.String})
    return ids.join(held, on="user_id", how="left", maintain_order="left").to_dicts()


def in_words(story: Mapping[str, Any]) -> str:
    """Put what `host_explanation` gathered into lines of text that cannot act on a terminal, result first."""
    decisions = story["decisions"]
    lines = [decision["summary"] for decision in decisions]
    if not decisions:
        lines.append(
            f"{_shown(story['hostname'])}: no such host or person in the inventory or counted logons."
            f"{did_you_mean(story.get('near', ()))} Users may be excluded: exclude_users, skip_account_kinds."
        )
    if story["similar"]:
        lines.append(f"Different in the domain part only (rules.hostname_match): {_shown(story['similar'])}.")
    shown = []
    for decision in decisions:
        if decision["users"] and _names(decision) not in shown:
            lines += ["", *_users_table(decision)]
            shown.append(_names(decision))
        lines += ["", *_history_lines(decision)]
    return "\n".join(lines)


def _users_table(decision: Mapping[str, Any]) -> Iterator[str]:
    users = decision["users"]
    total = sum(user["events"] for user in users)
    yield f"Logon events on {_shown(_names(decision))}, {total} in all:"
    heads = ("user", "events", "share", "first seen", "last seen", "user asset", "spelled")
    rows = [
        (
            _shown(user["username"]),
            f"{user['events']:>6}",
            f"{percent(user['share']):>5}",
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
        excluded = [asset["user_id"] for asset in user_assets if asset["excluded_by"]]
        return f"none ({either(excluded)} is excluded)" if excluded else "none"
    return either(asset["user_id"] + (" (unreadable)" if asset["problem"] else "") for asset in decisive)


def _history_lines(decision: Mapping[str, Any]) -> Iterator[str]:
    """Return what would change a host's present state, then its history, the oldest first."""
    subject = "No host asset" if decision["host_id"] is None else f"Host asset {_shown(decision['host_id'])}"
    yield f"{subject}. What would change that:"
    yield from (f"  - {change}" for change in decision["what_would_change"])
    yield "What happened, the oldest first:"
    happened = [(decision["decided_at"], _decision_lines(decision)), *_write_lines(decision["writes"])]
    for answer in decision["answers"]:
        by, instead = (answer[name] and _shown(answer[name]) for name in ("answered_by", "instead_id"))
        said = f"answered{f' by {by}' if by else ''}: no, not {_shown(answer['user_id'])}"
        happened.append((answer["answered_at"], [said + (f"; named instead: {instead}" if instead else "")]))
    if at := decision["acknowledged_at"]:
        by, why = (_shown(decision[name] or "") for name in ("acknowledged_by", "note"))
        happened.append((at, [f"acknowledged by {by or 'somebody'}{': ' * bool(why)}{why}"]))
    if host := decision["host_asset"]:
        happened.insert(0, (host["listed_at"], _inventory_lines(host)))
    for at, lines in sorted(happened, key=lambda event: event[0]):
        head, *details = lines
        yield f"  - {at:%Y-%m-%d %H:%M} UTC, {head}"
        yield from (f"    {detail}" for detail in details)


def _decision_lines(decision: Mapping[str, Any]) -> Iterator[str]:
    """Return what a run decided, and from which logons."""
    window = f"{decision['window_from']} to {decision['window_to']}"
    threshold = f"with a threshold of {decision['rules']['share_threshold_percent']}%"
    yield f"run {_shown(decision['run_id'])} decided by the logons of {window}, {threshold}:"
    yield f"{reason_of(decision)}{details_of(decision)}"
    if decision["confidence"] is not None:
        right = min(max(round(100 * decision["confidence"]), 1), 99)
        yield f"About {right} of 100 such owners are right, by the answers to the audit (rules 9.8)."
    for asset in decision["user_assets"]:
        values = (f"{name} {_shown(value)}" for name, value in asset.items() if value and name != "user_id")
        held = ", ".join(values) or NO_SUCH_ASSET
        found = asset["user_id"] in decision["candidate_ids"] and decision["matched_by"]
        by = f", found by {found}" if found else ""
        yield f"User {_shown(asset['user_id'])} in the inventory{by}: {held}"
    existing = f" ({_shown(decision['existing_owner'])})" if decision["existing_owner"] else ""
    since = f" Since {decision['conflict_since']:%Y-%m-%d}." if decision["conflict_since"] else ""
    yield f"{ACTION[decision['action']]}{existing}{since}"


def _write_lines(writes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[datetime, Iterable[str]]]:
    """Yield what runs did to the host, and when; an unsent write only if it came last."""
    kept = [write for write in writes[:-1] if write["outcome"] not in _NOTHING_SENT] + list(writes[-1:])
    for write in kept:
        outcome, words = write["outcome"], short_words(OUTCOME)
        parts = [OUTCOME[outcome], _shown(write["changes"]), _shown(write["message"] or "")]
        by, why = (write[name] and _shown(write[name]) for name in ("by", "reason"))
        who = f"run {_shown(write['run_id'][:8])}" + (f", by {by}" if by else "")
        who += f' ("{why}")' if why else ""
        told = f"{who}: {words[outcome]}. {' '.join(filter(None, parts))}"
        yield write["completed_at"] or write["intended_at"], [told]


def _inventory_lines(host: Mapping[str, Any]) -> Iterator[str]:
    """Return what the inventory held about the host when it was listed."""
    owners = "not known" if host["owner_ids"] is None else host["owner_ids"] or "none"
    values = (host["hostnames"], owners, host["department"], host["criticality"])
    name, owner, part, criticality = (_shown(value or "none") for value in values)
    yield f"in the inventory: host name {name}, owner {owner}, department {part}, criticality {criticality}"


def _shown(value: object) -> str:
    """Return a text that cannot act on a terminal."""
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def each_person(found: Sequence[Person], usernames: Iterable[str]) -> list[list[Person]]:
    """Return each person by itself, and last those `usernames` of the logons that several of them have."""
    shared = {name for one in found for name in one.shared} & {*usernames}
    alone = [[replace(one, shared=())] for one in found]
    return [*alone, [Person(None, {}, sorted(shared))]] if shared else alone


def people_called(asked: str, users: pl.DataFrame) -> dict[str, str]:
    """Return the user assets whose first and last names have all these words, as `person` shows them."""
    words, shown = {*asked.casefold().replace(",", " ").split()}, display_names(users)
    rows = users.sort("user_id").to_dicts() if words else []
    names, surnames = names_of(rows), names_of(rows, ["directory_user_surname"])
    each = ((user_id, f"{shown.get(user_id, '')} {surnames.get(user_id, '')}") for user_id in names)
    return {user_id: person(user_id, names) for user_id, name in each if words <= {*name.casefold().split()}}


def person_explanation(
    asked: str,
    found: Sequence[Person],
    read: Callable[[str], pl.LazyFrame],
    writes: pl.LazyFrame,
    present: Present,
) -> dict[str, Any]:
    """Gather the hosts of a person, or of persons shown as one, as `host_explanation` does of one host.

    The values are asked, usernames, excluded_by (what excludes the user asset), candidate_ids (user assets
    that the names fit), user_assets, hosts_named (whose primary user it is), hosts_owned (theirs now),
    hosts (both, with status, why, summary and what_would_change) and hosts_elsewhere (others with logons).
    """
    ids = [one.user_id for one in found if one.user_id]
    names = {name for one in found for name in (*one.names.values(), *one.shared)}
    matches = read("username_matches").filter(pl.col("username").is_in(names)).collect()
    usernames = matches["username"].unique().sort().to_list()
    decisions, owners, users = (
        read(table).collect() for table in ("owner_decisions", "current_owners", "inventory_users")
    )
    logon_columns = ["username", *COUNTS, "share", "first_seen", "last_seen"]
    theirs = pl.col("username").is_in(usernames)
    own = decisions.filter(theirs, pl.col("match").is_not_null())
    named = own.select("hostname", "host_id", *logon_columns, "match", "action", "existing_owner")
    compared = pl.concat([own["hostnames"].explode(), own["hostname"]]).drop_nulls().implode()
    elsewhere = read("host_user_shares").filter(theirs, ~pl.col("hostname").is_in(compared)).collect()
    fitting = matches.filter("decisive")["user_id"]
    outcome = decisions.select("host_id", "hostname", "evidence", "match", "action", "username")
    owned = (
        owners.select("host_id", "department", "owner_ids")
        .filter(pl.col("owner_ids").list.set_intersection(ids).list.len() > 0)
        .join(outcome, on="host_id", how="left")
    )
    theirs_now = pl.col("host_id").is_in(owned["host_id"].implode())
    of_person = decisions.filter((theirs & pl.col("match").is_not_null()) | theirs_now)
    told = describe_hosts(of_person, read, writes, present)
    words = ("hostname", "host_id", "status", "why", "summary", "what_would_change")
    return {
        "asked": asked,
        "usernames": usernames,
        "excluded_by": matches.filter(pl.col("user_id").is_in(ids))["excluded_by"].drop_nulls().min(),
        "candidate_ids": fitting.drop_nulls().unique().sort().to_list(),
        "user_assets": users.filter(pl.col("user_id").is_in(ids)).select(_OF_PERSON).to_dicts(),
        "hosts_named": named.sort("hostname", "host_id").to_dicts(),
        "hosts": told.select(words).sort("hostname", "host_id").to_dicts(),
        "hosts_elsewhere": elsewhere.select("hostname", *logon_columns, "rank")
        .sort("events", "hostname", descending=[True, False])
        .to_dicts(),
        "hosts_owned": owned.sort("hostname", "host_id").to_dicts(),
    }


def person_in_words(story: Mapping[str, Any]) -> str:
    """Put what `person_explanation` gathered into lines of text that cannot act on a terminal."""
    elsewhere, lines = story["hosts_elsewhere"], [f"{_who(story)}.", ""]
    named, owned = ({*map(host_name, story[f"hosts_{part}"])} for part in ("named", "owned"))
    groups = {"by logons and inventory": named & owned, "by the logons only": named - owned}
    groups["in the inventory only"] = owned - named
    lines += [] if named | owned else ["Hosts: 0"]
    for words, names in groups.items():
        lines += [f"Hosts {words}: {len(names):,}"] if names else []
        for host in (host for host in story["hosts"] if host_name(host) in names):
            lines += [f"  - {host['status']}, {host['why']}: {host['summary']}"]
            lines += [f"    {change}" for change in host["what_would_change"]]
    rows = [
        (host_name(row), f"{printable(row['username'])}: {logons(row)}", f"last on {row['last_seen']}")
        for row in elsewhere[:SHOWN_ELSEWHERE]
    ]
    lines += ["", f"Other hosts with logons: {len(elsewhere):,}", *in_columns(rows)]
    return "\n".join([*lines, *["  and more; --json has all"][: len(elsewhere) > SHOWN_ELSEWHERE]])


def _who(story: Mapping[str, Any]) -> str:
    names = names_of(story["user_assets"])
    several = "This may be several people: " if len(story["user_assets"]) > 1 else ""
    assets = several + " or ".join(person(asset["user_id"], names) for asset in story["user_assets"])
    usernames, fitting = ", ".join(map(printable, story["usernames"])), story["candidate_ids"]
    if not assets:
        of_assets = f"several user assets: {either(fitting)}" if fitting else "an account without a person"
        return f"{usernames or printable(story['asked'])} ({of_assets})"
    excluded = f", excluded ({printable(story['excluded_by'])})" if story["excluded_by"] else ""
    return f"{assets}, in the logons {usernames}{excluded}" if usernames else f"{assets}, not in the logons"
