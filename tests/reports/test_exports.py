import csv
import io
import re
import zipfile
from datetime import date

import polars as pl
import pytest

from ownership.codes import ACTION, EVIDENCE
from reports.exports import as_csv, as_xlsx, with_formulas
from reports.run_results import conflicts_in_words, decisions_in_words, not_stable_in_words, writes_in_words
from tests.resources.writeback.world import plan

NAMES = [
    *("pc-0815", r"CORP\alice", "o'brien", "名前"),
    *('=cmd|"/c calc"!a1', "+1", "-1+2", "@sum(a1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200b=1"),
    *("\N{FULLWIDTH EQUALS SIGN}1", "'=1", '",=1', "a;=1\n=2", 'bob;=HYPERLINK("x")', 'bob;"=1'),
    *('bob;" "";=1', "x" * 99, "bob\t =1", "bob;\t=1;'=2", ";'", "https://evil.example"),
]


@pytest.mark.parametrize("name", NAMES)
def test_csv_holds_no_formula_and_loses_no_name(name):
    text = as_csv(pl.DataFrame({"user": [name], "number": [7]}))
    assert text.endswith(",7\n"), "numbers are not texts"
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


# What came of a run


def test_a_run_is_counted_in_words_and_who_gets_no_owner_has_the_reason_below():
    decisions = {
        "majority/matched/write": 3,
        "single_user/matched/write": 1165,
        "single_user/no_user_asset/none": 2,
        "no_logons/null/none": 5,
        "no_majority/null/keep": 1,
        "majority/matched/no_host": 4,
    }
    hosts, *words = decisions_in_words(decisions)
    assert hosts == "1,176 hosts, and 4 names not in the inventory:"
    assert words.pop(4) == "Why no owner is found for 8 hosts:"
    assert [int(line.split()[0].replace(",", "")) for line in words] == [1168, 7, 4, 1, 5, 2, 1]
    assert words[0].endswith(ACTION["write"])
    assert words[4] == f"{'5':>8}  no logons: {EVIDENCE['no_logons']}"
    assert writes_in_words(plan()) == "nothing to write"
    skipped = [plan(f"h{n}", outcome="not_written", kept=["owner"], undoes="run-0") for n in range(3)]
    undone = {"outcome": "not_written", "undoes": "run-0", "message": "skipped: already undone by run run-1"}
    others = [{"outcome": "undone"}, {"outcome": "not_written"}]
    rows = pl.concat([*skipped, *(plan("h9", **row) for row in (undone, undone, *others))])
    assert writes_in_words(rows) == (
        "Nothing to undo on 3 hosts: somebody has changed them since. "
        "Nothing to undo on 2 hosts: already undone by run run-1. 1 host skipped. "
        "1 host has its former values again"
    )
    _, some, *_ = decisions_in_words(decisions, in_run=2)
    assert some.endswith("and gets this one: 2 in this run, 1,166 left for later.")
    assert [*decisions_in_words(decisions, in_run=1168)][1].endswith(ACTION["write"])


def test_conflicts_are_counted_alike_everywhere():
    assert conflicts_in_words(1) == "1 conflict"
    assert conflicts_in_words(1234, acknowledged=1200, new=1) == "1,234 conflicts (1,200 acknowledged, 1 new)"


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        ([], []),
        (
            [date(2026, 3, 9), None],
            ["2 hosts not stable yet, 1 of them not in the inventory. If nothing changes, 1 host gets its "],
        ),
        (
            [None],
            ["1 host not stable yet. Waiting will not give an owner to any of them: each has an owner, "],
        ),
    ],
)
def test_a_run_says_of_hosts_that_are_not_stable_when_they_get_an_owner_or_that_none_does(ready, said):
    rows = {"evidence": ["not_stable"] * len(ready) + ["single_user"], "stable_on": [*ready, None]}
    rows["host_id"] = [*["h1", None][: len(ready)], "h3"]
    decisions = pl.DataFrame(rows, schema=dict.fromkeys(rows, pl.String) | {"stable_on": pl.Date})
    lines = [*not_stable_in_words(decisions, "sql {}".format)]
    assert [line[: len(text)] for line, text in zip(lines, said, strict=False)] == said
    assert all("named_since, stable_on" in line for line in lines[1:])
    assert len(lines) == 2 * len(said)
