"""What is well with the inventory service and what to fix: log-in, both lists with their fields, one host.

What is tried is what a run relies on, through the client that a run uses. Only reads are sent.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ownership import quality
from ownership.matching import FIELDS
from ownership.quality import too_many_unreadable, unreadable_assets
from resources.findings import Finding, attempt, not_tried, reached
from resources.inventory.client import InventoryClient
from resources.inventory.records import AssetRows, host_fields, host_rows, user_rows
from resources.inventory.session import PROFILE
from resources.settings import Instance, ListCall, Platform

Assets = Mapping[str, Mapping[str, Any]]  # id to fields

HOSTS, USERS = "platform.contract.hosts", "platform.contract.users"


def inventory_findings(instance: Instance, inventory: InventoryClient) -> Iterator[Finding]:
    """Try connection, log-in, both lists with their fields, and the reading of one host.

    Args:
        instance: names of fields, and the contract.
        inventory: the client to try.
    """
    yield from _inventory_reads(instance, inventory)
    platform = instance.platform
    yield Finding(
        "not tried",
        "platform.contract.update",
        f"only a write can show that {platform.contract.update.path} is right, that {platform.email} may "
        f"write, and that {', '.join(_written_fields(instance).values())} can be set; try asset-owners run "
        "--dry-run, then asset-owners run --limit 5",
    )


def _inventory_reads(instance: Instance, inventory: InventoryClient) -> Iterator[Finding]:
    platform, contract = instance.platform, instance.platform.contract
    if not (
        yield from reached(
            "inventory service",
            "platform.",
            platform.url,
            "GET",
            PROFILE,
            ignore_ssl=platform.ignore_ssl,
            ca_file=platform.ca_file,
        )
    ):
        yield from not_tried("the service was not reached", "log-in", HOSTS, USERS)
        return
    # The payload is not specified and may be null; inside a tuple that is no failure.
    if (yield from attempt("log-in", lambda: (inventory.get(PROFILE, tenant=False),))) is None:
        yield from not_tried("there is no session", HOSTS, USERS)
        return
    code = "with" if inventory.needed_code else "without"
    yield Finding("ok", "log-in", f"{platform.email} is signed in, {code} a verification code")
    hosts = yield from _listed(HOSTS, inventory, contract.hosts, platform)
    if hosts:
        yield from _host_fields(instance, hosts)
        yield from _one_host(instance, inventory, hosts)
    else:
        yield from not_tried("there is no host", "platform_hostname_field", "platform.contract.read")
    users = yield from _listed(USERS, inventory, contract.users, platform)
    if users:
        yield from _user_fields(instance, users)
    else:
        yield from not_tried("there is no user", "platform_user_value_field")
    if hosts is not None and users is not None:
        yield from _as_a_run_finds(instance, hosts, users)
    if hosts and users and (same := [one for one in hosts if one in users and hosts[one] == users[one]]):
        yield Finding(
            "wrong",
            f"{HOSTS}.params",
            f"both lists hold asset {same[0]}, so hosts and users are not told apart; write into hosts and "
            "users of platform.contract the paths or params by which the service separates them",
        )


def _as_a_run_finds(instance: Instance, hosts: Assets, users: Assets) -> Iterator[Finding]:
    """Warn of what a run warns of in its checks, as far as the first page of each list tells.

    Whether an owner is no user asset any more, only the whole list of users tells.
    """
    listed_hosts, listed_users = (
        rows.table(rows.read(list(assets), list(assets.values())))
        for rows, assets in ((host_rows(instance), hosts), (user_rows(instance), users))
    )
    short = instance.rules.as_rules().short_hostnames
    if shared := quality.shared_hostnames(listed_hosts, short=short).height:
        yield Finding("warning", "platform_hostname_field", quality.shared_hostnames_text(shared))
    field = instance.platform_user_value_field
    if shared := quality.shared_identities(listed_users, user_value_field=field).height:
        yield Finding("warning", "platform_user_value_field", quality.shared_identities_text(shared))
    if lacking := quality.users_without_department(listed_users).height:
        text = f"{lacking} of the first {len(users):,} user assets have no department to copy"
        yield Finding("warning", "user_department", text)


def _listed(
    what: str, inventory: InventoryClient, call: ListCall, platform: Platform
) -> Generator[Finding, None, Assets | None]:
    """Read the first page of a list; None when that fails."""
    page = yield from attempt(what, lambda: inventory.first_page(call))
    if page is None:
        return None
    if not page.size:
        text = f"{call.path} lists nothing, so no host gets an owner; check {what} and platform.tenant_id"
        yield Finding("warning", what, text)
        return {}
    given = len(page.ids)
    capped = given < min(page.size, platform.contract.page_size)
    text = (
        f"{call.path} lists {page.size:,} of tenant {platform.tenant_id}; its first page is number "
        f"{page.number} and holds {given:,}{', the most that the service gives' if capped else ''}"
    )
    yield Finding("ok", what, text)
    return dict(zip(page.ids, page.kept, strict=True))


def _host_fields(instance: Instance, hosts: Assets) -> Iterator[Finding]:
    field, first = instance.platform_hostname_field, f"the first {len(hosts):,} hosts"
    hosts = _with_fields(hosts)
    if carrying := _carrying(field, hosts):
        yield Finding("ok", "platform_hostname_field", f"{field} is on {carrying:,} of {first}")
    else:
        text = (
            f"none of {first} carries {field}; they have {_names(hosts)}. Name the field that holds the "
            "host name, and check platform.contract.fields_in"
        )
        yield Finding("wrong", "platform_hostname_field", text)
    for setting, written in _written_fields(instance).items():
        if having := sum(written in fields for fields in hosts.values()):
            yield Finding("ok", setting, f"{written} is a field of {having:,} of {first}")
        else:
            text = f"none of {first} has {written}; a service may leave out what is empty, but check the name"
            yield Finding("warning", setting, text)


def _one_host(instance: Instance, inventory: InventoryClient, hosts: Assets) -> Iterator[Finding]:
    """Hold the reading of one host against the list: such a reading guards every write (rules 7.1)."""
    what = "platform.contract.read"
    rows = host_rows(instance)
    records = yield from _readable("hosts", rows, hosts)
    if not records:
        yield from not_tried("no host can be read", what)
        return
    if instance.platform.contract.read is None:
        yield Finding("ok", what, "is null, so hosts are listed again right before the writing starts")
        return
    # A host with an owner tells more: a reading that hides owners would let them be overwritten.
    listed = next((record for record in records if record["owner_ids"]), records[0])
    host_id = listed["host_id"]
    read = yield from attempt(what, lambda: rows.record(host_id, inventory.read(host_id)))
    if read == listed:
        yield Finding("ok", what, f"host {host_id} is read as the list shows it")
    elif read is not None:
        differing = ", ".join(column for column in listed if listed[column] != read[column])
        text = (
            f"host {host_id} has other {differing} when read by itself than in the list, so a write would be "
            f"decided on wrong values; check {what} and platform.contract.fields_in"
        )
        yield Finding("wrong", what, text)


def _user_fields(instance: Instance, users: Assets) -> Iterator[Finding]:
    what, chosen = "platform_user_value_field", instance.platform_user_value_field
    sound = _with_fields(users)
    carrying = {field: _carrying(field, sound) for field in (chosen, *FIELDS)}
    first = f"the first {len(users):,} users"
    if any(carrying.values()):
        counts = ", ".join(f"{field} is on {count:,}" for field, count in carrying.items())
        yield Finding("ok" if carrying[chosen] else "warning", what, f"of {first}, {counts}")
    else:
        text = (
            f"none of {first} carries {' or '.join(carrying)}, so no user can be matched; they have "
            f"{_names(sound)}. Name the field that holds the user name, and check platform.contract.fields_in"
        )
        yield Finding("wrong", what, text)
    yield from _readable("users", user_rows(instance), users)


def _readable(
    what: str, rows: AssetRows, assets: Assets
) -> Generator[Finding, None, Sequence[Mapping[str, Any]]]:
    """Give the rows of the assets that can be read, and tell of the others: they stop no run while few."""
    table = rows.table(rows.read(list(assets), list(assets.values())))
    odd = unreadable_assets(table)
    if not odd.is_empty():
        wrong = odd.height == table.height or too_many_unreadable(odd.height, table.height)
        first, problem = odd.row(0)
        text = (
            f"{odd.height:,} of the first {table.height:,} {what} cannot be read, so they are left alone"
            f"{', and a run stops where they are too many' if wrong else ''}. Asset {first}: {problem}"
        )
        yield Finding("wrong" if wrong else "warning", what, text)
    return table.filter(pl.col("problem").is_null()).rows(named=True)


def _written_fields(instance: Instance) -> dict[str, str]:
    """The host fields that a run writes, by setting."""
    names = ("owner", "department", "criticality") if instance.scan.enrich else ("owner",)
    fields = (host_fields(instance)[name] for name in names)
    return {field.setting: field.name for field in fields if field.name}


def _with_fields(assets: Assets) -> Assets:
    """Leave out odd assets, whose fields are no object."""
    return {asset_id: fields for asset_id, fields in assets.items() if isinstance(fields, dict)}


def _carrying(field: str, assets: Assets) -> int:
    """How many assets have a value in a field."""
    return sum(fields.get(field) not in (None, "", []) for fields in assets.values())


def _names(assets: Assets) -> str:
    names = sorted({name for fields in assets.values() for name in fields})
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
