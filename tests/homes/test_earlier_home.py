"""A home that an earlier version wrote: this one reads it, goes on in it, and repeats none of its writes."""

import json
import re
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from ownership.tables import TABLES
from pipelines.cli.app import app
from pipelines.definitions import build_definitions
from resources.inventory.client import AssetInventory
from resources.store.tables import Tables
from resources.store.views import VIEWS
from resources.writeback.journal import Journal
from sandbox.inventory import InventoryService, InventoryState
from tests.end_to_end.stand import ADMIN, TENANT, in_memory
from tests.pipelines.in_memory import LogFile

pytestmark = pytest.mark.slow

EARLIER = Path(__file__).parent / "earlier"
STATE = json.loads((EARLIER / "state.json").read_text(encoding="utf-8"))
RUNS = STATE["runs"]
LOGONS = [(datetime.fromisoformat(at).date(), *who) for at, _, _, *who, _ in STATE["logons"]]
KILLED = [f"h-{number}" for number in range(31, 39)]


@dataclass
class Home:
    """A copy of the stored home, with the services as the killed run left them."""

    folder: Path
    inventory: InventoryService
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(self.folder, "small")

    def call(self, command: str, *arguments: str) -> str:
        words = [command, "--instance", str(EARLIER / "instance.yaml"), *arguments]
        with pytest.MonkeyPatch.context() as patch:
            services: Any = {"source": lambda _: LogFile(*LOGONS), "inventory": self.open_inventory}
            patch.setattr("pipelines.cli.execution.build_definitions", partial(build_definitions, **services))
            patch.setattr("pipelines.cli.execution.dagster_instance", in_memory)
            ran = CliRunner().invoke(app, words, catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    def open_inventory(self, instance: Any) -> AssetInventory:
        """The inventory answers at another address than it had, under the target that it had."""
        platform = instance.platform.model_copy(update={"url": self.inventory.url})
        return AssetInventory(instance.model_copy(update={"platform": platform}))

    def run(self) -> dict[str, Any]:
        """Run once more over the days that the home holds."""
        printed = self.call("run", "--as-of", STATE["last_day"], "--force", "--json")
        return json.loads(printed.splitlines()[-1])

    def ask(self, query: str) -> list[dict[str, Any]]:
        return json.loads(self.call("sql", query, "--format", "json"))

    def owners(self) -> dict[str, Any]:
        return {host["id"]: host["asset_owner"] or None for host in self.inventory.state.assets("host")}

    def sent(self) -> list[str]:
        """Hosts to which a write was sent, sorted; once for each request."""
        entries = [entry for entry in self.inventory.state.journal() if entry.path]
        return sorted({entry.request_id: str(entry.asset_id) for entry in entries}.values())


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    # Not with the times of the checkout: what is older than `keep` says is deleted.
    shutil.copytree(EARLIER / "home", folder, copy_function=shutil.copy)
    for name, value in {
        "ASSET_OWNERS_HOME": str(folder),
        "SEARCH_PASSWORD": "search",
        "INVENTORY_PASSWORD": ADMIN.password,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with InventoryState(tmp_path / "state.sqlite") as state, InventoryService(state) as service:
        state.reset([ADMIN], STATE["hosts"], STATE["users"], TENANT)
        yield Home(folder, service)


def test_what_it_holds_is_read_before_the_next_run(home):
    for name in ("inventory_hosts", "inventory_users", "host_user_shares", "owner_decisions"):
        assert not home.tables.read(name).collect().is_empty(), name
    for name in ("owner_decisions_history", "owner_writes", "runs"):
        assert not home.tables.all_runs(name).collect().is_empty(), name
    [host] = json.loads(home.call("explain", "h-21", "--json"))["decisions"]
    assert [write["outcome"] for write in host["writes"]] == ["written", "undone", "written"]
    assert home.sent() == []


def test_the_next_run_settles_what_was_open_and_writes_the_rest_once(home):
    before = home.tables.writes().collect()
    open_hosts = [name for name in KILLED if not home.owners()[name]]
    assert 0 < len(open_hosts) < len(KILLED)
    report = home.run()
    assert report["writes"] == {"written": len(open_hosts)}
    assert home.sent() == open_hosts
    settled = home.tables.run_writes(RUNS["killed"]).select("host_id", "outcome").rows()
    assert dict(settled) == {name: "not_written" if name in open_hosts else "written" for name in KILLED}
    with Journal(home.tables.journal) as journal:
        assert journal.targets() == {}
    owners = {row["host_id"]: next(iter(row["owner_ids"]), None) for row in home.ask("FROM current_owners")}
    assert owners == {name: owner and str(owner) for name, owner in home.owners().items()}
    for name in TABLES.keys() | VIEWS.keys():
        home.ask(f"FROM {name}")
    now = {(row["run_id"], row["host_id"]): row["outcome"] for row in home.ask("FROM owner_writes")}
    assert before.height + len(KILLED) + len(open_hosts) == len(now)
    assert {key: now[key] for key in before.select("run_id", "host_id").rows()} == {
        (row["run_id"], row["host_id"]): row["outcome"] for row in before.to_dicts()
    }
    assert home.run()["writes"] == {}
    assert home.sent() == open_hosts


def test_what_its_runs_wrote_is_undone(home):
    wrote = home.tables.run_writes(RUNS["written"]).filter(outcome="written")["host_id"].to_list()
    home.call("undo", RUNS["written"])
    assert home.sent() == sorted(wrote)
    assert {home.owners()[name] for name in wrote} == {None}


def test_a_person_is_forgotten_in_it(home):
    home.run()
    home.call("forget", "cyd@corp.example", "--yes")
    rows = {file: pl.read_parquet(file).write_json() for file in home.folder.rglob("*.parquet")}
    assert not [file for file, text in rows.items() if re.search(r'"cyd"|cyd@|\bowner cyd\b', text)]
    assert any("forgotten-" in text for text in rows.values())
    assert any('"ann"' in text for text in rows.values())
