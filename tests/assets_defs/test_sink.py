"""What Dagster's page of owner_writes shows of each kind of run."""

from typing import Any

import pytest

from tests.pipelines.in_memory import Job
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")


def test_a_plan_that_the_brake_stops_is_shown_as_that_of_a_dry_run_is(tmp_path):
    job = Job(tmp_path, instance(writes={"max_writes": 0}))
    stopped = job()
    (event,) = stopped.get_asset_observation_events()
    shown: Any = event.asset_observation_data.asset_observation.metadata
    assert (stopped.success, job.inventory.written) == (False, {})
    assert shown["to_apply"].value.endswith(f"{stopped.run_id[:8]} --allow-writes 1")
    assert "allow_writes" in shown["to_apply_here"].value
    assert shown["hosts"].records[0].data["owner"] == "ann@corp.example (u1)"
    assert shown["result"].value == "Nothing is sent: 1 hosts to write"
