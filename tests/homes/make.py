"""Makes a home of the present version, for the releases to come: `python -m tests.homes.make FOLDER`.

The folder gets what `tests/end_to_end/test_older_homes.py` opens:

    home/            ASSET_OWNERS_HOME after these runs
    instance.yaml    the settings of its instance
    state.json       what the services held at the end, and the ids of the runs

The runs, by their names in state.json:

    tried       a dry run on an empty home, with days of its own
    written     writes two owners; the service refuses one, and somebody else is faster at another
    undone      writes three more, which `undo` puts back
    applied     carries out a dry run's plan of the three
    planned     a dry run: its plan of eight waits
    killed      writes four of the eight, and dies while the next two are on their way: one was applied
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from starlette.responses import JSONResponse

from resources.store.files import TEMPORARY
from resources.store.tables import Tables
from sandbox.company import MAPPING
from sandbox.engine import Engine
from sandbox.inventory import BrokenOff, InventoryService, InventoryState
from sandbox.inventory_api import envelope
from sandbox.logons import Logon
from tests.end_to_end.stand import ADMIN, ASSET_OWNERS, TENANT, at_noon, documents, logons
from tests.homes.services import INVENTORY_URL, SEARCH_URL, named_services

READ, UPDATE = "/api/v1/assets/get", "/api/v1/assets/update"
LAST_DAY = date(2026, 3, 31)
"""Long ago, so that the days are settled and look the same whenever the home is opened."""

INDEX = "logs-homes"
ANY_PLACE, ANY_BOOT = "/srv/asset-owners/home", "00000000-0000-0000-0000-000000000000"
"""What stands for the place of the home and the start of the machine."""

BOOT = Path("/proc/sys/kernel/random/boot_id")

INSTANCE = {
    "name": "Small",
    "url": SEARCH_URL,
    "username": "reader",
    "password": {"env": "SEARCH_PASSWORD"},
    "ignore_ssl": True,
    "index": INDEX,
    "sensor": "test-sensor",
    "platform": {
        "url": INVENTORY_URL,
        "email": ADMIN.email,
        "password": {"env": "INVENTORY_PASSWORD"},
        "tenant_id": TENANT,
        "ignore_ssl": True,
    },
    "scan": {"lookback_days": 4},
    "rules": {"exclude_users": ["*$"], "exclude_hosts": ["kiosk-*"]},
    "writes": {"concurrency": 2},
    "keep": {"evidence_days": 36500, "history_days": 36500},
}
USERS = [
    {"id": "ann", "user_email": "ann@corp.example", "user_department": "Sales", "criticality": "high"},
    {"id": 17, "user_email": "bob@corp.example", "user_department": "", "criticality": None},
    {"id": "cyd", "user_email": "cyd@corp.example", "user_department": "Legal", "criticality": "low"},
    {"id": "dan-1", "user_email": "dan@corp.example", "user_department": "Works", "criticality": None},
    {"id": "dan-2", "user_email": "dan@other.example", "user_department": "Works", "criticality": None},
]


def host(number: int, owner: Any = None, name: str | None = None, **fields: Any) -> dict[str, Any]:
    own = {"id": f"h-{number:02}", "search_agent_name": name or f"PC-{number:02}", "asset_owner": owner}
    return {**own, "department": "old", "criticality": None, **fields}


HOSTS = [
    host(1),
    host(2, "", criticality="low"),
    host(3, 17),
    host(4, []),
    host(5, 17),
    host(6),
    host(7),
    host(8, "cyd"),
    host(9, search_agent_name=None),
    host(10, name="KIOSK-10"),
    host(11),
    host(12),
]
LATER = [host(21), host(22)]
LATEST = [host(number) for number in range(31, 39)]


def company() -> list[Logon]:
    """Logons of four days: of each kind of evidence some."""
    day = [at_noon(LAST_DAY - timedelta(days=age)) for age in range(4)]
    alone = {1: "ann", 3: "ann", 5: "bob", 6: "dan", 7: "eve", 11: "cyd", 12: "ann", 21: "bob", 22: "cyd"}
    alone |= dict(zip(range(31, 39), ["ann", "cyd"] * 4, strict=True))
    return [
        *(event for number, user in alone.items() for event in logons(f"pc-{number:02}", user, 3, at=day[1])),
        *logons("PC-01", "CORP\\Ann", 2, at=day[0]),
        *logons("pc-01", "pc-01$", 4, at=day[3]),
        *logons("pc-02", "bob", 4, at=day[1]),
        *logons("pc-02", "ann", 2, at=day[2]),
        *logons("pc-04", "ann", 3, at=day[3]),
        *logons("pc-04", "cyd", 2, at=day[0]),
        *logons("kiosk-10", "ann", 2, at=day[2]),
        *logons("pc-99", "ann", 2, at=day[2]),
        *logons(None, "ann", 1, at=day[0]),
    ]


class Maker:
    """A home in the making."""

    def __init__(self, home: Path, file: Path, inventory: InventoryService, environment: dict[str, str]):
        self.home = home
        self.tables = Tables(home, "small")
        self._file = file
        self._inventory = inventory
        self._environment = {**os.environ, **environment, "ASSET_OWNERS_HOME": str(home)}
        self._environment["DAGSTER_HOME"] = str(file.parent / "dagster")

    def call(self, command: str, *arguments: str, status: int = 0) -> str:
        """Call the program; give what it printed."""
        done = subprocess.run(  # noqa: S603 (our own command)
            self._command(command, *arguments),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    def run(self, *options: str) -> str:
        """Give the id of a run."""
        return json.loads(self.call("run", *AS_OF, "--json", *options).splitlines()[-1])["run_id"]

    def amend(self, command: str, run_id: str) -> str:
        """Give the id of the run that carried out the plan of another, or undid it."""
        return self.call(command, run_id).splitlines()[0].rpartition(" ")[2]

    def killed(self) -> str:
        """Run, and kill the run amid its writes; give its id."""
        updates, last_two = count(1), threading.Barrier(2)
        numbers: dict[str, int] = {}

        def arrives(request):
            if request.url.path != UPDATE:
                return None
            number = numbers[request.state.parameters["id"]] = next(updates)
            return die() if number == 6 else None

        def was_applied(request, _):
            return die() if numbers.get(request.state.parameters.get("id")) == 5 else None

        def die():
            last_two.wait(60)
            time.sleep(0.5)  # by then the run has stored what became of the first four
            process.kill()
            return BrokenOff()

        self._inventory.hooks.faults, self._inventory.hooks.after = arrives, was_applied
        command = self._command("run", *AS_OF)
        with subprocess.Popen(command, env=self._environment) as process:  # noqa: S603 (our own command)
            process.wait()
        self._inventory.hooks.faults = self._inventory.hooks.after = None
        with closing(sqlite3.connect(self.tables.journal)) as journal:
            journal.execute("UPDATE writes SET boot = ?", [ANY_BOOT])
            journal.commit()
            [(run_id,)] = journal.execute("SELECT DISTINCT run_id FROM writes").fetchall()
            found = journal.execute("SELECT outcome, sent, count(*) FROM writes GROUP BY 1, 2 ORDER BY 1, 2")
            assert found.fetchall() == [("intended", 0, 2), ("intended", 1, 2), ("written", 1, 4)]
            journal.execute("VACUUM")  # rows that were deleted leave traces
            journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert journal.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
        assert not list(self.tables.journal.parent.glob("writes.sqlite-*"))
        return run_id

    def _command(self, command: str, *arguments: str) -> list[str]:
        return [str(ASSET_OWNERS), command, "--instance", str(self._file), *arguments]


AS_OF = ["--as-of", LAST_DAY.isoformat(), "--force"]


def runs(maker: Maker, inventory: InventoryService) -> dict[str, str]:
    """Make all runs; give their ids."""

    def hindered(request):
        asset = request.state.parameters.get("id")
        if (request.url.path, asset) == (READ, "h-12"):
            inventory.state.set_field("h-12", "asset_owner", "cyd")
        if (request.url.path, asset) == (UPDATE, "h-11"):
            return JSONResponse(envelope(status=False, message="This host is locked."))
        return None

    ids = {"tried": maker.run("--dry-run")}
    inventory.hooks.faults = hindered
    ids["written"] = maker.run()
    inventory.hooks.faults = None
    inventory.state.add_assets(TENANT, "host", LATER)
    ids["undone"] = maker.run()
    ids["undo"] = maker.amend("undo", ids["undone"])
    ids["applied_plan"] = maker.run("--dry-run")
    ids["applied"] = maker.amend("apply", ids["applied_plan"])
    inventory.state.add_assets(TENANT, "host", LATEST)
    ids["planned"] = maker.run("--dry-run")
    ids["killed"] = maker.killed()
    return ids


def make(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="engine-") as data,
        tempfile.TemporaryDirectory(prefix="home-") as scratch,
        Engine(Path(data)) as engine,
        InventoryState(Path(scratch) / "inventory.sqlite") as state,
        named_services(engine, state, Path(scratch)) as (inventory, environment),
    ):
        file = Path(scratch) / "instance.yaml"
        file.write_text(yaml.safe_dump(INSTANCE, sort_keys=False), encoding="utf-8")
        engine.load(INDEX, MAPPING, documents(company()))
        state.reset([ADMIN], HOSTS, USERS, TENANT)
        home = Path(scratch) / "home"
        ids = runs(Maker(home, file, inventory, environment), inventory)
        folder.mkdir(parents=True)
        not_kept = shutil.ignore_patterns("*.lock", f"{TEMPORARY}*", "warehouse.duckdb")
        shutil.copytree(home, folder / "home", ignore=not_kept)
        views = folder / "home" / ".warehouse-views.json"
        views.write_text(views.read_text("utf-8").replace(str(home), ANY_PLACE), encoding="utf-8")
        shutil.copy(file, folder)
        held = {
            "last_day": LAST_DAY.isoformat(),
            "runs": ids,
            "hosts": state.assets("host"),
            "users": state.assets("user"),
            "logons": [[event.at.isoformat(), *event[1:]] for event in company()],
        }
        (folder / "state.json").write_text(in_lines(held), encoding="utf-8")
        here = {tempfile.gettempdir(), str(Path.home()), str(Path.cwd()), BOOT.read_text().strip()}
        require_clean(folder, here | {engine.reader.password, ADMIN.password})


def in_lines(held: dict[str, Any]) -> str:
    """JSON with a line for each element."""
    lines = (
        f" {json.dumps(name)}: [\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        if isinstance(value, list)
        else f" {json.dumps(name)}: {json.dumps(value)}"
        for name, value in held.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def require_clean(folder: Path, unwanted: set[str]) -> None:
    """Refuse a secret, or a path of this machine, in any file, compressed or not."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".parquet":
                text += json.dumps(pl.read_parquet(path).to_dicts(), default=str)
            assert not [word for word in unwanted if word in text], path


if __name__ == "__main__":
    make(Path(sys.argv[1]))
