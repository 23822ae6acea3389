from pathlib import Path

import dagster as dg
import pytest

from assets_defs.run_request import PARTITION
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import define
from resources.settings import load_instance
from tests.end_to_end.stand import TODAY

pytestmark = pytest.mark.slow

LATEST = {PARTITION: TODAY.isoformat()}


def build_job(instance_file):
    return define(load_instance(Path(instance_file))).resolve_job_def("small")


def test_a_run_that_is_executed_again_from_failure_only_plans_and_says_so(engine_stand):
    """The brake ended the first one. A whole run lists hosts and users anew, this one would not.

    The second one's steps work in processes of their own; Dagster builds the job there from its file.
    """
    stand = engine_stand

    def small_job(max_writes):
        file = stand.instance_file({"writes": {"max_writes": max_writes}})
        return dg.build_reconstructable_job(__name__, "build_job", (str(file),))

    with dagster_instance(stand.home) as recorded:
        with dg.execute_job(small_job(1), recorded, tags=LATEST, raise_on_error=False) as first:
            assert not first.success
        stand.environment.setenv("ASSET_OWNERS_EXECUTOR", "multiprocess")
        again = dg.ReexecutionOptions.from_failure(first.run_id, recorded)
        with dg.execute_job(small_job(2), recorded, tags=LATEST, reexecution_options=again) as second:
            assert second.success
    rows = stand.tables.run_writes(second.run_id)
    assert set(rows.select("host_id", "outcome").iter_rows()) == {("h-1", "planned"), ("h-2", "planned")}
    assert stand.written() == {}
    (row,) = stand.tables.appended("runs", second.run_id).to_dicts()
    assert row["kind"] == "dry_run"
    assert "does not execute logons" in row["message"]
    assert " run --instance " in row["message"]
