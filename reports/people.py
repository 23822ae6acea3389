"""The hosts of one person: named by the logons, others with logons, and those they own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from rapidfuzz import process, utils

from ownership.codes import ACTION
from ownership.matching import FIELDS
from ownership.names import printable
from ownership.persons import Person
from reports.sentences import COUNTS, either, host_name, in_columns, logons, names_of, person

SHOWN_ELSEWHERE = 20
MAX_SUGGESTED = 5
_FIRST_AND_LAST = re.compile(r"[^\W\d_][\w'-]*(?:\.[^\W\d_][\w'-]*)+")
_CHANGED = {
    ("write", True): "Somebody gave the host this owner in the meantime.",
    ("agree", False): "The host had this owner, and has not any more.",
}
"""What follows where that changed since the decision: by action, and whether the person owns the host."""


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
    asked: str, found: Sequence[Person], read: Callable[[str], pl.LazyFrame]
) -> dict[str, Any]:
    """Gather the hosts of a person, or of persons who are told of as one, from stored tables.

    The values are asked, usernames, excluded_by (what excludes the user asset), candidate_ids (user assets
    that the names fit), user_assets, hosts_named (the logons name the person), hosts_elsewhere (others with
    logons) and hosts_owned (theirs now).
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
    fields = ("user_id", *FIELDS, "user_department", "criticality", "problem")
    return {
        "asked": asked,
        "usernames": usernames,
        "excluded_by": matches.filter(pl.col("user_id").is_in(ids))["excluded_by"].drop_nulls().min(),
        "candidate_ids": fitting.drop_nulls().unique().sort().to_list(),
        "user_assets": users.filter(pl.col("user_id").is_in(ids)).select(fields).to_dicts(),
        "hosts_named": named.sort("hostname", "host_id").to_dicts(),
        "hosts_elsewhere": elsewhere.select("hostname", *logon_columns, "rank")
        .sort("events", "hostname", descending=[True, False])
        .to_dicts(),
        "hosts_owned": owned.sort("hostname", "host_id").to_dicts(),
    }


def person_in_words(story: Mapping[str, Any]) -> str:
    """Put what `person_explanation` gathered into lines of text that cannot act on a terminal."""
    named, elsewhere, owned = (story[f"hosts_{part}"] for part in ("named", "elsewhere", "owned"))
    names, owned_ids = names_of(story["user_assets"]), {row["host_id"] for row in owned}

    def follows(row: Mapping[str, Any]) -> str:
        changed = _CHANGED.get((row["action"], row["host_id"] in owned_ids))
        return changed or ACTION.get(row["action"], "")

    def owners(row: Mapping[str, Any]) -> str:
        return ", ".join(person(owner, names) for owner in row["owner_ids"])

    more = ["  and more; --json has all"] if len(elsewhere) > SHOWN_ELSEWHERE else []
    return "\n".join(
        [
            f"{_who(story)}.",
            f"\nHosts for which the logons name this person: {len(named):,}",
            *in_columns([(host_name(row), *_last(row), follows(row)) for row in named]),
            f"\nHosts of this person in the inventory: {len(owned):,}",
            *in_columns([(host_name(row), owners(row), follows(row)) for row in owned]),
            f"\nOther hosts with logons: {len(elsewhere):,}",
            *in_columns([(host_name(row), *_last(row)) for row in elsewhere[:SHOWN_ELSEWHERE]]),
            *more,
        ]
    )


def _who(story: Mapping[str, Any]) -> str:
    names = names_of(story["user_assets"])
    several = "This may be several people: " if len(story["user_assets"]) > 1 else ""
    assets = several + " or ".join(person(asset["user_id"], names) for asset in story["user_assets"])
    usernames, fitting = ", ".join(map(printable, story["usernames"])), story["candidate_ids"]
    if not assets:
        of_assets = f"several user assets: {either(fitting)}" if fitting else "no user asset"
        return f"{usernames or printable(story['asked'])} ({of_assets})"
    excluded = f", excluded ({printable(story['excluded_by'])})" if story["excluded_by"] else ""
    return f"{assets}, in the logons {usernames}{excluded}" if usernames else f"{assets}, not in the logons"


def _last(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"{printable(row['username'])}: {logons(row)}", f"last on {row['last_seen']}"
