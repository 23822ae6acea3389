import csv
import io
import json
import re

import polars as pl
import pytest

from reports.exports import decisions_csv, decisions_json
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
    text = decisions_csv(DECISIONS)
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


@pytest.mark.parametrize(
    "name",
    [
        *("pc-0815", r"CORP\alice", "o'brien", "名前"),
        *('=cmd|"/c calc"!a1', "+1", "-1+2", "@sum(a1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200b=1"),
        *("\N{FULLWIDTH EQUALS SIGN}1", "'=1", '",=1', "a;=1\n=2", 'bob;=HYPERLINK("x")', 'bob;"=1'),
        *('bob;" "";=1', "bob\t =1", "bob;\t=1;'=2", ";'"),
    ],
)
def test_csv_holds_no_formula_and_loses_no_name(name):
    decisions = DECISIONS.with_columns(
        pl.lit(name).alias("hostname"), pl.lit(name).alias("username"), candidate_ids=pl.lit([name])
    )
    text = decisions_csv(decisions)
    for row in rows(text):
        for column in ("hostname", "username", "candidate_ids"):
            assert re.sub(r"(^|[;\t\r\n])'", r"\1", row[column]) == name
    for separator in ",;\t":
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            assert not [cell for cell in cells if re.match(r"[\x00\s\u200b]*[=+\-@\uff1d]", cell)]


def test_json_has_conflicts_and_decisions_exactly():
    name = '=cmd|"x"</script>\u202e'
    found = json.loads(decisions_json(DECISIONS.with_columns(username=pl.lit(name)), instance='In "Ö"'))
    assert list(found) == ["instance", "conflicts", "decisions"]
    assert found["instance"] == 'In "Ö"'
    assert [row["hostname"] for row in found["conflicts"]] == ["b"]
    assert [row["hostname"] for row in found["decisions"]] == ["a", "b", "c", "d"]
    assert {row["username"] for row in found["decisions"]} == {name}
    assert found["decisions"][2]["candidate_ids"] == ["u2", "u3"]
    assert found["decisions"][3]["host_id"] is None
