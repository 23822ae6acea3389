"""`asset-owners check`: try both services without writing, and say what is well and what to mend.

What is tried is what a run relies on, through the clients that a run uses. Only searches and reads are sent.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ownership.matching import FIELDS
from ownership.quality import too_many_unreadable, unreadable_assets
from ownership.windows import Window, look_back_window
from resources.errors import AssetOwnersError, ConfigurationError
from resources.http import Transport
from resources.inventory.client import InventoryClient
from resources.inventory.records import AssetRows, host_rows, user_rows
from resources.inventory.session import PROFILE
from resources.search.client import SearchClient
from resources.settings import Instance, ListCall, Platform, load_instance

State = Literal["ok", "warning", "wrong", "not tried"]
Assets = Mapping[str, Mapping[str, Any]]  # id to fields
T = TypeVar("T")

HOSTS, USERS = "platform.contract.hosts", "platform.contract.users"
STYLES: Mapping[State, str] = {"ok": "green", "warning": "yellow", "wrong": "bold red", "not tried": "dim"}


@dataclass(frozen=True)
class Finding:
    """How it went, what was tried (by the name of its setting, if it has one), and what to do about it."""

    state: State
    what: str
    text: str


class Clock:
    """The time, for the inventory client, which needs it for verification codes and nothing else."""

    was_read = False  # true once a code was asked for

    def __call__(self) -> float:
        """Seconds since the epoch."""
        self.was_read = True
        return time.time()


def check(path: Path) -> int:
    """Try both services and print what was found; return 0, or 1 when something is wrong.

    Warnings leave it at 0: they do not stop a run either.

    Raises:
        ConfigurationError: the instance file is wrong, or a secret is not set.
    """
    instance = load_instance(path)
    window = _window(instance)
    clock = Clock()
    # Opening the clients resolves every secret before anything is tried.
    with SearchClient(instance) as search, InventoryClient(instance.platform, clock=clock) as inventory:
        console = Console(highlight=False)
        sections = {
            f"Search service {instance.url}": search_findings(instance, search, window),
            f"Inventory service {instance.platform.url}": inventory_findings(instance, inventory, clock),
        }
        states = [state for section in sections.items() for state in _shown(console, *section)]
    wrong, warnings = states.count("wrong"), states.count("warning")
    console.print(f"{wrong or 'Nothing'} to mend, {warnings or 'no'} warning{'s' * (warnings != 1)}.")
    return 1 if wrong else 0


def search_findings(instance: Instance, search: SearchClient, window: Window) -> Iterator[Finding]:
    """Try connection, log-in, query and fields over the look-back window."""
    fields = {"user_field": instance.user_field, "hostname_field": instance.hostname_field}
    path = f"/{quote(instance.index, safe='*,-')}/_search"
    if not (yield from _reached("search service", "", instance, "POST", path)):
        yield from _not_tried("the service was not reached", "search", *fields)
        return
    totals = yield from _attempt("search", lambda: search.totals(window.first, window.last))
    if totals is None:
        yield from _not_tried("the search failed", *fields)
        return
    yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
    matching, *lacking = totals
    if not matching:
        yield from _nothing_matches(instance, search, window)
        yield from _not_tried("there is no logon event to look at", *fields)
        return
    yield Finding("ok", "query", f"matches {matching:,} logon events from {window.first} to {window.last}")
    for (setting, field), without in zip(fields.items(), lacking, strict=True):
        if without == matching:
            text = f"none of the logon events carries {field}; name the field that holds it in your documents"
            yield Finding("wrong", setting, text)
        else:
            text = f"{field} is in {matching - without:,} of {matching:,} logon events"
            yield Finding("ok", setting, text + (", the others count for nobody" if without else ""))


def _nothing_matches(instance: Instance, search: SearchClient, window: Window) -> Iterator[Finding]:
    """Tell documents without a time from a query that matches nothing and from days without documents.

    The first stops a run, the others do not (rules 3.4).
    """
    if undated := (yield from _attempt("time_field", search.undated)):
        text = (
            f"none of the {undated:,} documents that match the query carries {instance.time_field}; name the "
            "field that holds the time of the logon"
        )
        yield Finding("wrong", "time_field", text)
        return
    with SearchClient(instance.model_copy(update={"query": "*"})) as everything:
        totals = yield from _attempt("query", lambda: everything.totals(window.first, window.last))
    if totals is None:
        return
    remedy = (
        f"{totals[0]:,} documents lie in those days, so check query"
        if totals[0]
        else f"no document at all lies in those days, so check index ({instance.index}), "
        f"time_field ({instance.time_field}) and whether events arrive"
    )
    days = f"from {window.first} to {window.last}"
    yield Finding("warning", "query", f"matches nothing {days}, which resolves nobody; {remedy}")


def inventory_findings(instance: Instance, inventory: InventoryClient, clock: Clock) -> Iterator[Finding]:
    """Try connection, log-in, both lists with their fields, and the reading of one host.

    Args:
        instance: names of fields, and the contract.
        inventory: the client to try.
        clock: the clock of that client.
    """
    yield from _inventory_reads(instance, inventory, clock)
    platform = instance.platform
    yield Finding(
        "not tried",
        "platform.contract.update",
        f"only a write can show that {platform.contract.update.path} is right, that {platform.email} may "
        f"write, and that {', '.join(_written_fields(instance).values())} can be set; try asset-owners run "
        "--dry-run, then asset-owners run --limit 5",
    )


def _inventory_reads(instance: Instance, inventory: InventoryClient, clock: Clock) -> Iterator[Finding]:
    platform, contract = instance.platform, instance.platform.contract
    if not (yield from _reached("inventory service", "platform.", platform, "GET", PROFILE)):
        yield from _not_tried("the service was not reached", "log-in", HOSTS, USERS)
        return
    # The payload is not specified and may be null; inside a tuple that is no failure.
    if (yield from _attempt("log-in", lambda: (inventory.get(PROFILE, tenant=False),))) is None:
        yield from _not_tried("there is no session", HOSTS, USERS)
        return
    code = "with" if clock.was_read else "without"
    yield Finding("ok", "log-in", f"{platform.email} is signed in, {code} a verification code")
    hosts = yield from _listed(HOSTS, inventory, contract.hosts, platform)
    if hosts:
        yield from _host_fields(instance, hosts)
        yield from _one_host(instance, inventory, hosts)
    else:
        yield from _not_tried("there is no host", "platform_hostname_field", "platform.contract.read")
    users = yield from _listed(USERS, inventory, contract.users, platform)
    if users:
        yield from _user_fields(instance, users)
    else:
        yield from _not_tried("there is no user", "platform_user_value_field")
    if hosts and users and (same := [one for one in hosts if one in users and hosts[one] == users[one]]):
        yield Finding(
            "wrong",
            f"{HOSTS}.params",
            f"both lists hold asset {same[0]}, so hosts and users are not told apart; write into hosts and "
            "users of platform.contract the paths or params by which the service separates them",
        )


def _reached(
    service: str, section: str, settings: Instance | Platform, method: str, path: str
) -> Generator[Finding, None, bool]:
    """Send one request without credentials: whatever HTTP answer comes, the service is reached."""
    url = urlsplit(settings.url)
    if url.scheme == "http" and not _is_this_machine(url.hostname or ""):
        yield Finding("warning", f"{section}url", "http:// sends the password in the clear; use https://")
    if url.scheme == "https" and settings.ignore_ssl:
        text = (
            "is on: whoever stands between can pose as the service and read the password; "
            f"better set {section}ca_file"
        )
        yield Finding("warning", f"{section}ignore_ssl", text)
    transport = Transport(
        service, section, settings.url, ignore_ssl=settings.ignore_ssl, ca_file=settings.ca_file
    )
    with transport.new_session() as session:
        answer = yield from _attempt("connection", lambda: transport.send(session, method, path))
    if answer is None:
        return False
    trusted = url.scheme == "https" and not settings.ignore_ssl
    yield Finding("ok", "connection", "answers, and its certificate is trusted" if trusted else "answers")
    return True


def _listed(
    what: str, inventory: InventoryClient, call: ListCall, platform: Platform
) -> Generator[Finding, None, Assets | None]:
    """Read the first page of a list; None when that fails."""
    page = yield from _attempt(what, lambda: inventory.first_page(call))
    if page is None:
        return None
    if not page.size:
        text = f"{call.path} lists nothing, so nobody gets an owner; check {what} and platform.tenant_id"
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
        yield from _not_tried("no host can be read", what)
        return
    if instance.platform.contract.read is None:
        yield Finding("ok", what, "is null, so hosts are listed again right before the writing starts")
        return
    # A host with an owner tells more: a reading that hides owners would let them be overwritten.
    listed = next((record for record in records if record["owner_ids"]), records[0])
    host_id = listed["host_id"]
    read = yield from _attempt(what, lambda: rows.record(host_id, inventory.read(host_id)))
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
            f"none of {first} carries {' or '.join(carrying)}, so nobody can be matched; they have "
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
    enriched = instance.platform.contract.enrich_fields.model_dump() if instance.scan.enrich else {}
    section = "platform.contract.enrich_fields"
    settings = {f"{section}.{source}": field for source, field in enriched.items() if field}
    return {"platform_user_field": instance.platform_user_field, **settings}


def _with_fields(assets: Assets) -> Assets:
    """Leave out odd assets, whose fields are no object."""
    return {asset_id: fields for asset_id, fields in assets.items() if isinstance(fields, dict)}


def _carrying(field: str, assets: Assets) -> int:
    """How many assets have a value in a field."""
    return sum(fields.get(field) not in (None, "", []) for fields in assets.values())


def _names(assets: Assets) -> str:
    names = sorted({name for fields in assets.values() for name in fields})
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


def _attempt(what: str, call: Callable[[], T]) -> Generator[Finding, None, T | None]:
    """Call and give the result; a failure is a finding, and gives None."""
    try:
        return call()
    except AssetOwnersError as error:
        yield Finding("wrong", what, str(error))
        return None


def _not_tried(reason: str, *names: str) -> Iterator[Finding]:
    for what in names:
        yield Finding("not tried", what, reason)


def _window(instance: Instance) -> Window:
    """The look-back window of a run that started now."""
    today = datetime.now(ZoneInfo(instance.scan.timezone)).date()
    try:
        return look_back_window(today, instance.scan.lookback_days, instance.scan.first_day)
    except ValueError as error:
        raise ConfigurationError(f"scan.first_day: {error}") from error


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(console: Console, heading: str, findings: Iterable[Finding]) -> Iterator[State]:
    """Print findings as they come, and give how each went."""
    console.print(Text(heading, style="bold"))
    for finding in findings:
        line = Table.grid(padding=(0, 2))
        line.add_column(width=11)
        line.add_column(overflow="fold")
        # The words of a service may hold line breaks and what a terminal obeys; as Text they are no markup.
        words = " ".join("".join(letter if letter.isprintable() else " " for letter in finding.text).split())
        line.add_row(
            Text(f"  {finding.state}", style=STYLES[finding.state]),
            Text.assemble((finding.what, "bold"), ": ", words),
        )
        console.print(line)
        yield finding.state
