"""What is decided about, and who leads its logons.

A subject is a host asset with all its names, or a host name of the documents that no asset has. What follows
for it is decided in `decisions`.
"""

from collections.abc import Sequence

import polars as pl

from ownership.logons import SPELLINGS, logons_by_day, logons_by_user
from ownership.names import fits_any, normalise_hostname
from ownership.rules import Rules
from ownership.shares import ranked


def hosts_with_leaders(
    shares: pl.LazyFrame,
    hosts: pl.LazyFrame,
    counts: pl.LazyFrame,
    *,
    rules: Rules,
) -> pl.LazyFrame:
    """Find the subjects and what the logons under all their names add up to (rules 1.4 to 1.7).

    Args:
        shares: Rows of `host_user_shares`.
        hosts: Rows of `inventory_hosts`.
        counts: Rows of `logon_counts` that the shares are made of; read only where assets have several names.
        rules: The instance's rules, as for the shares.

    Returns:
        host_id (null where no asset has the name), owner_ids, problem, hostname (the first), excluded_by (the
        setting and its first value that fits; null: none does), collides; the leader's username, events,
        weight, share, first_seen, last_seen, active_days; total_events, total_weight, user_count; username,
        events and weight of the runner_up. Without logons counts are 0 and the rest is null.
    """
    short = rules.short_hostnames
    leaders = _leaders(shares, of="hostname").collect(engine="streaming").lazy()
    subjects = subjects_of(leaders, hosts, short=short).collect(engine="streaming").lazy()
    names = subjects.explode("hostnames").select("subject", hostname="hostnames")
    spellings = shares.filter(pl.col("rank") == 1).select(full="hostname_spellings")
    barred = (
        names.join(left_out(spellings, hosts, short=short, exclude_hosts=rules.exclude_hosts), on="hostname")
        .group_by("subject")
        .agg(pl.min("pattern"), pl.any("collides"))
    )
    patterns = dict(enumerate(rules.exclude_hosts))
    pattern = pl.col("pattern").replace_strict(patterns, default=None, return_dtype=pl.String)
    # Most subjects have one name, and the shares hold its ranking; only the others are counted anew.
    one_name = pl.col("hostnames").list.len() <= 1
    parts = [subjects.filter(one_name).join(leaders, on="hostname", how="left")]
    several = subjects.filter(~one_name).collect()
    if not several.is_empty():
        parts.append(_with_leaders_under_all_names(several, shares, counts, rules))
    return (
        pl.concat(parts, how="diagonal")
        .join(barred, on="subject", how="left")
        .with_columns(
            pl.col("collides").fill_null(value=False),
            pl.col("events", "total_events", "weight", "total_weight", "user_count").fill_null(0),
            excluded_by=pl.format("exclude_hosts: {}", pattern),
        )
    )


def _with_leaders_under_all_names(
    subjects: pl.DataFrame, shares: pl.LazyFrame, counts: pl.LazyFrame, rules: Rules
) -> pl.LazyFrame:
    """Add to subjects with several names who leads when the logons under all of them are added up."""
    names = subjects.select("subject", hostname="hostnames").explode("hostname")
    # Few hosts have several names: other rows are left out before anything is joined.
    spellings = (
        shares.filter(pl.col("hostname").is_in(names["hostname"].implode()))
        .join(names.lazy(), on="hostname")
        .select(
            "subject",
            "username",
            document_hostname="hostname_spellings",
            document_username="username_spellings",
        )
        .explode("document_hostname")
        .explode("document_username")
        .collect(engine="streaming")
    )
    host_and_user = ("subject", "username")
    users = (
        counts.filter(pl.col("document_hostname").is_in(spellings["document_hostname"].unique().implode()))
        .join(spellings.lazy(), on=SPELLINGS)
        .pipe(logons_by_day, *host_and_user, rules=rules)
        .pipe(logons_by_user, *host_and_user)
    )
    leaders = _leaders(ranked(users, by="subject"), of="subject")
    return subjects.lazy().join(leaders, on="subject", how="left")


def subjects_of(logons: pl.LazyFrame, hosts: pl.LazyFrame, *, short: bool) -> pl.LazyFrame:
    """Number the subjects: subject, host_id, owner_ids, problem, hostnames (as compared), hostname.

    Args:
        logons: hostname, normalised, of the hosts with logons; each once.
        hosts: Rows of `inventory_hosts`.
        short: Whether host names are compared without their domain part.
    """
    normalised = normalise_hostname(pl.element(), short=short)
    assets = hosts.select(
        "host_id",
        "owner_ids",
        "problem",
        # Names that cannot be read are none to compare.
        hostnames=pl.col("hostnames")
        .list.eval(normalised.drop_nulls().unique(maintain_order=True))
        .fill_null([]),
    )
    without_asset = logons.join(
        assets.select(hostname="hostnames").explode("hostname"), on="hostname", how="anti"
    ).select(
        host_id=pl.lit(None, pl.String),
        owner_ids=pl.lit([], pl.List(pl.String)),
        problem=pl.lit(None, pl.String),
        hostnames=pl.concat_list("hostname"),
    )
    subjects = pl.concat([assets, without_asset]).with_row_index("subject")
    return subjects.with_columns(hostname=pl.col("hostnames").list.first())


def left_out(
    spellings: pl.LazyFrame, hosts: pl.LazyFrame, *, short: bool, exclude_hosts: Sequence[str]
) -> pl.LazyFrame:
    """Find host names that must not name an owner, and why: hostname (as compared), pattern, collides.

    `pattern` is the number of the first wildcard that fits; null: none does.

    Names collide when the documents, or the assets, hold two with a domain part that shorten to one; a bare
    name beside one with a domain part is no second host (rules 1.4). Whole names never collide.

    Args:
        spellings: full, lists of the spellings of each host name with logons.
        hosts: Rows of `inventory_hosts`.
        short: Whether host names are compared without their domain part.
        exclude_hosts: Wildcards for whole or short host names.
    """
    if not short and not exclude_hosts:
        return pl.LazyFrame(schema={"hostname": pl.String, "pattern": pl.UInt32, "collides": pl.Boolean})
    assets = hosts.select(pl.lit("assets").alias("side"), full="hostnames")
    documents = spellings.select(pl.lit("documents").alias("side"), "full")
    names = (
        pl.concat([assets, documents])
        .explode("full")
        .with_columns(normalise_hostname(pl.col("full")))
        .with_columns(short=normalise_hostname(pl.col("full"), short=True))
        .with_columns(hostname="short" if short else "full")
    )

    def fits(patterns: Sequence[str]) -> pl.Expr:
        return fits_any(pl.col("full"), patterns) | fits_any(pl.col("short"), patterns)

    numbers = (pl.when(fits([one])).then(pl.lit(at, pl.UInt32)) for at, one in enumerate(exclude_hosts))
    excluded = (
        names.filter(fits(exclude_hosts))
        .with_columns(pattern=pl.coalesce(*numbers, pl.lit(None, pl.UInt32)))
        .group_by("hostname")
        .agg(pl.min("pattern"))
    )
    in_domain = pl.when(pl.col("full") != pl.col("short")).then("full")
    colliding = (
        names.group_by("side", "hostname")
        .agg(collides=in_domain.min() != in_domain.max())
        .filter("collides")
        .select("hostname", "collides")
        .unique()
    )
    return excluded.join(colliding, on="hostname", how="full", coalesce=True).with_columns(
        pl.col("collides").fill_null(value=False)
    )


def _leaders(users: pl.LazyFrame, *, of: str) -> pl.LazyFrame:
    """Keep the first of each `of`'s ranked users; add how many they are, and the runner-up."""
    runners_up = users.filter(pl.col("rank") == 2).select(
        of, runner_up_username="username", runner_up_events="events", runner_up_weight="weight"
    )
    return (
        users.filter(pl.col("rank") == 1)
        .join(users.group_by(of).agg(user_count=pl.len().cast(pl.Int64)), on=of)
        .select(
            *(of, "username", "events", "total_events", "weight", "total_weight", "share", "user_count"),
            *("first_seen", "last_seen", "active_days"),
        )
        .join(runners_up, on=of, how="left")
    )
