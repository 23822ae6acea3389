"""A person, or a customer, leaves: `forget` and `remove`."""

import json
import shutil
import socket

import dagster as dg
import duckdb
import polars as pl
import pytest

from pipelines.dagster_gaps.launcher import LOCK_TAG
from pipelines.dagster_home import dagster_instance
from resources import locks
from resources.settings import load_instance
from resources.store.tables import Tables
from resources.writeback.open_journal import open_journal
from resources.writeback.target_lock import locked_journal
from tests.ownership.builders import RUN

HASH = "forgotten-"


def texts(home):
    """Each Parquet file as text, in lower case."""
    files = sorted((home / "tables").rglob("*.parquet"))
    return {file: pl.read_parquet(file).write_json().lower() for file in files}


def naming_ann(texts):
    names = ('"u1"', '"ann"', 'corp\\\\ann"', "ann@")
    return [file for file, text in texts.items() if any(name in text for name in names)]


@pytest.fixture
def home(stored, tmp_path):  # noqa: ARG001  (the tables of a run)
    return tmp_path / "home"


def test_a_person_is_forgotten_everywhere_once_that_is_confirmed(home, stored, call):
    tables = Tables(home, "head_office")
    report = home / "reports" / "head_office.html"
    report.parent.mkdir()
    report.touch()
    before = texts(home)
    assert naming_ann(before)
    status, said, _ = call("forget", "ANN@corp.example", "--instance", stored)
    assert (status, texts(home)) == (0, before)
    assert str(report) in said
    assert report.exists()
    assert "owner_decisions" in said
    (home / "killed").touch()
    lock = json.dumps([socket.gethostname(), str(home / "killed")])
    tags = {"asset_owners/instance": "Head office", LOCK_TAG: lock}
    killed = dg.DagsterRun("job", run_id="killed", tags=tags, status=dg.DagsterRunStatus.STARTED)
    with dagster_instance(home) as recorded:
        recorded.add_run(killed)
    status, _, _ = call("forget", "ANN@corp.example", "--instance", stored, "--yes")
    after = texts(home)
    assert (status, naming_ann(after), report.exists()) == (0, [], False)
    (write,) = tables.writes().collect().to_dicts()
    assert (write["host_id"], write["outcome"]) == ("h1", "written")
    assert write["new_values"]["owner"].startswith(HASH)
    assert any('"carol"' in text for text in after.values())
    with dagster_instance(home) as recorded:
        assert list(recorded.get_runs()) == [], "also what was killed, and nobody has noticed"
    assert call("forget", "ANN@corp.example", "--instance", stored)[0] == 1


def test_nobody_is_forgotten_of_whom_a_write_is_open(home, stored, call):
    tables = Tables(home, "head_office")
    with open_journal(tables) as journal:
        journal.intend(tables.writes().collect().with_columns(outcome=pl.lit("intended")))
    status, _, said = call("forget", "ann", "--instance", stored, "--yes")
    assert (status, RUN in said) == (1, True)
    assert naming_ann(texts(home))
    with open_journal(tables) as journal:
        journal.delete(RUN)
        written = tables.writes().collect()
        for_carol = pl.col("new_values").struct.with_fields(owner=pl.lit("u9"))
        others = {"host_id": pl.lit("h9"), "outcome": pl.lit("intended"), "new_values": for_carol}
        journal.intend(pl.concat([written, written.with_columns(**others)]))
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 0
    with open_journal(tables) as journal:
        row, other = journal.rows(RUN).to_dicts()
        assert journal.never_sent(RUN) == {"h1", "h9"}, "what is known of other writes stays"
    assert row["new_values"]["owner"].startswith(HASH)
    assert other["outcome"] == "intended"


@pytest.mark.parametrize("command", ["remove {} --yes", "forget ann --instance {} --yes"])
def test_nothing_is_deleted_while_anybody_writes_to_the_inventory(home, stored, call, monkeypatch, command):
    """From another home, too, as on another machine: its journal would go, and what it sends have no row."""
    monkeypatch.setattr(locks, "TIMEOUT_SECONDS", 0.1)
    before = texts(home)
    with locked_journal(Tables(home / "other", "head_office"), load_instance(stored).platform):
        status, _, said = call(*command.format(stored).split())
    assert (status, "The writing to https://inventory.invalid" in said, texts(home)) == (1, True, before)


def test_a_person_is_forgotten_in_a_home_that_never_ran_the_instance(
    home, stored, call, monkeypatch, tmp_path
):
    """As by a machine that shares the tables."""
    monkeypatch.setenv("ASSET_OWNERS_TABLES", str(home / "tables"))
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "elsewhere"))
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 0
    assert naming_ann(texts(home)) == []


def lose_rows(folder):
    """None of the customer's runs has succeeded."""
    for file in folder.rglob("*.parquet"):
        file.unlink()
    assert (folder / ".instance").exists()


@pytest.mark.parametrize("lost", [None, shutil.rmtree, lose_rows])
def test_a_customer_is_removed_once_that_is_confirmed_whatever_is_left_of_it(home, catalogued, call, lost):
    tables, page = home / "tables" / "head_office", home / "reports" / "head_office.1a2b3c4d.html"
    page.parent.mkdir()
    page.touch()
    if lost:
        lost(tables)
    else:
        assert call("remove", catalogued)[0] == 0
        assert (tables / "owner_decisions.parquet").exists()
    assert call("remove", catalogued, "--yes")[0] == 0
    assert (tables.exists(), page.exists()) == (False, False)
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as catalogue:
        assert catalogue.execute("SELECT * FROM duckdb_views() WHERE NOT internal").fetchall() == []
    if not lost:
        with dagster_instance(home) as recorded:
            assert list(recorded.get_runs()) == []
    assert call("remove", catalogued)[0] == 1
