"""Checks of evidence and inventory: each returns the rows that break it."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import polars as pl

from ownership.codes import SUCCESSES
from ownership.history import last_writes
from ownership.kind_names import NO_DIRECTORIES
from ownership.matching import ACCOUNT_FIELDS
from ownership.names import (
    domains_of,
    fits_any,
    is_of_any,
    join_ids,
    netbios_name,
    normalise_hostname,
    normalise_username,
)
from ownership.rules import Rules, excluding_field

UNREADABLE_LIMIT = 10
"""So many assets of a list may be unreadable, whatever their share."""
UNREADABLE_LIMIT_PERCENT = 5
"""Share of a list that may be unreadable; beyond both limits the contract is more likely wrong."""
LACKING_LIMIT_PERCENT = 10
"""Share of documents that may lack a field; some always do."""
FORWARDED_LIMIT_PERCENT = 50
"""Share of the events that come from collectors above which the decisions are about collectors, not hosts."""
MASKED_LIMIT = 0.5
"""Share of names above which they are not those of people and machines."""
SAMPLED_NAMES = 2_000
"""So many of a day's names, evenly spread, tell whether most are masked."""

_FROM, _TO, _BASE64 = r"(^|\\)", "(@|$)", "[A-Za-z0-9+/_-]"
_UNPADDED = "|".join(f"{_BASE64}{{{size}}}" for size in (22, 27, 38, 43, 64, 86))
"""Base64 of MD5 and SHA-1 to SHA-512 without its `=`."""
_MASKS = (
    # Hyper-V, too, gives an account of each machine a UUID, in a domain with blanks.
    ("UUIDs", rf"(?i)^\S*[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\}}?{_TO}"),
    ("{} hexadecimal digits", rf"(?i){_FROM}[0-9]*[a-f][0-9a-f]{{12,}}{_TO}|[0-9a-f]{{32,}}{_TO}"),
    ("base64", f"{_BASE64}{{2}}={{1,2}}{_TO}"),
    ("base64", f"{_FROM}({_UNPADDED}){_TO}", "([a-z][A-Z0-9].*){3}"),
    ("a mask", rf"(?i)\*\*|••|{_FROM}([^\p{{L}}\p{{N}}\\@-]+|x{{3,}}|[<\[({{].*[>\])}}]){_TO}"),
    ("a mask", f"(?i){_FROM}(redacted|masked|hidden){_TO}"),
)
"""What masks make of names, in words and as forms that all fit; a salt may stand before a digest.

Real names are not: machines are named by MAC address (12 digits), people by SID or a long number.
"""


def masked_form(name: pl.Expr) -> pl.Expr:
    """Describe what most names look like, such as `64 hexadecimal digits`; null: they are not masked."""
    masks = ((words, pl.all_horizontal(map(name.str.contains, forms))) for words, *forms in _MASKS)
    digits = f"(?i)([0-9a-f]+){_TO}"
    return pl.coalesce(
        pl.when(fits.mean() > MASKED_LIMIT).then(
            pl.format(words, name.filter(fits).first().str.extract(digits).str.len_chars())
            if "{}" in words
            else pl.lit(words)
        )
        for words, fits in masks
    )


def days_lacking_field(days: pl.DataFrame, lacking: str) -> pl.DataFrame:
    """Find days on which more documents than the limit lack the user, or the host: the column `lacking`."""
    too_many = days.filter(100 * pl.col(lacking) > LACKING_LIMIT_PERCENT * pl.col("matching"))
    return too_many.select("day", "matching", "lacking_user", "lacking_host").sort("day")


def most_lack(days: pl.DataFrame, lacking: str) -> bool:
    """Whether more than half of the documents of these days lack the user, or the host (rules 3.4)."""
    return bool(2 * days[lacking].sum() > days["matching"].sum())


def masked_days(counts: pl.LazyFrame) -> pl.DataFrame:
    """Find the days of `logon_counts` on which most names are masked: day, username and hostname say how."""
    some = pl.int_range(pl.len()) % (pl.len() // SAMPLED_NAMES + 1) == 0  # all would take seconds a million
    how = {name: masked_form(pl.col(f"document_{name}").filter(some)) for name in ("username", "hostname")}
    days = counts.group_by("day").agg(**how).collect(engine="streaming")
    return days.filter(pl.any_horizontal(pl.col(*how).is_not_null())).sort("day")


def unreadable_assets(assets: pl.DataFrame) -> pl.DataFrame:
    """Find assets of either kind that cannot be read whole: id and problem, by id."""
    return assets.select(pl.col("^(host|user)_id$"), "problem").drop_nulls("problem").sort(pl.first())


def too_many_unreadable(unreadable: int, assets: int) -> bool:
    """Whether a contract or field name is more likely wrong than single assets (rules 2.7)."""
    return unreadable > UNREADABLE_LIMIT and 100 * unreadable > UNREADABLE_LIMIT_PERCENT * assets


def shared_hostnames(hosts: pl.DataFrame, *, short: bool) -> pl.DataFrame:
    """Find host names that several host assets have (rules 1.5): hostname (as compared), host_ids."""
    names = hosts.select("host_id", hostname="hostnames").explode("hostname")
    names = names.with_columns(normalise_hostname(pl.col("hostname"), short=short))
    return _of_several(names, "hostname", "host_id")


def _of_several(names: pl.DataFrame, name: str, one_id: str) -> pl.DataFrame:
    """Gather the ids of each name that several have, both sorted: `host_id` becomes `host_ids`."""
    ids = pl.col(one_id).unique().sort().alias(f"{one_id}s")
    return (
        names.drop_nulls(name).group_by(name).agg(ids).filter(pl.col(f"{one_id}s").list.len() > 1).sort(name)
    )


def hosts_named_alike(documented: pl.Series, listed: pl.Series) -> pl.DataFrame:
    """Pair host names of the documents with those of assets that are the same but for the domain part.

    hostname, asset_name: normalised, sorted. Of whole names that are the same (rules 1.4) both are equal.
    """

    def named(names: pl.Series, column: str) -> pl.DataFrame:
        name = pl.lit(names)
        whole, short = normalise_hostname(name), normalise_hostname(name, short=True)
        return pl.select(whole.alias(column), short=short).drop_nulls().unique()

    pairs = named(documented, "hostname").join(named(listed, "asset_name"), on="short")
    return pairs.drop("short").sort("hostname", "asset_name")


def users_of_unlike_domains(shares: pl.DataFrame) -> pl.DataFrame:
    r"""Find users who appear on one host in domains that are not plainly the same (rules 1.3).

    `CORP\alice` beside `alice@corp.example` raises no doubt: a short name is the first part of the long one.
    hostname, username, domains (sorted), from rows of `host_user_shares`.
    """
    by = ("hostname", "username")
    spelling, domain = pl.col("username_spellings"), pl.col("domain")
    label = normalise_hostname(domain, short=True)
    return (
        shares.lazy()
        .filter(spelling.list.len() > 1)
        .explode("username_spellings")
        .select(*by, domain=domains_of(spelling).list.first())
        .drop_nulls()
        .unique()
        .with_columns(is_long=domain != label)
        .filter(pl.col("is_long") | ~pl.col("is_long").any().over(*by, label))
        .group_by(by)
        .agg(domains=domain.sort())
        .filter(pl.col("domains").list.len() > 1)
        .sort(by)
        .collect()
    )


def domains_instead(accounts: pl.Series, asked: Sequence[str]) -> pl.DataFrame:
    """Find the domains of account names where no name is of a domain that is asked for (rules 1.3).

    domain (null: of names without one), accounts; most accounts first. No rows where `asked` is empty.
    """
    names = accounts.drop_nulls().unique().to_frame("account").select(domain=domains_of(pl.first()))
    by_domain = (
        names.filter(~is_of_any(pl.col("domain"), asked).any(), bool(asked))
        .explode("domain", empty_as_null=True)
        .group_by("domain")
    )
    return by_domain.agg(accounts=pl.len()).sort("accounts", "domain", descending=[True, False])


def domains_of_one_host(counts: pl.DataFrame) -> pl.DataFrame:
    """Find domains that appear on one host only: perhaps its own name in another spelling.

    Accounts of such a domain may be local ones (rules 1.3). `counts` are rows of `logon_counts`. domain (the
    first label), hostname, events, usernames (as spelled); most events first. Windows' own domains and the
    host's name are excluded. Of two hosts one domain must be on both to tell.
    """
    host, hosts, label = (
        pl.col("document_hostname"),
        pl.col("hosts"),
        normalise_hostname(pl.element(), short=True),
    )
    names = counts.with_columns(
        hostname=normalise_hostname(host),
        computer=netbios_name(host),
        domain=domains_of(pl.col("document_username")).list.eval(label.drop_nulls().unique()),
    ).drop_nulls("hostname")
    return (
        names.filter(pl.col("domain").list.set_intersection(NO_DIRECTORIES).list.len() == 0)
        .explode("domain", empty_as_null=False)
        .group_by("domain")
        .agg(
            pl.first("hostname", "computer"),
            pl.sum("events"),
            usernames=pl.col("document_username").unique().sort(),
            hosts=pl.col("hostname").n_unique(),
        )
        .filter((hosts.max() > 1) | (names["hostname"].n_unique() > 2))
        .filter(hosts == 1, pl.col("domain").str.slice(0, 15) != pl.col("computer"))
        .drop("hosts", "computer")
        .sort("events", "domain", descending=[True, False])
    )


def ambiguous_accounts(users: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Find user assets whose e-mail name is another one's account name (rules 2.1): name, user_ids (sorted).

    Assets that cannot be read whole, or that the rules exclude, do not count. A name that two assets hold in
    one field is found as well.
    """
    excluded_by = excluding_field("exclude_user_assets", rules.exclude_user_assets)
    counted = users.filter(pl.col("problem").is_null(), excluded_by.is_null())
    names = pl.concat(counted.select("user_id", name=field).explode("name") for field in ACCOUNT_FIELDS)
    names = names.with_columns(normalise_username(pl.col("name")))
    return _of_several(names, "name", "user_id")


def fields_without_values(assets: pl.DataFrame, fields: Iterable[str]) -> pl.DataFrame:
    """Find fields to exclude assets by in which no asset has a value (rules 1.6, 2.1): field, as given."""
    values = assets["listed_values"].explode().drop_nulls()
    missing = [name for name in fields if assets.height and not values.str.starts_with(f"{name}: ").any()]
    return pl.DataFrame({"field": missing}, schema={"field": pl.String})


def missing_owners(hosts: pl.DataFrame, users: pl.DataFrame) -> pl.DataFrame:
    """Find owners of hosts that are not user assets any more: host_id, owner_id, sorted."""
    return (
        hosts.select("host_id", owner_id="owner_ids")
        .explode("owner_id")
        .drop_nulls("owner_id")
        .join(users, left_on="owner_id", right_on="user_id", how="anti")
        .sort("host_id", "owner_id")
    )


def lost_owners(writes: pl.LazyFrame, hosts: pl.DataFrame, *, target: str) -> pl.DataFrame:
    """Find hosts that no longer show the owner that a run wrote to this target.

    The last row that shows who owned a host counts: one that was written, undone or `owned_meanwhile`. Hosts
    that are not listed any more, or whose owner cannot be read or was forgotten, are excluded. host_id,
    written_owner, present_owner (several joined with commas; null: none), written_at.
    """
    written, present = pl.col("new_values").struct.field("owner"), pl.col("owner_ids")
    return (
        last_writes(hosts, writes.filter(target=target), [*SUCCESSES, "owned_meanwhile"])
        .filter(pl.col("holds").is_not_null(), ~present.list.contains(written), outcome="written")
        .select(
            "host_id",
            written_owner=written,
            present_owner=pl.when(present.list.len() > 0).then(join_ids(present)),
            written_at="completed_at",
        )
        .sort("host_id")
        .collect()
    )


ANSWERED_AT = pl.coalesce("answered_at", "drawn_at")


def still_counts(history_days: int, now: datetime) -> pl.Expr:
    """Whether an answer to an audit counts: for so many days (rules 1.12, 9.8)."""
    return now - timedelta(days=history_days) <= ANSWERED_AT


def owners_answered_no(owners: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Find written owners that somebody answered no to (rules 1.12): run_id, hostname, host_id.

    `owners` are rows of `current_owners`, `answers` of `audit_sample`.
    """
    asked = owners.filter(source="asset-owners").join(answers.filter(right=False), on="host_id")
    wrong = asked.filter(pl.col("owner_ids").list.contains(pl.col("user_id")))
    return wrong.select("run_id", "hostname", "host_id").sort(pl.all())


def forwarders(senders: pl.DataFrame, *, exclude_hosts: Sequence[str]) -> pl.DataFrame:
    """Find names that stand for the collector of other hosts' events, not for one host; most events first.

    `senders` has document_hostname, events and host_names (list): which hosts' events come under a name.
    Spellings of one host (`WS1`, `ws1.corp.example`) count as one host, excluded hosts not at all.
    """
    one_host = normalise_hostname(pl.element(), short=True)
    names = (normalise_hostname(pl.col("document_hostname"), short=short) for short in (False, True))
    return (
        senders.filter(~pl.any_horizontal(fits_any(name, exclude_hosts) for name in names))
        .with_columns(pl.col("host_names").list.eval(one_host.drop_nulls().unique().sort()))
        .filter(pl.col("host_names").list.len() > 1)
        .sort("events", "document_hostname", descending=[True, False])
    )
