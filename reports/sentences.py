"""Parts of sentences: names with ids in parentheses, numbers of logons, rows in columns."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl
from rapidfuzz import process, utils

from ownership.matching import FIELDS
from ownership.names import printable
from ownership.persons import Person

NAMES = ("user_email", "directory_user_sam_account_name", "user_value", "directory_user_surname")
"""Fields of a user asset of which the first that has a value names the person."""
COUNTS = ("events", "total_events", "active_days", "weight", "total_weight")
"""Columns that `logons` puts into words."""
_FIRST_AND_LAST = re.compile(r"[^\W\d_][\w'-]*(?:\.[^\W\d_][\w'-]*)+")


def names_of(users: Iterable[Mapping[str, Any]], fields: Sequence[str] = NAMES) -> dict[str, str]:
    """What people call user assets, by id: the first of these fields that has a value."""
    named = {
        user["user_id"]: next((user[field][0] for field in fields if user.get(field)), None) for user in users
    }
    return {user_id: name for user_id, name in named.items() if name}


def display_names(users: pl.DataFrame) -> dict[str, str]:
    """Return what to call user assets in a list, by id: first and last name where the address tells them.

    `sofia.eriksson@corp.example` is Sofia Eriksson. Where the address tells none, it is the surname, the
    account name or the address, whichever there is.
    """
    fields = ("directory_user_surname", "directory_user_sam_account_name", "user_email", "user_value")
    rows = users.select("user_id", *fields).to_dicts()
    accounts = {user_id: name.partition("@")[0] for user_id, name in names_of(rows, ["user_email"]).items()}
    full = {user_id: name for user_id, name in accounts.items() if _FIRST_AND_LAST.fullmatch(name)}
    return names_of(rows, fields) | {
        user_id: name.replace(".", " ").title() for user_id, name in full.items()
    }


def person(user_id: str, name_of: Mapping[str, str]) -> str:
    """A user asset as its name with its id in parentheses."""
    name = name_of.get(user_id)
    return f"{printable(name)} ({printable(user_id)})" if name else printable(user_id)


def host_name(row: Mapping[str, Any]) -> str:
    """A host as its name with its id in parentheses, as far as it has both."""
    name, host_id = (printable(row.get(field) or "") for field in ("hostname", "host_id"))
    return f"{name} ({host_id})" if name and host_id else name or host_id


def either(names: Iterable[str]) -> str:
    """Several names, one of which applies."""
    return " or ".join(map(printable, names))


def in_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of texts as indented lines, each column as wide as its widest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{part:<{width}}" for part, width in zip(row, widths, strict=True)).rstrip()


def instant(moment: datetime) -> str:
    """An instant in UTC, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def confidence_words(confidence: float) -> str:
    """Say how sure an owner is (0 to 1), as a part of owners like it."""
    return f"About {min(max(round(100 * confidence), 1), 99)} of 100 such owners are right"


def percent(share: float) -> str:
    """Return a share as the page shows it: 0.29 is 29%, and 59.9% is not 60%."""
    return f"{int(100 * share + 1e-9)}%"


def logons(row: Mapping[str, Any]) -> str:
    """How many of the logons on a host are a user's, on how many days, and what they count for."""
    days, weight = row.get("active_days"), row.get("weight")
    on_days = f" on {days:,} day{'s' * (days != 1)}" if days else ""
    said = f"{row['events']:,} of {row['total_events']:,} logons{on_days}"
    if weight in (None, row["events"]):
        return said
    percent = 100 * weight // row["total_weight"] if row["total_weight"] else 0
    return f"{said}, a share of {percent}% as the rules count ({weight:,} of {row['total_weight']:,})"


SHOWN_ELSEWHERE = 20
MAX_SUGGESTED = 5


def each_person(found: Sequence[Person], usernames: Iterable[str]) -> list[list[Person]]:
    """Return each person by itself, and last those `usernames` of the logons that several of them have."""
    shared = {name for one in found for name in one.shared} & {*usernames}
    alone = [[replace(one, shared=())] for one in found]
    return [*alone, [Person(None, {}, sorted(shared))]] if shared else alone


def near_names(asked: str, known: Iterable[str]) -> list[str]:
    """The names of hosts and people that look most like one that is not known, the nearest first."""
    choices, folded = [*dict.fromkeys(known)], utils.default_process
    near = process.extract(asked, choices, processor=folded, limit=MAX_SUGGESTED, score_cutoff=85)
    return [name for name, *_ in near]


def people_called(asked: str, users: pl.DataFrame) -> dict[str, str]:
    """Return the user assets whose first and last names have all these words, as `person` shows them."""
    words, shown = {*asked.casefold().replace(",", " ").split()}, display_names(users)
    rows = users.sort("user_id").to_dicts()
    names, surnames = names_of(rows), names_of(rows, ["directory_user_surname"])
    each = ((user_id, f"{shown.get(user_id, '')} {surnames.get(user_id, '')}") for user_id in names)
    return {user_id: person(user_id, names) for user_id, name in each if words <= {*name.casefold().split()}}


def person_explanation(
    asked: str,
    found: Sequence[Person],
    read: Callable[[str], pl.LazyFrame],
    tell: Callable[[pl.DataFrame], pl.DataFrame],
) -> dict[str, Any]:
    """Gather the hosts of a person, or of persons who are told of as one, from stored tables.

    `tell` is `reports.story.told_hosts` of some decisions. The values are asked, usernames, excluded_by (what
    excludes the user asset), candidate_ids (user assets that the names fit), user_assets, hosts_named (the
    logons name the person), hosts_owned (theirs now), hosts (both, with status, why, summary and
    what_would_change) and hosts_elsewhere (others with logons).
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
    told = tell(decisions.filter((theirs & pl.col("match").is_not_null()) | theirs_now))
    words = ("hostname", "host_id", "status", "why", "summary", "what_would_change")
    fields = ("user_id", *FIELDS, "user_department", "criticality", "problem")
    return {
        "asked": asked,
        "usernames": usernames,
        "excluded_by": matches.filter(pl.col("user_id").is_in(ids))["excluded_by"].drop_nulls().min(),
        "candidate_ids": fitting.drop_nulls().unique().sort().to_list(),
        "user_assets": users.filter(pl.col("user_id").is_in(ids)).select(fields).to_dicts(),
        "hosts_named": named.sort("hostname", "host_id").to_dicts(),
        "hosts": told.select(words).sort("hostname", "host_id").to_dicts(),
        "hosts_elsewhere": elsewhere.select("hostname", *logon_columns, "rank")
        .sort("events", "hostname", descending=[True, False])
        .to_dicts(),
        "hosts_owned": owned.sort("hostname", "host_id").to_dicts(),
    }


def person_in_words(story: Mapping[str, Any]) -> str:
    """Put what `person_explanation` gathered into lines of text that cannot act on a terminal."""
    named, elsewhere, owned = (story[f"hosts_{part}"] for part in ("named", "elsewhere", "owned"))
    lines = [f"{_who(story)}.", "", f"Hosts: {len(named):,} by the logons, {len(owned):,} in the inventory"]
    for host in story["hosts"]:
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
