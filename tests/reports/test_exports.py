import csv
import io
import re
import zipfile

import polars as pl
import pytest

from reports.exports import as_csv, as_xlsx, raw_decisions
from tests.ownership.builders import counts, decide, host, hosts, user, users

PEOPLE = users(user("u1", email="ann@corp.example"), user("u2", surname="kim"), user("u3", surname="kim"))
DECISIONS = decide(
    counts(("a", "ann", 3), ("b", "ann", 2), ("b", "bob", 1), ("c", "kim", 1), ("d", "zoë", 1)),
    PEOPLE,
    hosts(host("h1", "a"), host("h2", "b", owners=("u2", "u3")), host("h3", "c")),
)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_every_decision_and_conflicts_come_first():
    text = as_csv(raw_decisions(DECISIONS))
    assert '"conflict"' in text
    assert ',"ann",2,3,' in text, "texts in quotes, numbers without"
    table = rows(text)
    assert [row["hostname"] for row in table] == ["b", "a", "c", "d"]
    assert list(table[0]) == DECISIONS.columns
    first, *_, last = table
    assert (first["action"], first["existing_owner"], first["resolved_owner"]) == ("conflict", "u2,u3", "u1")
    assert (first["events"], first["total_events"], first["last_seen"]) == ("2", "3", "2026-03-02")
    assert first["decided_at"] == "2026-03-30T12:00:00Z"
    assert table[2]["candidate_ids"] == "u2,u3"
    assert (last["username"], last["host_id"]) == ("zoë", "")


NAMES = [
    *("pc-0815", r"CORP\alice", "o'brien", "名前"),
    *('=cmd|"/c calc"!a1', "+1", "-1+2", "@sum(a1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200b=1"),
    *("\N{FULLWIDTH EQUALS SIGN}1", "'=1", '",=1', "a;=1\n=2", 'bob;=HYPERLINK("x")', 'bob;"=1'),
    *('bob;" "";=1', "x" * 99, "bob\t =1", "bob;\t=1;'=2", ";'", "https://evil.example"),
]


@pytest.mark.parametrize("name", NAMES)
def test_csv_holds_no_formula_and_loses_no_name(name):
    decisions = DECISIONS.with_columns(
        pl.lit(name).alias("hostname"), pl.lit(name).alias("username"), candidate_ids=pl.lit([name])
    )
    text = as_csv(raw_decisions(decisions))
    for row in rows(text):
        for column in ("hostname", "username", "candidate_ids"):
            assert re.sub(r"(^|[;\t\r\n])'", r"\1", row[column]) == name
    for separator in ",;\t":
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            assert not [cell for cell in cells if re.match(r"[\x00\s\u200b]*[=+\-@\uff1d]", cell)]


def test_a_workbook_holds_every_name_as_a_text_and_days_as_days():
    days = [DECISIONS["last_seen"][0]] * len(NAMES)
    workbook = as_xlsx(pl.DataFrame({"Host": NAMES, "Last logon": days}), title="Hosts")
    with zipfile.ZipFile(io.BytesIO(workbook)) as parts:
        sheet = parts.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "hyperlink" not in sheet
    found = pl.read_excel(io.BytesIO(workbook), sheet_name="Hosts")
    assert '<col min="1" max="1" width="60"' in sheet, "long texts are wrapped"
    assert found["Last logon"].to_list() == days
    unprintable = re.compile(r"[\x00\r\n\t]")
    assert [unprintable.sub("", name) for name in found["Host"]] == [unprintable.sub("", n) for n in NAMES]
