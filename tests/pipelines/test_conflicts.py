"""`asset-owners conflicts`: hosts whose owner is not their primary user, and those that may stay so."""

import json
from datetime import timedelta

import polars as pl
import pytest

from resources.store.retention import store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW
from tests.reports.test_page import packed


@pytest.fixture
def listed(call, catalogued):
    def listed():
        status, printed, error = call("conflicts", "--instance", catalogued, "--format", "json")
        assert status == 0, error
        return json.loads(printed)

    return listed


def test_a_conflict_is_acknowledged_and_is_no_warning_until_its_evidence_changes(
    call, catalogued, listed, tmp_path, monkeypatch
):
    monkeypatch.setenv("SUDO_USER", "olga")
    [found] = listed()
    assert (found["host_id"], found["acknowledged_at"], found["note"]) == ("h2", None, None)
    assert found["since"] == f"{NOW:%Y-%m-%d}"
    known = ("conflicts", "--instance", catalogued, "--acknowledge", "PC-2", "--note", "a loan")
    for again in (known, known[:-2]):  # without a note it keeps the one that it has
        assert call(*again)[0] == 0
    [found] = listed()
    assert (found["acknowledged_by"], found["note"]) == ("olga", "a loan")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    heads, row, below, _, counted, _, how = call("conflicts", "--instance", catalogued)[1].splitlines()
    assert heads.split() == ["host", "owner", "logons", "name", "share", "since"]
    assert row.split() == ["pc-2", "bob@corp.example", "ann@corp.example", "100%", f"{NOW:%Y-%m-%d}"]
    assert below == "    acknowledged by olga: a loan", "what has no room is said below"
    assert counted.split() == ["1", "1", "0"]
    assert how.endswith("--acknowledge HOST --note WHY")
    assert ": a loan.\n" in call("explain", "--instance", catalogued, "pc-2")[1]

    tables = Tables(tmp_path / "home", "head_office")
    decisions = tables.read("owner_decisions").filter(action="conflict").collect()

    def new_on(day, *, evidence):
        at, run_id = NOW + timedelta(days=day), f"later-{day}"
        rows = decisions.with_columns(decided_at=at, run_id=pl.lit(run_id), evidence=pl.lit(evidence))
        rows = rows.with_columns(pl.col("events", "total_events") * 100 * day)  # other counts change nothing
        rows = rows.cast({"decided_at": decisions.schema["decided_at"]})
        marked = store_decisions(tables, rows, decided_at=at, run_id=run_id, publish=True)
        return marked["new_conflict"].item()

    assert not new_on(1, evidence="single_user")
    assert new_on(2, evidence="majority")
    [found] = listed()
    assert (found["acknowledged_at"], found["since"]) == (None, f"{NOW:%Y-%m-%d}"), "no other conflict"


def test_what_is_no_conflict_is_not_acknowledged(call, catalogued, listed):
    for wrong in (
        ("--acknowledge", "pc-1"),
        ("--acknowledge", "nowhere", "--note", "x"),
        ("--note", "x"),
        ("--acknowledge", "pc-2", "--run", "12345678"),
        ("--acknowledge", "pc-2", "--undo", "pc-2"),
        ("--acknowledge", "pc-2", "--acknowledge", "nowhere"),
        ("--undo", "pc-2", "--note", "x"),
    ):
        assert call("conflicts", "--instance", catalogued, *wrong)[0] == 2, wrong
    assert listed()[0]["acknowledged_at"] is None


def test_conflicts_are_acknowledged_by_a_file_and_that_is_undone_likewise(
    call, catalogued, listed, tmp_path, monkeypatch
):
    monkeypatch.setenv("SUDO_USER", "olga")
    of_it, file = ("conflicts", "--instance", catalogued), tmp_path / "conflicts.csv"
    file.write_text(call(*of_it, "--format", "csv")[1])
    status, printed, error = call(*of_it, "--acknowledge", f"@{file}", "--note", "a loan")
    assert status == 0, error
    assert printed.startswith("1 conflict acknowledged until its evidence or an owner changes\n")
    [found] = listed()
    assert (found["acknowledged_by"], found["note"]) == ("olga", "a loan")
    assert call("report", "--instance", catalogued, "--out", tmp_path / "page.html")[0] == 0
    of_page = packed((tmp_path / "page.html").read_text(encoding="utf-8"))["hosts"]
    host = of_page["host_id"].index("h2")
    assert (of_page["status"][host], of_page["why"][host]) == ("conflict", "acknowledged")
    assert call(*of_it, "--undo", f"@{file}")[1].startswith("1 conflict no longer acknowledged")
    assert listed()[0]["acknowledged_at"] is None
