"""Logon shares: each user's part of each host's logon events. Counts by spelling in, shares by name out.

Who owns the host is not decided here.
"""

from collections.abc import Sequence
from datetime import date

import polars as pl

from ownership.declaration import polars_schema
from ownership.names import fits_any, normalise_hostname, normalise_name, normalise_username
from ownership.rules import Rules, of_a_day, summed, weighed, weight
from ownership.tables import HostUserShares


def host_user_shares(
    counts: pl.LazyFrame, *, rules: Rules, last: date, skipped: pl.Series | None = None
) -> pl.DataFrame:
    r"""Compute each user's share of each host's logons (rules 1.1 to 1.4, 1.6 to 1.8).

    Args:
        counts: Rows of `logon_counts`, those of the look-back window.
        rules: The instance's rules. Users whom `exclude_users` fits, by name (`svc_*`) or whole spelling
            (`corp\adm*`), do not count.
        last: The last day of the window.
        skipped: Normalised user names that do not count, either, for their kind.

    Returns:
        Rows of `host_user_shares`, sorted by hostname and rank.
    """
    host, user = pl.col("document_hostname"), pl.col("document_username")
    # Collected here because what follows reads the pairs of spellings several times, a quarter of the counts.
    # As categories, spellings are numbers to joins and groups: with the cast, three quarters of the time.
    pairs = (
        _by_day(counts, rules)
        .group_by(host, user)
        .agg(
            pl.sum("events"),
            first_seen=pl.min("day"),
            last_seen=pl.max("day"),
            active_days=pl.len().cast(pl.Int64),  # a pair of spellings has one row a day
            **summed(rules, last),
        )
        .with_columns(pl.col(pl.String).cast(pl.Categorical))
        .collect(engine="streaming")
        .lazy()
    )
    hosts, users = numbered_names(pairs, rules=rules, skipped=skipped)
    host_names = hosts.group_by("host", maintain_order=True).agg(pl.first("hostname"), host.cast(pl.String))
    user_names = users.unique("user", maintain_order=True)
    return (
        ranked(
            _counted(counts, pairs, hosts, users, rules).with_columns(weight=weight(rules)),
            by="host",
            then="user",
        )
        .with_columns(
            hostname=_named(host_names["hostname"], by="host"),
            hostname_spellings=_named(host_names["document_hostname"], by="host"),
            username=_named(user_names["username"], by="user"),
        )
        .select(*polars_schema(HostUserShares))
        # Streaming returns chunks; of lists in one piece, writing Parquet copies all for each row group.
        .collect(engine="streaming")
    )


def _by_day(counts: pl.LazyFrame, rules: Rules) -> pl.LazyFrame:
    """One row for each day and pair of spellings, also where kinds of logon are told apart, `weighed`."""
    weighed_counts = counts.with_columns(**weighed(rules))
    # Without kinds the rows are such already, and to group them once more takes as long as all the rest.
    if not counts.select(pl.col("document_logon_type").is_not_null().any()).collect().item():
        return weighed_counts
    return weighed_counts.group_by("day", "document_hostname", "document_username").agg(of_a_day(rules))


def numbered_names(
    pairs: pl.LazyFrame, *, rules: Rules, skipped: pl.Series | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Normalise each name once and give it a number: numbers are grouped and sorted in a third of the time.

    Args:
        pairs: document_hostname, document_username (categories).
        rules: The instance's rules.
        skipped: Normalised user names that do not count, either.

    Returns:
        document_hostname, hostname, host, host_alone; and document_username, username, user, user_alone,
        without excluded users. Numbers are in the order of names; `alone` tells names with one spelling.
    """
    host, user = pl.col("document_hostname"), pl.col("document_username")
    hosts = _numbered(
        pairs.select(host.unique()).with_columns(
            hostname=normalise_hostname(host.cast(pl.String), short=rules.short_hostnames)
        ),
        number="host",
    )
    users = _numbered(
        pairs.select(user.unique())
        .with_columns(username=normalise_username(user.cast(pl.String)))
        .filter(
            ~fits_any(pl.col("username"), rules.exclude_users),
            ~fits_any(normalise_name(user.cast(pl.String)), rules.exclude_users),
            *([] if skipped is None else [~pl.col("username").is_in(skipped.implode())]),
        ),
        number="user",
    )
    return hosts, users


def _numbered(names: pl.LazyFrame, *, number: str) -> pl.DataFrame:
    """Number normalised names from 0, in their order; `<number>_alone` tells those that have one spelling.

    Args:
        names: The spelling, and the normalised name; null where the spelling counts as lacking.
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
    )


def _named(names: pl.Series, *, by: str) -> pl.Expr:
    """Look names up by number, which is their place: far quicker than a join, if they lie in one piece."""
    return pl.lit(names.rechunk()).gather(by)


def _counted(
    counts: pl.LazyFrame, pairs: pl.LazyFrame, hosts: pl.DataFrame, users: pl.DataFrame, rules: Rules
) -> pl.LazyFrame:
    """Add the pairs of spellings up to pairs of names: host, user (numbers) and what is counted of them."""
    user = pl.col("document_username")
    columns = pairs.collect_schema()
    sums = [name for name in ("events", "recent", "weighted") if name in columns]
    days = [name for name in ("active_days", "weighted_days") if name in columns]
    numbered = (
        pairs.join(hosts.lazy().drop("hostname"), on="document_hostname")
        .join(users.lazy().drop("username"), on="document_username")
        .collect(engine="streaming")
        .lazy()
    )
    # Most names have one spelling: their pairs are rows already.
    alone = pl.col("host_alone") & pl.col("user_alone")
    rows = numbered.filter(alone).select(
        "host",
        "user",
        *sums,
        "first_seen",
        "last_seen",
        *days,
        username_spellings=pl.concat_list(user.cast(pl.String)),
    )
    several = numbered.filter(~alone).collect()
    if several.is_empty():
        return rows
    added = (
        several.lazy()
        .group_by("host", "user")
        .agg(pl.sum(*sums), pl.min("first_seen"), pl.max("last_seen"), username_spellings=user.unique())
        .join(active_days(counts, several.lazy(), of=("host", "user"), rules=rules), on=("host", "user"))
        .with_columns(pl.col("username_spellings").list.eval(pl.element().cast(pl.String).sort()))
    )
    return pl.concat([rows, added.select(rows.collect_schema().names())])


def active_days(
    counts: pl.LazyFrame, spellings: pl.LazyFrame, *, of: Sequence[str], rules: Rules
) -> pl.LazyFrame:
    """Count the days with a logon under any of several pairs of spellings.

    Args:
        counts: Rows of `logon_counts`.
        spellings: document_hostname, document_username, and the columns of `of`.
        of: Whose days are counted.
        rules: The instance's rules.

    Returns:
        The columns of `of`, and active_days; where days and kinds of logon count, weighted_days.
    """
    pair = ("document_hostname", "document_username")
    by_kind = rules.evidence_metric == "days" and bool(rules.logon_type_weights)
    logons = (
        counts.select(*pair, "day", **({"greatest": weighed(rules)["greatest"]} if by_kind else {}))
        .with_columns(pl.col(*pair).cast(pl.Categorical))
        .join(spellings.select(*pair, *of).with_columns(pl.col(*pair).cast(pl.Categorical)), on=pair)
    )
    if not by_kind:
        return logons.group_by(of).agg(active_days=pl.col("day").n_unique().cast(pl.Int64))
    # Of a day with logons under two names, too, only the greatest weight counts.
    days = logons.group_by(*of, "day").agg(pl.max("greatest"))
    return days.group_by(of).agg(active_days=pl.len().cast(pl.Int64), weighted_days=pl.sum("greatest"))


def ranked(users: pl.LazyFrame, *, by: str, then: str = "username") -> pl.LazyFrame:
    """Rank the users of each `by`: greatest weight first, ties by `then`; add the totals, share and rank."""
    return (
        users.sort(by, "weight", then, descending=[False, True, False])
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
