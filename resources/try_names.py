"""Findings about the names of both services: whether hosts and users of the logons stand for assets.

One search and the first page of each list: a sample, but where nothing fits, or only by another way of
comparing, a run would find out no more.
"""

from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl

from ownership.declaration import empty
from ownership.names import normalise_hostname
from ownership.quality import hosts_named_alike
from ownership.resolution import Resolution
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.findings import Finding, attempt
from resources.inventory.client import AssetInventory, Kind
from resources.search.client import SearchClient

COMPARED_DAYS = 7
MATCH = "rules.hostname_match"


def name_findings(search: SearchClient, inventory: AssetInventory, window: Window) -> Iterator[Finding]:
    """Compare the hosts and users of the last days' logons with the first assets of both lists."""
    first = max(window.first, window.last - timedelta(days=COMPARED_DAYS - 1))
    pairs = yield from attempt("search", lambda: search.first_pairs(first, window.last))
    hosts = yield from _first_assets(inventory, "hosts")
    users = yield from _first_assets(inventory, "users")
    if pairs is None or pairs.is_empty() or hosts is None or users is None:
        return  # said already by the findings about that service
    instance = search.instance
    counts = pl.concat([empty(LogonCounts), pairs.with_columns(day=window.last)], how="diagonal")
    resolution = Resolution(
        counts=counts.lazy(),
        read_inventory={"inventory_hosts": hosts[0].lazy(), "inventory_users": users[0].lazy()}.__getitem__,
        rules=instance.rules.as_rules(),
        user_value_field=instance.decisive_user_field,
        window=window,
    )
    if not hosts[0].is_empty():
        short = resolution.rules.short_hostnames
        yield _hosts(pairs["document_hostname"], hosts[0]["hostnames"].explode(), hosts[1], short=short)
    if not users[0].is_empty():
        accounts = resolution.kinds.accounts
        yield _users(accounts.filter(pl.col("kind").is_in(["person", "unknown"])), users[1])


def _first_assets(
    inventory: AssetInventory, kind: Kind
) -> Generator[Finding, None, tuple[pl.DataFrame, str] | None]:
    """Return the rows of the first page of a list, and words for the list where that is not all."""
    pages = yield from attempt(f"platform.contract.{kind}", lambda: inventory.first_pages(kind))
    if not pages:
        return None
    frame = pl.concat(inventory.rows[kind].table(page.ids, page.fields) for page in pages)
    size = pages[0].size
    some = f" (of the first {frame.height:,} of {size:,} {kind} listed)" if size > frame.height else ""
    return frame.with_columns(listed_at=datetime.now(UTC)), some


def _hosts(documented: pl.Series, listed: pl.Series, some: str, *, short: bool) -> Finding:
    alike = hosts_named_alike(documented, listed)
    of_all = pl.select(normalise_hostname(pl.lit(documented))).to_series().n_unique()
    exact = alike.filter(pl.col("hostname") == pl.col("asset_name"))["hostname"].n_unique()
    without_domain = alike["hostname"].n_unique()
    text = (
        f"of {of_all:,} host names with logons, the inventory has {exact:,} as they are (exact), and "
        f"{without_domain:,} where domain parts are ignored (short){some}"
    )
    if without_domain > exact and not short:
        return Finding("warning", MATCH, f"{text}; set rules.hostname_match: short")
    if not without_domain:
        return Finding("warning", MATCH, f"{text}; check hostname_field and platform_hostname_field")
    return Finding("ok", MATCH, text)


def _users(accounts: pl.DataFrame, some: str) -> Finding:
    known = accounts.filter(pl.col("user_assets") == 1).height
    text = f"of {accounts.height:,} user names that may be people's, {known:,} stand for one user asset{some}"
    if accounts.height and not known:
        return Finding("warning", "user_field", f"{text}; check user_field and platform_user_value_field")
    return Finding("ok", "user_field", text)
