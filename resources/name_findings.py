"""Checks that hosts and users of the logons match assets, with one search and the first page of each list."""

from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl

from ownership.data_checks import domains_instead, domains_of_one_host, hosts_named_alike
from ownership.declaration import empty
from ownership.names import normalise_hostname, printable, some_of
from ownership.resolution import Resolution
from ownership.rules import Rules
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.findings import Finding, attempt
from resources.inventory.client import AssetInventory, Kind
from resources.search.source import Logs
from resources.settings import Instance

COMPARED_DAYS = 7
MATCH, DOMAINS = "rules.hostname_match", "rules.domains"
MATCHED_LIMIT_PERCENT = 50  # below this share of events with one user asset, settings are probably wrong


def compare_names(
    instance: Instance, logs: Logs, inventory: AssetInventory, window: Window
) -> Iterator[Finding]:
    """Compare the hosts and users of the last days' logons with the first assets of both lists."""
    first = max(window.first, window.last - timedelta(days=COMPARED_DAYS - 1))
    sampled = yield from attempt(
        "search", lambda: logs.ask_each(lambda log: log.first_pairs(first, window.last))
    )
    hosts = yield from _read_first_assets(inventory, "hosts")
    users = yield from _read_first_assets(inventory, "users")
    pairs = pl.concat(
        [empty(LogonCounts), *(one for one in (sampled or {}).values() if one is not None)], how="diagonal"
    )
    if pairs.is_empty() or hosts is None or users is None:
        return  # the findings about that service say why
    resolution = Resolution(
        counts=pairs.with_columns(day=window.last).lazy(),
        read_inventory={"inventory_hosts": hosts[0].lazy(), "inventory_users": users[0].lazy()}.__getitem__,
        rules=instance.rules.as_rules(),
        user_value_field=instance.decisive_user_field,
        window=window,
    )
    rules = resolution.rules
    domains = check_domains(pairs["document_username"], rules), check_one_host_domains(pairs, rules)
    yield from (finding for finding in domains if finding.state != "ok")
    if not hosts[0].is_empty():
        listed, some = hosts[0]["hostnames"].explode(), hosts[1]
        yield check_hostnames(pairs["document_hostname"], listed, rules, among=some)
    if not users[0].is_empty():
        people = resolution.kinds.accounts.filter(pl.col("kind").is_in(["person", "unknown"]))
        shares = resolution.count_shares().join(people, on="username", how="semi")
        unmatched = shares.group_by("username").agg(pl.sum("events"), hosts=pl.len())
        unmatched = unmatched.join(people.select("username", "user_assets"), on="username")
        yield check_users(shares, unmatched.filter(pl.col("user_assets") != 1), among=users[1])


def check_domains(spellings: pl.Series, rules: Rules) -> Finding:
    """Check that rules.domains, unless empty, names the domain of some account of the logons."""
    found = domains_instead(spellings, rules.domains)
    if found.is_empty():
        return Finding("ok", DOMAINS, "some accounts belong to its domains, or it is empty")
    named = [printable(domain or "no domain") for domain in found["domain"]]
    text = f"no account belongs to its domains, so no owner is found; the logons have {some_of(named)}"
    return Finding("warning", DOMAINS, text, rows=found)


def check_one_host_domains(pairs: pl.DataFrame, rules: Rules) -> Finding:
    """Check that no domain is on one host only, where its accounts may be local ones (rules 1.3)."""
    found = domains_of_one_host(pairs)
    if rules.domains or found.is_empty():
        return Finding("ok", DOMAINS, "no domain is on one host only")
    shown = [
        f"{printable(domain)} on {printable(host)}"
        for domain, host in found.select("domain", "hostname").iter_rows()
    ]
    several = f"{found.height} domains are" if found.height > 1 else "1 domain is"
    text = (
        f"{several} on one host only ({some_of(shown)}). If these are local accounts, name the directory's "
        "domains in rules.domains: then accounts of other domains match no user asset"
    )
    return Finding("warning", DOMAINS, text, rows=found)


def _read_first_assets(
    inventory: AssetInventory, kind: Kind
) -> Generator[Finding, None, tuple[pl.DataFrame, str] | None]:
    """Return the rows of the first page of a list, and how many there are of how many if not all."""
    pages = yield from attempt(f"platform.contract.{kind}", lambda: inventory.first_pages(kind))
    if not pages:
        return None
    frame = pl.concat(inventory.rows[kind].table(page.ids, page.fields) for page in pages)
    size = pages[0].size
    some = f" (of the first {frame.height:,} of {size:,} {kind} listed)" if size > frame.height else ""
    return frame.with_columns(listed_at=datetime.now(UTC)), some


def check_hostnames(documented: pl.Series, listed: pl.Series, rules: Rules, *, among: str = "") -> Finding:
    """Check that hosts of the logons are in the inventory, none of them only without its domain part."""
    alike = hosts_named_alike(documented, listed)
    of_all = pl.select(normalise_hostname(pl.lit(documented))).to_series().n_unique()
    exact = alike.filter(pl.col("hostname") == pl.col("asset_name"))["hostname"].unique()
    without_domain, short = alike["hostname"].n_unique(), rules.short_hostnames
    other = alike.filter(~pl.col("hostname").is_in(exact.implode())) if not short else alike.clear()
    text = (
        f"{of_all:,} hosts have logons: {exact.len():,} are in the inventory (exact), {without_domain:,} if "
        f"the domain part is ignored (short){among}"
    )
    if of_all and not without_domain:
        text += "; check hostname_field and platform_hostname_field"
        return Finding("warning", MATCH, text)
    if not other.is_empty():
        text += "; if they are the same hosts, set rules.hostname_match: short"
        return Finding("warning", MATCH, text, rows=other)
    return Finding("ok", MATCH, text)


def check_users(shares: pl.DataFrame, unmatched: pl.DataFrame, *, among: str = "") -> Finding:
    """Check that most logon events belong to users with exactly one user asset.

    `shares` are rows of `host_user_shares`, `unmatched` has username, hosts, events and user_assets of the
    users without one. `among` names the list of which the assets are a part: then any match is enough.
    """
    events = int(shares["events"].sum())
    percent = 100 * (events - int(unmatched["events"].sum())) / events if events else 100
    passed = percent >= (0.01 if among else MATCHED_LIMIT_PERCENT)
    advice = "" if passed else "; check user_field, platform_user_value_field and whether users are imported"
    return Finding(
        "ok" if passed else "warning",
        "user_field",
        f"{percent:.0f}% of {events:,} logon events belong to users with exactly one user asset, "
        f"{unmatched.height:,} user names have no user asset, or several{among}{advice}",
        rows=unmatched.select("username", "hosts", "events", "user_assets"),
        numbers={"matched_percent": round(percent, 1)},
    )
