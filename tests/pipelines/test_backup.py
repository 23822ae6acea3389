"""`asset-owners backup` and `asset-owners restore` on a home that nobody else uses."""

import io
import shlex
import shutil
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from unittest.mock import Mock
from urllib.parse import urlsplit

import dagster as dg
import pytest

from pipelines.dagster_home import dagster_instance
from resources.settings import without_password
from resources.store.backup import back_up
from resources.store.tables import Tables
from resources.writeback.journal import Journal
from resources.writeback.open_journal import open_journal
from tests.resources.writeback.test_journal import writes


@pytest.fixture
def home(stored, tmp_path):  # noqa: ARG001  (its tables)
    home = tmp_path / "home"
    with Journal(home / "tables" / "head_office" / "writes.sqlite"):
        pass
    return home


@pytest.fixture(scope="module")
def backup_of_the_home(home_after_a_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("backup") / "made.tar"
    back_up(home_after_a_run, out)
    return out


@pytest.fixture
def made(backup_of_the_home, tmp_path, monkeypatch):
    """A backup; the home is another one from then on, which does not exist yet."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "other"))
    return shutil.copy(backup_of_the_home, tmp_path / "made.tar")


def names(out):
    with tarfile.open(out) as archive:
        return archive.getnames()


def left_behind(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".writing")]


def test_a_backup_holds_what_cannot_be_had_again_and_no_secret(call, home, tmp_path):
    instances = home / "instances"
    instances.mkdir()
    for name in ("head-office.yaml", "password", ".env", "password.txt"):
        (instances / name).write_text("correct horse")
    (home / "secret").write_text("correct horse")
    (instances / "linked.yaml").symlink_to(home / "secret")
    (home / "dagster" / "history").mkdir(parents=True)
    for name in ("dagster/dagster.yaml", "dagster/.env", "dagster/history/token"):
        (home / name).write_text("correct horse")
    with closing(sqlite3.connect(home / "dagster" / "history" / "runs.db")) as runs:
        runs.execute("CREATE TABLE runs (id)")
    out = tmp_path / "backup.tar"
    status, printed, err = call("backup", "--out", out)
    assert (status, err) == (0, "")
    assert printed.startswith(f"{out} is written: ")
    assert "Not in it: secrets" in printed
    assert out.stat().st_mode & 0o777 == 0o600
    held = set(names(out))
    assert {name.split("/")[0] for name in held} == {"tables", "instances", "dagster", "contents.json"}
    assert {name for name in held if not name.startswith("tables/")} == {
        "instances/head-office.yaml",
        "dagster/history/runs.db",
        "contents.json",
    }
    tables = home / "tables"
    files = {f"tables/{path.relative_to(tables)}" for path in tables.rglob("*.parquet")}
    assert held.issuperset(files)
    assert {name for name in held - files if name.startswith("tables/")} == {
        "tables/head_office/writes.sqlite",
        "tables/head_office/.instance",
    }


def test_a_restored_home_is_the_same_also_days_that_a_dry_run_keeps_to_itself(
    call, home, tmp_path, monkeypatch
):
    tables, other = home / "tables" / "head_office", tmp_path / "other"
    for table in ("logon_days", "logon_counts"):
        shutil.copytree(tables / table, tables / "runs" / "of-a-dry-run" / table)
    monkeypatch.delattr(tarfile.TarInfo, "replace", raising=False)  # as in Python 3.11.2, Debian 12's
    assert call("backup", "--out", tmp_path / "made.tar")[0] == 0
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(other))
    assert call("restore", tmp_path / "made.tar")[0] == 0
    for path in tables.rglob("*.parquet"):
        copy = other / path.relative_to(home)
        assert copy.read_bytes() == path.read_bytes()
        assert int(copy.stat().st_mtime) == int(path.stat().st_mtime), "what is kept goes by it"
    assert {path.stat().st_mode & 0o077 for path in other.rglob("*")} == {0}
    assert left_behind(other) == []


@pytest.mark.usefixtures("home")
def test_a_home_on_a_full_disk_is_backed_up_to_another_one(call, tmp_path, monkeypatch):
    monkeypatch.setattr("os.pwrite", Mock(side_effect=OSError(28, "No space left on device")))
    assert call("backup", "--out", tmp_path / "backup.tar")[0] == 0


def test_a_database_that_dagster_stores_its_records_in_is_left_to_the_operator(call, home, tmp_path):
    settings = home / "dagster" / "dagster.yaml"
    settings.parent.mkdir()
    for content, times in (("", 0), ("telemetry: {}", 0), ("storage: {postgres: {}}", 1)):
        settings.write_text(content)
        status, said, _ = call("backup", "--out", tmp_path / f"{times}{len(content)}.tar")
        assert (status, said.count(f"storage that {settings} names")) == (0, times)


def test_a_run_at_work_when_the_backup_was_made_holds_no_place_in_the_restored_home(
    call, tmp_path, monkeypatch
):
    with dagster_instance(tmp_path / "old") as recorded:
        for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.SUCCESS):
            recorded.add_run(dg.DagsterRun("small", status=status))
    out, other = tmp_path / "made.tar", tmp_path / "other"
    back_up(tmp_path / "old", out)
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(other))
    assert call("restore", out)[0] == 0
    with dagster_instance(other) as recorded:
        assert [run.status.value for run in recorded.get_runs()] == ["SUCCESS", "FAILURE"]


def test_neither_a_newer_home_is_backed_up_nor_its_backup_restored(call, home, tmp_path, newer_program):
    """An older program does not know which files belong to it."""
    out, by_older = tmp_path / "made.tar", tmp_path / "by_older.tar"
    with newer_program():
        Tables(home, "head_office", name="Head office").claim()
        assert call("backup", "--out", out)[0] == 0
    status, _, said = call("backup", "--out", by_older)
    assert (status, "99.0" in said, by_older.exists()) == (1, True, False), said
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "other"))
        status, _, said = call("restore", out)
    assert (status, "99.0" in said, (tmp_path / "other").exists()) == (1, True, False)


def test_a_journal_in_a_database_is_left_to_the_command_that_is_named(
    call, home, tmp_path, monkeypatch, postgres
):
    url = postgres.new_database()
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", url)
    tables = Tables(home, "head_office")
    with open_journal(tables) as journal:
        journal.intend(writes("a"))
    out, dump = tmp_path / "backup.tar", tmp_path / "journal.sql"
    printed = call("backup", "--out", out)[1]
    assert "tables/head_office/.journal" in names(out), "which rows of the database are theirs"
    [line] = [line for line in printed.splitlines() if "journal of writes" in line]
    assert (url not in line, f"in {without_password(url)}, by" in line) == (True, True)

    password = urlsplit(url).password or ""
    command = shlex.split(line.rpartition("by ")[2].replace("FILE.sql", str(dump)))
    assert command[0] == "pg_dump"
    other = postgres.new_database_of(url)
    for words in (command, ["psql", "--quiet", f"--file={dump}", without_password(other)]):
        program = [postgres.programs / words[0], *words[1:]]
        subprocess.run(program, env={"PGPASSWORD": password}, check=True)  # noqa: S603 (our own command)
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", other)
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "restored"))
    assert call("restore", out)[0] == 0
    with open_journal(Tables(tmp_path / "restored", "head_office")) as journal:
        assert journal.rows("run-1").equals(writes("a"))


def test_a_journal_that_cannot_be_copied_is_named_and_nothing_is_left(call, home, tmp_path):
    journal, out = home / "tables" / "head_office" / "writes.sqlite", tmp_path / "backup.tar"
    journal.write_bytes(b"garbage" * 1000)
    status, _, err = call("backup", "--out", out)
    assert (status, str(journal) in err, "not a database" in err) == (1, True, True)
    assert not out.exists()
    assert left_behind(tmp_path) == []


def changed(made, change):
    """The backup with its files as `change` gives them, from (name, content) pairs."""
    with tarfile.open(made) as archive:
        contents = ((member, archive.extractfile(member)) for member in archive)
        files = [(member, file.read()) for member, file in contents if file]
    with tarfile.open(made, "w") as archive:
        for member, data in change(files):
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def named(name, **attributes):
    member = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member


@pytest.mark.parametrize(
    "member",
    [
        named("/etc/cron.d/job"),
        named("../outside"),
        named('tables/x"; DROP/owner_writes.parquet'),
        named("warehouse.duckdb"),
        named("instances/.env"),
        named("tables/small/a.parquet", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        named("tables/small", type=tarfile.DIRTYPE),
        named("tables/head_office/owner_decisions.parquet"),  # a second one
        named(f"tables/small{'/a' * 3_000}/x.parquet"),
    ],
)
def test_a_file_with_anything_that_no_backup_holds_is_refused(call, made, tmp_path, member):
    changed(made, lambda files: [files[0], (member, b""), *files[2:]])
    status, _, err = call("restore", made)
    assert status == 2
    assert f"{made} is not a whole backup of asset-owners: it holds {member.name[:200]!r}" in err
    assert len(err) < 1_000
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "harm",
    [
        lambda made: made.write_bytes(b"no tar at all" * 1000),
        lambda made: made.write_bytes(made.read_bytes()[: made.stat().st_size // 2]),
        lambda made: made.write_bytes(made.read_bytes().replace(b"PAR1", b"PAR2", 1)),
        lambda made: changed(made, lambda files: files[:-1]),
        lambda made: changed(made, lambda files: files[1:]),
        lambda made: changed(made, lambda files: [*files[:-1], (files[-1][0], b"[]")]),
        lambda made: made.unlink(),
    ],
)
def test_a_file_that_is_no_whole_backup_is_refused(call, made, tmp_path, harm):
    harm(made)
    status, _, err = call("restore", made)
    assert status == 2, err
    assert str(made) in err
    assert "Traceback" not in err
    assert not (tmp_path / "other").exists()
