"""Companies that live: who logs on where on each day, and whose each machine is on that day.

Made up for measuring what is right after many nightly runs. People join and leave; machines are bought,
handed on, lent, and put into stock. Nothing here asks the rules.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from types import FunctionType

FIRST_NIGHT = date(2026, 3, 2)
HISTORY_DAYS = 60
"""Days of logons that the index has when the first run begins, its own day included."""
TECHNICIANS = 8


@dataclass
class Life:
    """What is logged in a company, and whose each machine is: by host name a person for each day, or None.

    `people` log on, and `staff` are those of them who get machines of their own, one after another.
    """

    rng: random.Random
    days: Sequence[date]
    people: Sequence[str]
    technicians: Sequence[str]
    staff: Iterator[str]
    counts: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    owners: dict[str, list[str | None]] = field(default_factory=dict)

    def use(self, host: str, person: str, days: range, often: float, events: float) -> None:
        """A person logs on: on each working day with some probability, some times on average."""
        for day in days:
            if 0 <= day < len(self.days) and self.days[day].weekday() < 5 and self.rng.random() < often:
                self.counts[day, host, person] += 1 + int(self.rng.expovariate(1 / events))

    def own(self, host: str, person: str, days: range) -> None:
        """A machine is a person's, who uses it as often as people do and is away for a while, or not."""
        for day in days:
            if 0 <= day < len(self.days):
                self.owners[host][day] = person
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

    def set_up(self, host: str, day: int) -> int:
        """A technician sets a machine up on a day or two; return the day after."""
        after = day + self.rng.randint(1, 2)
        self.use(host, self.rng.choice(self.technicians), range(day, after), 1, 4)
        return after

    def any_day(self, first: int = 0) -> int:
        """Some day of the company's life."""
        return self.rng.randrange(first, len(self.days))


def laptop(life: Life, host: str) -> None:
    """One person's throughout."""
    life.own(host, next(life.staff), range(len(life.days)))
    life.visit(host, life.rng.choice(life.technicians), life.rng.choice([0, 0, 0, 0, 1, 2]))


def bought(life: Life, host: str) -> None:
    """Bought for somebody, new or not, some time in these weeks."""
    after = life.set_up(host, life.any_day())
    life.own(host, next(life.staff), range(after + life.rng.randint(0, 5), len(life.days)))


def left(life: Life, host: str) -> None:
    """Its owner leaves; some weeks later it may be somebody else's."""
    until = life.any_day()
    life.own(host, next(life.staff), range(until))
    if life.rng.random() < 0.5:
        after = life.set_up(host, until + life.rng.randint(3, 30))
        life.own(host, next(life.staff), range(after, len(life.days)))


def handed_on(life: Life, host: str) -> None:
    """From one person to another, from one day to the next or nearly so."""
    until = life.any_day()
    life.own(host, next(life.staff), range(until))
    after = life.set_up(host, until + life.rng.randint(0, 3))
    life.own(host, next(life.staff), range(after, len(life.days)))


def stock(life: Life, host: str) -> None:
    """Set up and put on a shelf; half of them are given out later."""
    after = life.set_up(host, life.any_day())
    if life.rng.random() < 0.5:
        life.own(host, next(life.staff), range(after + life.rng.randint(5, 60), len(life.days)))


def lent(life: Life, host: str, *, longest: int = 10, pause: int = 25) -> None:
    """Nobody's: lent to one after another, for days or a week or two, with time on the shelf between."""
    day = -life.rng.randrange(longest)
    while day < len(life.days):
        until = day + life.rng.randint(1, longest)
        life.use(host, life.rng.choice(life.people), range(day, until), 0.9, 4)
        day = until + life.rng.randint(0, pause)


def desk(life: Life, host: str) -> None:
    """Nobody's: interns and temporary staff have it for some weeks each."""
    lent(life, host, longest=35, pause=5)


def shift(life: Life, host: str) -> None:
    """Nobody's: three to six work there in turn, some of them far more often."""
    for person in life.rng.sample(life.people, life.rng.randint(3, 6)):
        life.use(host, person, range(len(life.days)), life.rng.choice([0.05, 0.1, 0.3, 0.7]), 2)


def kiosk(life: Life, host: str) -> None:
    """Nobody's: anybody, seldom."""
    for _ in range(life.rng.randint(3, 40)):
        life.visit(host, life.rng.choice(life.people))


def server(life: Life, host: str) -> None:
    """Nobody's: two technicians look after it."""
    for technician in life.rng.sample(life.technicians, 2):
        life.use(host, technician, range(len(life.days)), life.rng.choice([0.05, 0.2, 0.5]), 2)


COMPANIES: Mapping[str, Mapping[FunctionType, int]] = {
    "office": {laptop: 130, bought: 15, left: 12, handed_on: 10, stock: 15, lent: 10, kiosk: 5, server: 6},
    "factory": {laptop: 70, bought: 8, left: 6, handed_on: 5, stock: 8, shift: 70, kiosk: 15, server: 5},
    "school": {laptop: 80, bought: 10, left: 8, handed_on: 4, stock: 10, lent: 30, desk: 30, kiosk: 20},
    "IT service": {laptop: 80, bought: 20, left: 8, handed_on: 10, stock: 40, lent: 15, server: 25},
    "growing": {laptop: 70, bought: 50, left: 6, handed_on: 10, stock: 20, lent: 8, desk: 12, server: 4},
    "shrinking": {laptop: 80, bought: 4, left: 45, handed_on: 20, stock: 15, lent: 8, desk: 8, shift: 10},
}
"""So many machines of each story."""


def live(company: Mapping[FunctionType, int], seed: int, *, nights: int, moves: int = 0) -> Life:
    """Let a company live until so many nights have passed: always the same for a seed.

    From the night `moves` on (0: never) a quarter of those who have a machine change it within four days.
    """
    rng = random.Random(seed)  # noqa: S311  # it has to come out the same each time, and hides nothing
    first = FIRST_NIGHT - timedelta(days=HISTORY_DAYS - 1)
    days = [first + timedelta(days=n) for n in range(HISTORY_DAYS + nights - 1)]
    names = [f"p{number:04}" for number in range(1_000)]
    people = names[TECHNICIANS:]
    life = Life(rng, days, people, names[:TECHNICIANS], iter(rng.sample(people, len(people))))
    for story, number in company.items():
        for n in range(number):
            host = f"{story.__name__}-{n:04}"
            life.owners[host] = [None] * len(days)
            story(life, host)
    if moves:
        _move(life, HISTORY_DAYS - 1 + moves)
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
