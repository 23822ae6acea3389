"""A home that was copied after its run was killed, and what can be done in the copy at another path."""

import json
import shutil
import subprocess

import pytest

from pipelines.dagster_home import dagster_instance
from resources.store.tables import Tables
from tests.end_to_end.processes import Program
from tests.end_to_end.stand import TENANT, TODAY
from tests.end_to_end.webserver import SECONDS

pytestmark = pytest.mark.slow


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
