"""Checks the inventory with the client of a run, and that hosts and users of the logons match its assets."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from ownership.data_checks import (
    domains_instead,
    domains_of_one_host,
    fields_without_values,
    hosts_named_alike,
    too_many_unreadable,
    unreadable_assets,
)
from ownership.declaration import empty
from ownership.matching import FIELDS
from ownership.names import normalise_hostname, printable, some_of
from ownership.resolution import Resolution
from ownership.rules import Rules
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.findings import Finding, attempt, check_call, check_connection
from resources.inventory.adapter import Inventory
from resources.inventory.client import AssetInventory
from resources.inventory.records import Kind, host_fields
from resources.inventory.session import PROFILE
from resources.search.source import Logs
from resources.settings import Instance

Assets = Mapping[str, Mapping[str, Any]]  # id to item

READ = "platform.contract.read"


def check_inventory(inventory: Inventory) -> Iterator[Finding]:
    """Check what a run relies on, without writing; of an inventory of another class, that it answers."""
    if not isinstance(inventory, AssetInventory):
        yield from check_call("connection", inventory.probe, "answers")
        return
    found = [*_check_reads(inventory)]
    yield from found
    if any(finding.state == "wrong" for finding in found):
        return
    instance, platform = inventory.instance, inventory.instance.platform
    written = ", ".join(_written_fields(instance).values())
    yield Finding(
        "not tried",
        "platform.contract.update",
        f"only a write can show that {platform.contract.update.path} is right, that {platform.email} may "
        f"write, and that {written} can be set",
    )


def check_log_in(inventory: AssetInventory) -> Generator[Finding, None, bool]:
    """Log in, and return whether that succeeded."""
    # The payload is not specified; in a tuple null is not a failure.
    if not (yield from attempt("log-in", lambda: (inventory.get(PROFILE, tenant=False),))):
        return False
    yield Finding("ok", "log-in", f"{inventory.instance.platform.email} is signed in")
    return True


def _check_reads(inventory: AssetInventory) -> Iterator[Finding]:
    instance = inventory.instance
    if not (yield from check_connection(inventory.transport, "GET", PROFILE)):
        return
    if not (yield from check_log_in(inventory)):
        return
    if hosts := (yield from check_first_page("hosts", inventory)):
        fields = [instance.platform_hostname_field]
        yield _check_values("platform_hostname_field", "hosts", inventory, hosts, fields)
        yield from _check_written_fields(inventory, hosts)
        yield from _check_single_read(inventory, hosts)
    if users := (yield from check_first_page("users", inventory)):
        fields = [instance.platform_user_value_field, *FIELDS]
        yield _check_values("platform_user_value_field", "users", inventory, users, fields)
        yield from _readable("users", inventory, users, instance.rules.exclude_user_assets)


def check_first_page(kind: Kind, inventory: AssetInventory) -> Generator[Finding, None, Assets]:
    """Return the assets on the first page of a list; empty if reading fails."""
    what, platform = f"platform.contract.{kind}", inventory.instance.platform
    pages = yield from attempt(what, lambda: inventory.first_pages(kind))
    if not pages:
        return {}
    page, listed = pages[0], f"{getattr(platform.contract, kind).path} lists {pages[0].size:,}"
    if page.size:
        held = f"its first page is number {page.number} and has {len(page.ids):,}"
        yield Finding("ok", what, f"{listed} of tenant {platform.tenant_id}; {held}")
    else:
        yield check_readable(kind, pl.DataFrame({"problem": []}))
    return dict(zip(page.ids, page.items, strict=True))


def _check_written_fields(inventory: AssetInventory, hosts: Assets) -> Iterator[Finding]:
    first, sound = f"the first {len(hosts):,} hosts", _fields_of("hosts", inventory, hosts)
    for setting, written in _written_fields(inventory.instance).items():
        if having := sum(written in fields for fields in sound):
            yield Finding("ok", setting, f"{written} is a field of {having:,} of {first}")
        else:
            text = f"none of {first} has {written}; a service may omit what is empty, but check the name"
            yield Finding("warning", setting, text)


def _check_single_read(inventory: AssetInventory, hosts: Assets) -> Iterator[Finding]:
    """Read one host and compare it with the list, because such a read guards every write (rules 7.1)."""
    table = yield from _readable("hosts", inventory, hosts, inventory.instance.rules.exclude_assets)
    if table.is_empty():
        return
    if not inventory.reads_single_hosts:
        yield Finding("ok", READ, "is null, so hosts are listed again right before writing")
        return
    # Preferably one with an owner: a read that hides owners would let them be overwritten.
    listed = table.sort(pl.col("owner_ids").list.len() == 0, maintain_order=True).row(0, named=True)
    host_id = listed["host_id"]
    if (read := (yield from attempt(READ, lambda: inventory.host(host_id)))) is None:
        return
    if not (differing := [column for column in listed if listed[column] != read[column]]):
        yield Finding("ok", READ, f"host {host_id} is read as the list shows it")
    else:
        text = (
            f"{', '.join(differing)} of host {host_id} differ from the list; check {READ} and "
            "platform.contract.fields_in"
        )
        yield Finding("wrong", READ, text)


def _check_values(
    setting: str, kind: Kind, inventory: AssetInventory, assets: Assets, fields: list[str]
) -> Finding:
    """Count the assets with a value in each field; the setting names the first one."""
    first = f"the first {len(assets):,} {kind}"
    sound = _fields_of(kind, inventory, assets)
    carrying = {field: sum(asset.get(field) not in (None, "", []) for asset in sound) for field in fields}
    if any(carrying.values()):
        counts = ", ".join(f"{field} is on {count:,}" for field, count in carrying.items())
        return Finding("ok" if next(iter(carrying.values())) else "warning", setting, f"of {first}, {counts}")
    text = (
        f"none of {first} has {' or '.join(carrying)}; they have {_names_of(sound)}. Name the "
        "field with the name, and check platform.contract.fields_in"
    )
    return Finding("wrong", setting, text)


def _fields_of(kind: Kind, inventory: AssetInventory, assets: Assets) -> list[Mapping[str, Any]]:
    found = map(inventory.rows[kind].fields_of, assets.values())
    return [fields for fields in found if isinstance(fields, dict)]


def _names_of(assets: Iterable[Mapping[str, Any]]) -> str:
    return some_of(sorted({name for asset in assets for name in asset}), 20)


def _readable(
    kind: Kind, inventory: AssetInventory, assets: Assets, excluding: Iterable[str]
) -> Generator[Finding, None, pl.DataFrame]:
    """Return the rows of the assets that can be read; report the others, and fields that exclude none."""
    table = inventory.rows[kind].table(list(assets), list(assets.values()))
    finding = check_readable(kind, table, first="first ")
    if finding.state != "ok":
        yield finding
    table = table.filter(pl.col("problem").is_null())
    finding = check_excluding_fields(kind, table, excluding, first="first ")
    if finding.state != "ok":
        names = _names_of([*assets.values(), *_fields_of(kind, inventory, assets)])
        yield replace(finding, text=f"{finding.text}; they have {names}")
    return table


def check_readable(kind: Kind, assets: pl.DataFrame, *, first: str = "") -> Finding:
    """Check that each asset of a list can be read; `wrong` if so many cannot that a run fails (rules 2.7).

    `assets` are rows of its table, all or the `first` ones. An unreadable host is skipped; an unreadable user
    does not become an owner, and its names are ambiguous.
    """
    if assets.is_empty():
        what = f"platform.contract.{kind}"
        return Finding(
            "warning", what, f"lists no {kind}, so no host gets an owner; check {what} and platform.tenant_id"
        )
    odd = unreadable_assets(assets)
    if odd.is_empty():
        return Finding("ok", kind, f"all of the {first}{assets.height:,} can be read")
    wrong = odd.height == assets.height or too_many_unreadable(odd.height, assets.height)
    follows = "are skipped" if kind == "hosts" else "get no host, nor does anybody with their names"
    text = f"{odd.height:,} of the {first}{assets.height:,} {kind} cannot be read and {follows}"
    text += "; with so many a run fails" if wrong else "; correct them in the inventory"
    asset, problem = odd.row(0)
    return Finding("wrong" if wrong else "warning", kind, f"{text}. Asset {asset}: {problem}", rows=odd)


def check_excluding_fields(
    kind: Kind, assets: pl.DataFrame, names: Iterable[str], *, first: str = ""
) -> Finding:
    """Check that each field to exclude assets by has a value on some asset."""
    setting = "rules.exclude_assets" if kind == "hosts" else "rules.exclude_user_assets"
    fields = fields_without_values(assets, names)
    if fields.is_empty():
        return Finding("ok", setting, "each field has a value on some asset")
    names = ", ".join(map(printable, fields["field"]))
    text = f"none of the {first}{assets.height:,} {kind} has a value in {names}, so it excludes none of them"
    return Finding("warning", setting, text, rows=fields)


def _written_fields(instance: Instance) -> dict[str, str]:
    names = ("owner", "department", "criticality") if instance.scan.enrich else ("owner",)
    fields = (host_fields(instance)[name] for name in names)
    return {field.setting: field.name for field in fields if field.name}


COMPARED_DAYS = 7
MATCH, DOMAINS = "rules.hostname_match", "rules.domains"
MATCHED_LIMIT_PERCENT = 50  # below this share of events with one user asset, settings are probably wrong


def compare_names(inventory: Inventory, logs: Logs, window: Window) -> Iterator[Finding]:
    """Compare the hosts and users of the last days' logons with the first assets of both lists."""
    if not isinstance(inventory, AssetInventory):
        yield Finding("not tried", "names", "are not compared with this inventory")
        return
    instance = inventory.instance
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
    frame = pl.concat(inventory.rows[kind].table(page.ids, page.items) for page in pages)
    size = pages[0].size
    some = f" (of the first {frame.height:,} of {size:,} {kind} listed)" if size > frame.height else ""
    return frame.with_columns(listed_at=datetime.now(UTC)), some


def check_hostnames(documented: pl.Series, listed: pl.Series, rules: Rules, *, among: str = "") -> Finding:
    """Check that hosts of the logons are in the inventory, none of them only without its domain part.

    `among` names the list of which `listed` is a part.
    """
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
