import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import polars as pl
import pytest
from upath import UPath

from ownership.declaration import InvalidTableError, empty, polars_schema
from ownership.tables import TABLES, InventoryHosts, LogonDays, OwnerDecisions
from ownership.windows import Window, days_to_fetch
from resources import locks
from resources.errors import AssetOwnersError, ConfigurationError
from resources.store import tables as module
from resources.store.catalogue import catalogue_path
from resources.store.files import write_file
from resources.store.retention import delete_inputs, store_decisions
from resources.store.tables import Tables
from sandbox.stored_run import store_writes
from tests.ownership.builders import counts as counts_of
from tests.ownership.builders import host, logon_day, table
from tests.ownership.builders import hosts as rows_of_hosts
from tests.resources.writeback.world import TARGET, plan

DAY = date(2026, 3, 2)
NEXT = date(2026, 3, 3)
LATER = datetime(2026, 4, 1, tzinfo=UTC)
RUN = "run-1"


def logons(day=DAY, *, events=1, pairs=2):
    """A day's row of logon_days and its rows of logon_counts."""
    row = logon_day(day, pairs * events, fetched_at=LATER, settings_fingerprint="now")
    counts = counts_of(*((f"PC-{number}", "ann", events, day) for number in range(pairs)))
    return table(LogonDays, row), counts.collect()


def hosts(*host_ids):
    return rows_of_hosts(*(host(host_id) for host_id in host_ids))


def writes(host_id, outcome, run_id=RUN):
    return plan(host_id, outcome=outcome, run_id=run_id)


def events(tables, days=(DAY,), run_id=RUN):
    return tables.logon_counts(list(days), run_id=run_id).collect()["events"].to_list()


def seen(home, query):
    """What an analyst finds."""
    with duckdb.connect(catalogue_path(home), read_only=True) as session:
        return session.sql(query).fetchall()


WRITES = "SELECT host_id, outcome FROM corp.owner_writes ORDER BY ALL"


# What is stored


def test_days_are_kept_one_by_one_and_replaced_whole(tables):
    for day, number in ((DAY, 1), (NEXT, 2), (DAY, 3)):
        tables.write_days([logons(day, events=number)])
    assert events(tables) == [3, 3]
    assert events(tables, [DAY, NEXT, date(2026, 3, 4)]) == [3, 3, 2, 2]
    assert tables.logon_days(Window(DAY, date(2026, 3, 30)), run_id=RUN)["day"].to_list() == [DAY, NEXT]
    assert tables.logon_days([date(2026, 3, 4)], run_id=RUN).is_empty()


def test_days_of_one_run_are_seen_by_that_run_alone(tables, home):
    tables.write_days([logons(events=1)])
    tables.write_days([logons(events=5)], run_id="dry")
    tables.write_days([logons(NEXT, events=6)], run_id="dry")
    assert events(tables, [DAY, NEXT]) == [1, 1]
    assert events(tables, [DAY, NEXT], run_id="dry") == [5, 5, 6, 6]
    assert seen(home, "SELECT events FROM corp.logon_counts") == [(1,), (1,)]


def test_a_snapshot_is_its_runs_until_it_is_published(tables, home):
    tables.write("inventory_hosts", hosts("a"), run_id="first", publish=True)
    tables.write("inventory_hosts", hosts("a", "b"), run_id="dry", publish=False)
    assert tables.read("inventory_hosts").collect().height == 1
    assert seen(home, "SELECT host_id FROM corp.inventory_hosts") == [("a",)]
    assert tables.read("inventory_hosts", run_id="dry").collect().height == 2
    assert tables.read("inventory_hosts", run_id="other").collect().height == 1
    assert tables.read_own("inventory_hosts", "dry").height == 2
    assert tables.read_own("inventory_hosts", "other").equals(empty(InventoryHosts))


def test_what_runs_wrote_stands_side_by_side(tables, home):
    tables.write("owner_writes", writes("a", "planned"), run_id=RUN, publish=False)
    assert tables.run_writes(RUN)["outcome"].to_list() == ["planned"]
    assert seen(home, WRITES) == [], "a plan is nothing that was written"
    tables.append("owner_writes", writes("a", "intended"), run_id=RUN)
    tables.append("owner_writes", writes("a", "written"), run_id=RUN)
    tables.append("owner_writes", writes("b", "failed", "run-2"), run_id="run-2")
    assert tables.run_writes(RUN)["outcome"].to_list() == ["written"]
    expected = [("a", "written"), ("b", "failed")]
    assert sorted(tables.writes().collect().select("host_id", "outcome").rows()) == expected
    assert seen(home, WRITES) == expected
    assert [tables.has_written(run_id) for run_id in (RUN, "run-2", "run-3")] == [True, True, False]


# What is refused


ROW, COUNTS = logons(events=9)
NO_EVENTS = COUNTS.with_columns(events=0 * pl.col("events"))
TWICE = pl.concat([hosts("b"), hosts("b")])
MORE_THAN_MATCH = ROW.with_columns(lacking_user=99 + pl.col("matching"))


@pytest.mark.parametrize(
    ("store", "says"),
    [
        (lambda to: to.write_days([logons(NEXT), (ROW, NO_EVENTS)]), "events"),
        (lambda to: to.write_days([(MORE_THAN_MATCH, COUNTS)]), "lacking_user"),
        (lambda to: to.write("inventory_hosts", TWICE, run_id="run-2", publish=True), "host_id='b'"),
        (lambda to: to.append("owner_writes", writes("", "written"), run_id=RUN), "host_id"),
    ],
)
def test_what_is_not_valid_changes_nothing(tables, store, says):
    tables.write_days([logons(events=1)])
    before = {path: path.read_bytes() for path in tables.folder.rglob("*.parquet")}
    with pytest.raises(InvalidTableError, match=says):
        store(tables)
    assert {path: path.read_bytes() for path in tables.folder.rglob("*.parquet")} == before


@pytest.mark.parametrize("stops_at", ["logon_counts", "logon_days"])
@pytest.mark.parametrize("settings", ["before", "now"])
def test_a_day_whose_replacing_was_cut_off_is_fetched_again(tables, monkeypatch, settings, stops_at):
    """Its counts may be new and its row old: only then must they not be taken for settled."""
    rows, counted = logons(events=1)
    tables.write_days([(rows.with_columns(settings_fingerprint=pl.lit(settings)), counted)])
    write, written = module.write_file, []

    def cut_off(frame, path, readers=None):
        if path.parent.name == stops_at and len(written) > 0:
            raise KeyboardInterrupt
        write(frame, path, readers)
        written.append(path)

    monkeypatch.setattr(module, "write_file", cut_off)
    with pytest.raises(KeyboardInterrupt):
        tables.write_days([logons(events=2)])
    monkeypatch.undo()
    settled: Any = {"now": LATER, "fingerprints": ["now"], "timezone": "UTC", "late_days": 2}
    for expected in ([DAY], []):
        fetched = tables.logon_days([DAY], run_id=RUN)
        whole = fetched.select("day", "log", events="counted")
        assert days_to_fetch([DAY], fetched, whole, **settled) == expected
        tables.write_days([logons(events=2)])


# No torn file, no failed read


def test_a_file_that_is_replaced_while_it_is_read_is_read_whole(tables):
    frames = [hosts(*(f"{number}-{host}" for host in range(number))) for number in (500, 2_000)]
    path, contents = tables.folder / "inventory_hosts.parquet", []
    for frame in frames:
        tables.write("inventory_hosts", frame, run_id=RUN, publish=True)
        contents.append(path.read_bytes())
    enough = threading.Event()

    def replace_until_enough():
        for number in count():
            path.with_suffix(".next").write_bytes(contents[number % 2])
            path.with_suffix(".next").replace(path)
            if enough.is_set():
                return

    with ThreadPoolExecutor() as pool:
        pool.submit(replace_until_enough)
        found = []
        while len(found) < 150 or len({frame.height for frame in found}) < 2:  # a busy machine does it late
            found.append(tables.read("inventory_hosts").collect())
        enough.set()
    assert all(frame.equals(frames[0]) or frame.equals(frames[1]) for frame in found)


def test_a_file_is_flushed_before_it_appears_and_its_folder_after(tables, monkeypatch):
    flushed, appeared = [], []
    replace = Path.replace

    def record(source, target):
        assert source.stat().st_ino == flushed[-1]
        replace(source, target)
        appeared.append(target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(Path, "replace", record)
    tables.write_days([logons()])
    tables.write("inventory_hosts", hosts("a"), run_id=RUN, publish=True)
    assert [path.name for path in appeared] == [f"{DAY}.parquet"] * 2 + ["inventory_hosts.parquet"] * 2
    assert flushed[-1] == tables.folder.stat().st_ino
    fsync = Mock(side_effect=[None, OSError(errno.EINVAL, "a shared folder"), OSError(errno.EIO, "broken")])
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_file(hosts("a"), path := UPath(tables.folder / "one.parquet"))
    assert path.exists()
    with pytest.raises(OSError, match="broken"):
        write_file(hosts("a"), path)


def test_what_killed_writers_left_goes_after_a_day(tables, home):
    folders = [home, tables.folder / "logon_days", tables.folder / "runs" / RUN / "logon_counts"]
    for folder in folders:
        for name, hours in (("old", 25), ("new", 23)):
            left = folder / f".writing-{name}"
            left.mkdir(parents=True)
            (left / "part.parquet").write_bytes(b"PAR1")
            then = time.time() - 3600 * hours
            os.utime(left, (then, then))
    tables.prepare()
    for folder in folders:
        assert [path.name for path in folder.glob(".writing-*")] == [".writing-new"]


# The catalogue


def test_the_catalogue_is_replaced_only_when_its_views_change(tables, home):
    """Otherwise it stays the same file, which analysts have open."""
    built = catalogue_path(home).stat().st_ino
    tables.write_days([logons()])
    tables.prepare()
    assert catalogue_path(home).stat().st_ino == built
    with catalogue_path(home).open("rb"):  # nobody else gets its number meanwhile
        Tables(home, "other").prepare()
        assert catalogue_path(home).stat().st_ino != built
    assert catalogue_path(home).stat().st_mode & 0o777 == 0o400, "nobody makes a table that would be gone"


def test_a_home_may_have_any_name(tmp_path):
    home = tmp_path / 'it\'s a "home" [x] * a{b,c}d büro' / "env=prod" / "day=2026-01-01"
    tables = Tables(home, "corp")
    tables.prepare()
    tables.write_days([logons(events=1)])
    tables.append("owner_writes", writes("a", "written"), run_id=RUN)
    for stored, height in {"logon_counts": 2, "logon_days": 1, "owner_writes": 1}.items():
        assert seen(home, f"FROM corp.{stored} SELECT count(*)") == [(height,)]
        columns = [column for column, *_ in seen(home, f"DESCRIBE corp.{stored}")]
        assert columns == list(polars_schema(TABLES[stored]))
    assert events(tables) == [1, 1]
    assert tables.writes().collect().height == 1


def test_older_duckdb_can_open_the_catalogue(home):
    """The file's header names its storage version: 65 is read by every DuckDB since 1.2."""
    assert catalogue_path(home).read_bytes()[8:20] == b"DUCK" + (65).to_bytes(8, "little")


ANALYST = """
import json, sys
import duckdb
session = duckdb.connect(sys.argv[1])
for query in sys.stdin:
    print(json.dumps(session.sql(query).fetchall()), flush=True)
"""


@contextmanager
def analyst(home):
    """A session in another process, which could write, open from beginning to end: asks it a query."""
    with subprocess.Popen(  # noqa: S603  (ours)
        [sys.executable, "-c", ANALYST, catalogue_path(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answered = process.stdin, process.stdout
        assert asked
        assert answered

        def ask(query):
            print(query, file=asked, flush=True)
            return json.loads(answered.readline())

        yield ask
        asked.close()


def test_an_open_session_never_stops_a_run_and_sees_what_it_stores(tables, home):
    query = "SELECT events, count(*) FROM corp.logon_counts GROUP BY events"
    with analyst(home) as ask:
        assert ask(query) == []
        tables.write_days([logons(events=1)])
        assert ask(query) == [[1, 2]]
        Tables(home, "other").prepare()  # another list of views: the catalogue is rebuilt
        tables.write_days([logons(events=2)])
        tables.prepare()
        assert ask(query) == [[2, 2]]
    assert seen(home, "FROM other.logon_counts") == []


# One run at a time, and what is not kept


def test_one_run_of_an_instance_writes_at_a_time(tables, home, monkeypatch, caplog):
    """Who waits is told for whom, once, and gives up."""
    monkeypatch.setattr(locks, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(locks, "WARN_SECONDS", 0.05)
    other, again = Tables(home, "other"), Tables(home, "corp")
    other.claim()
    waited = pytest.raises(AssetOwnersError, match=f"held by process {os.getpid()} .*, run run-1, since 20")
    with tables.writing(run_id="run-1"), other.writing(), waited, again.writing():
        pytest.fail("two runs write")
    (told,) = caplog.messages
    assert f"waiting for process {os.getpid()} " in told
    with again.writing():
        pass


def test_what_a_run_worked_on_goes_and_its_plan_stays(tables):
    for run_id in (RUN, "other"):
        tables.write_days([logons(events=5)], run_id=run_id)
        tables.write("inventory_hosts", hosts("a"), run_id=run_id, publish=True)
        tables.write("owner_writes", writes("a", "planned"), run_id=run_id, publish=False)
    delete_inputs(tables, of_run=RUN)
    assert [tables.holds("inventory_hosts", run_id) for run_id in (RUN, "other")] == [False, True]
    assert (events(tables), events(tables, run_id="other")) == ([], [5, 5])
    delete_inputs(tables, before=datetime.now(UTC) - timedelta(hours=1))
    assert tables.holds("inventory_hosts", "other")
    delete_inputs(tables, before=datetime.now(UTC) + timedelta(hours=1))
    assert not tables.holds("inventory_hosts", "other")
    assert [tables.read_own("owner_writes", run_id).height for run_id in (RUN, "other")] == [1, 1]
    assert tables.read("inventory_hosts", run_id=RUN).collect().height == 1


NO_RUN_IDS = ["", ".", "..", "../run-1", "../../other/runs/run-1", "a/b", "a.b", "/etc", "a\\b", "a b", "a\n"]
NO_RUN_IDS += ["-a", "é", "*", "run-?", "a\0", "a" * 101]


def test_what_is_not_a_run_id_names_no_file(tables):
    odd = pytest.raises(ConfigurationError, match=r"^RUN_ID: .* is not a run id")
    for run_id in NO_RUN_IDS:
        with odd:
            module.checked_run_id(run_id)
    for use in (
        tables.run_writes,
        tables.view,
        lambda run: tables.read("owner_decisions", run_id=run),
        lambda run: tables.append("owner_writes", writes("a", "written"), run_id=run),
        lambda run: tables.write("inventory_hosts", hosts("a"), run_id=run, publish=False),
        lambda run: tables.write_days([logons()], run_id=run),
        lambda run: store_decisions(
            tables, empty(OwnerDecisions), decided_at=LATER, run_id=run, publish=True
        ),
    ):
        with odd:
            use("../run-1")


def owners(tables, run_id=None):
    return dict(
        tables.read("current_owners", run_id=run_id).select("host_id", "source").collect().iter_rows()
    )


def test_who_owns_what_is_known_as_soon_as_hosts_are_listed_and_again_when_they_are_written(tables):
    """Also by a dry run, which stands for what is published until a run has published."""
    for run_id, publish, host_id in (("dry-run", False, "h-1"), (RUN, True, "h-2")):
        tables.write("inventory_hosts", hosts("h-0", host_id), run_id=run_id, publish=publish)
        tables.store_current_owners(run_id=run_id, publish=publish)
    assert owners(tables) == {"h-0": "inventory", "h-2": "inventory"}
    written = plan("h-0", "h-2", outcome="written", completed_at=LATER)
    store_writes(tables, written, run_id=RUN)
    assert owners(tables) == owners(tables, RUN) == {"h-0": "asset-owners", "h-2": "asset-owners"}
    assert owners(tables, "dry-run") == {"h-0": "asset-owners", "h-1": "inventory"}


def test_current_owners_that_are_lost_follow_from_the_other_tables(tables):
    tables.write("inventory_hosts", hosts("h-0"))
    tables.append("owner_writes", plan("h-0", outcome="written", completed_at=LATER), run_id=RUN)
    for _ in ("made as they are read", "stored when a run prepares the tables"):
        (tables.folder / "current_owners.parquet").unlink()
        assert owners(tables) == {"h-0": "asset-owners"}
        tables.prepare()
        assert seen(tables.home, "SELECT host_id, source FROM corp.current_owners") == [
            ("h-0", "asset-owners")
        ]


def test_a_damaged_file_of_another_instance_is_reported_and_stops_nothing(tables, home, caplog):
    tables.append("owner_writes", writes("a", "written"), run_id=RUN)
    for slug, run_id in (("damaged", "run-2"), ("other", "run-3")):
        other = Tables(home, slug)
        other.append("owner_writes", writes("b", "written", run_id), run_id=run_id)
    damaged = home / "tables" / "damaged" / "owner_writes.parquet"
    damaged.write_bytes(b"PAR1 no table")
    assert tables.writes_to(TARGET).collect()["run_id"].to_list() == [RUN, "run-3"]
    (told,) = caplog.messages
    assert str(damaged) in told
    assert "backup" in told


def test_a_run_that_published_is_shown_also_where_it_knew_no_host(tables):
    """Not the plan of a later dry run."""
    for run_id, publish in (("first", True), ("dry", False)):
        rows = empty(OwnerDecisions)
        store_decisions(tables, rows, decided_at=LATER, run_id=run_id, publish=publish)
    assert tables.visible().viewed is None
