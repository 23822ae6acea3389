"""Logon shares: each user's part of each host's logon events. Counts by spelling in, shares by name out.

Who owns the host is not decided here.
"""

from itertools import count

import polars as pl

from ownership.days import BITS, counted_days, day_bits
from ownership.declaration import polars_schema
from ownership.names import fits_any, normalise_hostname, normalise_name, normalise_username
from ownership.rules import Rules, summed, weighed, weight
from ownership.tables import HostUserShares

_SUMS = pl.selectors.by_name("events", "weighted", require_all=False)

_HOST_WEIGHT_USER = (
    pl.col("host").cast(pl.UInt128) * 2**96
    + (2**63 - 1 - pl.col("weight")).cast(pl.UInt128) * 2**32
    + pl.col("user")
)
"""The order of `ranked` as one number, 32 + 64 + 32 bits: sorted in half the time that three columns take."""


def host_user_shares(counts: pl.LazyFrame, *, rules: Rules, skipped: pl.Series | None = None) -> pl.DataFrame:
    r"""Compute each user's share of each host's logons (rules 1.1 to 1.4, 1.6 to 1.8).

    Args:
        counts: Rows of `logon_counts`, those of the look-back window.
        rules: The instance's rules. Users whom `exclude_users` fits, by name (`svc_*`) or whole spelling
            (`corp\adm*`), do not count.
        skipped: Normalised user names that do not count, either, for their kind.

    Returns:
        Rows of `host_user_shares`, sorted by hostname and rank.
    """
    # Collected here because what follows reads the pairs of spellings several times, a quarter of the counts.
    pairs = (
        counts.with_columns(**weighed(rules))
        .group_by("document_hostname", "document_username")
        .agg(
            pl.sum("events"),
            first_seen=pl.min("day"),
            last_seen=pl.max("day"),
            **summed(rules),
            **day_bits(counts, rules),
        )
        .collect(engine="streaming")
    )
    spelled_hosts, spelled_users = pairs["document_hostname"].unique(), pairs["document_username"].unique()
    hosts = numbered_hosts(spelled_hosts, rules=rules)
    users = numbered_users(spelled_users, rules=rules, skipped=skipped)
    numbered = (
        pairs.lazy()
        .pipe(_with_numbers, spelled_hosts, hosts.drop("hostname"))
        .pipe(_with_numbers, spelled_users, users.drop("username").with_row_index("spelling"))
        .collect(engine="streaming")
        .lazy()
    )
    del pairs
    host_names = hosts.group_by("host", maintain_order=True).agg(pl.first("hostname"), "document_hostname")
    user_names = users.group_by("user", maintain_order=True).agg(pl.first("username"), "document_username")
    # Most names have one spelling: their pairs are rows already, and the user is spelled as everywhere.
    alone = pl.col("host_alone") & pl.col("user_alone")
    added = _added_up(numbered.filter(~alone), users["document_username"])
    rows = pl.concat(
        [
            numbered.filter(alone).with_columns(spelled="user"),
            added.lazy().drop("spellings").with_row_index("spelled", offset=user_names.height),
        ],
        how="diagonal",
    )
    username_spellings = pl.concat([user_names["document_username"], added["spellings"]])
    return (
        rows.with_columns(**counted_days(rules))
        .with_columns(weight=weight(rules))
        .drop("spelling", "host_alone", "user_alone", BITS)
        .sort(_HOST_WEIGHT_USER)
        .pipe(_with_ranks, by="host")
        .with_columns(
            hostname=_named(host_names["hostname"], by="host"),
            hostname_spellings=_named(host_names["document_hostname"], by="host"),
            username=_named(user_names["username"], by="user"),
            # Looked up, too: to sort lists with the rows takes half as long again.
            username_spellings=_named(username_spellings, by="spelled"),
        )
        .select(*polars_schema(HostUserShares))
        # Streaming returns chunks; of lists in one piece, writing Parquet copies all for each row group.
        .collect(engine="streaming")
    )


def numbered_hosts(spellings: pl.Series, *, rules: Rules) -> pl.DataFrame:
    """Normalise each host name once and give it a number, in the order of names.

    Numbers are grouped and sorted in a third of the time that names take.

    Args:
        spellings: document_hostname, each once.
        rules: The instance's rules.

    Returns:
        document_hostname, hostname, host, host_alone (whether the name has one spelling).
    """
    spelling = pl.col("document_hostname").cast(pl.String)
    names = spellings.to_frame().lazy()
    return _numbered(
        names.with_columns(hostname=normalise_hostname(spelling, short=rules.short_hostnames)), number="host"
    )


def numbered_users(spellings: pl.Series, *, rules: Rules, skipped: pl.Series | None = None) -> pl.DataFrame:
    """Normalise each user name once and give it a number; excluded users are left out.

    Args:
        spellings: document_username, each once.
        rules: The instance's rules.
        skipped: Normalised user names that do not count, either.

    Returns:
        document_username, username, user, user_alone, as for hosts.
    """
    spelling = pl.col("document_username").cast(pl.String)
    return _numbered(
        spellings.to_frame()
        .lazy()
        .with_columns(username=normalise_username(spelling))
        .filter(
            ~fits_any(pl.col("username"), rules.exclude_users),
            ~fits_any(normalise_name(spelling), rules.exclude_users),
            *([] if skipped is None else [~pl.col("username").is_in(skipped.implode())]),
        ),
        number="user",
    )


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


def _with_numbers(pairs: pl.LazyFrame, spellings: pl.Series, names: pl.DataFrame) -> pl.LazyFrame:
    """Put numbers in the place of spellings; pairs with names that do not count are left out.

    Joined are hashes that no two spellings share: a quarter of the time that strings take.

    Args:
        pairs: What is counted of pairs of spellings.
        spellings: Those of one of the two names, each once, also those that do not count.
        names: The spellings that count, with their numbers.
    """
    seed = next(seed for seed in count() if spellings.hash(seed).is_unique().all())
    hashed = pl.col(spellings.name).hash(seed)
    return (
        pairs.with_columns(hashed)
        .join(names.lazy().with_columns(hashed), on=spellings.name)
        .drop(spellings.name)
    )


def _added_up(pairs: pl.LazyFrame, names: pl.Series) -> pl.DataFrame:
    """Add pairs of spellings up to pairs of names.

    Args:
        pairs: host, user, spelling (the user's), all of them numbers, and what is counted of them.
        names: Spellings of users, by number.

    Returns:
        host, user, what is counted of them, and spellings of the user (sorted).
    """
    counted = (_SUMS.sum(), pl.min("first_seen"), pl.max("last_seen"), BITS.bitwise_or())
    return (
        pairs.group_by("host", "user", "spelling")
        .agg(*counted)
        .sort("spelling")
        .with_columns(spellings=_named(names, by="spelling"))
        .group_by("host", "user")
        .agg(*counted, "spellings")
        .collect(engine="streaming")
    )


def _named(names: pl.Series, *, by: str) -> pl.Expr:
    """Look names up by number, which is their place: far quicker than a join, if they lie in one piece."""
    return pl.lit(names.rechunk()).gather(by)


def ranked(users: pl.LazyFrame, *, by: str) -> pl.LazyFrame:
    """Rank the users of each `by`: greatest weight first, ties by name; add the totals, share and rank."""
    return users.sort(by, "weight", "username", descending=[False, True, False]).pipe(_with_ranks, by=by)


def _with_ranks(users: pl.LazyFrame, *, by: str) -> pl.LazyFrame:
    """Add the totals, share and rank to users in the order of their ranks."""
    return users.with_columns(
        total_events=pl.sum("events").over(by),
        total_weight=pl.sum("weight").over(by),
        rank=pl.col(by).cum_count().over(by).cast(pl.Int64),
    ).with_columns(share=pl.col("weight") / pl.col("total_weight"))


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
