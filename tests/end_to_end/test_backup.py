"""A backup taken while a run writes, and what can be done in a home that is made from it."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.dagster_home import dagster_instance
from resources.store.tables import Tables
from resources.writeback.journal import Journal
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import ADMIN, TENANT, TODAY
from tests.end_to_end.webserver import SECONDS, eventually

pytestmark = pytest.mark.slow


def test_a_backup_waits_for_a_run_that_writes_and_all_commands_work_where_it_is_restored(
    engine_stand, tmp_path, caplog
):
    stand, out, other = engine_stand, tmp_path / "backup.tar", tmp_path / "other"

    def call(*arguments):
        ran = stand.call(*arguments)
        assert ran.exit_code == 0, ran.stdout + ran.stderr
        return ran

    file = stand.instance_file()
    (stand.home / "instances").mkdir()
    shutil.copy(file, stand.home / "instances")
    first = stand.run().report["run_id"]
    state = stand.inventory.state
    state.add_assets(TENANT, "host", [{"id": f"t-{n}", "search_agent_name": "pc-1"} for n in range(3)])
    writing, go_on = stand.hold_back_writes()
    with Program("run", "--instance", file, "--as-of", TODAY) as run, ThreadPoolExecutor(1) as pool:
        assert writing.wait(SECONDS)
        stand.environment.setattr("resources.locks.WARN_SECONDS", 0)
        backup = pool.submit(call, "backup", "--out", out)
        eventually(lambda: backup.done() or "The writing of small: waiting for" in caplog.text)
        assert not backup.done()
        run.kill()
        go_on.set()
        backup.result()
    assert ADMIN.password.encode() not in out.read_bytes()
    shutil.rmtree(stand.home / "tables")
    shutil.rmtree(stand.home / "dagster")

    stand.environment.setenv("ASSET_OWNERS_HOME", str(other))
    call("restore", out)
    assert (other / "instances" / file.name).read_bytes() == file.read_bytes()
    assert json.loads(call("sql", "SELECT DISTINCT run_id FROM owner_writes", "--format", "json").stdout) == [
        {"run_id": first}
    ]
    tables = Tables(other, "small")
    with Journal(tables.journal) as journal:
        [killed] = journal.targets()
        assert set(journal.rows(killed)["outcome"]) == {"intended"}
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
