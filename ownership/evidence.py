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
    host, user = pl.col("document_hostname"), pl.col("document_username")
    # Collected here because what follows reads the pairs of spellings several times, a quarter of the counts.
    pairs = (
        counts.group_by(host, user)
        .agg(pl.sum("events"), first_seen=pl.min("day"), last_seen=pl.max("day"))
        .collect(engine="streaming")
        .lazy()
    )
    # A name is folded once and gets a number: numbers are grouped and sorted in a third of the time.
    hosts = _numbered(
        pairs.select(host.unique()).with_columns(
            hostname=fold_hostname(host, short=hostname_match == "short")
        ),
        number="host",
    )
    users = _numbered(
        pairs.select(user.unique())
        .with_columns(username=fold_username(user))
        .filter(~fits_any(pl.col("username"), exclude_users), ~fits_any(fold_name(user), exclude_users)),
        number="user",
    )
    counted = _counted(pairs, hosts, users)
    # A number is the place of its name, which is far quicker to take than to join.
    host_names = hosts.group_by("host", maintain_order=True).agg(pl.first("hostname"), host).collect()
    user_names = users.unique("user", maintain_order=True).collect()
    return (
        ranked(counted, by="host", then="user")
        .with_columns(
            hostname=pl.lit(host_names["hostname"]).gather("host"),
            hostname_spellings=pl.lit(host_names["document_hostname"]).gather("host"),
            username=pl.lit(user_names["username"]).gather("user"),
        )
        .select(*polars_schema(HostUserShares))
        .collect()
    )


def _numbered(names: pl.LazyFrame, *, number: str) -> pl.LazyFrame:
    """Number folded names from 0, in their order; `<number>_alone` tells those that have one spelling.

    Args:
        names: The spelling, and the folded name; null where the spelling counts as lacking.
        number: Name of the column with the number.
    """
    spelling, name = names.collect_schema().names()
    return (
        names.drop_nulls()
        .sort(name, spelling)
        .with_columns(
            pl.col(name).rle_id().alias(number), (pl.len().over(name) == 1).alias(f"{number}_alone")
        )
        .collect(engine="streaming")
        .lazy()
    )


def _counted(pairs: pl.LazyFrame, hosts: pl.LazyFrame, users: pl.LazyFrame) -> pl.LazyFrame:
    """Add the pairs of spellings up to pairs of names: host, user (numbers) and what is counted of them."""
    user = pl.col("document_username")
    numbered = (
        pairs.join(hosts.drop("hostname"), on="document_hostname")
        .join(users.drop("username"), on="document_username")
        .drop("document_hostname")
        .collect(engine="streaming")
        .lazy()
    )
    # Most names have one spelling: their pairs are rows already.
    alone = pl.col("host_alone") & pl.col("user_alone")
    rows = numbered.filter(alone).select(
        "host", "user", "events", "first_seen", "last_seen", username_spellings=pl.concat_list(user)
    )
    added = (
        numbered.filter(~alone)
        .group_by("host", "user")
        .agg(pl.sum("events"), pl.min("first_seen"), pl.max("last_seen"), username_spellings=user.unique())
        .with_columns(pl.col("username_spellings").list.eval(pl.element().sort()))
    )
    return pl.concat([rows, added])


def ranked(users: pl.LazyFrame, *, by: str, then: str = "username") -> pl.LazyFrame:
    """Rank the users of each `by`: most events first, ties by `then`; add total_events, share and rank."""
    return (
        users.sort(by, "events", then, descending=[False, True, False])
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
