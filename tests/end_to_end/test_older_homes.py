"""Homes that released versions wrote are opened by this one: what they hold stays readable, and theirs."""

import csv
import io
import json
import re
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assets_defs.tuning import TABLES_OF_TUNING
from ownership.tables import TABLES
from pipelines.cli import main
from pipelines.cli.run import Overrides
from resources.store.tables import Tables
from resources.store.views import VIEWS
from resources.writeback.journal import Journal
from sandbox.company import MAPPING
from sandbox.inventory import InventoryService, InventoryState
from sandbox.logons import Logon
from tests.end_to_end.stand import ADMIN, TENANT, documents, in_memory
from tests.homes.copies import HOMES, copy_home
from tests.homes.make import INDEX
from tests.homes.services import named_services
from tests.plots import draw_nothing

VERSIONS = sorted(path.parent.name for path in HOMES.glob("*/state.json"))
without_target = pytest.mark.parametrize("home", ["0.1.0"], indirect=True)


@dataclass
class Home:
    """A copy of a stored home, with the services as the killed run left them."""

    folder: Path
    version: str
    state: dict[str, Any]
    inventory: InventoryService
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    instance: Path = field(init=False)

    def __post_init__(self) -> None:
        self.instance = HOMES / self.version / "instance.yaml"

    def call(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Call the program as a shell does; give its status and what it printed."""
        words = ["asset-owners", command, "--instance", str(self.instance), *arguments]
        self.patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main(Overrides(recorded_in=in_memory))
        printed = self.capture.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def ask(self, query: str) -> list[dict[str, Any]]:
        status, out, err = self.call("sql", query, "--format", "json")
        assert status == 0, (query, err)
        return json.loads(out)

    def run(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """Run once more over the days that the home holds."""
        day = self.state["last_day"]
        status, out, err = self.call("run", "--as-of", day, "--force", "--json", *options)
        return status, json.loads(out.splitlines()[-1]), err

    def undo(self, which: str) -> None:
        status, _, err = self.call("undo", self.state["runs"][which])
        assert status == 0, err

    @property
    def tables(self) -> Tables:
        return Tables(self.folder, "small")

    def writes(self, which: str) -> dict[str, dict[str, Any]]:
        """The rows of owner_writes of one of the home's runs, by host."""
        frame = self.tables.run_writes(self.state["runs"][which])
        return {row["host_id"]: row for row in frame.to_dicts()}

    def held(self) -> dict[str, tuple[Any, ...]]:
        """What hosts hold; nothing is None."""
        names = ("asset_owner", "department", "criticality")
        hosts = self.inventory.state.assets("host")
        return {host["id"]: tuple(host[name] or None for name in names) for host in hosts}

    def sent(self) -> list[str]:
        """Hosts to which a write was sent, sorted; once for each request."""
        entries = [entry for entry in self.inventory.state.journal() if entry.path]
        return sorted({entry.request_id: str(entry.asset_id) for entry in entries}.values())


@pytest.fixture(params=VERSIONS)
def home(request, engine, tmp_path, monkeypatch, capsys):
    """A home as an upgrade finds it: its catalogue is of the older version, too."""
    stored, folder = HOMES / request.param, tmp_path / "home"
    copy_home(stored, folder)
    state = json.loads((stored / "state.json").read_text(encoding="utf-8"))
    events = (Logon(datetime.fromisoformat(at), *rest) for at, *rest in state["logons"])
    engine.load(INDEX, MAPPING, documents(events))
    with (
        InventoryState(tmp_path / "inventory.sqlite") as remembered,
        named_services(engine, remembered, tmp_path) as (inventory, environment),
    ):
        remembered.reset([ADMIN], state["hosts"], state["users"], TENANT)
        for name, value in {**environment, "ASSET_OWNERS_HOME": str(folder)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("DAGSTER_HOME", raising=False)
        monkeypatch.setattr("os.fsync", lambda _: None)
        draw_nothing(monkeypatch)
        yield Home(folder, request.param, state, inventory, capsys, monkeypatch)


# Before the first run of this version


def test_what_it_holds_is_told_before_the_next_run(home):
    views = re.findall(r"CREATE VIEW (\w+)", (home.folder / ".warehouse-views.json").read_text("utf-8"))
    assert {"owner_decisions", "owner_writes", "write_history", "conflicts"} <= set(views)
    for view in views:
        assert home.ask(f"FROM {view}"), f"{view} has rows"

    decisions = pl.read_parquet(home.folder / "tables" / "small" / "owner_decisions.parquet").to_dicts()
    for decision in decisions:
        host = decision["hostname"] or decision["host_id"]  # some asset has no name
        status, out, err = home.call("explain", host, "--json")
        assert status == 0, err
        [told] = json.loads(out)["decisions"]
        assert (told["host_id"], told["action"]) == (decision["host_id"], decision["action"])

    for form in ("html", "json", "csv"):
        status, out, err = home.call("report", "--format", form, "--out", "-")
        assert (status, "pc-03" in out) == (0, True), err
    assert len(list(csv.reader(io.StringIO(out)))) == len(decisions) + 1
    assert home.sent() == []


def test_a_host_is_told_of_what_older_runs_did_to_it(home):
    status, out, err = home.call("explain", "h-21", "--json")
    assert status == 0, err
    [decision] = json.loads(out)["decisions"]
    assert [write["outcome"] for write in decision["writes"]] == ["written", "undone", "written"]


# Run


def test_the_next_run_settles_what_was_left_open_and_writes_the_rest(home):
    owners = {host["id"]: host["asset_owner"] for host in home.state["hosts"]}
    killed = [f"h-{number}" for number in range(31, 39)]
    open_hosts = [name for name in killed if not owners[name]]
    assert 0 < len(open_hosts) < len(killed)

    status, report, err = home.run()
    assert (status, report["writes"]) == (0, {"written": len(open_hosts)}), err
    assert "4 writes of an earlier run that had no known outcome are settled" in err
    assert {name: row["outcome"] for name, row in home.writes("killed").items()} == {
        name: "not_written" if name in open_hosts else "written" for name in killed
    }
    assert home.sent() == open_hosts
    assert {home.held()[name][0] for name in killed} == {"ann", "cyd"}
    with Journal(home.tables.journal) as journal:
        assert journal.targets() == {}
    assert "Logons: 0 of 4 days fetched" in err, "days that are settled stay so"

    status, report, err = home.run()
    assert (status, report["writes"]) == (0, {}), err


def test_after_a_run_old_rows_and_new_ones_are_read_side_by_side(home):
    growing = ("logon_counts", "logon_days", "owner_decisions_history", "owner_writes")
    before = {table: home.ask(f"FROM {table}") for table in growing}
    status, report, err = home.run()
    assert status == 0, err
    for name in (TABLES.keys() - {*TABLES_OF_TUNING}) | VIEWS.keys():
        assert home.ask(f"FROM {name}"), f"{name} has rows"
    for table, rows in before.items():
        now = home.ask(f"SELECT {', '.join(rows[0])} FROM {table}")  # noqa: S608 (our own names)
        assert not [row for row in rows if row not in now], table
    runs = {row["run_id"] for row in home.ask("FROM owner_writes")}
    wrote = ("written", "undone", "undo", "applied", "killed")
    assert runs == {report["run_id"], *(home.state["runs"][which] for which in wrote)}
    assert home.ask("SELECT count(*) AS hosts FROM write_history") == [
        {"hosts": len(before["owner_writes"]) + 8 + 3}
    ]


def test_a_dry_run_plans_on_what_older_runs_stored(home):
    status, report, err = home.run("--dry-run")
    assert (status, report["writes"]) == (0, {"planned": 3}), err
    assert home.sent() == []


# Undo, apply


def test_what_its_runs_wrote_is_undone(home):
    before = {
        host: row["old_values"] for host, row in home.writes("written").items() if row["outcome"] == "written"
    }
    assert sorted(before) == ["h-01", "h-02"]
    held = home.held()
    home.undo("written")
    for host, old in before.items():
        assert home.held()[host] == tuple(value or None for value in old.values())
    assert {host: now for host, now in home.held().items() if host not in before} == {
        host: was for host, was in held.items() if host not in before
    }
    assert home.sent() == sorted(before)


def test_what_the_killed_run_had_written_is_undone(home):
    owned = [host["id"] for host in home.state["hosts"] if host["id"] >= "h-31" and host["asset_owner"]]
    home.undo("killed")
    assert home.sent() == owned
    assert {home.held()[f"h-{number}"] for number in range(31, 39)} == {(None, "old", None)}


@without_target
def test_a_plan_that_does_not_say_for_which_target_it_is_is_refused(home):
    status, _, err = home.call("apply", home.state["runs"]["planned"])
    assert status != 0
    assert "asset-owners run" in err, "with the command that makes a new one"
    assert home.sent() == []
    assert {host["id"]: host["asset_owner"] or None for host in home.state["hosts"]} == {
        host: held[0] for host, held in home.held().items()
    }


# Columns that came later


@without_target
def test_rows_of_before_targets_have_none_and_rows_of_now_do(home):
    status, report, err = home.run()
    assert status == 0, err
    targets = home.ask("SELECT run_id, target FROM owner_writes")
    old = {home.state["runs"][which] for which in ("written", "undone", "undo", "applied")}
    assert {row["target"] for row in targets if row["run_id"] in old} == {None}
    new = {row["target"] for row in targets if row["run_id"] == report["run_id"]}
    assert len(new) == 1
    assert None not in new


@without_target
def test_decisions_of_before_problems_have_none(home):
    status, _, err = home.run()
    assert status == 0, err
    assert {row["problem"] for row in home.ask("SELECT problem FROM owner_decisions_history")} == {None}
    assert {row["problem"] for row in home.ask("SELECT problem FROM owner_decisions")} == {None}
