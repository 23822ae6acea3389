import csv
import io
import re
import zipfile
from datetime import date

import polars as pl
import pytest

from reports.exports import as_csv, as_xlsx, with_formulas

NAMES = [
    *("pc-0815", r"CORP\alice", "o'brien", "名前"),
    *('=cmd|"/c calc"!a1', "+1", "-1+2", "@sum(a1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200b=1"),
    *("\N{FULLWIDTH EQUALS SIGN}1", "'=1", '",=1', "a;=1\n=2", 'bob;=HYPERLINK("x")', 'bob;"=1'),
    *('bob;" "";=1', "x" * 99, "bob\t =1", "bob;\t=1;'=2", ";'", "https://evil.example"),
]


@pytest.mark.parametrize("name", NAMES)
def test_csv_holds_no_formula_and_loses_no_name(name):
    text = as_csv(pl.DataFrame({"user": [name], "number": [7]}))
    assert text.endswith(",7\n"), "numbers are no texts"
    (row,) = csv.DictReader(io.StringIO(text))
    assert pl.select(with_formulas(pl.lit(row["user"]))).item() == name
    for separator in ",;\t":
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            assert not [cell for cell in cells if re.match(r"[\x00\s\u200b]*[=+\-@\uff1d]", cell)]


def test_a_workbook_holds_every_name_as_a_text_and_days_as_days():
    days = [date(2026, 3, 2)] * len(NAMES)
    workbook = as_xlsx(pl.DataFrame({"Host": NAMES, "Last logon": days}), title="Hosts")
    with zipfile.ZipFile(io.BytesIO(workbook)) as parts:
        sheet, table = (
            parts.read(f"xl/{part}1.xml").decode() for part in ("worksheets/sheet", "tables/table")
        )
    assert "<f>" not in sheet
    assert "hyperlink" not in sheet
    found = pl.read_excel(io.BytesIO(workbook), sheet_name="Hosts")
    assert '<col min="1" max="1" width="60"' in sheet, "long texts are wrapped"
    assert '<pane xSplit="1" ySplit="1"' in sheet
    assert "<autoFilter" in table
    assert found["Last logon"].to_list() == days
    unprintable = re.compile(r"[\x00\r\n\t]")
    assert [unprintable.sub("", name) for name in found["Host"]] == [unprintable.sub("", n) for n in NAMES]
