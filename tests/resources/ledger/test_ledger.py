import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ownership.declaration import polars_schema, validated
from ownership.tables import OwnerWrites, Runs
from resources.errors import AssetOwnersError, ConfigurationError
from resources.ledger.ledger import Ledger, Result, ledger_findings
from resources.store.tables import Tables
from tests.pipelines.test_metrics import row
from tests.resources.writeback.world import NOON, WRITTEN, outcomes, plan, values

LATER = NOON + timedelta(seconds=1, microseconds=123456)


def writes(*host_ids, **changes):
    return plan(*host_ids, **{"outcome": "intended", **changes})


@pytest.fixture
def file(path):
    with Ledger(path) as ledger:
        yield ledger


def test_rows_come_back_as_they_were_intended_also_after_reopening(ledger, opened):
    odd = "O'Brien; DROP TABLE writes\n\u202e😀 %s ? \\0 \\\\ \0"
    intended = pl.concat(
        [
            writes("a", hostname=odd, new_values=values(odd, "", odd), old_values=values()),
            writes("b", message=odd, completed_at=LATER, outcome="written"),
        ]
    )
    ledger.intend(intended)
    with opened() as reopened:
        found = reopened.rows("owner_writes", "run-1")
    assert found.equals(intended)
    assert validated(OwnerWrites, found).height == 2


def test_a_plan_is_stored_whole_or_not_at_all(ledger):
    ledger.intend(writes("a", "b"))
    with pytest.raises((sqlite3.IntegrityError, AssetOwnersError)):
        ledger.intend(writes("c", "b", "d"))
    ledger.intend(writes("c"))  # it goes on working, and has no "c" yet
    assert outcomes(ledger) == {"a": "intended", "b": "intended", "c": "intended"}


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


def test_an_outcome_is_stored_with_what_the_host_held_where_it_was_read(ledger):
    ledger.intend(writes("a", "b", "c"))
    held = values("u-9", "Sales", "low")
    for result in (
        Result("a", "owned_meanwhile", "owned by u-9", held),
        Result("b", "intended", "the answer was lost"),
        Result("c", "failed", "no"),
    ):
        ledger.complete(result, run_id="run-1", completed_at=LATER)
    found = (
        ledger.rows("owner_writes", "run-1").select("outcome", "message", "completed_at", "old_values").rows()
    )
    planned = values(department="Old")
    assert found == [
        ("owned_meanwhile", "owned by u-9", LATER, held),
        ("intended", "the answer was lost", None, planned),
        ("failed", "no", LATER, planned),
    ]
    assert ledger.rows("owner_writes", "run-1")["new_values"].to_list() == [WRITTEN["new"]] * 3


def test_hosts_without_a_request_are_known_until_one_may_follow_and_are_left(ledger):
    ledger.intend(writes("a", "b", "c"))
    ledger.mark_attempted("run-1", "a")
    assert ledger.never_sent("run-1") == {"b", "c"}
    ledger.complete(Result("b", "failed", "no"), run_id="run-1", completed_at=LATER)
    ledger.abandon_rest("run-1", "it ended")
    assert outcomes(ledger) == {"a": "intended", "b": "failed", "c": "not_written"}
    at = ledger.rows("owner_writes", "run-1")["completed_at"].to_list()
    assert (at[:2], at[2] is None) == ([None, LATER], False)
    assert ledger.never_sent("run-2") == set()


def test_runs_are_kept_apart_and_the_one_that_began_to_write_last_comes_first(ledger):
    ledger.intend(writes("a", run_id="z-first", intended_at=LATER))
    ledger.intend(writes("a", "b", run_id="a-second"))  # it applies an older plan
    ledger.complete(Result("a", "written"), run_id="a-second", completed_at=LATER)
    assert list(ledger.targets()) == ["a-second", "z-first"]
    assert outcomes(ledger, "z-first") == {"a": "intended"}
    ledger.complete(Result("a", "written"), run_id="z-first", completed_at=LATER)
    assert list(ledger.targets()) == ["a-second"]
    assert outcomes(ledger, "a-second") == {"a": "written", "b": "intended"}


@pytest.mark.parametrize(
    ("known", "is_open"),
    [({}, True), ({"written": 1}, False), ({"status": "failed"}, False)],
    ids=["cut off before it was counted", "counted", "failed before it wrote"],
)
def test_a_run_whose_writes_all_have_an_outcome_is_open_until_they_are_counted(ledger, known, is_open):
    ledger.store("runs", pl.DataFrame([row(1, status="started") | known], schema=polars_schema(Runs)))
    ledger.intend(writes("a", run_id="run-1", outcome="written"))
    assert list(ledger.targets()) == ["run-1"] * is_open


def test_the_ledger_of_a_newer_program_is_refused(opened, newer_program):
    with newer_program(), opened():
        pass
    with pytest.raises(AssetOwnersError, match=r"asset-owners 99\.0"):
        opened()


def test_a_ledger_that_is_damaged_is_refused_by_its_place(file, path):
    file.intend(writes("a"))
    file._execute("UPDATE writes SET old_values = '{'")
    with pytest.raises(AssetOwnersError, match=str(path)):
        file.rows("owner_writes", "run-1")


def locked(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    return other


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"garbage" * 1000), locked])
def test_a_ledger_that_cannot_be_opened_is_named(tmp_path, monkeypatch, spoil):
    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda *where, **how: connect(*where, **how | {"timeout": 0.1}))
    tables = Tables(tmp_path, "corp")
    assert not tables.reads_ledger()
    with tables.ledger() as ledger:
        assert tables.reads_ledger()
    spoilt = spoil(Path(ledger.place))
    with pytest.raises(AssetOwnersError, match=ledger.place), tables.ledger():
        pytest.fail("it was opened")
    if isinstance(spoilt, sqlite3.Connection):
        spoilt.close()


def test_a_driver_that_is_missing_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", "postgresql://db/owners")
    monkeypatch.delitem(sys.modules, "resources.ledger.postgres")
    monkeypatch.delattr("resources.ledger.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"driver cannot be loaded .*'psycopg\[binary\]'"):
        Tables(tmp_path, "corp").ledger().__enter__()
    [finding] = ledger_findings("postgresql://db/owners")
    assert finding.state == "wrong"
