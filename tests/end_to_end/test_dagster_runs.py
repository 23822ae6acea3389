"""Runs as Dagster starts them: from a schedule, over a range of days, as a backfill from its UI."""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets_defs.run import PARTITION
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from resources.settings import load_instance
from tests.end_to_end.stand import TODAY, WRITTEN

pytestmark = pytest.mark.slow

DAYS = [TODAY - timedelta(days=age) for age in (3, 2, 1, 0)]
LOGONS = dg.AssetKey(["small", "logon_counts"])
LATEST = {PARTITION: TODAY.isoformat()}


@pytest.fixture
def launched(recorded_stand):
    """Runs the small company's job as Dagster does, with tags and run configuration and nothing else."""
    instance = load_instance(recorded_stand.instance_file())

    def launch(*, expect_success=True, **arguments):
        definitions = build_definitions([instance], recorded_stand.home)
        job = definitions.resolve_job_def(instance.slug)
        result = job.execute_in_process(instance=recorded, raise_on_error=False, **arguments)
        assert result.success == expect_success
        return result, recorded

    with dagster_instance(recorded_stand.home) as recorded:
        yield launch


def fetched(stand):
    frame = stand.tables.logon_days(DAYS, run_id="none")
    return dict(frame.select("day", "fetched_at").iter_rows())


@pytest.mark.parametrize("tags", [LATEST, {}], ids=["Latest", "no day named"])
def test_the_first_run_of_all_tables_fetches_its_window_and_shows_each_day(recorded_stand, launched, tags):
    """What "Materialize all…" launches for the latest day, on an empty home."""
    _, recorded = launched(tags=tags)
    assert recorded_stand.written() == WRITTEN
    assert recorded.get_materialized_partitions(LOGONS) == {str(day) for day in DAYS}
    first = fetched(recorded_stand)
    assert set(first) == set(DAYS)

    launched(tags=tags)
    assert {day for day, at in fetched(recorded_stand).items() if at > first[day]} == set(DAYS[1:])


# Nothing is written on what another run decided


def build_job(instance_file):
    home = Path(os.environ["ASSET_OWNERS_HOME"])
    return build_definitions([load_instance(Path(instance_file))], home).resolve_job_def("small")


def small_job(stand, settings=None):
    """The small company's job; Dagster builds one a file, in this process and in those of the steps."""
    return dg.build_reconstructable_job(__name__, "build_job", (str(stand.instance_file(settings)),))


def test_a_run_that_is_executed_again_from_failure_looks_at_the_inventory_anew(engine_stand):
    """The brake ended the first one; meanwhile somebody has given a host an owner."""
    braked = small_job(engine_stand, {"writes": {"max_writes": 1}})
    with dagster_instance(engine_stand.home) as recorded:
        with dg.execute_job(braked, recorded, tags=LATEST, raise_on_error=False) as first:
            assert not first.success
        engine_stand.inventory.state.set_field("h-2", "asset_owner", "cyd")
        again = dg.ReexecutionOptions.from_failure(first.run_id, recorded)
        with dg.execute_job(
            small_job(engine_stand), recorded, tags=LATEST, reexecution_options=again, raise_on_error=False
        ) as second:
            assert second.success
    rows = engine_stand.tables.run_writes(second.run_id)
    assert dict(rows.select("host_id", "outcome").iter_rows()) == {"h-1": "written", "h-2": "owned_meanwhile"}
    assert engine_stand.written() == {"h-1": WRITTEN["h-1"]}


def test_steps_may_work_in_processes_of_their_own(engine_stand, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_EXECUTOR", "multiprocess")
    with (
        dagster_instance(engine_stand.home) as recorded,
        dg.execute_job(small_job(engine_stand), recorded, tags=LATEST) as result,
    ):
        assert result.success
    assert engine_stand.written() == WRITTEN
