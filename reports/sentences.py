"""Parts of sentences: names with ids in parentheses, numbers of logons, rows in columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.cells import cell_len

from ownership.decisions import IDLE_DAYS
from ownership.names import counted, printable

NAMES = ("user_email", "directory_user_sam_account_name", "user_value", "directory_user_surname")
"""Fields of a user asset of which the first that has a value names the person."""
COUNTS = ("events", "total_events", "active_days", "weight", "total_weight")
"""Columns that `logons` puts into words."""
_FIRST_AND_LAST = re.compile(r"[^\W\d_][\w'-]*(?:\.[^\W\d_][\w'-]*)+")


def names_of(users: Iterable[Mapping[str, Any]], fields: Sequence[str] = NAMES) -> dict[str, str]:
    """Return what people call user assets, by id: the first of these fields that has a value."""
    named = {
        user["user_id"]: next((user[field][0] for field in fields if user.get(field)), None) for user in users
    }
    return {user_id: name for user_id, name in named.items() if name}


def display_names(users: pl.DataFrame) -> dict[str, str]:
    """Return what to call user assets in a list, by id: first and last name where the address tells them.

    `sofia.eriksson@corp.example` is Sofia Eriksson. Otherwise it is the surname, the
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
    """Return a user asset as its name with its id in parentheses."""
    name = name_of.get(user_id)
    return f"{printable(name)} ({printable(user_id)})" if name else printable(user_id)


NO_SUCH_ASSET = "no such user asset"


def host_name(row: Mapping[str, Any]) -> str:
    """Return a host as its name with its id in parentheses, as far as it has both."""
    name, host_id = (printable(row.get(field) or "") for field in ("hostname", "host_id"))
    return f"{name} ({host_id})" if name and host_id else name or host_id


def distinct_host(known: pl.Series) -> pl.Expr:
    """Return a host's name, with the id where several of the `known` host names are the same; or the id."""
    is_shared = pl.col("hostname").is_in(known.filter(known.is_duplicated()).implode())
    with_id = pl.when(is_shared).then(pl.format("{} ({})", "hostname", "host_id"))
    return pl.coalesce(with_id, "hostname", "host_id")


def in_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return rows of texts as indented lines, each column as wide as its widest text."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (part + " " * (width - cell_len(part)) for part, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def percent(share: float) -> str:
    """Return a share as the page shows it: 0.29 is 29%, and 59.9% is not 60%."""
    return f"{int(100 * share + 1e-9)}%"


def logons(row: Mapping[str, Any]) -> str:
    """Say how many logons of a host are a user's, what they count for, and what raises doubts."""
    days, weight = row.get("active_days"), row.get("weight")
    on_days = f" on {counted(days, 'day')}" if days else ""
    said = f"{row['events']:,} of {row['total_events']:,} logons{on_days}"
    if weight not in (None, row["events"]):
        share = 100 * weight // row["total_weight"] if row["total_weight"] else 0
        what = "days of all users" if weight == days else "as weighed"
        said += f", {weight:,} of {row['total_weight']:,} {what} ({share}%)"
    return ", ".join([said, *doubts(row)])


def doubts(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the primary user of a host may not be its owner: they use others more, or not any more."""
    days, idle_days = row.get("active_days"), row.get("idle_days") or 0
    if days and (user_days := row.get("user_days") or 0) > 2 * days:
        yield f"user mostly on other hosts ({percent(days / user_days)} here)"
    if idle_days >= IDLE_DAYS:
        yield f"no logon for {idle_days} days"
