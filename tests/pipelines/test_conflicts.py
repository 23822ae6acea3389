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
    counted = call("conflicts", "--instance", catalogued)[1].splitlines()[-2]
    assert counted.replace("│", " ").split() == ["1", "1", "0"]
    assert " by olga: a loan\n" in call("explain", "--instance", catalogued, "pc-2")[1]

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
    ):
        assert call("conflicts", "--instance", catalogued, *wrong)[0] == 2, wrong
    assert listed()[0]["acknowledged_at"] is None


@pytest.mark.parametrize("ending", ["xlsx", "csv"])
def test_a_sheet_of_conflicts_is_answered_and_read_back(
    call, catalogued, listed, tmp_path, monkeypatch, ending
):
    monkeypatch.setenv("SUDO_USER", "olga")
    sheet = tmp_path / f"conflicts.{ending}"

    def answer(**values):
        table = pl.read_excel(sheet) if ending == "xlsx" else pl.read_csv(sheet)
        table = table.with_columns(pl.lit(value).alias(name) for name, value in values.items())
        changed = tmp_path / f"answered.{ending}"
        table.write_excel(changed) if ending == "xlsx" else table.write_csv(changed, separator=";")
        _, printed, error = call("conflicts", "--instance", catalogued, "--answers", changed)
        return printed + error

    status, printed, _ = call("conflicts", "--instance", catalogued, "--out", sheet)
    assert (status, f"--answers {sheet}" in printed) == (0, True)
    assert "1 conflict (1 new)." in printed
    assert call("conflicts", "--instance", catalogued, "--out", sheet)[0] == 2, "it may hold answers"
    assert "maybe' is not an answer" in answer(acknowledge="maybe")
    loan = {"acknowledge": "Yes", "note": "a loan"}
    assert answer(**loan).startswith("1 conflict acknowledged, 0 no longer.\n")
    [found] = listed()
    assert (found["acknowledged_by"], found["note"]) == ("olga", "a loan")
    assert call("report", "--instance", catalogued, "--out", tmp_path / "page.html")[0] == 0
    of_page = packed((tmp_path / "page.html").read_text(encoding="utf-8"))["hosts"]
    host = of_page["host_id"].index("h2")
    assert (of_page["status"][host], of_page["why"][host]) == ("conflict", "acknowledged")
    monkeypatch.setenv("SUDO_USER", "somebody else")
    assert answer(**loan).startswith("0 conflicts acknowledged, 0 no longer.\n")
    assert listed() == [found], "who said so first"
    assert "Skipped, for they have changed since the sheet was written: pc-2" in answer(**loan, owner="kim")
    assert answer(acknowledge="no").startswith("0 conflicts acknowledged, 1 no longer.\n")
    assert listed()[0]["acknowledged_at"] is None
