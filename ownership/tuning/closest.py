"""User assets with names like those of users without one: for those who keep the directory, never written."""

from collections.abc import Iterator

import polars as pl
from rapidfuzz import fuzz, process

from ownership.declaration import polars_schema
from ownership.matching import FIELDS
from ownership.names import is_stand_in, normalise_username
from ownership.tables import ClosestUsers

MAX_SPELLED = 500
"""User names that are compared letter by letter with all others: those first that are on most hosts."""
SPELLED_AT_ONCE = 50
"""Of these: with 500,000 names to compare with, the similarities take 100 MB."""
MAX_USERS = 3
"""Most user assets that are proposed for a user name."""
MIN_ALIKE = 80
"""Least similarity of two names that is proposed (percent)."""

_PARTS = r"[^\p{L}\p{N}]+"
_NO_PEOPLE = ("computer", "built_in", "service")


def closest_users(accounts: pl.DataFrame, users: pl.DataFrame, matches: pl.DataFrame) -> pl.DataFrame:
    """Find user assets, not active under their own names, with names like those of users without one.

    Rows of `closest_users`, at most `MAX_USERS` for each username; sorted, the closest first.
    """
    users = users.join(matches.drop_nulls("user_id"), on="user_id", how="anti")
    unmatched = accounts.filter(
        pl.col("user_assets") == 0,
        ~pl.col("kind").is_in(_NO_PEOPLE),
        ~is_stand_in(pl.col("username")),
        ~pl.col("username").str.starts_with("s-1-"),  # SIDs of one directory differ in a number only
    ).sort("hosts", "username", descending=[True, False])
    known = (
        users.unpivot(["user_value", *FIELDS], index="user_id", value_name="name")
        .explode("name", empty_as_null=False)
        .select("user_id", normalise_username(pl.col("name")))
        .drop_nulls()
        .unique()
    )
    return (
        pl.concat([*_by_shape(unmatched.select("username"), known), *_by_spelling(unmatched, known)])
        .sort("username", "score", "user_id", descending=[False, True, False])
        .unique(["username", "user_id"], keep="first", maintain_order=True)
        .group_by("username", maintain_order=True)
        .head(MAX_USERS)
        .select(*polars_schema(ClosestUsers))
    )


def _by_shape(unmatched: pl.DataFrame, known: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Join names that are equal once a difference is removed; the reason names it."""
    ours, theirs = _shapes(pl.col("username")), _shapes(pl.col("name"))
    for reason, score, our_shape, their_shape in (
        ("Only numbers at the end differ.", 0.95, "without number", "without number"),
        ("Only dots, hyphens and the like differ.", 0.95, "joined", "joined"),
        ("The parts of the name stand in another order.", 0.9, "sorted", "sorted"),
        ("It may be the initial of the first name, and the surname.", 0.8, "joined", "initial, last"),
        ("It may be the surname, and the initial of the first name.", 0.8, "joined", "last, initial"),
        ("The user asset may have the initial of the first name only.", 0.8, "initial, last", "joined"),
    ):
        yield (
            unmatched.with_columns(key=ours[our_shape])
            .join(known.with_columns(key=theirs[their_shape]), on="key")
            .filter(pl.col("key").str.len_chars() > 2)
            .select("username", "user_id", score=pl.lit(score), reason=pl.lit(reason))
        )


def _shapes(name: pl.Expr) -> dict[str, pl.Expr]:
    parts = name.str.replace_all(_PARTS, " ").str.strip_chars().str.split(" ")
    first, last, several = parts.list.first().str.head(1), parts.list.last(), parts.list.len() > 1
    return {
        "without number": name.str.replace(r"[-_.]?\d+$", ""),
        "joined": name.str.replace_all(_PARTS, ""),
        "sorted": parts.list.sort().list.join(" "),
        "initial, last": pl.when(several).then(first + last),
        "last, initial": pl.when(several).then(last + first),
    }


def _by_spelling(unmatched: pl.DataFrame, known: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Compare names letter by letter: each of some with all, so some at a time."""
    for usernames in unmatched["username"].head(MAX_SPELLED).to_frame().iter_slices(SPELLED_AT_ONCE):
        alike = process.cdist(
            usernames["username"].to_list(),
            known["name"].to_list(),
            scorer=fuzz.ratio,
            score_cutoff=MIN_ALIKE,
            workers=-1,
        )
        ours, theirs = alike.nonzero()
        yield pl.DataFrame(
            {
                "username": usernames["username"][ours],
                "user_id": known["user_id"][theirs],
                "score": (pl.Series(alike[ours, theirs], dtype=pl.Float64) / 100).round(3),
            }
        ).with_columns(reason=pl.lit("The names are spelled alike."))
