"""Which user assets a user name could stand for."""

from dataclasses import dataclass

import polars as pl

from ownership.names import normalise_username

FIELDS = ("user_email", "directory_user_sam_account_name", "directory_user_surname")
"""The fields that are always compared, in the order in which they decide (rules 2.1)."""


@dataclass(frozen=True)
class FieldNames:
    """The instance's names for fields of the inventory, as advice must call them."""

    user_value: str = "user_email"
    owner: str = "asset_owner"
    hostname: str = "search_agent_name"

    @property
    def asked(self) -> tuple[str, ...]:
        """Fields of user assets in the order in which they decide (rules 2.1)."""
        return tuple(dict.fromkeys((self.user_value, *FIELDS)))


def candidates(matches: pl.LazyFrame) -> pl.LazyFrame:
    """Gather the user assets that each user name may stand for (rules 2.1).

    username, matched_by, candidate_ids (sorted), readable (whether all of them are), resolved_owner (the one,
    if there is one and it can be read).
    """
    readable = pl.col("problem").is_null()
    ids = pl.col("candidate_ids")
    return (
        matches.filter("decisive")
        .group_by("username")
        .agg(
            pl.coalesce(pl.col("matched_by").filter(readable).first(), pl.first("matched_by")),
            candidate_ids=pl.col("user_id").sort(),
            readable=readable.all(),
        )
        .with_columns(
            resolved_owner=pl.when((ids.list.len() == 1) & pl.col("readable")).then(ids.list.first())
        )
    )


def username_matches(shares: pl.DataFrame, users: pl.DataFrame, *, user_value_field: str) -> pl.DataFrame:
    """Look every user name of `shares` up in the user assets (rules 2.1, 2.7): rows of `username_matches`.

    The instance's user value field is asked first, then `FIELDS`, each once; the first field that knows the
    name decides, and what later fields say is kept beside it. A user asset that cannot be read whole matches
    nobody: whatever field of it knows the name, the name is ambiguous.
    """
    columns = {user_value_field: "user_value"} | {name: name for name in FIELDS if name != user_value_field}
    known = pl.concat(
        users.lazy()
        .select("user_id", "problem", username=column)
        .explode("username")
        .with_columns(normalise_username(pl.col("username")), matched_by=pl.lit(field), order=pl.lit(order))
        for order, (field, column) in enumerate(columns.items())
    )
    # A candidate whom several fields know is found by the first of them.
    known = known.unique(["username", "user_id"], keep="first", maintain_order=True)
    readable = pl.col("problem").is_null()
    first = pl.when(readable).then("order").min().over("username")
    return (
        shares["username"]
        .unique()
        .to_frame()
        .lazy()
        .join(known, on="username", how="left")
        .with_columns(decisive=(pl.col("order").eq(first) | ~readable).fill_null(value=False))
        .sort("username", "order", "user_id")
        .select("username", "user_id", "matched_by", "decisive", "problem")
        .collect(engine="streaming")
    )
