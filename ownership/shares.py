"""Logon shares: each user's part of each host's logon events. Counts by spelling in, shares by name out.

Who owns the host is not decided here.
"""

import polars as pl

from ownership.declaration import polars_schema
from ownership.logons import SPELLINGS, logons_by_day, logons_by_user, normalised_names
from ownership.names import normalise_name
from ownership.rules import Rules
from ownership.tables import HostUserShares


def host_user_shares(counts: pl.LazyFrame, *, rules: Rules, skipped: pl.Series | None = None) -> pl.DataFrame:
    """Compute each user's share of each host's logons (rules 1.1 to 1.4, 1.6 to 1.8).

    Args:
        counts: Rows of `logon_counts`, those of the look-back window.
        rules: Which names are one, who is left out, and what counts.
        skipped: Normalised user names that are left out, too, for their kind.

    Returns:
        Rows of `host_user_shares`, sorted by hostname and rank.
    """
    pairs = counts.select(SPELLINGS).unique().collect(engine="streaming")
    names = normalised_names(pairs, rules=rules, skipped=skipped)
    host_and_user = ("hostname", "username")
    totals = (
        names.of(counts)
        .pipe(logons_by_day, *host_and_user, rules=rules)
        .pipe(logons_by_user, *host_and_user)
        .collect(engine="streaming")
    )
    username_spellings = (
        names.of(pairs.lazy())
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
        totals.lazy()
        .join(username_spellings.lazy(), on=host_and_user)
        .join(hostname_spellings.lazy(), on="hostname")
        .pipe(ranked, by="hostname")
        .select(polars_schema(HostUserShares).names())
        .cast(dict(polars_schema(HostUserShares)))
        .collect(engine="streaming")
    )


def ranked(users: pl.LazyFrame, *, by: str) -> pl.LazyFrame:
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


def users_with_several_domains(shares: pl.DataFrame) -> pl.DataFrame:
    r"""Find users whom one host's documents place in several domains, as in `CORP\alice` and `LAB\alice`.

    They were counted as one user (rules 1.3); whether they are is for a person to say.

    Returns:
        hostname, username, domains (sorted); a row for each user in doubt on each host.
    """
    spelling = pl.col("username_spellings")
    domain = pl.coalesce(spelling.str.extract(r"(?s)^(.*)\\"), spelling.str.extract(r"(?s)^[^@]*@(.*)$"))
    return (
        shares.lazy()
        .filter(spelling.list.len() > 1)
        .explode("username_spellings")
        .select("hostname", "username", domains=normalise_name(domain))
        .drop_nulls("domains")
        .group_by("hostname", "username")
        .agg(pl.col("domains").unique().sort())
        .filter(pl.col("domains").list.len() > 1)
        .sort("hostname", "username")
        .collect()
    )
