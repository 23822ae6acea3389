"""Made-up companies for measuring: who logs on where on each day, and whose each machine is on that day.

They are written from what logs hold: visits of technicians, tasks, desks and loaners that one person has for
a while, machines in stock, people who join and leave, forwarded logons. Nothing here asks the rules.

Two families of stories share the people, the days and what is the same in both. `BY_NIGHT` are companies to
live through night after night, `IN_ONE_RUN` those that a single run looks back on. Each has figures in the
docs, and what is expected of a confidence lies between what the two teach, so neither is made from the other.
"""

import random
from collections import Counter
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from types import FunctionType
from typing import Any

import polars as pl

from ownership.declaration import Table, polars_schema
from ownership.tables import InventoryHosts, InventoryUsers, LogonCounts

FIRST_NIGHT = date(2026, 3, 2)
HISTORY_DAYS = 60
"""Days of logons that the index has when the first run begins, its own day included."""
FORWARDER = "wec01"


@dataclass(frozen=True)
class Company:
    """So many machines of each story, and who works there.

    `by_hand` is the part of machines with an owner whom somebody set, `errors` that of wrong ones among them.
    So many `guests` use each machine now and then. Where people `mingle`, those with a machine of their own
    use others, too.
    """

    machines: Mapping[FunctionType, int]
    by_hand: float = 0.4
    errors: float = 0.03
    technicians: int = 6
    guests: int = 0
    mingle: bool = False


@dataclass
class Life:
    """What is logged in a company, and whose each machine is: by host name a person for each day, or None.

    `people` log on, and `staff` are those of them who get machines of their own, from the last one on.
    """

    rng: random.Random
    days: Sequence[date]
    everybody: Sequence[str]
    technicians: Sequence[str]
    people: Sequence[str]
    staff: MutableSequence[str]
    counts: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    owners: dict[str, list[str | None]] = field(default_factory=dict)

    @property
    def throughout(self) -> range:
        """All days."""
        return range(len(self.days))

    def use(self, host: str, person: str, days: Sequence[int], often: float, events: float) -> None:
        """A person logs on: on each working day with some probability, some times on average."""
        for day in days:
            if 0 <= day < len(self.days) and self.days[day].weekday() < 5 and self.rng.random() < often:
                self.counts[day, host, person] += 1 + int(self.rng.expovariate(1 / events))

    def give(self, host: str, person: str | None, days: range) -> None:
        """Give a machine to a person on these days; on all other days it has no owner."""
        owners = self.owners.setdefault(host, [None] * len(self.days))
        for day in days:
            if 0 <= day < len(self.days):
                owners[day] = person

    def own(self, host: str, person: str, days: range) -> None:
        """A machine is a person's, who uses it as often as people do and is away for a while, or not."""
        self.give(host, person, days)
        away = self.rng.randrange(len(self.days))
        until = away + self.rng.choice([0, 0, 0, 5, 10, 20])
        often = self.rng.choice([0.9, 0.9, 0.9, 0.8, 0.8, 0.8, 0.6, 0.6, 0.3, 0.1])
        for part in (range(days.start, min(away, days.stop)), range(max(until, days.start), days.stop)):
            self.use(host, person, part, often, self.rng.choice([1, 3, 8]))
        if self.rng.random() < 0.15:
            self.visit(host, self.rng.choice(self.people), self.rng.randint(1, 3))

    def visit(self, host: str, person: str, times: int = 1) -> None:
        """A person uses a machine on a day here and there."""
        for _ in range(times):
            day = self.rng.randrange(len(self.days))
            self.use(host, person, range(day, day + 1), 1, 3)

    def look_after(self, host: str, probability: float) -> None:
        """A technician looks after the machine, once or twice in these weeks."""
        for _ in range(2):
            if self.rng.random() < probability:
                self.visit(host, self.rng.choice(self.technicians))

    def task(self, host: str, person: str, a_day: int) -> None:
        """A scheduled task: each day, as often."""
        for day in self.throughout:
            self.counts[day, host, person] += a_day

    def guests(self, host: str, number: int) -> None:
        """So many colleagues use the machine in these weeks: most on one day, one of ten for some weeks."""
        for person in self.rng.sample(self.people, self.rng.randint(0, 2 * number)):
            days = self.rng.choice([1, 1, 1, 1, 2, 2, 3, 3, 5, 12])
            self.use(host, person, self.rng.sample(self.throughout, days), 0.9, self.rng.choice([1, 2, 6]))

    def set_up(self, host: str, day: int) -> int:
        """A technician sets a machine up on a day or two; return the day after."""
        after = day + self.rng.randint(1, 2)
        self.use(host, self.rng.choice(self.technicians), range(day, after), 1, 4)
        return after

    def lend(
        self, host: str, day: int, days: tuple[int, int], pause: tuple[int, int] | None, often: float = 0.9
    ) -> None:
        """From a day on one after another has the machine, for some days, with time on the shelf between."""
        while day < len(self.days):
            until = day + self.rng.randint(*days)
            self.use(host, self.rng.choice(self.people), range(day, until), often, 4)
            day = until + (self.rng.randint(*pause) if pause else 0)

    def any_day(self) -> int:
        """Return some day of the company's life."""
        return self.rng.randrange(len(self.days))

    def former(self, host: str) -> str | None:
        """Return whose the machine was before it was handed on or its owner left."""
        *before, now = self.owners[host]
        return next((person for person in reversed(before) if person and person != now), None)

    def logons(self) -> pl.DataFrame:
        """Return rows of `logon_counts`."""
        rows = (
            {"day": self.days[day], "document_hostname": host, "document_username": person, "events": events}
            for (day, host, person), events in self.counts.items()
        )
        return _table(LogonCounts, [{"log": "logs"} | row for row in rows])

    def hosts(self, set_by_hand: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Return rows of `inventory_hosts`, with these people as their owners, by host name."""
        owners = {host: [user_id(person)] for host, person in (set_by_hand or {}).items()}
        return _table(
            InventoryHosts,
            [{"host_id": host, "hostnames": [host], "owner_ids": owners.get(host)} for host in self.owners],
        )

    def users(self) -> pl.DataFrame:
        """Return rows of `inventory_users`: everybody's user name is that of one user asset."""
        mails = {name: [f"{name}@corp.example"] for name in self.everybody}
        return _table(
            InventoryUsers,
            [{"user_id": user_id(name), "user_value": m, "user_email": m} for name, m in mails.items()],
        )


def user_id(person: str | None) -> str | None:
    """Return the id of a person's user asset."""
    return person and f"u-{person}"


def _table(model: type[Table], rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, polars_schema(model)).with_columns(pl.col(pl.List).fill_null([]))


# Stories that are the same in both families


def shift(life: Life, host: str) -> None:
    """A shared machine: three to six work there in turn, some of them far more often."""
    for person in life.rng.sample(life.people, life.rng.randint(3, 6)):
        life.use(host, person, life.throughout, life.rng.choice([0.05, 0.1, 0.3, 0.7]), 2)


def server(life: Life, host: str) -> None:
    """A server: two technicians look after it, under the accounts that they work with."""
    for technician in life.rng.sample(life.technicians, 2):
        life.use(host, technician, life.throughout, life.rng.choice([0.05, 0.2, 0.5]), 2)


# Stories of companies to live through: what happens may happen on any day


def laptop(life: Life, host: str) -> None:
    """A laptop that stays with one person."""
    life.own(host, life.staff.pop(), life.throughout)
    life.visit(host, life.rng.choice(life.technicians), life.rng.choice([0, 0, 0, 0, 1, 2]))


def bought(life: Life, host: str) -> None:
    """Bought for somebody, new or not, some time in these weeks."""
    after = life.set_up(host, life.any_day())
    life.own(host, life.staff.pop(), range(after + life.rng.randint(0, 5), len(life.days)))


def left(life: Life, host: str) -> None:
    """Its owner leaves; some weeks later it may be somebody else's."""
    until = life.any_day()
    life.own(host, life.staff.pop(), range(until))
    if life.rng.random() < 0.5:
        after = life.set_up(host, until + life.rng.randint(3, 30))
        life.own(host, life.staff.pop(), range(after, len(life.days)))


def handed_on(life: Life, host: str) -> None:
    """From one person to another, from one day to the next or nearly so."""
    until = life.any_day()
    life.own(host, life.staff.pop(), range(until))
    after = life.set_up(host, until + life.rng.randint(0, 3))
    life.own(host, life.staff.pop(), range(after, len(life.days)))


def stock(life: Life, host: str) -> None:
    """Set up and put on a shelf; half of them are given out later."""
    after = life.set_up(host, life.any_day())
    if life.rng.random() < 0.5:
        life.own(host, life.staff.pop(), range(after + life.rng.randint(5, 60), len(life.days)))


def lent(life: Life, host: str) -> None:
    """A loaner: lent to one after another for a week or two."""
    life.lend(host, -life.rng.randrange(10), (1, 10), (0, 25))


def desk(life: Life, host: str) -> None:
    """A shared desk: interns and temporary staff have it for some weeks each."""
    life.lend(host, -life.rng.randrange(35), (1, 35), (0, 5))


def kiosk(life: Life, host: str) -> None:
    """A kiosk that anybody uses, seldom."""
    for _ in range(life.rng.randint(3, 40)):
        life.visit(host, life.rng.choice(life.people))


_LIVED: Mapping[str, Mapping[FunctionType, int]] = {
    "office": {laptop: 130, bought: 15, left: 12, handed_on: 10, stock: 15, lent: 10, kiosk: 5, server: 6},
    "factory": {laptop: 70, bought: 8, left: 6, handed_on: 5, stock: 8, shift: 70, kiosk: 15, server: 5},
    "school": {laptop: 80, bought: 10, left: 8, handed_on: 4, stock: 10, lent: 30, desk: 30, kiosk: 20},
    "IT service": {laptop: 80, bought: 20, left: 8, handed_on: 10, stock: 40, lent: 15, server: 25},
    "growing": {laptop: 70, bought: 50, left: 6, handed_on: 10, stock: 20, lent: 8, desk: 12, server: 4},
    "shrinking": {laptop: 80, bought: 4, left: 45, handed_on: 20, stock: 15, lent: 8, desk: 8, shift: 10},
}
BY_NIGHT = {
    name: Company(machines, by_hand=0, technicians=8, mingle=True) for name, machines in _LIVED.items()
}


# Stories of companies that one run looks back on: what was is counted from the last day


def laptop_in_use(life: Life, host: str) -> None:
    """One person's; away for a while, or hardly used, like any; colleagues and technicians come by."""
    owner = life.staff.pop()
    life.give(host, owner, life.throughout)
    away, start = life.rng.choice([0, 0, 0, 5, 10, 20]), life.any_day()
    days = [day for day in life.throughout if not start <= day < start + away]
    often = life.rng.choice([0.9, 0.9, 0.9, 0.8, 0.8, 0.8, 0.6, 0.6, 0.3, 0.1])
    life.use(host, owner, days, often, life.rng.choice([1, 3, 8]))
    if life.rng.random() < 0.1:
        life.use(host, life.rng.choice(life.people), life.rng.sample(life.throughout, 3), 1, 2)
    life.look_after(host, 0.15)


def under_a_task(life: Life, host: str) -> None:
    """A laptop on which a task runs under the account of the technician who set it up."""
    laptop_in_use(life, host)
    life.task(host, life.rng.choice(life.technicians[:2]), life.rng.choice([1, 4, 24]))


def appliance(life: Life, host: str) -> None:
    """A screen or a small server: a task of a technician, who comes by sometimes."""
    life.task(host, life.rng.choice(life.technicians[:3]), life.rng.choice([1, 4, 24]))
    life.look_after(host, 0.5)


def stocked(life: Life, host: str) -> None:
    """Set up by a technician on a day or two, and put on a shelf."""
    last = len(life.days) - 1
    day = last + 1 - life.rng.randint(1, 45)
    until = day + life.rng.randint(1, 2)
    days = range(day, until) if until <= last else range(last, last + 1)
    life.use(host, life.rng.choice(life.technicians), days, 1, 4)


def loaner(life: Life, host: str) -> None:
    """Lent for some days to one after another, with weeks on the shelf between."""
    life.lend(host, life.rng.randrange(20), (1, 8), (5, 30))


def desk_of_interns(life: Life, host: str) -> None:
    """A desk that each intern has for some weeks."""
    life.lend(host, -life.rng.randint(1, 20), (8, 35), None, 0.8)


def ward(life: Life, host: str) -> None:
    """A ward's machine, which those on duty use, of thirty."""
    crew = life.people[-30 * (1 + int(host[-1]) % 4) :][:30]
    for day in life.throughout:
        for person in life.rng.sample(crew, life.rng.choice([1, 3, 5])):
            life.counts[day, host, person] += life.rng.randint(1, 6)


def kiosk_of_all(life: Life, host: str) -> None:
    """A kiosk that anybody uses, seldom, on some of the days."""
    for day in life.rng.sample(life.throughout, life.rng.randint(3, 20)):
        life.use(host, life.rng.choice(life.people), [day], 1, 1)


def pooled(life: Life, host: str) -> None:
    """A virtual desktop that somebody gets for a day, of two hundred who work that way."""
    for day in life.throughout:
        life.use(host, life.rng.choice(life.people[-200:]), [day], life.rng.choice([0.2, 0.8]), 3)


def left_behind(life: Life, host: str) -> None:
    """Its owner has left the company, and nobody has it now."""
    owner, until = life.staff.pop(), len(life.days) - life.rng.randint(1, 35)
    life.give(host, owner, range(until))
    life.use(host, owner, range(until), 0.8, 4)
    life.look_after(host, 0.3)


def handed_over(life: Life, host: str) -> None:
    """A machine that another person has had for some weeks."""
    former, owner, since = life.staff.pop(), life.staff.pop(), len(life.days) - life.rng.randint(1, 50)
    life.give(host, former, range(since))
    life.give(host, owner, range(since, len(life.days)))
    life.use(host, former, range(since - 3), 0.8, 4)
    life.use(host, life.rng.choice(life.technicians), range(since - 2, since), 0.7, 4)
    life.use(host, owner, range(since, len(life.days)), 0.8, 4)


def forwarded(life: Life, host: str) -> None:
    """A laptop of which logons reach the index under the name of the forwarder."""
    owner = life.staff.pop()
    life.give(FORWARDER, None, life.throughout)
    life.use(FORWARDER, owner, life.throughout, 0.8, 4)
    life.give(host, owner, life.throughout)
    life.use(host, life.rng.choice(life.technicians), life.rng.sample(life.throughout, 2), 0.5, 2)


IN_ONE_RUN = {
    "office": Company(
        {laptop_in_use: 220, stocked: 20, loaner: 12, left_behind: 10}
        | {handed_over: 12, kiosk_of_all: 6, server: 8}
    ),
    "factory": Company(
        {laptop_in_use: 90, shift: 110, kiosk_of_all: 20, stocked: 10, handed_over: 5, appliance: 15}
    ),
    "hospital": Company(
        {laptop_in_use: 90, ward: 90, shift: 20, stocked: 15, under_a_task: 15, left_behind: 5}
    ),
    "bank": Company(
        {laptop_in_use: 120, pooled: 110, under_a_task: 20, server: 15, left_behind: 8, handed_over: 8}
    ),
    "school": Company(
        {laptop_in_use: 120, desk_of_interns: 40, kiosk_of_all: 40, loaner: 30, left_behind: 8}, by_hand=0.25
    ),
    "IT service": Company(
        {laptop_in_use: 120, stocked: 50, server: 30, appliance: 20, under_a_task: 30}, technicians=12
    ),
    "branches": Company({laptop_in_use: 120, forwarded: 60, shift: 30, loaner: 15, kiosk_of_all: 15}),
    "reorganised": Company(
        {laptop_in_use: 130, left_behind: 40, handed_over: 50, desk_of_interns: 15, stocked: 15}, errors=0.1
    ),
}


def days_until(last: date, number: int) -> list[date]:
    """Return so many days, up to the last one."""
    return [last - timedelta(days=age) for age in reversed(range(number))]


def live(company: Company, seed: int, days: Sequence[date], *, moves: int | None = None) -> Life:
    """Let a company live for these days: always the same for a seed.

    From the day of the number `moves` on a quarter of those who have a machine change it within four days.
    """
    rng = random.Random(seed)  # noqa: S311  # it has to come out the same each time, and hides nothing
    names = [f"p{number:04}" for number in range(1_000)]
    technicians, people = names[: company.technicians], names[company.technicians :]
    staff = rng.sample(people, len(people))[::-1] if company.mingle else people
    life = Life(rng, days, names, technicians, people, staff)
    for story, number in company.machines.items():
        for n in range(number):
            host = f"{story.__name__}-{n:04}"
            story(life, host)
            life.give(host, None, range(0))  # a story that gives it to nobody may not name it
            if company.guests:
                life.guests(host, company.guests)
    if moves is not None:
        _move(life, moves)
    return life


def _move(life: Life, day: int) -> None:
    """Let a quarter of those who have a machine on a day take over another's within four days."""
    owned = [host for host, owners in life.owners.items() if owners[day]]
    moving = life.rng.sample(owned, len(owned) // 4)
    people = [str(life.owners[host][day]) for host in moving]
    for host, before, person in zip(moving, people, people[1:] + people[:1], strict=True):
        since = day + life.rng.randrange(4)
        for key in [key for key in life.counts if key[0] >= since and key[1:] == (host, before)]:
            life.counts[key[0], host, person] += life.counts.pop(key)
        life.owners[host][since:] = [person] * (len(life.days) - since)
