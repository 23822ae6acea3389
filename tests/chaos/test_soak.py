"""A company lives on: a run each evening, in one home, while its inventory and its services change.

Five days in `make chaos`; `make soak` lets it live through 60 (`--soak-days 60`). On day 5 the clocks of its
time zone change; on the first one, when most is written, the machine dies amid writing.

Each run is what the schedule starts, in a process of its own, and its clock shows the simulated evening: no
`--as-of`, no `--force`. Not simulated: Dagster's daemon and the records that it keeps (each run has them in
memory, so disk use is that of tables, ledger and catalogue), and the hours between the runs.
"""

import os
import signal
import time
from collections import Counter
from itertools import count

import polars as pl
import pytest

from sandbox.company import MAPPING
from sandbox.inventory import BrokenOff
from tests.chaos.company import run
from tests.chaos.life import WINDOW_DAYS, ZONE, Life
from tests.chaos.surroundings import UPDATE
from tests.end_to_end.processes import RunningProcess
from tests.end_to_end.stand import documents

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
KEPT_DAYS = WINDOW_DAYS + 1
SETTINGS = {
    "index": "logs-soak-*",
    "scan": {"lookback_days": WINDOW_DAYS, "timezone": str(ZONE)},
    "rules": {"exclude_users": ["*$"], "min_events": 5},
    "writes": {"concurrency": 4},
    "keep": {"evidence_days": KEPT_DAYS, "history_days": KEPT_DAYS},
}


class Company:
    """Both services and the home, and one run each evening."""

    def __init__(self, life, stand):
        self.life, self.stand = life, stand
        self.state, self.tables = stand.inventory.state, stand.tables
        self.rows: dict[tuple[str, str], dict] = {}
        self.events: Counter[int] = Counter()
        self._file = stand.instance_file(SETTINGS)

    def send(self, day):
        """A day's events come to the search service, in an index of their own."""
        index, events = f"logs-soak-{self.life.date_of(day)}", self.life.logons(day)
        self.events[day] = self.stand.engine.load(index, MAPPING, documents(events))

    def run(self, day, killed_at_write=None):
        """`asset-owners run` in a day's evening, or its death amid writing; its exit status and its log."""
        now, began = self.life.evening(day), time.time()
        writes = count(1)

        def befall(request):
            if request.url.path != UPDATE or next(writes) != killed_at_write:
                return None
            process.kill()
            return BrokenOff()

        with RunningProcess(run, self._file, now) as process:
            self.stand.inventory.hooks.faults = befall
            log = process.log.read()
        for path in [self.stand.home, *self.stand.home.rglob("*")]:
            if path.stat().st_mtime >= began:  # the operating system dates files truly
                os.utime(path, (now.timestamp(), now.timestamp()))
        rows = self.tables.writes().collect().to_dicts()
        self.rows |= {(row["run_id"], row["host_id"]): row for row in rows}
        return process.exit_status, log

    def requests(self):
        """What the inventory says that our runs wrote: the host, its owner before, and the one written."""
        sent = [entry for entry in self.state.journal() if entry.path]
        assert {entry.field for entry in sent} == {"asset_owner"}
        return [(entry.asset_id, entry.old, entry.new) for entry in sent]


@pytest.fixture
def company(request, open_stand):
    days = request.config.getoption("--soak-days", default=5)
    life, stand = Life(days), open_stand()
    stand.begin(life.hosts.values(), life.users.values())
    company = Company(life, stand)
    yield company
    for day in company.events:
        stand.engine.request("DELETE", f"logs-soak-{life.date_of(day)}")


def test_a_company_lives_on_and_no_owner_is_lost(company, figures):
    life = company.life
    for day in range(1 - WINDOW_DAYS, 1):
        company.send(day)
    for day in range(1, life.last + 1):
        life.change_assets(day, company.state)
        company.send(day)
        if day == 1:
            status, log = company.run(day, killed_at_write=50)
            assert status == -signal.SIGKILL, log
        status, log = company.run(day)
        assert status == 0, (day, log)
        check_evidence(company, day)
        check_writes(company, day)

    figures["simulated days"] = life.last
    figures["hosts in the inventory at the end"] = len(company.state.assets("host"))
    figures["events"] = company.events.total()
    figures["owners written"] = len(company.requests())
    figures.update(f"rows of owner_writes: {row['outcome']}" for row in company.rows.values())
    check_owners(company, figures)


def check_evidence(company, day):
    """Each stored day has what the documents say."""
    stored = pl.read_parquet(company.tables.folder / "logon_days" / "*.parquet")
    counted = dict(stored.select("day", "counted").rows())
    assert min(counted) >= company.life.date_of(day - KEPT_DAYS), "older days are deleted"
    for number in range(day - WINDOW_DAYS + 1, day + 1):
        assert counted[company.life.date_of(number)] == company.events[number], f"day {number}"


def check_owners(company, figures):
    """Every machine has an owner, and none was written, of which the company says so."""
    held = {host["id"] for host in company.state.assets("host") if host["asset_owner"]}
    expected = company.life.owned()
    figures["machines that must have an owner at the end"] = len(expected)
    assert not expected - held
    assert not {host for host, _, _ in company.requests()} & company.life.never_written()


def check_writes(company, day):
    """No owner was overwritten, none written twice, and the rows say what was written, deleted ones too."""
    requests = company.requests()
    assert [request for request in requests if request[1]] == [], f"day {day}: overwritten, or written again"
    with company.tables.ledger() as ledger:
        assert not ledger.targets(), f"day {day}: a run is still open"
    written = [row for row in company.rows.values() if row["outcome"] == "written"]
    told = Counter((row["host_id"], row["new_values"]["owner"]) for row in written)
    assert told == Counter((host, str(owner)) for host, _, owner in requests), f"day {day}: unaccounted for"
    assert "intended" not in {row["outcome"] for row in company.rows.values()}, f"day {day}: still open"
