"""The company of `sandbox.planted`, day by day: what its documents and inventory hold, and what is true.

The last day is the planted one's last; a life that is
too short for it ends earlier, so that the last machines change hands on its third day. To the planted stories
come machines that are bought and scrapped, owners who are taken out of the inventory once a machine is handed
on, and people who come and leave. All of it is written down where it is made; no rule of ours is asked.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from sandbox.inventory import InventoryState
from sandbox.logons import DOMAIN, Logon
from sandbox.planted import HELD_BACK, LAST, Planted, planted
from tests.end_to_end.stand import TENANT

LAST_DAY = date(2026, 3, 31)
"""The day before the first one."""

ZONE = ZoneInfo("Australia/Sydney")
"""Its clocks go back on 2026-04-05, the fifth day, which has 25 hours."""

WINDOW_DAYS = 7
HANDED_ON_DAY = 3
"""In the shortest life, the day on which the last machines change hands."""

NEW, SCRAPPED = 0.12, 0.08
"""Parts of the machines that are bought on the way, and that are scrapped."""

DELIVERED = 12
"""Machines that come into the inventory together, with the people who use them."""

CLEARED = 0.6
"""Part of the machines handed on whose owner somebody takes out of the inventory; the others keep him."""

STEADY, NOBODYS = 66, 54
"""A leader's share (percent) above which a week of logons always names him, and below which it never does."""


class Life:
    """A company from its first day to its last.

    Attributes:
        last: the last day's number; days are counted from 1.
        hosts, users: what the inventory holds before the first day, by id.
    """

    def __init__(self, last: int, *, delivery: int, seed: int = 1) -> None:
        self.last = last
        self._rng = random.Random(seed)  # noqa: S311  # it has to come out the same each time
        company = planted(seed)
        begin = min(LAST - timedelta(days=last - 1), HELD_BACK - timedelta(days=HANDED_ON_DAY - 1))
        self._day_0 = begin - timedelta(days=1)
        self._counts = self._by_day(company)
        self._machines = {str(row["hostname"]): row for row in company.machines.to_dicts()}
        self._owners: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for hostname, since, owner in company.owners.rows():
            self._owners[hostname].append((self._number(since), owner))
        self.hosts = {host["host_id"]: _host(host) for host in company.hosts.to_dicts()}
        self.users = {user["user_id"]: _user(user) for user in company.users.to_dicts()}
        self._changes: dict[int, list[Callable[[InventoryState], None]]] = defaultdict(list)
        self._used: dict[str, range] = {}
        self._cleared: set[str] = set()

        for hostname, machine in self._machines.items():
            if machine["owned"] == "by_this_tool":  # it will be
                self.hosts[_id(hostname)]["asset_owner"] = None
        self._leave(company)
        for hostname in self._machines:
            if len(self._owners[hostname]) > 1:
                self._hand_on(hostname)
        self._buy_and_scrap(delivery)

    # What happens

    def date_of(self, day: int) -> date:
        return LAST_DAY + timedelta(days=day)

    def evening(self, day: int) -> datetime:
        """When the day's run begins."""
        return datetime.combine(self.date_of(day), time(20), ZONE)

    def change_assets(self, day: int, state: InventoryState) -> None:
        """What people do in the inventory before the day's run."""
        for change in self._changes[day]:
            change(state)

    def logons(self, day: int) -> Iterator[Logon]:
        """The day's events, all day long."""
        rng = random.Random(day)  # noqa: S311
        midnights = (datetime.combine(self.date_of(number), time(), ZONE) for number in (day, day + 1))
        begin, end = (midnight.timestamp() for midnight in midnights)
        for host, user, events in self._counts.get(day, []):
            if day in self._used.get(host, [day]):
                for _ in range(events):
                    at = datetime.fromtimestamp(int(rng.uniform(begin, end)), UTC)
                    yield Logon(at, "logon", f"{host}.{DOMAIN}", host, user)

    # What is true

    def owned(self) -> set[str]:
        """Hosts that have an owner at the end: somebody set him, or each week's logons name one."""
        return {
            _id(hostname)
            for hostname, machine in self._machines.items()
            if machine["share"] > STEADY or (machine["owned"] == "by_hand" and hostname not in self._cleared)
            if self.last in self._used.get(hostname, [self.last])
        }

    def never_written(self) -> set[str]:
        """Hosts whose logons name nobody in any week."""
        return {
            _id(hostname)
            for hostname, machine in self._machines.items()
            if machine["share"] < NOBODYS and len(self._owners[hostname]) == 1
        }

    # How it is made

    def _number(self, day: date) -> int:
        return (day - self._day_0).days

    def _by_day(self, company: Planted) -> dict[int, list[tuple[str, str, int]]]:
        """Each day's counts; machines' own accounts, planted in the last days only, log on every day."""
        columns = ["document_hostname", "document_username", "events"]
        nobody = [name for name, kind in company.account_kinds.items() if kind in ("computer", "built_in")]
        of_nobody = pl.col("document_username").is_in(nobody)
        daily = company.counts.filter(of_nobody, pl.col("day") == LAST).select(columns).rows()
        days = company.counts.filter(~of_nobody).sort("day", *columns).partition_by("day", as_dict=True)
        return {self._number(day): frame.select(columns).rows() + daily for (day,), frame in days.items()}

    def _leave(self, company: Planted) -> None:
        """People leave: their user assets go, and some days later their machines do."""
        for hostname, left in company.left.items():
            gone = max(self._number(left) + 1, 2)
            for asset_id, day in ((self._owners[hostname][0][1], gone), (_id(hostname), gone + 5)):
                self._changes[day].append(_removing(asset_id))

    def _hand_on(self, hostname: str) -> None:
        """A machine changes hands; its owner is taken out once a week's logons are the new user's."""
        (_, former), (since, _) = self._owners[hostname]
        host = self.hosts[_id(hostname)]
        if 1 - WINDOW_DAYS < since <= 1:
            host["asset_owner"] = host["asset_owner"] or former  # the first run would take him for its owner
        if since + WINDOW_DAYS > 0 and self._rng.random() < CLEARED:
            self._cleared.add(hostname)
            self._changes[since + WINDOW_DAYS].append(
                lambda state: state.set_field(host["id"], "asset_owner", None)
            )

    def _buy_and_scrap(self, delivery: int) -> None:
        """Machines are in use for a week before they are in the inventory; their users come with them."""
        machines = [hostname for hostname in self._machines if len(self._owners[hostname]) == 1]
        self._rng.shuffle(machines)
        nobodys = [name for name in machines if not self.hosts[_id(name)]["asset_owner"]]
        steady = [name for name in nobodys if self._machines[name]["share"] > STEADY]
        bought = dict.fromkeys(steady[:DELIVERED], delivery)
        rest = [name for name in machines if name not in bought]
        new, scrapped = (int(part * len(machines)) for part in (NEW, SCRAPPED))
        latest = max(self.last - WINDOW_DAYS - 3, 3)
        bought |= {name: self._rng.randint(2, latest) for name in rest[:new]}
        for hostname, day in bought.items():
            host, user = self.hosts.pop(_id(hostname)), self.users.pop(self._owners[hostname][0][1])
            self._used[hostname] = range(day - WINDOW_DAYS, self.last + 1)
            self._changes[day] += [_adding("user", user), _adding("host", host)]
        for hostname in rest[new : new + scrapped]:
            day = self._rng.randint(2, self.last)
            self._used[hostname] = range(-WINDOW_DAYS, day)
            self._changes[day].append(_removing(_id(hostname)))


def _id(hostname: str) -> str:
    return f"host-{hostname}"


def _host(row: dict[str, Any]) -> dict[str, Any]:
    """A row of inventory_hosts as the inventory has it."""
    [name], owner = row["hostnames"], next(iter(row["owner_ids"]), None)
    fields = {"search_agent_name": name, "asset_owner": owner}
    return {"id": row["host_id"], **fields, "department": None, "criticality": None}


def _user(row: dict[str, Any]) -> dict[str, Any]:
    """A row of inventory_users as the inventory has it."""
    names = ("user_email", "directory_user_sam_account_name", "directory_user_surname")
    return {"id": row["user_id"], "user_department": row["user_department"]} | {
        name: row[name] for name in names if row[name]
    }


def _adding(asset_type: Any, asset: dict[str, Any]) -> Callable[[InventoryState], None]:
    return lambda state: state.add_assets(TENANT, asset_type, [asset])


def _removing(asset_id: str) -> Callable[[InventoryState], None]:
    return lambda state: state.remove_asset(asset_id)
