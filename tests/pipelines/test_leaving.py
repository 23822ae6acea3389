"""A person, or a customer, leaves: `forget` and `remove`."""

import itertools
import json
import pkgutil
import re
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event

import dagster as dg
import duckdb
import polars as pl
import pytest

from pipelines.cli.explain import explain
from pipelines.cli.files import write_file as report_write_file
from pipelines.cli.leave import delete_beside_tables
from pipelines.cli.report import report
from pipelines.cli.tune import draw
from pipelines.dagster_gaps.launcher import LOCK_TAG
from pipelines.dagster_home import dagster_instance
from resources import locks
from resources.errors import AssetOwnersError
from resources.settings import load_instance
from resources.store.files import remove_leftovers, write_file
from resources.store.retention import delete_inputs, delete_outdated, stored_files
from resources.store.tables import Tables
from resources.writeback.target_lock import locked_ledger
from sandbox.commands import _forget_last_time
from tests.end_to_end.webserver import eventually
from tests.ownership.builders import RUN
from tests.pipelines.conftest import DAY, WINDOW

pytestmark = pytest.mark.jobs  # as long as jobs take

HASH = "forgotten-"


def texts(home):
    """Each file as text, in lower case; of Parquet its rows, of a database all its bytes."""
    files = sorted(path for path in home.rglob("*") if path.is_file())
    return {file: text_of(file).lower() for file in files if file.suffix != ".lock"}


def tables_of(home):
    return {file: text for file, text in texts(home / "tables").items() if file.suffix == ".parquet"}


def text_of(file):
    if file.suffix == ".parquet":
        return pl.read_parquet(file).write_json()
    return file.read_bytes().decode("latin-1")


def naming_ann(texts):
    names = ('"u1"', '"ann"', 'corp\\\\ann"', "ann@", "u1,", ",u1", "ann:")
    return [file for file, text in texts.items() if any(name in text for name in names)]


def ended(home, run_id, status=dg.DagsterRunStatus.SUCCESS, **tags):
    """Dagster records that a run of the instance ended."""
    tags = {"asset_owners/instance": "Head office"} | tags
    with dagster_instance(home) as recorded:
        recorded.add_run(dg.DagsterRun("job", run_id=run_id, tags=tags, status=status))


@pytest.fixture
def home(stored, tmp_path):  # noqa: ARG001  (the tables of a run)
    return tmp_path / "home"


def test_the_guide_lists_every_kind_of_file_of_an_instance(home, stored, call):
    assert call("report", "--instance", stored)[0] == 0
    tables = Tables(home, "head_office")
    day = tables.logon_days([DAY]), tables.logon_counts([DAY]).collect()
    tables.write_days([day], run_id=RUN)
    with tables.ledger(), tables.writing():
        found = {file.path.relative_to(home).as_posix() for file in stored_files(tables)}
    guide = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?:\S+/)+[^\s,]+", guide.split("## Files")[1].split("`ASSET_OWNERS_TABLES`")[0])
    known = [re.sub("<[a-z]+>", "*", name) for name in listed]
    assert {name for name in found if not any(Path(name).match(pattern) for pattern in known)} == set()


def test_a_person_is_forgotten_everywhere_once_that_is_confirmed(home, stored, call):
    tables = Tables(home, "head_office")
    report = home / "reports" / "head_office.html"
    report.parent.mkdir()
    report.touch()
    of_another = tables.folder.parent / "branch"
    of_another.mkdir()
    for name in ("audit.csv", "plan.xlsx", "a.json", "reports/head.csv", "reports/branch.html", "notes.txt"):
        (home / name).touch()
    for folder in (tables.folder / "logon_counts", report.parent):
        left = folder / ".writing-x" / "head_office.html"
        left.parent.mkdir()
        left.write_text("ann@corp.example")
    with tables.ledger() as ledger:  # several owners, and a name as JSON escapes it
        row = tables.writes().collect().with_columns(run_id=pl.lit("other"), message=pl.lit("has u1,u2"))
        held = pl.col("old_values").struct.with_fields(owner=pl.lit("u2,u1"))
        ledger.intend(row.with_columns(held, outcome=pl.lit("failed")))
    ended(home, "by-ann", **{"asset_owners/by": "ann@corp.example"})
    before = tables_of(home)
    assert naming_ann(before)
    status, _, said = call("forget", "amn@corp.example", "--instance", stored)
    assert (status, "Did you mean ann@corp.example" in said) == (1, True), said
    status, said, _ = call("forget", "ANN@corp.example", "--instance", stored)
    assert (status, tables_of(home)) == (0, before)
    assert re.search(r"^  All runs of Head office in Dagster \(\d+\), with .*, also", said, re.MULTILINE)
    assert str(report) in said
    assert "Owned in the inventory: pc-1" in said
    assert report.exists()
    assert "owner_decisions" in said
    (home / "killed").touch()
    lock = json.dumps([socket.gethostname(), str(home / "killed")])
    ended(home, "killed", dg.DagsterRunStatus.STARTED, **{LOCK_TAG: lock})
    status, _, _ = call("forget", "ANN@corp.example", "--instance", stored, "--yes")
    after = texts(home)
    assert (status, naming_ann(after), report.exists()) == (0, [], False)
    left = [*home.glob("[!.]*.*"), *report.parent.glob("*.*")]
    assert sorted(file.name for file in left) == ["branch.html", "notes.txt"]
    with tables.ledger() as ledger:
        [left] = ledger.rows("owner_writes", "other").to_dicts()
    assert left["old_values"]["owner"].startswith("u2,forgotten-")
    assert left["message"] is None
    (write,) = tables.rows("owner_writes", RUN).to_dicts()
    assert (write["host_id"], write["outcome"]) == ("h1", "written")
    assert write["new_values"]["owner"].startswith(HASH)
    assert any('"carol"' in text for text in after.values())
    with dagster_instance(home) as recorded:
        assert list(recorded.get_runs()) == [], "also what was killed, and nobody has noticed"
    assert call("forget", "ANN@corp.example", "--instance", stored)[0] == 1


def failing_once(monkeypatch, name, *, call=0):
    """The first call of a function, or another one, fails as where a disk is full."""
    real, calls = pkgutil.resolve_name(name), itertools.count()

    def called(*arguments, **options):
        if next(calls) == call:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(name, called)


@pytest.mark.parametrize("last_write", [0, 3, 9])
def test_what_was_interrupted_goes_on_with_the_same_words(home, stored, call, monkeypatch, last_write):
    """By then some tables do not know any more who the person is."""
    failing_once(monkeypatch, "resources.store.forget.write_file", call=last_write)
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 1
    assert naming_ann(tables_of(home))
    status, _, said = call("forget", "carol", "--instance", stored, "--yes")
    assert (status, "asset-owners forget --instance" in said) == (1, True), said
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 0
    after = texts(home)
    assert naming_ann(after) == []
    decided = Tables(home, "head_office").read("owner_decisions").collect()
    assert decided.filter(pl.col("username").str.starts_with(HASH))["username"].n_unique() == 1
    assert not any("forgetting" in file.name for file in after)


STORAGE = "dagster._core.storage"


@pytest.mark.parametrize("again", ["forget ANN@corp.example --yes --instance", "remove --yes"])
@pytest.mark.parametrize(
    "name",
    [
        f"{STORAGE}.event_log.SqliteEventLogStorage.delete_events",
        f"{STORAGE}.runs.SqliteRunStorage.delete_run",
        f"{STORAGE}.event_log.SqliteEventLogStorage.wipe_asset",
        "sqlite3.connect",
        "pathlib.Path.unlink",
    ],
)
def test_what_dagsters_store_or_a_full_disk_cut_off_is_gone_after_repeating(
    home, stored, call, monkeypatch, name, again
):
    ended(home, "by-ann", **{"asset_owners/by": "ann@corp.example"})
    with dagster_instance(home) as recorded:
        recorded.report_engine_event("asked by ann@corp.example", recorded.get_run_by_id("by-ann"))
    forgetting = "forget", "ANN@corp.example", "--yes", "--instance", stored
    with monkeypatch.context() as patch:
        failing_once(patch, name)
        assert call(*forgetting)[0] == 1
    # As one that was cut off by a version that deleted the row of a run first.
    (home / "dagster" / "history" / "runs" / "unlisted.db").write_text("ann@corp.example")
    assert call(*again.split(), stored)[0] == 0
    assert naming_ann(texts(home)) == []


COMMANDS: dict[str, Callable[[Path], object]] = {
    "report": lambda path: report(path, kind="csv"),
    "audit": lambda path: draw(path, 1, written=False, seed=1, out=None, as_json=False),
    "explain": lambda path: explain(path, ["ann"]),
}
"""Commands that read what is stored, called as another process calls them."""


@pytest.fixture
def beside(monkeypatch, caplog):
    """Start a command beside the test, waited for at its end; tell whether anybody waits for a lock."""
    monkeypatch.setattr(locks, "WARN_SECONDS", 0)
    with ThreadPoolExecutor(1) as pool:
        yield (lambda name, path: pool.submit(COMMANDS[name], path), lambda: ": waiting for " in caplog.text)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("leaving", ["forget ann --yes --instance", "remove --yes"])
def test_who_looks_while_somebody_leaves_waits_and_stores_nothing_of_them_again(
    home, stored, call, monkeypatch, beside, capsys, name, leaving
):
    started, (start, somebody_waits) = [], beside

    def deleting(*arguments, **options):
        if not started:
            started.append(start(name, stored))
            eventually(lambda: somebody_waits() or started[0].done())
            assert not started[0].done(), "it waits"
            capsys.readouterr()
        return delete_beside_tables(*arguments, **options)

    command = leaving.split()[0]
    monkeypatch.setattr("pipelines.cli.leave.delete_beside_tables", deleting)
    assert call(*leaving.split(), stored)[0] == 0
    failed = started[0].exception()
    assert failed is None or isinstance(failed, AssetOwnersError)
    assert naming_ann(texts(home)) == []
    assert "ann@" not in capsys.readouterr().out
    if command == "remove":
        assert failed
        assert not [path for path in home.rglob("*head_office*") if path.name != "head_office.lock"]


@pytest.mark.parametrize(
    ("name", "stores"),
    [("report", "pipelines.cli.report.write_file"), ("audit", f"{Tables.__module__}.write_file")],
)
@pytest.mark.parametrize("leaving", ["forget ann --yes --instance", "remove --yes"])
def test_who_is_about_to_store_somebody_is_waited_for(
    home, stored, call, monkeypatch, beside, name, stores, leaving
):
    about_to, gone, (start, somebody_waits) = Event(), Event(), beside
    real = {"report": report_write_file, "audit": write_file}[name]

    def storing(*arguments):
        about_to.set()
        eventually(lambda: somebody_waits() or gone.is_set())
        return real(*arguments)

    monkeypatch.setattr(stores, storing)
    begun = start(name, stored)
    assert about_to.wait(timeout=30)
    assert call(*leaving.split(), stored)[0] == 0
    gone.set()
    assert begun.exception() is None
    assert naming_ann(texts(home)) == []
    assert (home / "tables" / "head_office").exists() == leaving.startswith("forget")


@pytest.mark.parametrize(
    "linked",
    [
        "tables",
        *(f"tables/head_office{name}" for name in ("", "/logon_counts", "/runs", "/owner_decisions.parquet")),
    ],
)
def test_what_is_linked_from_another_disk_is_forgotten_and_removed_there(home, stored, call, linked):
    disk = home.parent / "disk" / "named-by-us"
    disk.parent.mkdir()
    (home / linked).rename(disk)
    (home / linked).symlink_to(disk)
    assert naming_ann(tables_of(home) | texts(disk.parent))
    folder = home / ("tables/head_office" if disk.is_file() or linked == "tables" else linked)
    for file in (
        folder / ".writing-x/x",
        home / "reports/for-ann/plan.csv",
        home / "reports/for-ann/notes.txt",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("nobody" if file.suffix == ".txt" else "ann@corp.example")
    assert call("forget", "ann", "--yes", "--instance", stored)[0] == 0
    assert naming_ann(texts(home) | texts(disk.parent)) == []
    assert [path.name for path in (home / "reports/for-ann").rglob("*.*")] == ["notes.txt"]
    assert call("remove", stored, "--yes")[0] == 0
    assert not [*disk.parent.rglob("*.parquet"), *(home / "tables").glob("head_office")]
    assert call("remove", stored, "--yes")[0] == 1, "nothing is left"


@pytest.mark.parametrize("dead", ["", "/owner_decisions.parquet", "/logon_counts/x.parquet", "/runs", "/x"])
def test_a_link_that_leads_nowhere_is_named_and_nothing_is_changed(home, stored, call, dead):
    link = home / f"tables/head_office{dead}"
    if link.exists():
        link.rename(home.parent / "unmounted")
    link.symlink_to(home.parent / "nowhere")
    before = files(home)
    for command in ("forget ann --yes --instance", "remove --yes"):
        status, _, said = call(*command.split(), stored)
        assert (status, f"{link} is a link that leads nowhere" in said, files(home)) == (1, True, before), (
            said
        )
    tables = Tables(home, "head_office")
    for use in (
        tables.prepare,
        lambda: [delete_old(tables), tables.logon_counts(WINDOW).collect(), *stored_files(tables)],
    ):
        with pytest.raises(AssetOwnersError, match=f"{link} is a link that leads nowhere"):
            use()


def delete_old(tables):
    """As the clean-up does, if all is old."""
    later = datetime.now(UTC) + timedelta(days=1)
    delete_inputs(tables, before=later)
    delete_outdated(tables, evidence_before=date.max, history_before=later)
    remove_leftovers(below=tables.disk, seconds=0)


@pytest.mark.parametrize("linked", [f"logon_counts/{DAY}.parquet", f"runs/{RUN}", "logon_days/.writing-x"])
def test_what_is_old_is_deleted_with_what_its_links_lead_to(home, linked):
    place, disk = home / "tables/head_office" / linked, home.parent / "disk"
    disk.mkdir()
    if place.exists():
        place.rename(disk / "x.parquet")
        place.symlink_to(disk / "x.parquet")
    else:  # left by a writer into a folder that is a link
        place.parent.rename(disk)
        place.parent.symlink_to(disk)
        place.mkdir()
    delete_old(Tables(home, "head_office"))
    assert not place.is_symlink()
    assert [file.name for file in disk.rglob("*[!y].parquet")] + [*disk.rglob(".writing-*")] == []


def test_nothing_is_changed_where_a_file_cannot_be_read_or_a_run_is_under_way(home, stored, call):
    table = home / "tables" / "head_office" / "username_matches.parquet"
    content = table.read_bytes()
    table.write_bytes(content[:-9])
    before = files(home / "tables")
    status, _, said = call("forget", "ann", "--instance", stored, "--yes")
    assert (status, str(table) in said, files(home / "tables")) == (1, True, before)
    table.write_bytes(content)
    before = tables_of(home)
    for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.NOT_STARTED):
        ended(home, f"is-{status.value}", status)
        for command in (["forget", "ann", "--instance"], ["remove"]):
            exit_status, _, said = call(*command, stored, "--yes")
            assert (exit_status, tables_of(home)) == (1, before)
            assert re.search(
                rf"Run (is.*, )*is-{status.value[:5]}.* of Head office is under way or queued", said
            )
        with dagster_instance(home) as recorded:
            recorded.delete_run(f"is-{status.value}")


def files(folder):
    return {file: file.read_bytes() for file in folder.rglob("*.parquet") if file.exists()}


def test_a_name_of_several_people_changes_nothing_and_names_them(home, stored, call):
    before = tables_of(home)
    for yes in ([], ["--yes"]):
        status, _, said = call("forget", "kim", "--instance", stored, *yes)
        assert (status, "2 people fit 'kim'" in said, "u3: kim" in said, "u4: kim" in said) == (
            1,
            *[True] * 3,
        )
    assert tables_of(home) == before
    for user_id, kims in (("u3", True), ("u4", False)):
        assert call("forget", user_id, "--instance", stored, "--yes")[0] == 0
        assert any('"kim"' in text for text in tables_of(home).values()) == kims


def test_who_is_known_from_dagsters_records_alone_is_forgotten(home, stored, call):
    ended(home, "by-eve", **{"asset_owners/by": "eve@corp.example"})
    for no_person in ("eve", "null", "run", "head_office", ""):
        assert call("forget", no_person, "--instance", stored, "--yes")[0] == 1
    assert call("forget", "eve@corp.example", "--instance", stored, "--yes")[0] == 0
    assert not any("eve@" in text for text in texts(home).values())


def test_a_person_with_a_pending_write_is_not_forgotten(home, stored, call):
    tables = Tables(home, "head_office")
    written = tables.writes().collect()
    with tables.ledger() as ledger:
        ledger.store("owner_writes", written.with_columns(outcome=pl.lit("intended")))
    status, _, said = call("forget", "ann", "--instance", stored, "--yes")
    assert (status, RUN in said) == (1, True)
    assert naming_ann(tables_of(home))
    with tables.ledger() as ledger:
        ledger.clear()
        for_carol = pl.col("new_values").struct.with_fields(owner=pl.lit("u9"))
        others = {"host_id": pl.lit("h9"), "outcome": pl.lit("intended"), "new_values": for_carol}
        ledger.intend(pl.concat([written, written.with_columns(**others)]))
    assert call("forget", "ann", "--instance", stored, "--yes")[0] == 0
    with tables.ledger() as ledger:
        row, other = ledger.rows("owner_writes", RUN).to_dicts()
        assert ledger.never_sent(RUN) == {"h1", "h9"}, "what is known of other writes stays"
    assert row["new_values"]["owner"].startswith(HASH)
    assert other["outcome"] == "intended"


@pytest.mark.parametrize("command", ["remove {} --yes", "forget ann --instance {} --yes"])
def test_nothing_is_deleted_while_anybody_writes_to_the_inventory(home, stored, call, monkeypatch, command):
    """From another home, too, as on another machine: its ledger would go, and what it sends have no row."""
    before = tables_of(home)
    with locked_ledger(Tables(home / "other", "head_office"), load_instance(stored).platform):
        monkeypatch.setattr(locks, "TIMEOUT_SECONDS", 0.1)  # the other one may have to wait for another test
        status, _, said = call(*command.format(stored).split())
    assert (status, "The writing to https://inventory.invalid" in said, tables_of(home)) == (1, True, before)


def test_nobody_is_forgotten_in_a_home_that_lacks_the_ledger(home, stored, call, monkeypatch, tmp_path):
    """As by a machine that shares the tables; the next run on the other one would publish the rows again."""
    monkeypatch.setenv("ASSET_OWNERS_TABLES", str(home / "tables"))
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "elsewhere"))
    before = texts(home)
    status, _, said = call("forget", "ann", "--instance", stored, "--yes")
    assert (status, "ledger" in said, texts(home)) == (1, True, before)


def lose_rows(folder):
    """None of the customer's runs has succeeded."""
    for file in folder.rglob("*.parquet"):
        file.unlink()
    assert (folder / ".instance").exists()


def test_a_new_demo_forgets_the_runs_and_assets_of_the_last_one_and_no_others(home, stored):
    key, other = dg.AssetKey(["head_office", "owner_writes"]), {"asset_owners/instance": "Other"}
    ended(home, RUN)
    ended(home, "a1", status=dg.DagsterRunStatus.STARTED)
    ended(home, "b2", **other)
    with dagster_instance(home) as recorded:
        recorded.report_runless_asset_event(dg.AssetMaterialization(key))
        _forget_last_time(load_instance(stored))
        assert [run.run_id for run in recorded.get_runs()] == ["b2"]
        assert not recorded.has_asset_key(key)
    assert not (home / "tables" / "head_office").exists()


@pytest.mark.parametrize("lost", [None, shutil.rmtree, lose_rows])
def test_a_customer_is_removed_once_that_is_confirmed_whatever_is_left_of_it(home, catalogued, call, lost):
    tables, page = home / "tables" / "head_office", home / "reports" / "head_office.1a2b3c4d.html"
    page.parent.mkdir()
    page.touch()
    if lost:
        lost(tables)
    else:
        assert call("remove", catalogued)[0] == 0
        assert (tables / "owner_decisions.parquet").exists()
    assert call("remove", catalogued, "--yes")[0] == 0
    assert (tables.exists(), page.exists()) == (False, False)
    assert b"head_office" not in (home / "warehouse.duckdb").read_bytes()
    with duckdb.connect(home / "warehouse.duckdb", read_only=True) as catalogue:
        assert catalogue.execute("SELECT * FROM duckdb_views() WHERE NOT internal").fetchall() == []
    if not lost:
        with dagster_instance(home) as recorded:
            assert list(recorded.get_runs()) == []
    assert call("remove", catalogued)[0] == 1


def test_what_a_file_system_keeps_at_the_top_of_a_volume_is_in_nobodys_way(home, catalogued, call):
    """Any folder may be a volume; nobody but root may look into its lost+found, where anything may lie."""
    for folder in [home, *(path for path in home.rglob("*") if path.is_dir())]:
        for left in ("broken.parquet", "runs/x/inventory_hosts.parquet", ".writing.lock/x", "x.yaml"):
            (file := folder / "lost+found" / left).parent.mkdir(parents=True, exist_ok=True)
            file.write_text("rubbish")
    for command in ("runs", "report", "explain pc-2", "conflicts", "forget ann --yes", "metrics"):
        known = [] if command == "metrics" else ["--instance", catalogued]
        assert call(*command.split(), *known)[0] == 0, command
    tables = Tables(home, "head_office", name="Head office")
    delete_outdated(tables, evidence_before=date.max, history_before=datetime.now(UTC) + timedelta(days=1))
    assert (home / "tables" / "head_office" / "runs" / "lost+found").exists()
    assert call("remove", catalogued, "--yes")[0] == 0
    assert not [*(home / "tables" / "head_office").rglob("*.parquet")]
