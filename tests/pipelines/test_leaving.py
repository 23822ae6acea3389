"""A person, or a customer, leaves: `forget` and `remove`."""

import duckdb
import polars as pl
import pytest

from pipelines.dagster_home import dagster_instance
from resources.store.tables import Tables
from resources.writeback.journals import open_journal
from tests.ownership.builders import RUN

HASH = "forgotten-"


def cells(home):
    """Every text in every table, with the file that has it."""
    for file in sorted((home / "tables").rglob("*.parquet")):
        yield from ((file, one) for one in texts(pl.read_parquet(file).to_dicts()))


def texts(value):
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(part)


def naming_ann(home):
    said = (text.lower() for _, text in cells(home))
    return [text for text in said if text in {"u1", "ann", "corp\\ann"} or "ann@" in text]


@pytest.fixture
def home(stored, tmp_path, monkeypatch):  # noqa: ARG001  (the tables of a run)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return tmp_path / "home"


def test_a_person_is_forgotten_everywhere_once_that_is_confirmed(home, stored, call):
    tables = Tables(home, "head_office")
    report = home / "reports" / "head_office.html"
    report.parent.mkdir()
    report.touch()
    before = dict(cells(home))
    assert naming_ann(home)
    status, said, _ = call("forget", "ANN@corp.example", "--instance", stored)
    assert (status, dict(cells(home))) == (0, before)
    assert str(report) in said
    assert report.exists()
    assert "owner_decisions" in said
    status, _, _ = call("forget", "ANN@corp.example", "--instance", stored, "--yes")
    assert (status, naming_ann(home), report.exists()) == (0, [], False)
    (write,) = tables.writes().collect().to_dicts()
    assert (write["host_id"], write["outcome"]) == ("h1", "written")
    assert write["new_values"]["owner"].startswith(HASH)
    assert any(text == "carol" for _, text in cells(home))
    assert call("forget", "ANN@corp.example", "--instance", stored)[0] == 1


@pytest.mark.parametrize("in_database", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nobody_is_forgotten_of_whom_a_write_is_open(home, stored, call, monkeypatch, request, in_database):
    if in_database:
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", request.getfixturevalue("postgres").new_database())
    tables = Tables(home, "head_office")
    with open_journal(tables) as journal:
        journal.intend(tables.writes().collect().with_columns(outcome=pl.lit("intended")))
    status, _, said = call("forget", "ann", "--instance", stored, "--yes")
    assert (status, RUN in said) == (1, True)
    assert naming_ann(home)
    with open_journal(tables) as journal:
        journal.delete(RUN)
        journal.intend(tables.writes().collect())
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 0
    with open_journal(tables) as journal:
        (row,) = journal.rows(RUN).to_dicts()
    assert row["new_values"]["owner"].startswith(HASH)


def test_a_customer_is_removed_once_that_is_confirmed(home, catalogued, call):
    (home / "reports").mkdir()
    (home / "reports" / "head_office.html").touch()
    assert call("remove", catalogued)[0] == 0
    assert (home / "tables" / "head_office" / "owner_decisions.parquet").exists()
    assert call("remove", catalogued, "--yes")[0] == 0
    assert not (home / "tables" / "head_office").exists()
    assert list((home / "reports").iterdir()) == []
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as catalogue:
        assert catalogue.execute("SELECT * FROM duckdb_views() WHERE NOT internal").fetchall() == []
    with dagster_instance(home) as recorded:
        assert list(recorded.get_runs()) == []
    assert call("remove", catalogued)[0] == 1
