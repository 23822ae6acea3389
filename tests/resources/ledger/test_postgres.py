"""The ledger in PostgreSQL, as far as it differs from the one in a file."""

import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import quote, urlsplit

import polars as pl
import pytest

from ownership.declaration import Layout, polars_schema
from ownership.tables import Runs
from resources.errors import AssetOwnersError
from resources.ledger import ledger_findings
from resources.ledger.ledger import Result
from resources.ledger.postgres import PostgresLedger
from resources.settings import without_password
from resources.store.tables import Tables, of_layout
from tests.pipelines.test_metrics import row
from tests.resources.clock import interrupted
from tests.resources.ledger.test_ledger import LATER, outcomes, writes

pytestmark = pytest.mark.slow

PASSWORD = "correct horse/battery@staple%"


@pytest.fixture
def url(postgres):
    return postgres.new_database()


def database(url):
    return urlsplit(url).path[1:]


@pytest.fixture
def open_one(url):
    return lambda key="corp": PostgresLedger(url, lambda: key)


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path / "home", "corp")


def test_one_table_keeps_the_rows_of_all_ledgers_and_none_sees_those_of_another(open_one, postgres, url):
    with open_one("berlin") as berlin, open_one("paris") as paris:
        berlin.intend(writes("a", "b"))
        paris.intend(writes("a", outcome="failed"))
        berlin.mark_attempted("run-1", "a")
        berlin.complete(Result("b", "written"), run_id="run-1", completed_at=LATER)
        assert (outcomes(berlin), berlin.never_sent("run-1")) == ({"a": "intended", "b": "written"}, {"b"})
        assert (outcomes(paris), paris.never_sent("run-1")) == ({"a": "failed"}, {"a"})
        paris.clear()
        assert list(paris.targets()) == []
        assert list(berlin.targets()) == ["run-1"]
    assert postgres.ask("SELECT DISTINCT ledger FROM asset_owners.all_writes", database=database(url)) == [
        ("berlin",)
    ]


def test_of_those_who_come_first_at_the_same_time_all_find_the_tables(open_one):
    def intend(number):
        with open_one() as ledger:
            ledger.intend(writes("a", run_id=f"run-{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(intend, range(8)))
    with open_one() as ledger:
        assert set(ledger.targets()) == {f"run-{number}" for number in range(8)}


def test_what_is_stored_is_on_the_servers_disk_also_where_that_is_not_usual_there(open_one, postgres, url):
    postgres.ask(f"ALTER ROLE {database(url)} SET synchronous_commit = off")
    with open_one() as ledger:
        assert ledger._execute("SHOW synchronous_commit") == [("on",)]


def test_where_another_server_took_over_the_inventory_alone_tells(open_one, postgres, url):
    """It may lack what was stored last, and counts its timeline on."""
    with open_one() as ledger:
        ledger.intend(writes("a"))
        assert ledger.never_sent("run-1") == {"a"}
        postgres.ask("UPDATE asset_owners.all_writes SET boot = '00000000'", database=database(url))
        assert ledger.never_sent("run-1") == set()


def test_who_is_interrupted_leaves_a_ledger_that_goes_on(open_one):
    with open_one() as ledger:
        ledger.intend(writes("a"))
        with interrupted(after=0.2):
            ledger._execute("SELECT pg_sleep(1)")
        assert outcomes(ledger) == {"a": "intended"}


def test_a_lost_session_is_told_once_and_for_all(open_one, postgres, url):
    """With the session of the ledger the lock is lost, so a run that has lost it sends nothing more."""
    with open_one() as ledger:
        ledger.intend(writes("a"))
        ledger.lock("corp", "The lock")
        assert postgres.cut_off(database(url)) == 1
        for ask in (ledger.require_lock, lambda: ledger.mark_attempted("run-1", "a"), ledger.targets):
            with pytest.raises(
                AssetOwnersError, match=r"terminating connection.*nothing more is sent"
            ) as told:
                ask()
            assert without_password(url) in str(told.value)
    with open_one() as ledger:
        ledger.lock("corp", "The lock, which went with the session")
        assert ledger.never_sent("run-1") == {"a"}


@contextmanager
def frozen(postgres, url):
    """The server's process of the one session in a database neither goes on nor ends."""
    [(process,)] = postgres.ask("SELECT pid FROM pg_stat_activity WHERE datname = %s", database(url))
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_server_that_never_answers_ends_the_run_also_one_that_is_told_to_end(
    open_one, postgres, url, monkeypatch
):
    for limit in ("ANSWER_SECONDS", "_LAST_ANSWER_SECONDS"):
        monkeypatch.setattr(f"resources.ledger.postgres.{limit}", 0.5)
    with open_one() as ledger:
        ledger.intend(writes("a"))
        with frozen(postgres, url):
            for _ in range(2):
                with pytest.raises(AssetOwnersError, match="nothing more is sent"):
                    ledger.require_lock()
    with ExitStack() as ends:
        ledger = ends.enter_context(open_one())
        with frozen(postgres, url):
            with interrupted(after=0.2):
                ledger.require_lock()
            began = time.monotonic()
            ends.close()
            assert time.monotonic() - began < 10


def test_a_pooler_is_refused(url, monkeypatch):
    """It hands sessions on, and gives clients a process number of its own."""
    monkeypatch.setattr("psycopg.ConnectionInfo.backend_pid", 1)
    with pytest.raises(AssetOwnersError, match="pooler"):
        PostgresLedger(url, lambda: "corp")


@pytest.fixture
def guarded(postgres):
    """A database of a user with a password in which every other character has to be escaped."""
    return postgres.new_database(PASSWORD).replace(PASSWORD, quote(PASSWORD, safe=""))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r":\d+/", ":1/"),
        (r"127\.0\.0\.1", "nowhere.invalid"),
        ("correct", "incorrect"),
        ("$", "?passfrase=x"),
        ("%40", "%4"),
        ("", "its user may create nothing there"),
    ],
)
def test_a_database_that_cannot_be_used_is_told_without_its_password(
    guarded, postgres, tables, monkeypatch, old, new
):
    address = re.sub(old, new, guarded) if old else guarded
    if not old:
        postgres.ask(f"ALTER DATABASE {database(guarded)} OWNER TO admin")
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", address)
    with pytest.raises(AssetOwnersError, match=r"^ASSET_OWNERS_JOURNAL: ") as told, tables.ledger():
        pytest.fail("it was opened")
    [finding] = ledger_findings(address)
    assert (finding.state, f"{finding.what}: {finding.text}") == ("wrong", str(told.value))
    for part in ("horse", "battery", "staple", "\n"):
        assert part not in str(told.value)


def test_the_password_may_come_from_the_places_of_postgresql(guarded, postgres, monkeypatch):
    address = guarded.replace(":" + quote(PASSWORD, safe=""), "")
    with pytest.raises(AssetOwnersError, match="no password supplied"):
        PostgresLedger(address, lambda: "corp")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert [finding.state for finding in ledger_findings(address)] == ["ok"]
    assert postgres.ask("SELECT count(*) FROM asset_owners.all_writes", database=database(guarded)) == [(0,)]


def test_a_database_takes_over_the_ledger_of_the_home_once(tables, url, monkeypatch):
    tables.append("runs", pl.DataFrame([row(1)], schema=polars_schema(Runs)))
    with tables.ledger() as file:
        file.intend(writes("a", "b"))
        file.complete(Result("b", "failed", "No."), run_id="run-1", completed_at=LATER)
        before = {table: file.rows(table) for table in of_layout(Layout.LEDGER)}
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    for _ in ("moved", "again"):
        tables.prepare()
        with tables.ledger() as ledger:
            assert all(ledger.rows(table).equals(rows) for table, rows in before.items())
            assert ledger.never_sent("run-1") == set(), "whether requests went out is not known there"
    assert not [*tables.disk.glob("ledger.sqlite*")]


def test_a_ledger_goes_into_another_database_by_the_commands_of_the_guide(
    tables, postgres, url, monkeypatch, tmp_path
):
    """`docs/operations.md` has them."""
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    with tables.ledger() as ledger:
        ledger.intend(writes("a"))
    postgres.ask(f"CREATE DATABASE {database(url)}_2 OWNER {database(url)}")
    other, dump = f"{url}_2", tmp_path / "ledger.sql"
    for words in (
        ["pg_dump", "--schema=asset_owners", f"--file={dump}", url],
        ["psql", "--set", "ON_ERROR_STOP=1", f"--file={dump}", other],
        ["psql", "--command=UPDATE asset_owners.all_writes SET boot = NULL", other],
    ):
        subprocess.run([postgres.programs / words[0], *words[1:]], check=True)  # noqa: S603 (our own command)
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", other)
    with tables.ledger() as ledger:
        assert ledger.rows("owner_writes", "run-1").equals(writes("a"))
