import json

import dagster as dg
import pytest

from assets_defs.step_failures import as_dagster_failure
from pipelines.dagster_gaps.console import console
from pipelines.dagster_gaps.launcher import LOCK_TAG
from resources.errors import AssetOwnersError

RUN_ID = "3f2b8a60-7f0e-4bb5-9b1b-5a1c2d3e4f50"


@pytest.mark.parametrize("by_command", [True, False])
def test_why_a_run_failed_stands_in_the_log_where_no_command_says_it(capfd, by_command):
    @dg.op
    def hosts():
        with as_dagster_failure():
            raise AssetOwnersError("the service is away")

    @dg.job(logger_defs={"console": console}, config={"loggers": {"console": {}}})
    def small():
        hosts()

    tags = {LOCK_TAG: json.dumps(["here", f"{RUN_ID if by_command else 'earlier'}.lock"])}
    ran = small.execute_in_process(raise_on_error=False, run_id=RUN_ID, tags=tags)
    said = [line[9:] for line in capfd.readouterr().err.splitlines() if line.endswith("is away")]
    assert said == (
        [] if by_command else [f"error: Run {ran.run_id[:8]} of small failed: the service is away"]
    )
