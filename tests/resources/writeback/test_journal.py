import sqlite3
from datetime import UTC, datetime, timedelta

import polars as pl
import psycopg
import pytest

from ownership.declaration import empty, polars_schema, validated
from ownership.tables import OwnerWrites
from resources.writeback.journal import Journal, Result
from resources.writeback.postgres import PostgresJournal
from tests.ownership.builders import TARGET

NOON = datetime(2026, 3, 2, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)


def values(owner=None, department=None, criticality=None):
    return {"owner": owner, "department": department, "criticality": criticality}


def writes(*host_ids, run_id="run-1", **changes):
    filled = {
        "run_id": run_id,
        "hostname": "pc",
        "outcome": "intended",
        "old_values": values(department="Old"),
        "new_values": values("u-1"),
        "message": None,
        "intended_at": NOON,
        "completed_at": None,
        "target": TARGET,
    }
    rows = [{"host_id": host_id, **filled, **changes} for host_id in host_ids]
    return pl.DataFrame(rows, schema=polars_schema(OwnerWrites))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "instance" / "writes.sqlite"


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.slow)])
def opened(request, path):
    """Opens the journal of an instance, each time the same one."""
    if request.param == "file":
        return lambda: Journal(path)
    url = request.getfixturevalue("postgres").new_database()
    return lambda: PostgresJournal(url, lambda: "corp")


@pytest.fixture
def journal(opened):
    with opened() as journal:
        yield journal


@pytest.fixture
def file(path):
    with Journal(path) as journal:
        yield journal


def outcomes(journal, run_id="run-1"):
    return dict(journal.rows(run_id).select("host_id", "outcome").iter_rows())


def test_rows_come_back_as_they_were_intended_also_after_reopening(journal, opened):
    odd = "O'Brien; DROP TABLE writes\n\u202e😀 %s ? \\0 \\\\ \0"
    intended = pl.concat(
        [
            writes("a", hostname=odd, new_values=values(odd, "", odd), old_values=values()),
            writes("b", message=odd, completed_at=LATER, outcome="written"),
        ]
    )
    journal.intend(intended)
    with opened() as reopened:
        found = reopened.rows("run-1")
    assert found.equals(intended)
    assert validated(OwnerWrites, found).height == 2


def test_a_plan_is_stored_whole_or_not_at_all(journal):
    journal.intend(writes("a", "b"))
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        journal.intend(writes("c", "b", "d"))
    assert outcomes(journal) == {"a": "intended", "b": "intended"}
    journal.intend(writes("c"))  # the journal goes on working
    assert outcomes(journal) == {"a": "intended", "b": "intended", "c": "intended"}


def test_what_is_intended_is_there_for_other_processes_at_once(journal, opened):
    journal.intend(writes("a"))
    with opened() as other:
        assert outcomes(other) == {"a": "intended"}


def test_a_plan_is_flushed_to_the_disk_once_and_an_outcome_is_not(file):
    """A loss of power, which cannot be tried here, may take outcomes and never intentions."""
    level, flushed = "", []

    def look(statement):
        nonlocal level
        level = statement if statement.startswith("PRAGMA synchronous") else level
        if statement.startswith(("COMMIT", "UPDATE")):
            flushed.append(level)

    file._connection.set_trace_callback(look)
    file.intend(writes("a", "b"))
    file.complete(Result("a", "written"), run_id="run-1", completed_at=LATER)
    assert flushed == ["PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"]


def test_an_outcome_is_stored_with_what_the_host_held(journal):
    journal.intend(writes("a", "b"))
    held = values("u-9", "Sales", "low")
    journal.complete(Result("a", "owned_meanwhile", "owned by u-9", held), run_id="run-1", completed_at=LATER)
    first, second = journal.rows("run-1").iter_rows(named=True)
    assert (first["outcome"], first["message"], first["completed_at"]) == (
        "owned_meanwhile",
        "owned by u-9",
        LATER,
    )
    assert (first["old_values"], first["new_values"]) == (held, values("u-1"))
    assert (second["outcome"], second["completed_at"]) == ("intended", None)


def test_what_the_plan_saw_stays_where_the_host_was_not_read(journal):
    journal.intend(writes("a"))
    journal.complete(Result("a", "failed", "no"), run_id="run-1", completed_at=LATER)
    assert journal.rows("run-1")["old_values"].to_list() == [values(department="Old")]


def test_an_outcome_that_is_not_known_has_no_end(journal):
    journal.intend(writes("a"))
    journal.complete(Result("a", "intended", "the answer was lost"), run_id="run-1", completed_at=LATER)
    row = journal.rows("run-1").row(0, named=True)
    assert (row["outcome"], row["message"], row["completed_at"]) == ("intended", "the answer was lost", None)


def test_runs_are_kept_apart_and_come_oldest_first(journal):
    journal.intend(writes("a", run_id="z-first"))
    journal.intend(writes("a", "b", run_id="a-second", intended_at=LATER))
    journal.complete(Result("a", "written"), run_id="a-second", completed_at=LATER)
    assert list(journal.targets()) == ["z-first", "a-second"]
    assert outcomes(journal, "z-first") == {"a": "intended"}
    journal.delete("z-first")
    assert list(journal.targets()) == ["a-second"]
    assert outcomes(journal, "a-second") == {"a": "written", "b": "intended"}


def test_a_run_without_rows_has_an_empty_table(journal):
    journal.intend(writes())
    assert list(journal.targets()) == []
    assert journal.rows("run-1").equals(empty(OwnerWrites))


def test_a_file_of_an_older_version_is_gone_on_with(path):
    """It lacked columns; whether its requests were sent, and where to, is not known."""
    with Journal(path) as journal:
        journal.intend(writes("a"))
    with sqlite3.connect(path) as older:
        for column in ("sent", "boot", "target"):
            older.execute(f"ALTER TABLE writes DROP COLUMN {column}")
    older.close()
    with Journal(path) as journal:
        assert (outcomes(journal), journal.unsent("run-1")) == ({"a": "intended"}, set())
        assert journal.targets() == {"run-1": None}
        journal.intend(writes("b", run_id="run-2"))
        assert journal.unsent("run-2") == {"b"}
        journal.attempting("run-2", "b")
        assert journal.unsent("run-2") == set()
