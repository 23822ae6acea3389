"""`asset-owners run` as its callers see it: exit status, JSON, words, and nothing secret anywhere."""

import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from assets_defs.specs import LOCATION
from pipelines.dagster_home import dagster_instance
from tests.end_to_end.stand import ASSET_OWNERS, TODAY

pytestmark = pytest.mark.slow

DECISIONS = {
    "majority/matched/write": 1,
    "no_majority/null/none": 1,
    "single_user/matched/conflict": 1,
    "single_user/matched/write": 1,
}
WINDOW = {"from": (TODAY - timedelta(days=3)).isoformat(), "to": TODAY.isoformat(), "days": 4}


def asset_owners(*arguments):
    command = [ASSET_OWNERS, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 (our own command)


def test_the_program_runs_the_job_records_it_and_prints_one_object_as_its_last_line(engine_stand):
    stand = engine_stand
    file = stand.instance_file()
    ran = asset_owners("run", "--instance", file, "--json", "--as-of", TODAY)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report == {
        "run_id": report["run_id"],
        "instance": "Small",
        "window": WINDOW,
        "decisions": DECISIONS,
        "writes": {"written": 2},
        "conflicts": 1,
        "dry_run": False,
    }
    with dagster_instance(stand.home) as recorded:
        (run,) = recorded.get_runs()
    assert (run.run_id, run.job_name, run.status.value) == (report["run_id"], "small", "SUCCESS")
    assert run.remote_job_origin
    assert run.remote_job_origin.location_name == LOCATION
    ours = {name for name in run.tags if name.startswith("asset_owners/")}
    assert ours == {f"asset_owners/{name}" for name in ("instance", "kind", "result", "window")}
    assert {path.stat().st_mode & 0o077 for path in stand.tables.folder.rglob("*")} == {0}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--instance", "nowhere.yaml", "--json"]])
def test_an_output_that_takes_nothing_is_told_in_one_message(tmp_path, arguments):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(  # noqa: S603  (our own command)
            [ASSET_OWNERS, *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    assert ended.returncode == 1, ended.stderr
    assert len(re.findall("^asset-owners: ", ended.stderr, re.MULTILINE)) == 1
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
