"""The journal in PostgreSQL, as far as it differs from the one in a file."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import dagster as dg
import pytest
from upath import UPath

from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import journal_url, tables_location, without_password
from resources.store.tables import Tables
from resources.writeback.journal import Journal, Result
from resources.writeback.journals import has_journal, journal_findings, open_journal, take_over
from resources.writeback.postgres import PostgresJournal
from tests.resources.writeback.test_journal import LATER, outcomes, writes

PASSWORD = "correct horse/battery@staple%"
KEEPALIVES = ("idle", "interval", "count")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def url(postgres):
    return postgres.new_database()


def database(url):
    return urlsplit(url).path[1:]


@pytest.fixture
def open_one(url):
    return lambda key="corp": PostgresJournal(url, lambda: key)


@pytest.fixture
def tables(tmp_path):
    tables = Tables(tmp_path / "home", "corp")
    tables.prepare()
    return tables


def test_one_table_keeps_the_rows_of_all_journals_and_none_sees_those_of_another(open_one, postgres, url):
    with open_one("berlin") as berlin, open_one("paris") as paris:
        berlin.intend(writes("a", "b"))
        paris.intend(writes("a", outcome="failed"))
        berlin.attempting("run-1", "a")
        berlin.complete(Result("b", "written"), run_id="run-1", completed_at=LATER)
        assert (outcomes(berlin), berlin.unsent("run-1")) == ({"a": "intended", "b": "written"}, {"b"})
        assert (outcomes(paris), paris.unsent("run-1")) == ({"a": "failed"}, {"a"})
        paris.delete("run-1")
        assert list(paris.targets()) == []
        assert list(berlin.targets()) == ["run-1"]
    assert postgres.ask("SELECT DISTINCT journal FROM asset_owners.all_writes", database=database(url)) == [
        ("berlin",)
    ]


def test_of_those_who_come_first_at_once_all_find_the_tables(open_one):
    def intend(number):
        with open_one() as journal:
            journal.intend(writes("a", run_id=f"run-{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(intend, range(8)))
    with open_one() as journal:
        assert set(journal.targets()) == {f"run-{number}" for number in range(8)}


def test_threads_share_a_journal(open_one):
    hosts = [f"h-{number}" for number in range(60)]

    def write(host_id):
        journal.attempting("run-1", host_id)
        journal.complete(Result(host_id, "written"), run_id="run-1", completed_at=LATER)

    with open_one() as journal, ThreadPoolExecutor(8) as pool:
        journal.intend(writes(*hosts))
        list(pool.map(write, hosts))
        assert set(outcomes(journal).values()) == {"written"}


def test_what_is_stored_is_on_the_servers_disk_also_where_that_is_not_usual_there(open_one, postgres, url):
    postgres.ask(f"ALTER ROLE {database(url)} SET synchronous_commit = off")
    with open_one() as journal:
        assert journal._execute("SHOW synchronous_commit") == [("on",)]


def test_a_machine_that_is_gone_without_a_word_keeps_nobody_waiting_for_long(open_one):
    """That the network is silent cannot be tried here; that the server's kernel asks, it tells."""
    with open_one() as journal:
        asked = {name: int(*journal._execute(f"SHOW tcp_keepalives_{name}")[0]) for name in KEEPALIVES}
    assert asked["idle"] + asked["interval"] * asked["count"] <= 30


def test_where_another_server_took_over_the_inventory_alone_tells(open_one, postgres, url):
    """It may lack what was stored last, and counts its timeline on."""
    with open_one() as journal:
        journal.intend(writes("a"))
        assert journal.unsent("run-1") == {"a"}
        postgres.ask("UPDATE asset_owners.all_writes SET boot = '00000000'", database=database(url))
        assert journal.unsent("run-1") == set()


@contextmanager
def interrupted(*, after):
    """What is done here is interrupted after so many seconds, as a run is that was told to end."""

    def interrupt(*_):
        raise dg.DagsterExecutionInterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        with pytest.raises(dg.DagsterExecutionInterruptedError):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)


def test_who_is_interrupted_leaves_a_journal_that_goes_on(open_one):
    with open_one() as journal:
        journal.intend(writes("a"))
        with interrupted(after=0.2):
            journal._execute("SELECT pg_sleep(1)")
        assert outcomes(journal) == {"a": "intended"}


@pytest.mark.parametrize("how", ["its session is ended", "the server is restarted"])
def test_a_lost_session_is_told_once_and_for_all(open_one, postgres, url, how):
    with open_one() as journal:
        journal.intend(writes("a"))
        assert journal.claim("corp")
        if how == "the server is restarted":
            postgres.stop()
            postgres.start()
        else:
            assert postgres.cut_off(database(url)) == 1
        for ask in (journal.require_claim, lambda: journal.attempting("run-1", "a"), journal.targets):
            with pytest.raises(AssetOwnersError) as told:
                ask()
            assert f"the journal of writes in {without_password(url)} cannot be used: " in str(told.value)
            assert "terminating connection due to administrator command" in str(told.value)
            assert "so nothing more is sent to the inventory. Run again" in str(told.value)
    with open_one() as journal:
        assert journal.claim("corp"), "the lock went with the session"
        assert outcomes(journal) == {"a": "intended"}
        assert journal.unsent("run-1") == {"a"}


@contextmanager
def frozen(postgres, url):
    """The server's process of the one session in a database neither goes on nor ends."""
    [(process,)] = postgres.ask("SELECT pid FROM pg_stat_activity WHERE datname = %s", database(url))
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_server_that_never_answers_ends_the_run(open_one, postgres, url, monkeypatch):
    monkeypatch.setattr("resources.writeback.postgres.ANSWER_SECONDS", 0.5)
    with open_one() as journal:
        journal.intend(writes("a"))
        with frozen(postgres, url):
            for _ in range(2):
                with pytest.raises(AssetOwnersError, match=r"no answer for 0\.5 s.*nothing more is sent"):
                    journal.require_claim()
    with open_one() as journal:
        assert outcomes(journal) == {"a": "intended"}


def test_a_server_that_never_answers_holds_no_run_that_is_told_to_end(open_one, postgres, url, monkeypatch):
    monkeypatch.setattr("resources.writeback.postgres._LAST_ANSWER_SECONDS", 0.5)
    began = time.monotonic()
    with ExitStack() as ends:
        journal = ends.enter_context(open_one())
        with frozen(postgres, url):
            with interrupted(after=0.2):
                journal.require_claim()
            ends.close()
            assert time.monotonic() - began < 10


# What an operator does wrong


@contextmanager
def pooler(url):
    """A server that hands sessions on, and tells clients a process number of its own, as poolers do."""
    parts = urlsplit(url)

    def hand_on(source, target, change=lambda data: data):
        with closing(source), closing(target):
            while data := source.recv(65536):
                target.sendall(change(data))

    def other_process(data):
        head, key, tail = data.partition(b"K\0\0\0\x0c")
        return head + key + (struct.pack("!i", 1) + tail[4:] if key else b"")

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((parts.hostname, parts.port))
            for ends in ((client, server), (server, client, other_process)):
                threading.Thread(target=hand_on, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield url.replace(f":{parts.port}/", f":{listener.getsockname()[1]}/") + "?sslmode=disable"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_pooler_is_refused(url):
    with (
        pooler(url) as address,
        pytest.raises(AssetOwnersError, match=r"a connection pooler answers at .*: name the address of"),
    ):
        PostgresJournal(address, lambda: "corp")


@pytest.fixture
def guarded(postgres):
    """A database of a user with a password in which every other character has to be escaped."""
    return postgres.new_database(PASSWORD).replace(PASSWORD, quote(PASSWORD, safe=""))


def take_rights(postgres, name):
    postgres.ask(f"ALTER DATABASE {name} OWNER TO admin")


def occupy(postgres, name):
    postgres.ask("CREATE SCHEMA asset_owners", database=name)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r":\d+/", ":1/", "refused.*; check that the server runs and lets this machine in"),
        (r"127\.0\.0\.1", "nowhere.invalid", "nowhere.invalid.*; check that the server runs"),
        ("$", "_none", "does not exist; check that the server runs"),
        ("correct", "incorrect", "password authentication failed.*, and the address, user and password"),
        ("$", "?passfrase=x", "check the names of the parameters, and write % as %25"),
        ("$", "?connect_timeout=soon", "connect_timeout.*; check that the server runs"),
        (r":\d+/", ":54x2/", "54x2.*; check that the server runs"),
        ("%40", "%4", "check the names of the parameters, and write % as %25"),
        ("", take_rights, "permission denied.*must own the schema asset_owners, or may create it"),
        ("", occupy, "permission denied.*must own the schema asset_owners, or may create it"),
    ],
)
def test_a_database_that_cannot_be_used_is_told_without_its_password(
    guarded, postgres, tables, monkeypatch, old, new, says
):
    if callable(new):
        address = guarded
        new(postgres, database(guarded))
    else:
        address = re.sub(old, new, guarded)
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", address)
    with (
        pytest.raises(AssetOwnersError, match=f"^ASSET_OWNERS_JOURNAL: .*{says}") as told,
        open_journal(tables),
    ):
        pytest.fail("it was opened")
    [finding] = journal_findings(address)
    assert (finding.state, f"{finding.what}: {finding.text}") == ("wrong", str(told.value))
    for part in ("horse", "battery", "staple"):
        assert part not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_database_that_can_be_used_is_told(guarded, postgres):
    [finding] = journal_findings(guarded)
    assert (finding.state, finding.text) == ("ok", "answers, and the user may keep the journal there")
    assert postgres.ask("SELECT count(*) FROM asset_owners.all_writes", database=database(guarded)) == [(0,)]


def test_the_password_may_come_from_the_places_of_postgresql(guarded, monkeypatch):
    address = guarded.replace(":" + quote(PASSWORD, safe=""), "")
    with pytest.raises(AssetOwnersError, match="no password supplied"):
        PostgresJournal(address, lambda: "corp")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with PostgresJournal(address, lambda: "corp") as journal:
        assert journal.targets() == {}


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///var/journal",
        "host=db dbname=owners password=correct",
        "postgresql://user:correct@horse@db/owners",
        "postgresql://user:correct/horse@db/owners",
        "postgresql://user:correct:horse@db/owners",
        "postgresql://user:correct?horse@db/owners",
        "postgresql://user:correct#horse@db/owners",
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(monkeypatch, address):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", address)
    with pytest.raises(ConfigurationError, match="ASSET_OWNERS_JOURNAL is no address of a") as told:
        journal_url()
    assert "correct" not in str(told.value)
    assert "horse" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:secret@db:5432/owners?sslmode=require", "postgresql://ann@db:5432/owners"),
        ("postgres://ann@[::1]/owners", "postgres://ann@[::1]/owners"),
        ("postgresql://a,b:5433/owners", "postgresql://a,b:5433/owners"),
        ("postgresql:///owners?host=/run/postgresql&password=secret", "postgresql:///owners"),
    ],
)
def test_an_address_is_shown_without_its_password(monkeypatch, address, shown):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", address)
    assert without_password(journal_url() or "") == shown


def test_a_driver_that_is_missing_is_told(monkeypatch, tables):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", "postgresql://db/owners")
    monkeypatch.delitem(sys.modules, "resources.writeback.postgres")
    monkeypatch.delattr("resources.writeback.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"driver cannot be loaded .*'psycopg\[binary\]'"):
        open_journal(tables).__enter__()
    [finding] = journal_findings("postgresql://db/owners")
    assert finding.state == "wrong"


def test_the_driver_loads_only_where_it_is_needed():
    code = "import sys, assets_defs.writing, pipelines.cli.check; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0  # noqa: S603 (ours)


# Which journal an instance has


@pytest.fixture(params=["folder", "object store"])
def location(request, tmp_path, monkeypatch):
    if request.param == "folder":
        monkeypatch.setenv("ASSET_OWNERS_TABLES", str(tmp_path / "shared"))
    else:
        request.getfixturevalue("object_store")
    return tables_location()


def test_tables_that_machines_share_have_one_journal_and_others_another(tmp_path, url, location, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    a, b = (Tables(tmp_path / name, "corp", location=location) for name in "ab")
    other = Tables(tmp_path / "c", "corp")
    assert not has_journal(a)
    with open_journal(a) as journal:
        journal.intend(writes("h"))
    assert has_journal(b)
    with open_journal(b) as journal:
        assert outcomes(journal) == {"h": "intended"}
    with open_journal(other) as journal:
        assert list(journal.targets()) == []


def test_of_machines_that_come_first_at_once_all_have_the_same_journal(tmp_path, url, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    location = UPath(tmp_path / "shared")

    def intend(number):
        tables = Tables(tmp_path / str(number), "corp", location=location)
        with open_journal(tables) as journal:
            journal.intend(writes("a", run_id=f"run-{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(intend, range(8)))
    with open_journal(Tables(tmp_path / "0", "corp", location=location)) as journal:
        assert set(journal.targets()) == {f"run-{number}" for number in range(8)}


def test_what_was_open_in_the_file_moves_into_the_database(tables, url, monkeypatch):
    with open_journal(tables) as file:
        assert type(file) is Journal
        file.intend(writes("a", "b"))
        file.attempting("run-1", "a")
        file.complete(Result("b", "failed", "No."), run_id="run-1", completed_at=LATER)
        before = file.rows("run-1")
        take_over(file, tables)
        assert file.rows("run-1").equals(before), "it is the one in use"
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    with open_journal(tables) as journal:
        take_over(journal, tables)
        take_over(journal, tables)
        assert journal.rows("run-1").equals(before)
        assert journal.unsent("run-1") == set(), "whether requests went out is not known there"
    with Journal(tables.journal) as file:
        assert list(file.targets()) == []
