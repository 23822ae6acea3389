"""Logons under the names that the rules compare: by day, and added up over days."""

from dataclasses import dataclass

import polars as pl

from ownership.names import fits_any, normalise_hostname, normalise_name, normalise_username
from ownership.rules import Rules, day_weight

SPELLINGS = ("document_hostname", "document_username")


@dataclass(frozen=True)
class Names:
    """The spellings of hosts and users that count, each with its normalised name (rules 1.3, 1.4, 1.6, 1.8).

    Attributes:
        hosts: document_hostname, hostname.
        users: document_username, username.
    """

    hosts: pl.DataFrame
    users: pl.DataFrame

    def of(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Add hostname and username to rows with `SPELLINGS`, and leave out those that do not count."""
        return rows.join(self.hosts.lazy(), on="document_hostname").join(
            self.users.lazy(), on="document_username"
        )


def normalised_names(pairs: pl.DataFrame, *, rules: Rules, skipped: pl.Series | None = None) -> Names:
    r"""Normalise the names of hosts and users, each spelling once.

    Args:
        pairs: Rows with `SPELLINGS`.
        rules: Users whom `exclude_users` fits do not count, by name (`svc_*`) or spelling (`corp\adm*`).
        skipped: Normalised user names that do not count, either.
    """
    host, user, username = pl.col("document_hostname"), pl.col("document_username"), pl.col("username")
    users = _with_names(pairs, user, username=normalise_username(user)).filter(
        ~fits_any(username.cast(pl.String), rules.exclude_users),
        ~fits_any(normalise_name(user), rules.exclude_users),
    )
    if skipped is not None:
        users = users.filter(~username.cast(pl.String).is_in(skipped.implode()))
    return Names(
        _with_names(pairs, host, hostname=normalise_hostname(host, short=rules.short_hostnames)), users
    )


def _with_names(pairs: pl.DataFrame, spelling: pl.Expr, **name: pl.Expr) -> pl.DataFrame:
    named = pairs.lazy().select(spelling.unique()).with_columns(**name).drop_nulls().collect()
    # Values of an Enum are numbers in the order of names: to group and sort them takes half as long as text.
    return named.with_columns(pl.col(each).cast(pl.Enum(named[each].unique().sort())) for each in name)


def logons_by_day(rows: pl.LazyFrame, *by: str, rules: Rules) -> pl.LazyFrame:
    """Add up the logons of each day: day, `by`, events, and the weight that they have by the rules.

    Args:
        rows: Rows of `logon_counts` with the columns `by`.
        by: What tells hosts and users apart.
        rules: Which logons count how much.
    """
    return rows.group_by("day", *by).agg(pl.sum("events"), weight=day_weight(rules))


def logons_by_user(days: pl.LazyFrame, *by: str) -> pl.LazyFrame:
    """Add up the days of `logons_by_day`: `by`, events, weight, active_days, first_seen and last_seen."""
    return days.group_by(*by).agg(
        pl.sum("events", "weight"),
        active_days=pl.len().cast(pl.Int64),
        first_seen=pl.min("day"),
        last_seen=pl.max("day"),
    )
