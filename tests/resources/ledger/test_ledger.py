import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from upath import UPath

from ownership.declaration import polars_schema, validated
from ownership.tables import TABLES, Coverage, OwnerWrites, Runs
from resources.errors import AssetOwnersError, ConfigurationError
from resources.ledger import ledger_findings, open_ledger
from resources.ledger.ledger import Ledger, Result
from resources.store.forget import Forgetting, forget
from resources.store.tables import Tables
from tests.ownership.builders import table
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


def test_what_other_runs_stored_is_known_whichever_run_asks(ledger):
    kept = pl.DataFrame(schema=polars_schema(Coverage))
    for run_id in ("a", "b"):
        assert not ledger.has_stored("coverage", except_run="a")
        ledger.store("coverage", kept, run_id=run_id)
    assert all(ledger.has_stored("coverage", except_run=run_id) for run_id in (None, "a", "b"))


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
    ("known", "is_pending"),
    [({}, True), ({"written": 1}, False), ({"status": "failed"}, False)],
    ids=["cut off before it was counted", "counted", "failed before it wrote"],
)
def test_a_run_whose_writes_all_have_an_outcome_is_pending_until_they_are_counted(ledger, known, is_pending):
    ledger.store("runs", pl.DataFrame([row(1, status="started") | known], schema=polars_schema(Runs)))
    ledger.intend(writes("a", run_id="run-1", outcome="written"))
    assert list(ledger.targets()) == ["run-1"] * is_pending


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


COVERED = [
    {"run_id": run_id, "department": None, "hosts": 2, "owned": 1, "ended_at": LATER}
    for run_id in ("run-0", "run-1")
]


def test_what_a_ledger_holds_when_it_begins_stays(ledger):
    ledger.intend(writes("a"))
    ledger.store("coverage", table(Coverage, COVERED[1]), run_id="run-1")
    for _ in ("once", "of another process, at the same time"):
        ledger.begin(
            {"owner_writes": writes("a", "b", outcome="failed"), "coverage": table(Coverage, *COVERED)}
        )
    assert outcomes(ledger) == {"a": "intended", "b": "failed"}
    assert ledger.never_sent("run-1") == {"a"}
    assert ledger.rows("coverage").sort("run_id").to_dicts() == COVERED


@pytest.fixture(
    params=["file", *(pytest.param(name, marks=pytest.mark.slow) for name in ("database", "moved"))]
)
def lose(request, monkeypatch):
    """Loses the ledger of tables; a run that is killed once it has opened the new one leaves it empty."""

    def use_database():
        new_database = request.getfixturevalue("postgres").new_database
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", new_database())

    if request.param == "database":
        use_database()

    def lose_ledger(tables, *, opened):
        for file in tables.disk.glob("ledger.sqlite*"):
            file.unlink()
        if request.param == "database":
            use_database()
        if opened:
            with open_ledger(tables.disk, tables.folder):
                pass
        if request.param == "moved":
            use_database()

    return lose_ledger


def forget_nobody(tables):
    with tables.changing(), tables.ledger() as ledger:
        forget(tables, ledger, Forgetting("x", {}, {}, {}, ()), really=True)


FIRST = {
    "a run": lambda tables: tables.append("runs", table(Runs, row(2)), run_id="run-2"),
    "acknowledging": lambda tables: tables.append(
        "acknowledged_conflicts", tables.read("acknowledged_conflicts").collect()
    ),
    "forgetting": forget_nobody,
    "reading": lambda tables: tables.rows("owner_writes"),
}


@pytest.mark.usefixtures("no_catalogue")
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_ledger_that_was_lost_begins_with_what_analysts_see_whoever_is_the_first(
    tmp_path, lose, first, opened
):
    tables = Tables(tmp_path, "corp")
    tables.prepare()
    known = {"runs": table(Runs, row(1)), "owner_writes": writes("a"), "coverage": table(Coverage, *COVERED)}
    with tables.ledger() as ledger:
        for name, rows in known.items():
            ledger.store(name, rows)
        tables.publish(ledger)
    lose(tables, opened=opened)
    first(tables)
    for name, rows in known.items():
        for found in (tables.rows(name), tables.read(name).collect()):
            assert found.join(rows, on=TABLES[name].__key__, how="semi", nulls_equal=True).equals(rows)
    with tables.ledger():
        (tables.folder / "owner_writes.parquet").unlink()
    tables.prepare()
    assert tables.read("owner_writes").collect().equals(writes("a")), (
        "a copy that was lost comes back as well"
    )


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.slow)])
def two(request, monkeypatch, tmp_path):
    """Two ledgers of the same tables, each for a process of its own: of two homes, or one in a database."""
    url = request.param == "database" and request.getfixturevalue("postgres").new_database()

    def use(number):
        monkeypatch.setattr("resources.store.tables._COMPARED", set())
        in_database = url and number == 1
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url if in_database else "")
        return Tables(tmp_path / f"home-{0 if url else number}", "corp", location=UPath(tmp_path / "tables"))

    return use


@pytest.mark.usefixtures("no_catalogue")
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_ledger_that_is_older_than_the_tables_takes_over_what_it_lacks(two, first):
    """As when it comes back from a backup, or with a machine whose work another one did meanwhile."""
    known = list[tuple[str, pl.DataFrame]]()
    for number in (1, 3):
        tables = two(number)
        tables.prepare()
        coverage, covered = table(Coverage, COVERED[number // 2]), f"run-{number // 2}"
        of_run = {"runs": table(Runs, row(number)), "owner_writes": writes(str(number), outcome="written")}
        with tables.ledger() as ledger:
            for name, rows in of_run.items():
                ledger.store(name, rows)
            ledger.store("coverage", coverage, run_id=covered)
            tables.publish(ledger)
        known += [*of_run.items(), ("coverage", coverage)]
    tables = two(1)
    first(tables)
    tables.append("coverage", table(Coverage, {**COVERED[0], "run_id": "run-9"}), run_id="run-9")
    for name, rows in known:
        for found in (tables.rows(name), tables.read(name).collect()):
            assert found.join(rows, on=TABLES[name].__key__, how="semi", nulls_equal=True).equals(rows)


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
