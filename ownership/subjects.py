"""What is decided about, and who leads its logons.

A subject is a host asset with all its names, or a host name of the documents that no asset has. What follows
for it is decided in `decisions`.
"""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from ownership.evidence import ranked
from ownership.identities import fits_any, fold_hostname


def subjects_with_leaders(
    shares: pl.DataFrame,
    hosts: pl.DataFrame,
    *,
    hostname_match: Literal["exact", "short"],
    exclude_hosts: Sequence[str],
) -> pl.LazyFrame:
    """Find what is decided about and its logons, those of all its names added up (readings §1.4 to §1.6).

    Returns:
        host_id, owner_ids, names (as compared, distinct), hostname (the first of them), excluded, collides; then
        the leader's username, events, share, first_seen and last_seen, and total_events, user_count,
        runner_up_username, runner_up_events. Without logons counts are 0 and the rest null.
    """
    subjects = _subjects(shares.lazy(), hosts.lazy(), short=hostname_match == "short").collect()
    barred = _barred(
        shares.lazy(), hosts.lazy(), short=hostname_match == "short", exclude_hosts=exclude_hosts
    )
    names = subjects.lazy().select("subject", hostname="names").explode("hostname")
    flags = names.join(barred, on="hostname").group_by("subject").agg(pl.any("excluded", "collides"))

    # Most subjects have one name, whose ranking the shares already hold; only the others are counted anew.
    single = pl.col("names").list.len() <= 1
    together = (
        names.join(subjects.lazy().filter(~single).select("subject"), on="subject", how="semi")
        .join(shares.lazy(), on="hostname")
        .group_by("subject", "username")
        .agg(pl.sum("events"), pl.min("first_seen"), pl.max("last_seen"))
    )
    return (
        pl.concat(
            [
                subjects.lazy()
                .filter(single)
                .join(_leaders(shares.lazy(), of="hostname"), on="hostname", how="left"),
                subjects.lazy()
                .filter(~single)
                .join(_leaders(ranked(together, by="subject"), of="subject"), on="subject", how="left"),
            ],
        )
        .join(flags, on="subject", how="left")
        .with_columns(
            pl.col("excluded", "collides").fill_null(value=False),
            pl.col("events", "total_events", "user_count").fill_null(0),
        )
    )


def _subjects(shares: pl.LazyFrame, hosts: pl.LazyFrame, *, short: bool) -> pl.LazyFrame:
    """Host assets, then host names that no asset has: subject (row number), host_id, owner_ids, names, hostname."""
    folded = fold_hostname(pl.element(), short=short)
    assets = hosts.select(
        "host_id",
        "owner_ids",
        names=pl.col("hostnames").list.eval(folded.drop_nulls().unique(maintain_order=True)),
    )
    strangers = (
        shares.filter(pl.col("rank") == 1)
        .join(assets.explode("names"), left_on="hostname", right_on="names", how="anti")
        .select(
            host_id=pl.lit(None, pl.String),
            owner_ids=pl.lit([], pl.List(pl.String)),
            names=pl.concat_list("hostname"),
        )
    )
    return (
        pl.concat([assets, strangers])
        .with_row_index("subject")
        .with_columns(hostname=pl.col("names").list.first())
    )


def _barred(
    shares: pl.LazyFrame, hosts: pl.LazyFrame, *, short: bool, exclude_hosts: Sequence[str]
) -> pl.LazyFrame:
    """Host names as compared that decide nothing: hostname, excluded, collides (readings §1.4).

    Names collide when documents, or assets, have two of them with a domain part that shorten to one. A bare
    name beside one with a domain part is no second host.
    """
    in_domain = pl.col("full") != pl.col("short")
    return (
        pl.concat(
            [
                hosts.select("hostnames", side=pl.lit("assets")).rename({"hostnames": "full"}),
                shares.filter(pl.col("rank") == 1).select(
                    full="hostname_spellings", side=pl.lit("documents")
                ),
            ]
        )
        .explode("full")
        .select("side", fold_hostname(pl.col("full")))
        .unique()
        .drop_nulls()
        .with_columns(short=fold_hostname(pl.col("full"), short=True))
        .with_columns(hostname="short" if short else "full")
        .select(
            "hostname",
            excluded=fits_any(pl.col("full"), exclude_hosts) | fits_any(pl.col("short"), exclude_hosts),
            collides=in_domain & (in_domain.sum().over("side", "hostname") > 1),
        )
        .filter(pl.col("excluded") | pl.col("collides"))
    )


def _leaders(ranked_users: pl.LazyFrame, *, of: str) -> pl.LazyFrame:
    """The first of each group of ranked users, how many they are, and the runner-up."""
    followed = pl.col("rank").shift(-1) == 2
    return (
        ranked_users.select(
            of,
            "username",
            "events",
            "total_events",
            "share",
            "rank",
            "first_seen",
            "last_seen",
            user_count=pl.len().over(of).cast(pl.Int64),
            runner_up_username=pl.when(followed).then(pl.col("username").shift(-1)),
            runner_up_events=pl.when(followed).then(pl.col("events").shift(-1)),
        )
        .filter(pl.col("rank") == 1)
        .drop("rank")
    )
