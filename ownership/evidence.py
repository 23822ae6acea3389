"""Whose logons a host's are: counts of spelled names in, shares of folded names out.

Who owns the host is not decided here.
"""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from ownership.identities import fits_any, fold_hostname, fold_name, fold_username
from ownership.schemas import HostUserShares, polars_schema


def host_user_shares(
    counts: pl.LazyFrame, *, exclude_users: Sequence[str], hostname_match: Literal["exact", "short"]
) -> pl.DataFrame:
    r"""Compute each user's share of each host's logons (§1 rules 1 to 3; readings §1.1, §1.3, §1.4, §1.6).

    Args:
        counts: Rows of `logon_counts`, those of the look-back window.
        exclude_users: Wildcards for user names (`svc_*`) or whole spellings (`corp\adm*`) that do not count.
        hostname_match: Whether host names are compared whole or without their domain part.

    Returns:
        Rows of `host_user_shares`, sorted by hostname and rank.
    """
    # Collected here because what follows reads the pairs of spellings several times, a tenth of the counts.
    pairs = (
        counts.group_by("document_hostname", "document_username")
        .agg(pl.sum("events"), first_seen=pl.min("day"), last_seen=pl.max("day"))
        .collect(engine="streaming")
        .lazy()
    )
    # A name is folded once, not once for each pair.
    host, user = pl.col("document_hostname"), pl.col("document_username")
    hosts = (
        pairs.select(host.unique())
        .with_columns(hostname=fold_hostname(host, short=hostname_match == "short"))
        .drop_nulls()
    )
    users = (
        pairs.select(user.unique())
        .with_columns(username=fold_username(user))
        .drop_nulls()
        .filter(~fits_any(pl.col("username"), exclude_users), ~fits_any(fold_name(user), exclude_users))
    )
    spellings = (
        hosts.sort("document_hostname")
        .group_by("hostname", maintain_order=True)
        .agg(hostname_spellings="document_hostname")
    )
    shares = (
        pairs.join(hosts, on="document_hostname")
        .join(users, on="document_username")
        .group_by("hostname", "username")
        .agg(
            pl.sum("events"),
            pl.min("first_seen"),
            pl.max("last_seen"),
            username_spellings=user.unique(),
        )
        .with_columns(pl.col("username_spellings").list.eval(pl.element().sort()))
        .join(spellings, on="hostname")
    )
    return ranked(shares, by="hostname").select(*polars_schema(HostUserShares)).collect(engine="streaming")


def ranked(users: pl.LazyFrame, *, by: str) -> pl.LazyFrame:
    """Rank the users of each `by`: most events first, ties by name; add total_events, share and rank."""
    return (
        users.sort(by, "events", "username", descending=[False, True, False])
        .with_columns(
            total_events=pl.sum("events").over(by),
            rank=pl.int_range(1, pl.len() + 1).over(by),
        )
        .with_columns(share=pl.col("events") / pl.col("total_events"))
    )


def users_with_several_domains(shares: pl.DataFrame) -> pl.DataFrame:
    r"""Find users whom one host's documents place in several domains, as in `CORP\alice` and `LAB\alice`.

    They were counted as one user (readings §1.3); whether they are is for a person to say.

    Returns:
        hostname, username, domains (sorted); a row for each user in doubt on each host.
    """
    spelling = pl.col("username_spellings")
    domain = pl.coalesce(spelling.str.extract(r"(?s)^(.*)\\"), spelling.str.extract(r"(?s)^[^@]*@(.*)$"))
    return (
        shares.lazy()
        .filter(spelling.list.len() > 1)
        .explode("username_spellings")
        .select("hostname", "username", domains=fold_name(domain))
        .drop_nulls("domains")
        .group_by("hostname", "username")
        .agg(pl.col("domains").unique().sort())
        .filter(pl.col("domains").list.len() > 1)
        .sort("hostname", "username")
        .collect()
    )
