"""Both services and a home folder, as an operator has them; and a small company whose outcome fits in a head.

The logons lie in memory, unless a test asks for the search engine (`engine_stand`).

pc-1  ann alone, nobody's yet                    → ann, with her department and criticality
pc-2  bob 4 of 6, nobody's yet                   → 17 (bob), who has no department
pc-3  ann alone, owned by bob                    → conflict
pc-4  ann 3 of 5: not more than 60 %             → nobody
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg
import pytest
import yaml
from typer.testing import CliRunner, Result

from pipelines.cli.app import app
from pipelines.definitions import build_definitions
from resources.inventory.client import AssetInventory
from resources.search.logons import SearchClient
from resources.search.source import EvidenceSource
from resources.settings import Instance
from resources.store.tables import Tables
from sandbox.company import MAPPING
from sandbox.inventory import InventoryService
from sandbox.inventory_api import ASSETS_UPDATE as UPDATE
from sandbox.logons import Logon, document
from tests.pipelines.in_memory import LogFile
from tests.resources.clock import Clock
from tests.resources.inventory_world import ADMIN, TENANT

if TYPE_CHECKING:
    from sandbox.engine import Engine

TODAY = datetime.now(UTC).date()
"""Last day of the documents; runs name it, so that midnight may pass while the tests run."""

ASSET_OWNERS = Path(sys.executable).with_name("asset-owners")
HELD_SECONDS = 600  # longer than any test holds an answer back

# Workers of pytest share the engine: one would make an index anew while another one searches it.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "only")
SMALL_INDEX, COMPANY_INDEX = f"logs-small-{_WORKER}", f"logs-company-{_WORKER}"
SECTIONS = {"platform", "scan", "rules", "writes"}
USERS = [
    {"id": "ann", "user_email": "ann@corp.example", "user_department": "Sales", "criticality": "high"},
    {"id": 17, "user_email": "bob@corp.example", "user_department": "", "criticality": None},
    {"id": "cyd", "user_email": "cyd@corp.example", "user_department": "Legal", "criticality": "low"},
]
HOSTS = [
    {"id": "h-1", "search_agent_name": "PC-1", "asset_owner": None, "department": "old", "criticality": ""},
    {"id": "h-2", "search_agent_name": "PC-2", "asset_owner": "", "department": "old", "criticality": "low"},
    {"id": "h-3", "search_agent_name": "PC-3", "asset_owner": 17, "department": None, "criticality": None},
    {"id": "h-4", "search_agent_name": "PC-4", "asset_owner": [], "department": None, "criticality": None},
]
WRITTEN = {
    "h-1": {"asset_owner": "ann", "department": "Sales", "criticality": "high"},
    "h-2": {"asset_owner": 17},
}
"""What a run that may write makes of the small company: the fields that it sets, by host."""


def at_noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def logons(host: str | None, user: str | None, events: int = 1, *, at: datetime) -> list[Logon]:
    return [Logon(at, "logon", f"{host}.corp.example", host, user)] * events


def small_company() -> list[Logon]:
    """Logons of the last four days."""
    day = [at_noon(TODAY - timedelta(days=age)) for age in range(4)]
    return [
        *logons("pc-1", "ann", 2, at=day[0]),
        *logons("pc-1", "ann", 1, at=day[3]),
        *logons("pc-2", "bob", 4, at=day[1]),
        *logons("pc-2", "ann", 2, at=day[2]),
        *logons("pc-3", "ann", 5, at=day[2]),
        *logons("pc-4", "ann", 3, at=day[3]),
        *logons("pc-4", "cyd", 2, at=day[0]),
    ]


def documents(events: Iterable[Logon]) -> Iterator[dict[str, Any]]:
    """Events in winlogbeat's layout."""
    return (document(event, number) for number, event in enumerate(events, 1))


@lru_cache(maxsize=2)
def in_memory(_: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """Dagster's records of runs that nobody looks at later, which takes half the time.

    One for all commands on a home: to make one takes a tenth of a run.
    """
    return nullcontext(dg.DagsterInstance.ephemeral())


class Ran(NamedTuple):
    """What `asset-owners run --json` came to."""

    status: int
    report: dict[str, Any]
    stdout: str
    stderr: str


@dataclass
class Stand:
    """A home folder, the two services, and the command line on them."""

    home: Path
    engine: "Engine | None"
    inventory: InventoryService
    environment: pytest.MonkeyPatch
    clock: Clock = field(default_factory=lambda: Clock(time.time()))
    indices: dict[str, list[Logon]] = field(default_factory=lambda: {SMALL_INDEX: small_company()})
    numbers: count = field(default_factory=count)

    def hold_services(self) -> None:
        """Let runs in this process have clients of both services whose waits are over immediately."""

        def inventory(instance: Instance) -> AssetInventory:
            return AssetInventory(instance, clock=self.clock, sleep=self.clock.sleep)

        with_these = partial(build_definitions, source=self._source, inventory=inventory)
        self.environment.setattr("pipelines.cli.results.build_definitions", with_these)

    def _source(self, instance: Instance) -> EvidenceSource:
        if self.engine:
            return SearchClient(instance, sleep=self.clock.sleep)
        events: list[Any] = self.indices[instance.index]
        return LogFile(*((event.at.date(), event.agent, event.user) for event in events))

    def begin(self, hosts: Iterable[Mapping[str, Any]], users: Iterable[Mapping[str, Any]]) -> None:
        """Give the inventory service these assets, one account and good manners."""
        self.inventory.hooks.faults = self.inventory.hooks.after = None
        self.inventory.state.reset([ADMIN], hosts, users, TENANT)

    def hold_back_writes(self) -> tuple[Event, Event]:
        """Let no write be answered; what is set once the first one is done, and what lets all go on."""
        writing, go_on = Event(), Event()

        def hold_back(request: Any, _: object) -> None:
            if request.url.path == UPDATE:
                writing.set()
                go_on.wait(HELD_SECONDS)

        self.inventory.hooks.after = hold_back
        return writing, go_on

    def load(self, events: Iterable[Logon], index: str) -> str:
        """Fill an index of its own with events."""
        self.indices[index] = [*events]
        if self.engine:
            self.engine.load(index, MAPPING, documents(self.indices[index]))
        return index

    def instance(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The content of an instance file; `changes` replace what is here, in sections key by key."""
        search, secret = {"url": "https://search.corp.example"}, "the search's password"
        if self.engine:
            search = {"url": self.engine.url, "ca_file": str(self.engine.ca_file)}
            secret = self.engine.reader.password
        self.environment.setenv("SEARCH_PASSWORD", secret)
        password = self.home / "inventory-password"
        password.write_text(ADMIN.password)
        base: dict[str, Any] = {
            "name": "Small",
            **search,
            "username": "reader",
            "password": {"env": "SEARCH_PASSWORD"},
            "index": SMALL_INDEX,
            "sensor": "test-sensor",
            "platform": {
                "url": self.inventory.url,
                "email": ADMIN.email,
                "password": {"file": str(password)},
                "tenant_id": TENANT,
            },
            "scan": {"lookback_days": 4},
        }
        given = changes or {}
        sections = {key: {**base.get(key, {}), **given[key]} for key in SECTIONS & given.keys()}
        return {**base, **given, **sections}

    def instance_file(self, changes: Mapping[str, Any] | None = None) -> Path:
        """Write an instance file; where it names another inventory, the record of the earlier one goes."""
        path, content = self.home / f"instance-{next(self.numbers)}.yaml", self.instance(changes)
        place = f"{content['platform']['url']}, tenant {content['platform']['tenant_id']}"
        record = self.home / "tables" / "small" / ".instance"
        if record.exists() and place not in record.read_text():
            record.unlink()
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return path

    def run(self, changes: Mapping[str, Any] | None = None, *options: str) -> Ran:
        """Run `asset-owners run --json` on an instance file with these changes."""
        return self._ran("run", self.instance_file(changes), "--as-of", TODAY, *options)

    def follow_up(self, what: str, run_id: str, *options: str, **changes: Any) -> Ran:
        """Run `asset-owners apply` or `undo` with `--json`."""
        return self._ran(what, self.instance_file(changes), run_id, *options)

    def _ran(self, command: str, file: Path, *arguments: object) -> Ran:
        result = self.call(command, "--instance", file, "--json", *arguments)
        report = json.loads(result.stdout.splitlines()[-1])
        return Ran(result.exit_code, report, result.stdout, result.stderr)

    def call(self, *arguments: object) -> Result:
        """Call the program in this process."""
        return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)

    @property
    def tables(self) -> Tables:
        return Tables(self.home, "small")

    def written(self) -> dict[str, dict[str, Any]]:
        """What was set through the service's API, by asset; each asset in one request."""
        entries = [entry for entry in self.inventory.state.journal() if entry.path]
        requests = {(entry.asset_id, entry.request_id) for entry in entries}
        assert max(Counter(asset for asset, _ in requests).values(), default=1) == 1
        found: dict[str, dict[str, Any]] = {}
        for entry in entries:
            found.setdefault(str(entry.asset_id), {})[entry.field] = entry.new
        return found
