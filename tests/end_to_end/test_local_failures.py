"""What disks and files do to a run: one message, exit status 1, and the object of --json with the error."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.end_to_end.processes import Program
from tests.end_to_end.stand import HOSTS, TODAY, USERS, Ran

pytestmark = pytest.mark.slow


def run(stand):
    """`asset-owners run --json` in a process of its own."""
    with Program("run", "--instance", stand.instance_file(), "--json", "--as-of", TODAY) as process:
        stdout, stderr = process.communicate()
    return Ran(process.exit_status or 0, {}, stdout, stderr)


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


def test_a_full_disk_is_told_wherever_it_is_met_and_the_run_after_heals(engine_stand, tmp_path):
    stand = engine_stand
    elsewhere = tmp_path / "dagster"
    with small_disk(tmp_path / "small", 16 * 2**20) as disk:
        stand.environment.setenv("ASSET_OWNERS_HOME", str(disk))
        stand.environment.setenv("DAGSTER_HOME", str(elsewhere))
        found = []
        for left_kib, dagster in ((50, elsewhere), (60, disk / "dagster")):
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


def test_commands_that_start_at_once_in_an_empty_home_all_come_to_their_end(engine_stand):
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda _: run(engine_stand), range(3)))
    assert [one.status for one in ran] == [0, 0, 0], [one.stderr for one in ran]
    assert len(engine_stand.written()) == 2
