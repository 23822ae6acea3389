"""The hosts of one person: named by the logons, others with logons, and those they own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from rapidfuzz import process, utils

from ownership.matching import FIELDS
from ownership.names import printable
from ownership.persons import Person
from reports.sentences import COUNTS, either, host_name, in_columns, logons, names_of, person

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
