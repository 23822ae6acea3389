"""What disks and files do to a run: one message, exit status 1, and the object of --json with the error."""

import json
import os
import resource
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.end_to_end.stand import ASSET_OWNERS, HOSTS, TODAY, USERS


def run(stand, *, largest_file=resource.RLIM_INFINITY):
    """`asset-owners run --json` in a process of its own."""
    return subprocess.run(  # noqa: S603  (our own command)
        [ASSET_OWNERS, "run", "--instance", stand.instance_file(), "--json", "--as-of", str(TODAY)],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file)),
    )


def error_of(ran):
    """The error of a run that failed as it should."""
    assert ran.returncode == 1, ran.stderr
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
            first = run(stand)
            assert first.returncode == 0, first.stderr
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
        assert healed.returncode == 0, healed.stderr
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


def test_a_journal_that_another_process_locks_is_told(recorded_stand):
    stand = recorded_stand
    assert run(stand).returncode == 0
    with closing(sqlite3.connect(stand.tables.journal, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        error = error_of(run(stand))
    assert f"The journal of writes ({stand.tables.journal}) cannot be used" in error
    assert "another process keeps it locked" in error


def test_a_table_that_a_step_cannot_read_is_named(recorded_stand):
    stand = recorded_stand
    assert run(stand).returncode == 0
    [torn] = [path for path in stand.tables.folder.glob("owner_decisions_history/*") if path.stem != "empty"]
    torn.write_bytes(torn.read_bytes()[:-20])
    assert f"Damaged tables: {torn}. Put them back from a backup" in error_of(run(stand))


def test_commands_that_start_at_once_in_an_empty_home_all_come_to_their_end(recorded_stand):
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda _: run(recorded_stand), range(3)))
    assert [one.returncode for one in ran] == [0, 0, 0], [one.stderr for one in ran]
    assert len(recorded_stand.written()) == 2
