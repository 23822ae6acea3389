"""A company made for measuring: its logons are drawn at random, and what is true of them is known beforehand.

Unlike the demo's company (`sandbox.company`), in which each host has a story of its own, this one repeats
few stories with known probabilities. So it is known how often a decision is right in the long run, and not
only in the sample of one seed. Truth is written down where the logons are made, never computed by the rules.

The tables are those that a run stores, without documents and services in between.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import cycle, islice
from typing import Any, NamedTuple

import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts, OwnerWrites
from sandbox.draft import spellings
from sandbox.staff import Account, Staff, hire


class Story(NamedTuple):
    """Machines that are used alike.

    Attributes:
        share: percent of the logons that are the leader's, over any weeks.
        weight: how many of 100 machines are used so.
        right: probability that the leader is the owner.
    """

    share: float
    weight: int
    right: float


STORIES = (
    *(Story(share, 3, 0.5) for share in (42.5, 47.5, 52.5, 57.5)),
    *(Story(share, 7, 0.5) for share in (62.5, 67.5, 72.5, 77.5)),
    *(Story(share, 7, 0.99) for share in (82.5, 87.5, 92.5, 97.5)),
    Story(100, 26, 0.99),
)
"""Shared machines; machines on which a technician or a former user leads as often as the owner; the owner's.

The shares lie between the thresholds that tuning tries, so that chance moves none over them.
"""

HANDED_ON = 100 - sum(story.weight for story in STORIES)
"""How many of 100 machines have had another owner, and sole user, since the held-back days began."""

LAST = date(2026, 3, 31)
LOOKBACK_DAYS = 30
STORED_DAYS = 67
HELD_BACK = LAST - timedelta(days=6)
"""The first of the seven days that are held back."""

WORKING_DAYS = [
    day for age in reversed(range(STORED_DAYS)) if (day := LAST - timedelta(days=age)).weekday() < 5
]
_IN_WINDOW = [day for day in WORKING_DAYS if day > LAST - timedelta(days=LOOKBACK_DAYS)]
HANDED_ON_SHARE = 100 * sum(day < HELD_BACK for day in _IN_WINDOW) / len(_IN_WINDOW)
"""Percent of the window's logons that are the former user's, of machines handed on."""

HANDED_ON_EARLIER = 0.1
"""Part of the other machines that changed hands before both look-back windows, 40 to 60 days ago."""

AS_USUAL, AWAY, SILENT = 0.91, 0.04, 0.05
"""What a machine sees in the held-back days: the same as ever, a guest alone, nobody."""

BY_HAND, BY_THIS_TOOL = 0.5, 0.15
"""Parts of the machines whose owner somebody set, and whose owner this tool wrote; the others have none."""

WRONG_BY_HAND = 0.04
"""Part of the owners set by hand that are wrong."""

MACHINES = 340
LEFT_OUT = ("*$", "system", "dwm-*", "anonymous logon")
"""Value of `exclude_users` under which the truth holds."""


@dataclass
class Planted:
    """Tables as a run stores them, and what is true.

    Attributes:
        counts: Rows of `logon_counts`.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        writes: Rows of `owner_writes`.
        machines: people's machines: hostname, leader of the look-back window and its share (percent), owner
            on its last day, and who set the owner in the inventory (`by_hand`, `by_this_tool`; null: none).
        left: the last day of those who left the company, by the host name of their machine, idle since.
        host_kinds: kind of each machine, by host name.
        account_kinds: kind of each account, by user name.
    """

    counts: pl.DataFrame
    hosts: pl.DataFrame
    users: pl.DataFrame
    writes: pl.DataFrame
    machines: pl.DataFrame
    left: dict[str, date]
    host_kinds: dict[str, str]
    account_kinds: dict[str, str]


def planted(seed: int) -> Planted:
    """The company of a seed: always the same."""
    rng = random.Random(seed)  # noqa: S311  # it has to come out the same each time, and hides nothing
    draft = _Draft(rng, hire(rng, regular_people=MACHINES + 60))
    for story in rng.choices([*STORIES, None], [*(story.weight for story in STORIES), HANDED_ON], k=MACHINES):
        _machine(draft, story)
    for account in draft.staff.unknown:
        _log_daily(draft, draft.host("lt", "personal"), [account], 6)
    _leavers(draft)
    _noisy_services(draft)
    _for_everybody(draft)
    _servers(draft)
    _computers_and_windows(draft)
    return draft.finished()


@dataclass
class _Draft:
    rng: random.Random
    staff: Staff
    counts: Counter[tuple[date, str, str]] = field(default_factory=Counter)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    writes: list[dict[str, Any]] = field(default_factory=list)
    machines: list[dict[str, Any]] = field(default_factory=list)
    left: dict[str, date] = field(default_factory=dict)
    host_kinds: dict[str, str] = field(default_factory=dict)
    account_kinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        people = list(self.staff.regular)
        self.leavers, self.technicians, self.people = people[:12], people[12:15], people[15:]
        self.owners_to_be = cycle(self.people)
        for account in (*people, *self.staff.unknown):
            self.account_kinds[account.name] = "person"
        for account in self.technicians:
            self.account_kinds[account.name] = "administrator"

    def host(self, name: str, kind: str, owners: Sequence[str] = (), *, numbered: bool = True) -> str:
        """Adds a machine, with its asset; returns its name."""
        name = f"{name}-{1000 + len(self.hosts)}" if numbered else name
        self.host_kinds[name] = kind
        self.hosts.append({"host_id": f"host-{name}", "hostnames": [name.upper()], "owner_ids": list(owners)})
        return name

    def owner_and_others(self, others: int) -> list[Account]:
        """The next of the people to own a machine, and so many others of them."""
        owner = next(self.owners_to_be)
        people = (person for person in self.rng.sample(self.people, others + 1) if person != owner)
        return [owner, *islice(people, others)]

    def account(self, name: str, kind: str) -> Account:
        """An account that is no person's."""
        self.account_kinds[name] = kind
        return Account(name, "no_user_asset")

    def log(self, day: date, host: str, account: Account, events: int = 1) -> None:
        if events:
            self.counts[day, host, account.name] += events

    def finished(self) -> Planted:
        listed_at = datetime.combine(LAST, time(20), UTC)
        spelled: dict[tuple[str, str], str] = {}
        rows = []
        for (day, host, name), events in self.counts.items():
            if (host, name) not in spelled:
                plain = name.endswith("$") or self.rng.random() < 0.8
                spelled[host, name] = name if plain else self.rng.choice(spellings(Account(name, "matched")))
            rows.append((day, host, spelled[host, name], events, None))
        users = [_user_row(user) | {"listed_at": listed_at} for user in self.staff.users]
        hosts = [host | {"listed_at": listed_at} for host in self.hosts]
        return Planted(
            pl.DataFrame(rows, polars_schema(LogonCounts), orient="row"),
            pl.DataFrame(hosts, polars_schema(InventoryHosts)),
            pl.DataFrame(users, polars_schema(InventoryUsers)),
            pl.DataFrame(self.writes, polars_schema(OwnerWrites)),
            pl.DataFrame(self.machines),
            self.left,
            self.host_kinds,
            self.account_kinds,
        )


def _user_row(user: dict[str, Any]) -> dict[str, Any]:
    """A user asset as the inventory's table has it."""
    lists = {
        name: [value] if isinstance(value := user.get(name), str) else value or []
        for name in ("user_email", "directory_user_sam_account_name", "directory_user_surname")
    }
    department = user.get("user_department")
    return {"user_id": user["id"], "user_value": lists["user_email"], "user_department": department, **lists}


def _machine(draft: _Draft, story: Story | None) -> None:
    """A machine that people use; None: it was handed on as the held-back days began."""
    rng = draft.rng
    owner, other, stranger, *guests = draft.owner_and_others(4)
    technician = rng.choice(draft.technicians)
    if story is None:
        host = draft.host("lt", "personal")
        _log_daily(draft, host, [other], 8, until=HELD_BACK)
        _log_daily(draft, host, [owner], 8, since=HELD_BACK)
        _own(draft, host, other, owner, leader=other, share=HANDED_ON_SHARE, stranger=stranger)
        return
    host = draft.host("lt", "personal") if story.share > 60 else draft.host("pc", "shared")
    leader = owner if rng.random() < story.right else rng.choice((technician, other))
    rest = [*guests, technician] if leader == owner else [*guests, owner, owner]
    since, before = WORKING_DAYS[0], owner
    if rng.random() < HANDED_ON_EARLIER:
        since = LAST - timedelta(days=rng.randint(40, 60))
        _log_daily(draft, host, [other], 8, until=since)
        before = other
    week = rng.choices(("as usual", "away", "silent"), (AS_USUAL, AWAY, SILENT))[0]
    until = None if week == "as usual" else HELD_BACK
    _share(draft, host, leader, rest, story.share, days=_working(since, until))
    if week == "away":
        draft.log(HELD_BACK, host, guests[0])
    _own(draft, host, before, owner, leader=leader, share=story.share, stranger=stranger)


def _share(
    draft: _Draft,
    host: str,
    leader: Account,
    others: Sequence[Account],
    share: float,
    *,
    days: Sequence[date],
) -> None:
    """Logs such that over any weeks the leader has the share of the logons, and chance has the rest."""
    a_day, total, led = draft.rng.randint(6, 10), 0, 0
    for day in days:
        total += a_day
        led_today = int(share * total / 100) - led
        led += led_today
        draft.log(day, host, leader, led_today)
        for guest in draft.rng.choices(others, k=a_day - led_today):
            draft.log(day, host, guest)


def _own(
    draft: _Draft,
    host: str,
    before: Account,
    owner: Account,
    *,
    leader: Account,
    share: float,
    stranger: Account,
) -> None:
    """Notes whose a machine is, and gives its asset an owner: right or wrong, by hand or not, or none."""
    by_hand, wrong = draft.rng.random(), draft.rng.random() < WRONG_BY_HAND
    asset, owned = draft.hosts[-1], None
    if by_hand < BY_HAND:
        owned = "by_hand"
        # Whoever had the machine before, unless the logons still name that one.
        wrongly = before if before not in (owner, leader) else stranger
        asset["owner_ids"] = [(wrongly if wrong else owner).user_id]
    elif by_hand < BY_HAND + BY_THIS_TOOL:
        owned = "by_this_tool"
        asset["owner_ids"] = [leader.user_id]
        draft.writes.append(_written(asset))
    ids = {"leader": leader.user_id, "owner": owner.user_id}
    draft.machines.append({"hostname": host, "share": share, "owned": owned, **ids})


def _written(asset: dict[str, Any]) -> dict[str, Any]:
    """A row of `owner_writes` by which a run of this tool gave the asset its owner."""
    at = datetime.combine(LAST - timedelta(days=14), time(5), UTC)
    return {
        "run_id": "an-earlier-run",
        "host_id": asset["host_id"],
        "hostname": asset["hostnames"][0].lower(),
        "outcome": "written",
        "old_values": {},
        "new_values": {"owner": asset["owner_ids"][0]},
        "intended_at": at,
        "completed_at": at,
    }


def _working(since: date | None = None, until: date | None = None) -> list[date]:
    """The working days from one day on, before another."""
    return [day for day in WORKING_DAYS if (not since or day >= since) and (not until or day < until)]


def _log_daily(
    draft: _Draft,
    host: str,
    accounts: Sequence[Account],
    events: int,
    *,
    since: date | None = None,
    until: date | None = None,
) -> None:
    for day in _working(since, until):
        for account in accounts:
            draft.log(day, host, account, events)


def _leavers(draft: _Draft) -> None:
    """Machines of people who left, idle since, whose assets still name them."""
    for account in draft.leavers:
        host = draft.host("lt", "personal", [account.user_id] if account.user_id else [])
        last = draft.rng.choice(_working(until=LAST - timedelta(days=40)))
        _log_daily(draft, host, [account], 6, until=last + timedelta(days=1))
        draft.left[host] = last


def _noisy_services(draft: _Draft) -> None:
    """Services that log on more often than the owners do; only one of them has a name that tells it."""
    for service, machines in (("sccm-push", 16), ("deployer", 12)):
        account = draft.account(service, "service")
        for _ in range(machines):
            [owner] = draft.owner_and_others(0)
            owners = [owner.user_id] if owner.user_id and draft.rng.random() < 0.3 else []
            host = draft.host("lt", "personal", owners)
            _log_daily(draft, host, [owner], 3)
            _log_daily(draft, host, [account], 4)


def _for_everybody(draft: _Draft) -> None:
    """Kiosks, a lab and collectors, by their names and without telling ones: all of many use them alike."""
    for name, kind, machines, people, a_day in (
        ("kiosk", "kiosk", 6, 14, 5),
        ("wall", "kiosk", 4, 14, 5),
        ("lab", "kiosk", 12, 20, 6),
        ("room204", "kiosk", 6, 20, 6),
        ("wec01", "collector", 1, 70, 30),
        ("evtgw", "collector", 1, 70, 30),
    ):
        for _ in range(machines):
            host = draft.host(name, kind, numbered=kind == "kiosk")
            users = draft.rng.sample(draft.people, people)
            for day in WORKING_DAYS:
                for account in draft.rng.sample(users, a_day):
                    draft.log(day, host, account)
    # A screen that logs itself on, with an account of its own.
    for number in (1, 2):
        _log_daily(draft, draft.host("reception", "kiosk"), [draft.account(f"screen{number}", "service")], 2)


def _servers(draft: _Draft) -> None:
    """Servers and domain controllers, by their names and by who logs on; administrators and services do."""
    names = ("adm-kraus", "adm-tier1", "j.admin", "t0_olsen", "administrator")
    administrators = [draft.account(name, "administrator") for name in names]
    services = [draft.account(name, "service") for name in ("svc_backup", "svc_sql", "qualys", "nessus")]
    for name, machines in (("srv", 10), ("sql", 4), ("print", 3), ("thor", 1), ("odin", 1), ("saga", 1)):
        for _ in range(machines):
            host = draft.host(name, "server", numbered=machines > 1)
            _log_daily(draft, host, draft.rng.sample(services, 2), 5)
            if machines > 1:
                _log_daily(draft, host, draft.rng.sample(administrators, 2), 1)
    computers = [draft.account(f"{host}$", "computer") for host in list(draft.host_kinds)[:60]]
    for name in ("dc01", "dc02", "fra-dc-1", "auth1", "files"):
        host = draft.host(name, "server", numbered=False)
        for account in draft.rng.sample(computers, 30):
            _log_daily(draft, host, [account], 2, since=HELD_BACK)
        _log_daily(draft, host, draft.rng.sample(administrators, 3), 2)
    # A server with a plain name that an administrator looks after, and nobody else logs on to.
    _log_daily(draft, draft.host("balder", "server", numbered=False), [services[0], administrators[0]], 3)


def _computers_and_windows(draft: _Draft) -> None:
    """What every fourth machine writes besides: its own account, and those of Windows."""
    windows = [draft.account(name, "built_in") for name in ("system", "dwm-1", "anonymous logon")]
    for host in list(draft.host_kinds)[::4]:
        own = draft.account(f"{host}$", "computer")
        _log_daily(draft, host, [own, *windows], 3, since=LAST - timedelta(days=3))
