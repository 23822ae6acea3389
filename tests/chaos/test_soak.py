"""A company lives on: a run each evening, in one home, while its inventory and its services change.

Five days by default; `make soak` lets it live through 60 (`--soak-days 60`). The home is one that version
0.1.0 left, with a killed run's writes open: the evening of day 1 is the first one after the upgrade. Whoever
upgrades also sets the time zone to one whose clocks change on day 5. In the middle, on the day on which the
machine dies amid writing, all that was stored gets 0.1.0's form, as if that version had lived so far: what it
left open is settled by the present one.

Each run is what the schedule starts, in a process of its own, and its clock shows the simulated evening: no
`--as-of`, no `--force`. Not simulated: the 0.1.0 program itself (only what it would have stored), Dagster's
daemon and the records that it keeps (each run has them in memory, so disk use is that of tables, journal and
catalogue), plots, and the hours between the runs.
"""

import json
import re
import shutil
import signal
import statistics
import time
from dataclasses import dataclass
from functools import partial
from itertools import count

import polars as pl
import pytest
import yaml
from starlette.responses import JSONResponse

from ownership.tuning.accuracy import wilson
from resources.store.tables import Tables
from sandbox.company import MAPPING
from sandbox.inventory import BrokenOff, InventoryState
from sandbox.inventory_api import ASSETS_LIST, envelope
from sandbox.planted import LEFT_OUT
from tests.chaos.books import Books
from tests.chaos.days import PROCESSOR, date_files, run_on_day
from tests.chaos.life import DELIVERED, WINDOW_DAYS, ZONE, Life
from tests.chaos.surroundings import UPDATE
from tests.end_to_end.processes import RunningProcess
from tests.end_to_end.stand import ADMIN, TENANT, documents, merged
from tests.homes.copies import HOMES, copy_home, downgrade
from tests.homes.services import named_services

STORED = HOMES / "0.1.0"
KEPT_DAYS = WINDOW_DAYS + 1
SETTINGS = {
    "index": "logs-soak-*",
    "scan": {"lookback_days": WINDOW_DAYS, "timezone": str(ZONE)},
    "rules": {"exclude_users": list(LEFT_OUT), "min_events": 5},
    "writes": {"concurrency": 4},
    "keep": {"evidence_days": KEPT_DAYS, "history_days": KEPT_DAYS},
}
THROTTLED, RETRY_AFTER = 6, {"Retry-After": "1"}
KILLED_AT_WRITE = DELIVERED // 2
TENTH, MAX_GROWTH, TRIES = 10, 1.2, 4


@dataclass(frozen=True)
class Calendar:
    """On which day what befalls the run. An index is back two days later."""

    throttled: int
    index_lost: int
    killed: int
    sessions_end: int

    @classmethod
    def of(cls, days: int) -> "Calendar":
        middle = (days + 1) // 2
        return cls(max(days // 5, 1), max(middle - 5, 2), middle, 2 * days // 3 + 1)

    @property
    def index_back(self) -> int:
        return self.index_lost + 2


class Company:
    """Both services and the home, and one run each evening."""

    def __init__(self, life, engine, state, inventory, home):
        self.life, self.engine, self.state, self.inventory, self.home = life, engine, state, inventory, home
        self.books = Books(state, Tables(home, "small"), frozenset(stored_state()["runs"].values()))
        self.sent: dict[str, tuple[int, int]] = {}
        self.disk_use: dict[int, int] = {}
        self._file, self._printed = home.parent / "instance.yaml", home.parent / "printed"
        settings = yaml.safe_load((STORED / "instance.yaml").read_text("utf-8"))
        self._file.write_text(yaml.safe_dump(merged(settings, SETTINGS)), "utf-8")

    def send(self, day, *, late=False):
        """A day's events come to the search service, in an index of their own."""
        events, index = list(self.life.logons(day, late=late)), self._index(day, late=late)
        if events:
            self.sent[index] = day, self.engine.load(index, MAPPING, documents(events))

    def lose(self, day):
        for late in (False, True):
            if self.sent.pop(index := self._index(day, late=late), None):
                self.engine.request("DELETE", index)

    def events(self, day):
        return sum(events for of_day, events in self.sent.values() if of_day == day)

    def _index(self, day, *, late):
        return f"logs-soak-{self.life.date_of(day)}{'-late' if late else ''}"

    def run(self, day, befalls=None):
        """The run of a day's evening; `befalls` is asked at each of its requests to the inventory."""
        ran = self.call(day, befalls)
        self.books.look_at_requests(day)
        if ran.status == 0:
            self.books.compare(day)
        return ran

    def call(self, day, befalls=None):
        """Call `asset-owners run` in a day's evening."""
        now, began = self.life.evening(day), time.time()
        with RunningProcess(run_on_day, self._file, self._printed, now) as process:
            if befalls:
                self.inventory.hooks.faults = befalls(process)
            log = process.log.read()
        seconds = time.time() - began
        self.inventory.hooks.faults = None
        date_files(self.home, now, since=began)
        processor = re.findall(rf"^{PROCESSOR}(.+)", log, re.MULTILINE)
        return Ran(process.exit_status, log, seconds, float(processor[0]) if processor else None)

    def keep_as_of(self, day):
        """Keep a copy of the home as it is before the day's run."""
        shutil.copytree(self.home, self._copy(day))

    def turn_back(self, day):
        shutil.rmtree(self.home)
        shutil.copytree(self._copy(day), self.home)

    def _copy(self, day):
        return self.home.parent / f"home-{day}"


@dataclass(frozen=True)
class Ran:
    """What came of a run: its exit status, its log, and its seconds by the clock and of the processor."""

    status: int | None
    log: str
    seconds: float
    processor: float | None


def limit_rate(_):
    """The inventory asks each second request to wait, a few times."""
    numbers = count()

    def befall(_):
        number = next(numbers)
        slow = number < 2 * THROTTLED and number % 2
        return JSONResponse(envelope(status=False, message="Slow down."), 429, RETRY_AFTER) if slow else None

    return befall


def end_session(state, _):
    """The session ends while the inventory is listed."""
    lists = count(1)

    def befall(request):
        if request.url.path == ASSETS_LIST and next(lists) == 3:
            state.accounts.expire_sessions()

    return befall


def die(process):
    """The machine dies amid writing (`kill -9`)."""
    writes = count(1)

    def befall(request):
        if request.url.path != UPDATE or next(writes) != KILLED_AT_WRITE:
            return None
        process.kill()
        return BrokenOff()

    return befall


@pytest.fixture
def company(request, engine, tmp_path, monkeypatch):
    days = request.config.getoption("--soak-days", default=5)
    home = tmp_path / "home"
    copy_home(STORED, home)
    life = Life(days, delivery=Calendar.of(days).killed)
    date_files(home, life.evening(0))
    with (
        InventoryState(tmp_path / "inventory.sqlite") as state,
        named_services(engine, state, tmp_path) as (inventory, environment),
    ):
        stored = stored_state()
        hosts, users = [*stored["hosts"], *life.hosts.values()], [*stored["users"], *life.users.values()]
        state.reset([ADMIN], hosts, users, TENANT)
        for name, value in {**environment, "ASSET_OWNERS_HOME": str(home)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("DAGSTER_HOME", raising=False)
        company = Company(life, engine, state, inventory, home)
        yield company
    for index in company.sent:
        engine.request("DELETE", index)


def stored_state():
    return json.loads((STORED / "state.json").read_text("utf-8"))


def test_a_company_lives_on_and_no_owner_is_lost(company, figures):
    life, events = company.life, Calendar.of(company.life.last)
    for day in range(1 - WINDOW_DAYS, 1):
        company.send(day)
        company.send(day, late=True)
    for day in range(1, life.last + 1):
        live_through(company, day, events)

    figures["simulated days"] = life.last
    figures["hosts in the inventory at the end"] = len(company.state.assets("host"))
    figures["events"] = sum(events for _, events in company.sent.values())
    check_owners(company, figures)
    check_writes(company.books, figures)
    check_growth(company, figures)


def live_through(company, day, events):
    """A day's events and changes, and the run of its evening."""
    company.life.change_assets(day, company.state)
    company.send(day - 1, late=True)
    index_is_lost = events.index_lost <= day < events.index_back
    if not index_is_lost:
        company.send(day)
    befalls = None
    if day == events.index_lost:
        company.lose(day - 1)
    if day == events.index_back:
        for lost in range(events.index_lost - 1, day):
            company.send(lost)
            company.send(lost, late=True)
    if day == events.throttled:
        befalls = limit_rate
    if day == events.sessions_end:
        befalls = partial(end_session, company.state)
    if day == events.killed:
        killed = company.run(day, die)
        assert killed.status == -signal.SIGKILL, killed.log
        downgrade(company.home, STORED)
    compared = company.life.last > TENTH and day in (TENTH, company.life.last)
    if compared:
        company.keep_as_of(day)
    ran = company.run(day, befalls)
    assert ran.status == 0, (day, ran.log)
    if compared:
        company.disk_use[day] = sum(path.stat().st_size for path in company.home.rglob("*") if path.is_file())
    if day in (1, events.killed):
        assert "of an earlier run that had no known outcome are settled" in ran.log
    if day == events.index_lost:
        assert f"keep their counts: {company.life.date_of(day - 1)}" in ran.log
    if not index_is_lost:
        check_evidence(company, day)


# What is asserted


def check_evidence(company, day):
    """Each stored day has what the documents say, whatever was lost or late on the way."""
    stored = pl.read_parquet(company.books.tables.folder / "logon_days" / "*.parquet")
    counted = dict(stored.select("day", "counted").rows())
    assert min(counted) >= company.life.date_of(day - KEPT_DAYS), "older days are deleted"
    for number in range(day - WINDOW_DAYS + 1, day + 1):
        assert counted[company.life.date_of(number)] == company.events(number), f"day {number}"


def check_owners(company, figures):
    """As many machines have an owner, and as many of those written are right, as was planted."""
    held = {host["id"] for host in company.state.assets("host") if host["asset_owner"]}
    expected = company.life.owned()
    figures["machines that must have an owner at the end, by what is planted"] = len(expected)
    figures["of these without one"] = len(expected - held)
    written = {host for host, _, _ in company.books.written}
    wrongly = written & company.life.never_written()
    figures["machines written whose logons name nobody"] = len(wrongly)
    judged = [found for write in company.books.written if (found := company.life.judged(*write))]
    right, planted = sum(one.right for one in judged), statistics.mean(one.expected for one in judged)
    share, low, high = (pl.select(of).item() for of in wilson(pl.lit(right), pl.lit(len(judged))))
    figures["owners written of which is known whether they are right"] = len(judged)
    for name, value in (("right", share), ("from", low), ("to", high), ("planted", planted)):
        figures[f"percent of them: {name}"] = round(100 * value, 1)
    assert not expected - held
    assert not wrongly
    assert low <= planted <= high


def check_writes(books, figures):
    figures["owners written"] = len(books.written)
    figures["owners overwritten"] = len(books.overwritten)
    figures["writes repeated"] = len(books.repeated)
    figures["writes or rows unaccounted for"] = len(books.unaccounted)
    figures.update({f"rows of owner_writes: {outcome}": n for outcome, n in books.outcomes.items()})
    assert not books.overwritten
    assert not books.repeated
    assert not books.unaccounted


def check_growth(company, figures):
    """The last day costs what the tenth does.

    Both days' runs are made again on copies of the home, in turns, and the fastest tries are compared: what
    else the machine does makes a try slower, never faster.
    """
    tries = {day: [] for day in company.disk_use}
    for _ in range(TRIES if tries else 0):
        for day, runs in tries.items():
            company.turn_back(day)
            runs.append(company.call(day))
            assert runs[-1].status == 0, runs[-1].log
    costs = {
        "KB on disk": {day: used / 1000 for day, used in company.disk_use.items()},
        "ms by the clock": {day: 1000 * min(ran.seconds for ran in runs) for day, runs in tries.items()},
        "ms of the processor": {
            day: 1000 * min(ran.processor for ran in runs) for day, runs in tries.items()
        },
    }
    for unit, by_day in costs.items():
        figures.update({f"{unit}, day {day}": round(cost) for day, cost in by_day.items()})
    for unit, by_day in costs.items():
        assert by_day.get(company.life.last, 0) <= MAX_GROWTH * by_day.get(TENTH, 0), unit
