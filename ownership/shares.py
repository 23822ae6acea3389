"""Logons under the names that the rules compare: counts by spelling in, counts and shares by name out."""

from dataclasses import dataclass

import polars as pl
import polars.selectors as cs

from ownership.declaration import polars_schema
from ownership.kind_names import NO_DIRECTORIES
from ownership.names import (
    domains_of,
    fits_any,
    is_no_name,
    is_of_any,
    netbios_name,
    normalise_hostname,
    normalise_name,
    normalise_username,
)
from ownership.rules import Rules, day_weights
from ownership.tables import HostUserShares


@dataclass(frozen=True)
class CountedNames:
    """The spellings that are counted, each with its normalised name (rules 1.3, 1.4, 1.6, 1.8).

    `pairs` has each document_hostname with each document_username there, excluded ones included; `hosts` has
    document_hostname, hostname and computer (the name before local accounts); `users` document_username,
    username, local_to (the computer whose local account it may be; null: none), own_name (the username then)
    and united (the one name of the accounts of its user asset). `skipped_users` are the user names that are
    excluded for their kind. Names are Enums.
    """

    pairs: pl.LazyFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    skipped_users: pl.Series

    def add_to(self, rows: pl.LazyFrame, *, skipped: bool = False) -> pl.LazyFrame:
        """Add hostname, username and account to rows with both spellings; rows with an excluded one go.

        `account` is the user's own name, `username` the one under which its person is counted. `skipped`:
        the rows of the accounts excluded for their kind instead.
        """
        rows = rows.join(self.hosts.lazy(), on="document_hostname")
        rows = rows.join(self.users.lazy(), on="document_username")
        account, username = pl.col("username"), pl.col("united")
        if self.users["local_to"].count():
            is_local = pl.col("local_to") == pl.col("computer")
            account, username = (
                pl.when(is_local).then("own_name").otherwise(each) for each in (account, username)
            )
        rows = rows.with_columns(account=account, username=username)
        rows = rows.drop("computer", "local_to", "own_name", "united")
        if not skipped and self.skipped_users.is_empty():
            return rows
        is_skipped = pl.col("account").is_in(self.skipped_users.implode())
        return rows.filter(is_skipped if skipped else ~is_skipped)


NOBODY = pl.DataFrame(schema={"username": pl.String, "user_id": pl.String})


def normalised_names(
    counts: pl.LazyFrame,
    *,
    rules: Rules,
    skipped_users: pl.Series = NOBODY["username"],
    people: pl.DataFrame = NOBODY,
    earlier: pl.LazyFrame | None = None,
) -> CountedNames:
    r"""Normalise each spelling in rows of `logon_counts` once.

    `exclude_users` fits names (`svc_*`) or spellings (`corp\adm*`). `people` has the username and user_id of
    accounts that are counted as one user where the user_id is the same. `earlier` rows have names, too, but
    no pairs.
    """
    host, user, name = pl.col("document_hostname"), pl.col("document_username"), pl.col("name")
    pairs = counts.select(host, user).unique().collect(engine="streaming")
    further = () if earlier is None else (earlier,)

    def spellings(of: pl.Expr) -> pl.LazyFrame:
        return pl.concat(rows.select(of.unique()) for rows in (pairs.lazy(), *further)).unique()

    hosts = (
        spellings(host)
        .with_columns(
            hostname=normalise_hostname(host, short=rules.short_hostnames), computer=netbios_name(host)
        )
        .drop_nulls("hostname")
        .collect()
    )
    first = pl.col("domains").list.first()  # of a computer only where it holds no further backslash
    users = (
        spellings(user)
        .with_columns(name=normalise_username(user), own_name=normalise_name(user), domains=domains_of(user))
        .drop_nulls("name")
        .filter(~fits_any(name, rules.exclude_users), ~fits_any(pl.col("own_name"), rules.exclude_users))
        .with_columns(
            username=pl.when(_is_without_directory(pl.col("domains"), rules))
            .then("own_name")
            .otherwise(name),
            local_to=pl.when(~first.str.contains("\\", literal=True)).then(netbios_name(first)),
        )
        .join(people.lazy(), left_on="name", right_on="username", how="left")
        .with_columns(pl.when(pl.col("username") == name).then("user_id"))
        .with_columns(
            united=pl.when(pl.col("user_id").is_null())
            .then("username")
            .otherwise(pl.min("username").over("user_id"))
        )
        .collect()
    )
    usernames = pl.Enum(pl.concat([users["username"], users["own_name"]]).unique().sort())
    computers = pl.Enum(hosts["computer"].drop_nulls().unique().sort())
    return CountedNames(
        pairs.lazy(),
        hosts.with_columns(
            pl.col("hostname").cast(pl.Enum(hosts["hostname"].unique().sort())),
            pl.col("computer").cast(computers),
        ),
        users.select(
            user,
            pl.col("username", "own_name", "united").cast(usernames),
            pl.col("local_to").cast(computers, strict=False),
        ),
        skipped_users.cast(usernames, strict=False).drop_nulls(),
    )


def _is_without_directory(domains: pl.Expr, rules: Rules) -> pl.Expr:
    """Return whether an account is Windows's own, or of a domain that rules exclude (rules 1.3)."""
    is_without = domains.list.set_intersection(NO_DIRECTORIES).list.len() > 0
    if not rules.domains:
        return is_without
    return is_without | (domains.list.len() > 0) & ~is_of_any(domains, rules.domains)


def split_nameless(counts: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    r"""Return the rows of both names, and how many events have no user name, and no host name, left.

    What a source gives may be a domain alone, such as `CORP\`: that lacks the field (rules 1.3).
    """
    host, user = pl.col("document_hostname"), pl.col("document_username")
    # To normalise each row's names would take longer than all else that is done with a day.
    with_domain = counts.select(user.filter(user.str.contains_any(["\\", "@"])).unique())
    nameless = with_domain.filter(normalise_username(user).is_null())["document_username"]
    no_user, no_host = is_no_name(user) | user.is_in(nameless.implode()), is_no_name(host)
    lacking_user, lacking_host = (
        int(counts.filter(lacking)["events"].sum()) for lacking in (no_user, no_host)
    )
    return counts.filter(~no_user, ~no_host), lacking_user, lacking_host


_WEIGHTS = cs.starts_with("weight_by_")


def logons_by_day(rows: pl.LazyFrame, *by: str, rules: Rules) -> pl.LazyFrame:
    """Add up rows of `logon_counts`: day, `by`, events, and what they count for by each metric."""
    weights = {f"weight_by_{metric}": weight for metric, weight in day_weights(rules).items()}
    return rows.group_by("day", *by).agg(pl.sum("events"), **weights)


def logons_by_user(days: pl.LazyFrame, *by: str) -> pl.LazyFrame:
    """Add up the days of `logons_by_day`: `by`, events, weight_by_…, active_days, first_seen, last_seen."""
    return days.group_by(*by).agg(
        pl.sum("events"),
        _WEIGHTS.sum(),
        active_days=pl.len().cast(pl.Int64),
        first_seen=pl.min("day"),
        last_seen=pl.max("day"),
    )


def weight(rules: Rules) -> pl.Expr:
    """Return what logons count for by the metric of the rules, in rows of `logons_by_user`."""
    return pl.col(f"weight_by_{rules.evidence_metric}").alias("weight")


def shown_names(names: CountedNames, rows: pl.LazyFrame, by: str, rules: Rules) -> pl.LazyFrame:
    """Find the account by which each person is shown on each `by`: the one with most, ties by name.

    `rows` are those of `logon_counts` with `by`, username and account. `by`, username, shown: only where
    accounts are counted under another name than their own.
    """
    united = names.users.filter(pl.col("username") != pl.col("united"))["united"]
    return (
        rows.filter(pl.col("username").is_in(united.unique().implode()))
        .pipe(logons_by_day, by, "username", "account", rules=rules)
        .pipe(logons_by_user, by, "username", "account")
        .sort(by, weight(rules), "account", descending=[False, True, False])
        .group_by(by, "username", maintain_order=True)
        .agg(shown=pl.first("account"))
    )


def host_user_shares(counts: pl.LazyFrame, names: CountedNames, *, rules: Rules) -> pl.DataFrame:
    """Compute each user's share of each host's logons (rules 1.1 to 1.4, 1.6 to 1.8).

    `names` are those of `counts`. Rows of `host_user_shares`, sorted by hostname and rank.
    """
    rows, host_and_user = names.add_to(counts), ("hostname", "username")
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
        rows.pipe(logons_by_day, *host_and_user, rules=rules)
        .pipe(logons_by_user, *host_and_user)
        .with_columns(weight(rules))
        .drop(_WEIGHTS)
        .collect(engine="streaming")
        .lazy()
        .join(username_spellings.lazy(), on=host_and_user)
        .join(hostname_spellings.lazy(), on="hostname")
        .join(shown_names(names, rows, "hostname", rules), on=host_and_user, how="left")
        .with_columns(username=pl.coalesce("shown", "username"))
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
