"""The hosts of one person: named by the logons, others with logons, and those they own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from rapidfuzz import process, utils

from ownership.codes import ACTION
from ownership.matching import FIELDS
from ownership.names import normalise_username, printable
from reports.sentences import COUNTS, either, in_columns, logons, names_of, person

SHOWN_ELSEWHERE = 20
MAX_SUGGESTED = 5
_FIELDS = ("user_value", *FIELDS)
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
    first = {field: pl.col(field).list.first() for field in fields}
    rows = users.select("user_id", first["user_email"], name=pl.coalesce(first.values()))
    named = dict[str, str]()
    for user_id, address, name in rows.iter_rows():
        account = (address or "").partition("@")[0]
        if _FIRST_AND_LAST.fullmatch(account):
            named[user_id] = account.replace(".", " ").title()
        elif name:
            named[user_id] = name
    return named


def find_person(asked: str, users: pl.DataFrame, matches: pl.DataFrame) -> dict[str, list[str]] | None:
    """The user assets and user names of the logons that a text may stand for; None where there are none.

    An id or a whole e-mail address comes first; otherwise any name of a user asset, compared as user names,
    and then what the page calls a user asset.
    """
    text, username = asked.strip().lower(), pl.select(normalise_username(pl.lit(asked))).item()
    names = {field: users.select("user_id", name=field).explode("name") for field in _FIELDS}
    whole = pl.concat([users.select("user_id", name="user_id"), names["user_value"], names["user_email"]])
    whole = whole.filter(pl.col("name").str.strip_chars().str.to_lowercase() == text)
    named = matches.filter(username=pl.lit(username, pl.String))
    alike = pl.concat(names.values()).filter(
        normalise_username(pl.col("name")) == pl.lit(username, pl.String)
    )
    has_name = pl.col("decisive") | pl.col("excluded_by").is_not_null()
    found = (whole, named.filter(has_name).drop_nulls("user_id"), alike)
    ids = next((frame["user_id"].to_list() for frame in found if frame.height), [])
    if not ids and named.is_empty():
        ids = [user_id for user_id, name in display_names(users).items() if name.lower() == text]
    usernames = matches.filter(has_name, pl.col("user_id").is_in(ids))["username"].to_list()
    if whole.is_empty():  # also a name that no user asset has, or several have
        usernames += named["username"].to_list()
    if not ids and not usernames:
        return None
    return {"user_ids": sorted(set(ids)), "usernames": sorted(set(usernames))}


def each_person(found: Mapping[str, Sequence[str]], matches: pl.DataFrame) -> list[dict[str, list[str]]]:
    """What `find_person` found, each user asset by itself, and last the names that are nobody's alone."""
    ids, names = list(found["user_ids"]), list(found["usernames"])
    if len(ids) < 2:
        return [{"user_ids": ids, "usernames": names}]
    alone = matches.filter("decisive").filter(pl.len().over("username") == 1)
    whose = dict(alone.select("username", "user_id").iter_rows())
    persons = [
        {"user_ids": [user_id], "usernames": [name for name in names if whose.get(name) == user_id]}
        for user_id in ids
    ]
    nobodys = [name for name in names if whose.get(name) not in ids]
    return persons + ([{"user_ids": [], "usernames": nobodys}] if nobodys else [])


def near_names(asked: str, known: Iterable[str]) -> list[str]:
    """The names of hosts and people that look most like one that is not known, the nearest first."""
    choices, folded = [*dict.fromkeys(known)], utils.default_process
    near = process.extract(asked, choices, processor=folded, limit=MAX_SUGGESTED, score_cutoff=85)
    return [name for name, *_ in near]


def person_explanation(
    asked: str, found: Mapping[str, Sequence[str]], read: Callable[[str], pl.LazyFrame]
) -> dict[str, Any]:
    """Gather the hosts of a person that `find_person` found, from stored tables.

    The values are asked, usernames, excluded_by (what excludes the user asset), candidate_ids (user assets
    that the names fit), user_assets, hosts_named (the logons name the person), hosts_elsewhere (others with
    logons) and hosts_owned (theirs now).
    """
    ids, usernames = list(found["user_ids"]), list(found["usernames"])
    decisions, owners, users = (
        read(table).collect() for table in ("owner_decisions", "current_owners", "inventory_users")
    )
    logon_columns = ["username", *COUNTS, "share", "first_seen", "last_seen"]
    theirs = pl.col("username").is_in(usernames)
    own = decisions.filter(theirs, pl.col("match").is_not_null())
    named = own.select("hostname", "host_id", *logon_columns, "match", "action", "existing_owner")
    compared = pl.concat([own["hostnames"].explode(), own["hostname"]]).drop_nulls().implode()
    elsewhere = read("host_user_shares").filter(theirs, ~pl.col("hostname").is_in(compared)).collect()
    matches = read("username_matches").filter(theirs).collect()
    fitting = matches.filter("decisive")["user_id"]
    outcome = decisions.select("host_id", "hostname", "evidence", "match", "action", "username")
    owned = (
        owners.select("host_id", "department", "owner_ids")
        .filter(pl.col("owner_ids").list.set_intersection(ids).list.len() > 0)
        .join(outcome, on="host_id", how="left")
    )
    fields = ("user_id", "user_email", *_FIELDS[2:], "user_department", "criticality", "problem")
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
            *in_columns([(_name(row), *_last(row), follows(row)) for row in named]),
            f"\nHosts of this person in the inventory: {len(owned):,}",
            *in_columns([(_name(row), owners(row), follows(row)) for row in owned]),
            f"\nOther hosts with logons: {len(elsewhere):,}",
            *in_columns([(_name(row), *_last(row)) for row in elsewhere[:SHOWN_ELSEWHERE]]),
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


def _name(row: Mapping[str, Any]) -> str:
    host_id = row.get("host_id")
    if row["hostname"] is None:
        return printable(host_id or "")
    return printable(row["hostname"]) + (f" ({printable(host_id)})" if host_id else "")


def _last(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"{printable(row['username'])}: {logons(row)}", f"last on {row['last_seen']}"
