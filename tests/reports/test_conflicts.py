"""The sheet of conflicts, as a spreadsheet gives it back."""

import polars as pl
import pytest

from ownership.declaration import empty
from ownership.tables import AcknowledgedConflicts
from reports.conflicts import conflicts_sheet, read_conflict_answers
from reports.sheets import SheetError, sheet_content
from tests.ownership.builders import PEOPLE, counts, decide, host, hosts


@pytest.fixture
def sheet():
    """Two conflicts; ids of hosts and owners have blanks at the ends, and characters that do not print."""
    logons = counts(("pc-1", "ann", 5), ("pc-2", "bob", 5))
    owners = ("u9\xa0 ", "CN=Kim,OU=x"), ("u\n8",)
    assets = hosts(host("h1 ", "pc-1", owners=owners[0]), host("h\x01 2", "pc-2", owners=owners[1]))
    decisions = decide(logons, PEOPLE, assets).filter(action="conflict")
    return conflicts_sheet(decisions, empty(AcknowledgedConflicts), PEOPLE)


def answers(sheet, *rows, is_workbook=False):
    """What is read of a sheet in which only these rows are, with these answers and notes."""
    numbers, words, notes = zip(*rows, strict=True)
    table = sheet[list(numbers)].with_columns(acknowledge=pl.Series(words), note=pl.Series(notes))
    content = sheet_content(table, title="Conflicts", answer="acknowledge", is_workbook=is_workbook)
    found, changed = read_conflict_answers(content, sheet)
    return found.rows(), changed


@pytest.mark.parametrize("is_workbook", [True, False])
def test_answers_and_notes_come_back_as_they_were_written(sheet, is_workbook):
    assert sheet["owner"].str.ends_with(", CN=Kim,OU=x").to_list() == [True, False]
    rows = (0, "yes", "=1+1; -a\n loan"), (1, "yes", '\'tis "his"')
    notes = "=1+1; -a\\n loan", rows[1][2]
    expected = [(sheet["host_id"][row], True, note) for (row, *_), note in zip(rows, notes, strict=True)]
    assert answers(sheet, *rows, is_workbook=is_workbook) == (expected, [])
    known = sheet.with_columns(acknowledge=pl.lit("yes"), note=pl.Series([note for *_, note in rows]))
    assert answers(known, *rows, is_workbook=is_workbook) == ([], []), "nothing new"


@pytest.mark.parametrize("other", [("no", "a loan"), ("yes", "sold")])
def test_two_rows_of_a_host_may_not_contradict_each_other(sheet, other):
    assert answers(sheet, (1, "yes", "a loan"), (1, "yes", "a loan"), (1, "", ""))[1] == []
    for rows in (
        ((1, "yes", "a loan"), (0, "yes", ""), (1, *other)),
        ((1, *other), (0, "", ""), (1, "yes", "a loan")),
    ):
        with pytest.raises(SheetError, match=r"line 4: .* has another answer in line 2; delete one"):
            answers(sheet, *rows)
