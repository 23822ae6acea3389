"""Tables in an object store: an S3 service in this process, reached as a real one would be."""

import logging
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest
from upath import UPath

from ownership.rules import Rules
from ownership.windows import Window
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.findings import check_store
from resources.settings import tables_location
from resources.store.catalogue import catalogue_path, register_file_system
from resources.store.files import parquet_files
from resources.store.forget import Forgetting, forget, known_persons, require_writable
from resources.store.retention import delete_outdated
from resources.store.tables import Tables
from tests.resources.store.test_tables import DAY, LATER, NEXT, RUN, events, hosts, logons, writes

pytestmark = pytest.mark.slow


@pytest.fixture
def tables(request, tmp_path):
    request.getfixturevalue("object_store")
    tables = Tables(tmp_path, "corp", location=tables_location())
    tables.prepare()
    return tables


quickly = pytest.mark.usefixtures("no_catalogue")
"""Half of the time that it takes to prepare tables here."""


def seen(tables, query):
    """What an analyst finds who has let DuckDB reach the store."""
    with duckdb.connect(catalogue_path(tables.home), read_only=True) as session:
        register_file_system(session, tables_location())
        return session.sql(query).fetchall()


def test_days_and_snapshots_are_kept_in_the_store_alone(tables):
    for day, number in ((DAY, 1), (NEXT, 2), (DAY, 3)):
        tables.write_days([logons(day, events=number)])
    tables.write("inventory_hosts", hosts("a", "b"), run_id=RUN, publish=True)
    tables.append("owner_writes", writes("a", "written"), run_id=RUN)
    assert events(tables, [DAY, NEXT, date(2026, 3, 4)]) == [3, 3, 2, 2]
    assert tables.logon_days(Window(DAY, date(2026, 3, 30)), run_id=RUN)["day"].to_list() == [DAY, NEXT]
    assert tables.read("inventory_hosts").collect()["host_id"].to_list() == ["a", "b"]
    assert tables.writes().collect()["outcome"].to_list() == ["written"]
    assert seen(tables, "SELECT sum(events) FROM corp.logon_counts") == [(10,)]
    assert seen(tables, "SELECT host_id, outcome FROM corp.owner_writes") == [("a", "written")]
    assert list(tables.home.rglob("*.parquet")) == []


@quickly
def test_a_person_is_forgotten_in_the_store_and_in_a_shared_ledger(tables, monkeypatch, postgres):
    """Also in tables that lay in the home before; another instance's rows in the ledger stay."""
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", postgres.new_database())
    earlier, other = Tables(tables.home, "corp"), Tables(tables.home, "other")
    for each in (tables, earlier):
        each.write_days([logons(DAY)])
    for each in (tables, other):
        with each.ledger() as ledger:
            ledger.intend(writes("a", "failed", RUN))
    with tables.ledger() as ledger:
        for asked in ("ann", "u-1"):
            [person] = known_persons(tables, ledger, Rules()).find(asked)
            forget(tables, ledger, Forgetting.of_person(asked, person, rules=Rules()), really=True)
        [left] = ledger.rows("owner_writes", RUN).to_dicts()
    for each in (tables, earlier):
        counts = each.logon_counts([DAY], run_id=None).collect()
        assert counts["document_username"].str.starts_with("forgotten-").all()
    assert left["new_values"]["owner"].startswith("forgotten-")
    with other.ledger() as ledger:
        assert ledger.rows("owner_writes", RUN)["new_values"].struct.field("owner").to_list() == ["u-1"]


def test_a_store_that_can_only_be_read_is_told_before_anything_is_changed(tables, monkeypatch):
    def denied(*_, **__):
        raise PermissionError("Access Denied")

    require_writable(tables)
    monkeypatch.setattr(tables.folder.fs, "pipe_file", denied)
    (finding,) = check_store(tables.folder)
    assert (finding.state, "Access Denied" in finding.text) == ("wrong", True)
    with pytest.raises(PermissionError, match="Access Denied"):
        require_writable(tables)


def requests_of(call, caplog):
    """How many requests it takes; the service logs a line for each."""
    caplog.set_level(logging.INFO, "werkzeug")
    caplog.clear()
    call()
    return len(caplog.records)


def test_to_prepare_a_run_takes_no_more_requests_the_more_instances_there_are(tables, caplog):
    alone = requests_of(tables.prepare, caplog)
    Tables(tables.home, "other", location=tables_location()).prepare()
    assert requests_of(tables.prepare, caplog) == alone > 0


@quickly
def test_to_read_a_window_takes_no_request_for_a_day_without_logons(tables, caplog):
    tables.write_days([logons(DAY), logons(NEXT)])

    def requests_until(last):
        return requests_of(lambda: tables.logon_counts(Window(DAY, last), run_id=RUN).collect(), caplog)

    assert requests_until(NEXT) == requests_until(NEXT + timedelta(days=300)) > 0
    assert tables.logon_counts(Window(DAY, date(2027, 1, 1)), run_id=RUN).collect().height == 4


@quickly
def test_another_machine_s_files_are_seen_immediately(tables, tmp_path):
    location = UPath(tables_location(), skip_instance_cache=True)  # knows nothing of what is listed here
    tables.logon_days([DAY], run_id=RUN)
    Tables(tmp_path / "other", "corp", location=location).write_days([logons(events=7)])
    assert events(tables) == [7, 7]


@quickly
def test_what_is_older_than_the_instance_keeps_is_deleted(tables):
    tables.write_days([logons(DAY), logons(NEXT)])
    tables.write("owner_writes", writes("a", "planned"), run_id=RUN, publish=False)
    tables.append("owner_writes", writes("a", "written"), run_id=RUN)
    assert delete_outdated(tables, evidence_before=NEXT, history_before=LATER - timedelta(days=9_999)) == 2
    assert tables.holds("owner_writes", RUN)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert delete_outdated(tables, evidence_before=NEXT, history_before=tomorrow) == 2
    assert not tables.holds("owner_writes", RUN)
    assert tables.writes().collect().is_empty()
    assert events(tables, [DAY, NEXT]) == [1, 1]


@quickly
def test_what_another_machine_deletes_meanwhile_is_not_a_failure(tables, monkeypatch):
    tables.write("owner_writes", writes("a", "planned"), run_id=RUN, publish=False)

    def listed(folder):
        found = parquet_files(folder)
        for file in found:
            file.unlink()
        return found

    monkeypatch.setattr("resources.store.retention.parquet_files", listed)
    assert delete_outdated(tables, evidence_before=DAY, history_before=datetime.now(UTC)) == 0


@pytest.mark.usefixtures("object_store")
def test_no_thread_outlives_the_program_that_asked_the_store():
    """DuckDB would print forty lines about it into the log of each run that a service executes."""
    script = """
import atexit, threading
atexit.register(lambda: print(threading.active_count()))
from resources.settings import tables_location
(tables_location() / "file").write_bytes(b"")
print(threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)  # noqa: S603  (ours)
    asked, ended = map(int, done.stdout.split())
    assert (asked > 1, ended) == (True, 1)


@pytest.mark.usefixtures("object_store")
@pytest.mark.parametrize(
    "way",
    [
        Tables.prepare,
        lambda tables: tables.holds("owner_decisions"),
        lambda tables: tables.append("owner_writes", writes("a", "written"), run_id=RUN),
    ],
)
def test_a_store_that_refuses_is_named_with_the_setting(monkeypatch, tmp_path, way):
    monkeypatch.setenv("ASSET_OWNERS_TABLES", "s3://warehouse/tables")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    location = UPath(tables_location(), skip_instance_cache=True)
    with pytest.raises(Exception) as raised:  # noqa: PT011  (each store's library has errors of its own)
        way(Tables(tmp_path, "corp", location=location))
    assert "ASSET_OWNERS_TABLES: s3://warehouse/tables " in str(operator_message(raised.value))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/tables", "gcsfs"),
        ("nonsense://x", "nonsense"),
        ("ftp://127.0.0.1:1/x", "Connection refused"),  # this driver connects as it is made
    ],
)
def test_a_url_where_nothing_can_be_stored_is_told(monkeypatch, url, says):
    monkeypatch.setenv("ASSET_OWNERS_TABLES", url)
    with pytest.raises(ConfigurationError, match=f"ASSET_OWNERS_TABLES: .*{says}"):
        tables_location()
