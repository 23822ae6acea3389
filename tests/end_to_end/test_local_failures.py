"""What disks and files do to a run: one message, exit status 1, and the object of --json with the error."""

import json
import os
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest

from resources.settings import tables_location
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import HOSTS, TODAY, USERS


@dataclass(frozen=True)
class Ran:
    """What a process came to."""

    status: int | None
    stdout: str
    stderr: str


def run(stand, **limits):
    """`asset-owners run --json` in a process of its own."""
    words = ("run", "--instance", stand.instance_file(), "--json", "--as-of", TODAY)
    with Program(*words, **limits) as process:
        stdout, stderr = process.communicate()
    return Ran(process.exit_status, stdout, stderr)


def error_of(ran):
    """The error of a run that failed as it should."""
    assert ran.status == 1, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["instance"] == "Small"
    assert f"asset-owners: {report['error']}" in ran.stderr
    return report["error"]


@contextmanager
def small_disk(folder, size):
    """A disk of so many bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if subprocess.run(mount, check=False).returncode:  # noqa: S603
        pytest.skip("this user may not mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)  # noqa: S603, S607


def test_a_full_disk_is_told_wherever_it_is_met_and_the_run_after_heals(recorded_stand, tmp_path):
    stand = recorded_stand
    elsewhere = tmp_path / "dagster"
    with small_disk(tmp_path / "small", 16 * 2**20) as disk:
        stand.environment.setenv("ASSET_OWNERS_HOME", str(disk))
        stand.environment.setenv("DAGSTER_HOME", str(elsewhere))
        found = []
        for left_kib, dagster in ((0, elsewhere), (50, elsewhere), (80, elsewhere), (60, disk / "dagster")):
            stand.environment.setenv("DAGSTER_HOME", str(dagster))
            if not dagster.exists():
                first = run(stand)
                assert first.status == 0, first.stderr
            stand.begin(HOSTS, USERS)
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            filler = disk / "filler"
            filler.write_bytes(b"x" * (free - left_kib * 1024))
            found.append(error_of(run(stand)))
            filler.unlink()
        assert all("free space on its disk" in error or "free space there" in error for error in found), found
        assert all(str(disk) in error for error in found), found
        assert "Dagster's records of runs" in found[-1]
        healed = run(stand)
        assert healed.status == 0, healed.stderr
        assert len(stand.written()) == 2


def test_a_file_that_must_not_grow_is_told(recorded_stand):
    error = error_of(run(recorded_stand, largest_file=16 * 1024))
    assert f"Dagster's records of runs (a database below {recorded_stand.home / 'dagster'})" in error
    assert "free space on its disk" in error


def test_a_damaged_journal_stops_the_run_before_it_writes_and_is_named(recorded_stand):
    journal = recorded_stand.tables.journal
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"garbage" * 1000)
    error = error_of(run(recorded_stand))
    assert f"The journal of writes ({journal}) cannot be used: file is not a database" in error
    assert "put it back from a backup, or move it away" in error
    assert recorded_stand.written() == {}


def test_a_journal_that_another_process_locks_is_told(seeded):
    stand = seeded
    with closing(sqlite3.connect(stand.tables.journal, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        error = error_of(run(stand))
    assert f"The journal of writes ({stand.tables.journal}) cannot be used" in error
    assert "another process keeps it locked" in error


def test_a_table_that_a_step_cannot_read_is_named(seeded):
    stand = seeded
    [torn] = [path for path in stand.tables.folder.glob("owner_decisions_history/*") if path.stem != "empty"]
    torn.write_bytes(torn.read_bytes()[:-20])
    assert f"Damaged tables: {torn}. Put them back from a backup" in error_of(run(stand))


def test_commands_that_start_at_once_in_an_empty_home_all_come_to_their_end(recorded_stand):
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda _: run(recorded_stand), range(3)))
    assert [one.status for one in ran] == [0, 0, 0], [one.stderr for one in ran]
    assert len(recorded_stand.written()) == 2


@pytest.mark.parametrize("lacking", ["bucket", "service", "key"])
def test_an_object_store_that_cannot_be_used_is_told_once_and_nothing_is_written(
    recorded_stand, request, lacking
):
    stand = recorded_stand
    request.getfixturevalue("object_store")
    if lacking == "bucket":
        stand.environment.setenv("ASSET_OWNERS_TABLES", "s3://lacking/tables")
    elif lacking == "service":
        stand.environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        stand.environment.setenv("AWS_MAX_ATTEMPTS", "1")
    else:
        stand.environment.delenv("AWS_SECRET_ACCESS_KEY")
        stand.environment.delenv("AWS_ACCESS_KEY_ID")
    error = error_of(run(stand))
    assert error.count("ASSET_OWNERS_TABLES: s3://") == 1, error
    assert " cannot be used: " in error
    assert stand.written() == {}
    with Program("check", "--instance", stand.instance_file()) as process:
        said, _ = process.communicate()
    assert process.exit_status == 1
    assert "wrong ASSET_OWNERS_TABLES: s3://" in " ".join(said.split())
    assert "\n1 to fix, " in said


def test_metrics_tell_that_the_object_store_cannot_be_read(recorded_stand, request):
    request.getfixturevalue("object_store")
    recorded_stand.environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    recorded_stand.environment.setenv("AWS_MAX_ATTEMPTS", "1")
    with Program("metrics", "--instance", recorded_stand.instance_file()) as process:
        said, logged = process.communicate()
    assert process.exit_status == 0, logged
    assert 'asset_owners_instance_readable{instance="small"} 0.0' in said


def test_check_tries_the_object_store_and_leaves_nothing_there(recorded_stand, request):
    request.getfixturevalue("object_store")
    with Program("check", "--instance", recorded_stand.instance_file()) as process:
        said, _ = process.communicate()
    assert process.exit_status == 0
    assert f"Tables {tables_location()}\n  ok         ASSET_OWNERS_TABLES: an object could be stored" in said
    assert not list(tables_location().glob("*"))
