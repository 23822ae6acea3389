"""Logons under the names that the rules compare: counts by spelling in, counts and shares by name out."""

from dataclasses import dataclass

import polars as pl

from ownership.declaration import polars_schema
from ownership.names import fits_any, normalise_hostname, normalise_name, normalise_username
from ownership.rules import Rules, day_weights
from ownership.tables import HostUserShares


@dataclass(frozen=True)
class CountedNames:
    """The spellings that are counted, each with its normalised name (rules 1.3, 1.4, 1.6, 1.8).

    `pairs` has each document_hostname with each document_username there, excluded ones included; `hosts` has
    document_hostname and hostname, `users` document_username and username, and so has `skipped`: the users
    that are excluded for their kind.
    """

    pairs: pl.LazyFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    skipped: pl.DataFrame

    def add_to(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Add hostname and username to rows with both spellings; rows with an excluded one go."""
        return rows.join(self.hosts.lazy(), on="document_hostname").join(
            self.users.lazy(), on="document_username"
        )


def normalised_names(counts: pl.LazyFrame, *, rules: Rules, skipped_users: pl.Series) -> CountedNames:
    r"""Normalise each spelling in rows of `logon_counts` once.

    `exclude_users` fits names (`svc_*`) or spellings (`corp\adm*`).
    """
    host, user, username = pl.col("document_hostname"), pl.col("document_username"), pl.col("username")
    pairs = counts.select(host, user).unique().collect(engine="streaming")
    hosts = _with_names(pairs, host, hostname=normalise_hostname(host, short=rules.short_hostnames))
    users = _with_names(pairs, user, username=normalise_username(user)).filter(
        ~fits_any(username.cast(pl.String), rules.exclude_users),
        ~fits_any(normalise_name(user), rules.exclude_users),
    )
    skipped = username.cast(pl.String).is_in(skipped_users.implode())
    return CountedNames(pairs.lazy(), hosts, users.filter(~skipped), users.filter(skipped))


def _with_names(pairs: pl.DataFrame, spelling: pl.Expr, **name: pl.Expr) -> pl.DataFrame:
    named = pairs.lazy().select(spelling.unique()).with_columns(**name).drop_nulls().collect()
    # Values of an Enum are numbers in the order of names: to group and sort them takes half as long as text.
    return named.with_columns(pl.col(each).cast(pl.Enum(named[each].unique().sort())) for each in name)


def logons_by_day(rows: pl.LazyFrame, *by: str, rules: Rules) -> pl.LazyFrame:
    """Add up rows of `logon_counts`: day, `by`, events, and what they count for by each metric."""
    weights = {f"weight_by_{metric}": weight for metric, weight in day_weights(rules).items()}
    return rows.group_by("day", *by).agg(pl.sum("events"), **weights)


def logons_by_user(days: pl.LazyFrame, *by: str, rules: Rules) -> pl.LazyFrame:
    """Add up the days of `logons_by_day`: `by`, events, weight, active_days, first_seen and last_seen."""
    return days.group_by(*by).agg(
        pl.sum("events"),
        weight=pl.sum(f"weight_by_{rules.evidence_metric}"),
        active_days=pl.len().cast(pl.Int64),
        first_seen=pl.min("day"),
        last_seen=pl.max("day"),
    )


def host_user_shares(counts: pl.LazyFrame, *, rules: Rules, skipped_users: pl.Series) -> pl.DataFrame:
    """Compute each user's share of each host's logons (rules 1.1 to 1.4, 1.6 to 1.8).

    `skipped_users` are user names that are excluded for their kind. Rows of `host_user_shares`, sorted by
    hostname and rank.
    """
    names = normalised_names(counts, rules=rules, skipped_users=skipped_users)
    host_and_user = ("hostname", "username")
    username_spellings = (
        names.add_to(names.pairs)
        .select(*host_and_user, username_spellings="document_username")
        .unique()
        .sort("username_spellings")
        .group_by(host_and_user)
        .agg("username_spellings")
        .collect(engine="streaming")
    )
    hostname_spellings = (
        names.hosts.sort("document_hostname").group_by("hostname").agg(hostname_spellings="document_hostname")
    )
    return (
        names.add_to(counts)
        .pipe(logons_by_day, *host_and_user, rules=rules)
        .pipe(logons_by_user, *host_and_user, rules=rules)
        .collect(engine="streaming")
        .lazy()
        .join(username_spellings.lazy(), on=host_and_user)
        .join(hostname_spellings.lazy(), on="hostname")
        .pipe(rank_users, by="hostname")
        .select(polars_schema(HostUserShares).names())
        .cast(dict(polars_schema(HostUserShares)))
        .collect(engine="streaming")
    )


def rank_users(users: pl.LazyFrame, *, by: str) -> pl.LazyFrame:
    """Rank the users of each `by`: greatest weight first, ties by name; add the totals, share and rank."""
    return (
        users.sort(by, "weight", "username", descending=[False, True, False])
        .with_columns(
            total_events=pl.sum("events").over(by),
            total_weight=pl.sum("weight").over(by),
            rank=pl.col(by).cum_count().over(by).cast(pl.Int64),
        )
        .with_columns(share=pl.col("weight") / pl.col("total_weight"))
    )
