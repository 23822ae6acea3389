"""What happens to a run on its machine: a full disk, other commands at the same time, and a signal to end."""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from assets_defs.asset_specs import LOCATION
from pipelines.dagster_home import DAGSTER_YAML, dagster_instance
from resources.store.tables import Tables
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import HOSTS, TENANT, TODAY, UPDATE, USERS, WRITTEN, Ran
from tests.end_to_end.webserver import SECONDS, Webserver, eventually, free_url, started

pytestmark = pytest.mark.slow


def run(stand):
    """`asset-owners run --json` in a process of its own."""
    with Program("run", "--instance", stand.instance_file(), "--json", "--as-of", TODAY) as process:
        stdout, stderr = process.communicate()
    return Ran(process.exit_status or 0, {}, stdout, stderr)


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
    with small_disk(tmp_path / "small", 16 * 2**20) as disk:
        stand.environment.setenv("ASSET_OWNERS_HOME", str(disk))
        stand.environment.setenv("DAGSTER_HOME", str(disk / "dagster"))
        assert run(stand).status == 0
        stand.begin(HOSTS, USERS)
        for left_kib, dagster in ((50, tmp_path / "dagster"), (60, disk / "dagster")):
            stand.environment.setenv("DAGSTER_HOME", str(dagster))
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            filler = disk / "filler"
            filler.write_bytes(b"x" * (free - left_kib * 1024))
            full = run(stand)
            filler.unlink()
            error = json.loads(full.stdout.splitlines()[-1])["error"]
            assert (full.status, f"asset-owners: {error}" in full.stderr) == (1, True), full.stderr
            assert "Traceback" not in full.stderr
            assert "free space on its disk" in error or "free space there" in error, error
            assert str(disk) in error
        assert "Dagster's records of runs" in error
        healed = run(stand)
        assert healed.status == 0, healed.stderr
        assert len(stand.written()) == 2


def test_a_service_whose_disk_is_full_ends_with_the_reason_and_once_there_is_space_the_rest_is_written(
    engine_stand, tmp_path
):
    """Dagster's services would go on, do nothing, and log traces, 4 GB a day.

    Told to end while a run writes, the service ends in ten seconds and accounts for every write.
    """
    stand, log, webserver = engine_stand, tmp_path / "log", Webserver(free_url())
    command = ("asset-owners", "serve", "--port", webserver.url.rpartition(":")[2])
    with small_disk(tmp_path / "small", 16 * 2**20) as disk:
        filler = disk / "filler"
        (disk / "dagster").mkdir()
        settings = re.sub(r"poll_interval_seconds: \d+", "poll_interval_seconds: 1", DAGSTER_YAML)
        (disk / "dagster" / "dagster.yaml").write_text(settings)
        file = stand.instance_file({"writes": {"concurrency": 1}})
        stand.environment.setenv("ASSET_OWNERS_INSTANCES", str(file))
        stand.environment.setenv("ASSET_OWNERS_HOME", str(disk))

        def fill_the_disk(request, _):
            if request.url.path == UPDATE and not filler.exists():
                with suppress(OSError), filler.open("wb", buffering=0) as full:
                    while True:
                        full.write(bytes(4096))

        stand.inventory.hooks.after = fill_the_disk
        with started(*command, log=log) as service:
            eventually(lambda: f"UI is at {webserver.url}" in log.read_text())
            cut_off = webserver.start("small", LOCATION, [], {})
            assert service.wait(SECONDS) == 1
        *_, reason = log.read_text().splitlines()
        assert reason.startswith(f"asset-owners: {disk}: No space left on device; free space there"), reason
        assert len(stand.written()) == 1
        stand.inventory.hooks.after = None
        filler.unlink()
        with started(*command, log=log) as service:
            eventually(lambda: log.read_text().count(f"UI is at {webserver.url}") == 2)
            again = webserver.start("small", LOCATION, [], {})
            eventually(lambda: webserver.run(again)["status"] == "SUCCESS")
            assert webserver.run(cut_off)["status"] == "FAILURE"
            assert stand.written() == WRITTEN
            stand.begin(HOSTS, USERS)
            writing, go_on = stand.hold_back_writes()
            last = webserver.start("small", LOCATION, [], {})
            assert writing.wait(SECONDS), log.read_text()
            told = time.monotonic()
            service.terminate()
            assert service.wait(60) == 0
        assert time.monotonic() - told < 10, log.read_text()
        go_on.set()
        tables = Tables(disk, "small")
        writes = dict(tables.run_writes(last).select("host_id", "outcome").iter_rows())
        assert writes == {"h-1": "intended", "h-2": "not_written"}
        row = tables.rows("runs", last).row(0, named=True)
        assert (row["status"], row["left_alone"]) == ("failed", 2), row


def test_commands_that_start_at_the_same_time_in_an_empty_home_all_succeed(engine_stand):
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda _: run(engine_stand), range(3)))
    assert [one.status for one in ran] == [0, 0, 0], [one.stderr for one in ran]
    assert len(engine_stand.written()) == 2


def test_a_run_that_is_told_to_end_does_so_in_seconds_and_accounts_for_every_write(engine_stand):
    """As a container's runtime does: SIGTERM, and ten seconds later the process is killed."""
    stand = engine_stand
    writing, go_on = stand.hold_back_writes()
    file = stand.instance_file({"writes": {"concurrency": 1}})
    with Program("run", "--instance", file) as process:
        assert writing.wait(SECONDS)
        told = time.monotonic()
        process.terminate()
        _, said = process.communicate()
        assert time.monotonic() - told < 10
    go_on.set()
    assert process.exit_status == 1
    assert "the run was interrupted\nRun " in said
    assert "Writes: 1 host pending; the next run finds out the outcome. 1 host skipped" in said
    writes = stand.tables.writes().select("host_id", "outcome").collect()
    assert dict(writes.iter_rows()) == {"h-1": "intended", "h-2": "not_written"}
    assert stand.tables.all_runs("runs").select("status").collect()["status"].to_list() == ["failed"]

    ran = stand.run()
    assert (ran.status, ran.report["writes"], stand.written()) == (0, {"written": 1}, WRITTEN), ran.stderr
    writes = stand.tables.writes().sort("intended_at", "host_id").select("host_id", "outcome").collect()
    assert writes.rows() == [("h-1", "written"), ("h-2", "not_written"), ("h-2", "written")]


# A home that was copied after its run was killed, and what can be done in the copy at another path


def test_a_copy_of_a_home_answers_at_another_path_and_its_next_run_settles_what_was_pending(
    engine_stand, tmp_path
):
    stand, archive, other = engine_stand, tmp_path / "home.tar", tmp_path / "other"

    def call(*arguments):
        ran = stand.call(*arguments)
        assert ran.exit_code == 0, ran.stdout + ran.stderr
        return ran

    file = stand.instance_file()
    first = stand.run().report["run_id"]
    state = stand.inventory.state
    state.add_assets(TENANT, "host", [{"id": f"t-{n}", "search_agent_name": "pc-1"} for n in range(3)])
    writing, go_on = stand.hold_back_writes()
    with Program("run", "--instance", file, "--as-of", TODAY) as run:
        assert writing.wait(SECONDS)
        run.kill()
        go_on.set()
    subprocess.run(["tar", "-C", stand.home, "-cpf", archive, "."], check=True)  # noqa: S603, S607  (of the guide)
    shutil.rmtree(stand.home / "tables")
    shutil.rmtree(stand.home / "dagster")
    other.mkdir()
    subprocess.run(["tar", "-C", other, "-xpf", archive], check=True)  # noqa: S603, S607

    stand.environment.setenv("ASSET_OWNERS_HOME", str(other))
    assert json.loads(call("sql", "SELECT DISTINCT run_id FROM owner_writes", "--format", "json").stdout) == [
        {"run_id": first}
    ]
    tables = Tables(other, "small")
    with tables.ledger() as ledger:
        [killed] = ledger.targets()
        assert set(ledger.rows("owner_writes", killed)["outcome"]) == {"intended"}
    ran = call("run", "--instance", file, "--as-of", TODAY)
    assert "writes of an earlier run that had no known outcome are settled" in ran.stderr
    assert "intended" not in tables.writes().collect()["outcome"]
    owners = {host["id"]: host.get("asset_owner") for host in state.assets("host")}
    assert [owners[f"t-{number}"] for number in range(3)] == ["ann"] * 3
    assert len(stand.written()) == 5, "each host once"

    call("undo", "--instance", file, first)
    assert not state.asset("h-1").get("asset_owner")
    with dagster_instance(other) as recorded:
        assert {first, killed} < {run.run_id for run in recorded.get_runs()}
