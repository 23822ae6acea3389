"""A company day by day: what its documents and its inventory hold, and what is true of them.

A machine's number says which story it has, on which day that happens, and whether somebody set its owner. All
of it is written down where it is made; no rule of ours is asked.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sandbox.inventory import InventoryState
from sandbox.logons import DOMAIN, Logon
from tests.end_to_end.stand import TENANT

LAST_DAY = date(2026, 3, 31)
"""The day before the first one."""

ZONE = ZoneInfo("Australia/Sydney")
"""Its clocks go back on 2026-04-05, the fifth day, which has 25 hours."""

WINDOW_DAYS = 7
MACHINES = 340
STORIES = (*["one user's"] * 5, "shared", "handed on", "scrapped", "bought", "scrapped")
"""Of every second machine handed on the owner is taken out of the inventory, after a week. With what is
scrapped its user is taken out as well. What is bought has been in use for a week."""


class Life:
    """A company from its first day to its last.

    Attributes:
        last: the last day's number; days are counted from 1.
        hosts, users: what the inventory holds before the first day, by id.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.hosts: dict[str, dict[str, Any]] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self._stories = {f"pc-{number:03}": STORIES[number % 10] for number in range(MACHINES)}
        self._days: dict[str, int] = {}
        self._changes: dict[int, list[Callable[[InventoryState], None]]] = defaultdict(list)
        for number, (name, story) in enumerate(self._stories.items()):
            self._days[name] = 2 + 7 * number % (last - 1)
            self._begin(name, story, self._days[name], number)

    def _begin(self, name: str, story: str, day: int, number: int) -> None:
        """Make the assets of a machine, and note what people will change of them."""
        host_id, user, heir = f"host-{name}", _user(name), _user(f"{name}-heir")
        owner = (user["id"] if number % 7 else "user-pc-000") if number % 3 == 0 else None
        host = {"id": host_id, "search_agent_name": name.upper(), "asset_owner": owner, "department": None}
        changes = self._changes
        if story == "bought":
            host["asset_owner"] = None
            changes[day].append(lambda state: state.add_assets(TENANT, "user", [user]))
            changes[day].append(lambda state: state.add_assets(TENANT, "host", [host]))
            return
        self.hosts[host_id], self.users[user["id"]] = host, user
        if story == "handed on":
            self.users[heir["id"]] = heir
        if story == "handed on" and number % 20 < 10:
            changes[day + WINDOW_DAYS].append(lambda state: state.set_field(host_id, "asset_owner", None))
        if story == "scrapped":
            changes[day].append(lambda state: state.remove_asset(user["id"]))
            changes[day].append(lambda state: state.remove_asset(host_id))

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
        rng = random.Random(day)  # noqa: S311  # it has to come out the same each time
        midnights = (datetime.combine(self.date_of(number), time(), ZONE) for number in (day, day + 1))
        begin, end = (midnight.timestamp() for midnight in midnights)
        for name, story in self._stories.items():
            for account, events in self._accounts(name, story, day - self._days[name]):
                for _ in range(events):
                    at = datetime.fromtimestamp(int(rng.uniform(begin, end)), UTC)
                    yield Logon(at, "logon", f"{name}.{DOMAIN}", name, account)

    def _accounts(self, name: str, story: str, age: int) -> list[tuple[str, int]]:
        """Who logs on to a machine how often, so many days after what happens to it."""
        if (story == "bought" and age < -WINDOW_DAYS) or (story == "scrapped" and age >= 0):
            return []
        if story == "shared":
            return [(name, 3), ("helpdesk", 3), ("guest", 2)]
        user = f"{name}-heir" if story == "handed on" and age >= 0 else name
        return [(user, 6), ("helpdesk", 2), (f"{name}$", 3)]

    # What is true

    def owned(self) -> set[str]:
        """Hosts that have an owner at the end: somebody set him, or each week's logons name one."""
        return {
            f"host-{name}"
            for name, story in self._stories.items()
            if story != "scrapped" and (story != "shared" or self.hosts[f"host-{name}"]["asset_owner"])
        }

    def never_written(self) -> set[str]:
        """Hosts whose logons name nobody in any week."""
        return {f"host-{name}" for name, story in self._stories.items() if story == "shared"}


def _user(account: str) -> dict[str, Any]:
    return {"id": f"user-{account}", "user_email": f"{account}@{DOMAIN}", "user_department": None}
