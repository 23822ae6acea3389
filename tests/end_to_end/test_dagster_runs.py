"""Runs as Dagster starts them: from a schedule, over a range of days, as a backfill from its UI."""

import os
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import pytest

from assets_defs.run import PARTITION, RANGE_END, RANGE_START, failure_message, resource_keys
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions
from resources.settings import load_instance
from tests.end_to_end.stand import TODAY, WRITTEN

DAYS = [TODAY - timedelta(days=age) for age in (3, 2, 1, 0)]
LOGONS = [dg.AssetKey(["small", table]) for table in ("logon_counts", "logon_days")]
RANGE = {RANGE_START: DAYS[0].isoformat(), RANGE_END: DAYS[-1].isoformat()}
LATEST = {PARTITION: TODAY.isoformat()}


@pytest.fixture
def launched(recorded_stand):
    """Runs the small company's job as Dagster does, with tags and run configuration and nothing else."""
    instance = load_instance(recorded_stand.instance_file())

    def launch(*, expect_success=True, **arguments):
        job = build_definitions([instance], recorded_stand.home).resolve_job_def(instance.slug)
        result = job.execute_in_process(instance=recorded, raise_on_error=False, **arguments)
        assert result.success == expect_success
        return result, recorded

    with dagster_instance(recorded_stand.home) as recorded:
        yield launch


def fetched(stand):
    frame = stand.tables.logon_days(DAYS, run_id="none")
    return dict(frame.select("day", "fetched_at").iter_rows())


def test_a_range_of_days_is_one_run_that_materializes_each_day_and_writes_nothing(recorded_stand, launched):
    result, recorded = launched(tags=RANGE)
    assert [run.run_id for run in recorded.get_runs()] == [result.run_id]
    for key in LOGONS:
        assert recorded.get_materialized_partitions(key) == {str(day) for day in DAYS}
    assert recorded_stand.written() == {}
    assert recorded_stand.tables.run_writes(result.run_id)["outcome"].to_list() == ["planned"] * len(WRITTEN)


def test_the_schedule_leaves_settled_days_and_a_backfill_fetches_what_it_names(recorded_stand, launched):
    launched(tags=RANGE)
    first = fetched(recorded_stand)
    instance = load_instance(recorded_stand.instance_file())
    schedule = build_definitions([instance], recorded_stand.home).resolve_schedule_def("small")
    tick = dg.build_schedule_context(scheduled_execution_time=datetime.combine(TODAY, time(5), UTC))
    (request,) = schedule.evaluate_tick(tick).run_requests or []
    launched(tags=request.tags, run_config=request.run_config)
    second = fetched(recorded_stand)
    assert {day for day in DAYS if second[day] > first[day]} == set(DAYS[1:])

    oldest = {RANGE_START: str(DAYS[0]), RANGE_END: str(DAYS[0])}
    launched(tags=oldest, asset_selection=LOGONS)
    third = fetched(recorded_stand)
    assert {day for day in DAYS if third[day] > second[day]} == {DAYS[0]}


@pytest.mark.parametrize("tags", [LATEST, {}], ids=["Latest", "no day named"])
def test_the_first_run_of_all_tables_fetches_its_window_and_shows_each_day(recorded_stand, launched, tags):
    """What "Materialize all…" launches for the latest day, on an empty home."""
    _, recorded = launched(tags=tags)
    assert recorded_stand.written() == WRITTEN
    for key in LOGONS:
        assert recorded.get_materialized_partitions(key) == {str(day) for day in DAYS}
    first = fetched(recorded_stand)
    assert set(first) == set(DAYS)

    launched(tags=tags)
    assert {day for day, at in fetched(recorded_stand).items() if at > first[day]} == set(DAYS[1:])


def test_days_that_a_failed_run_has_stored_are_shown_by_the_next_one(recorded_stand, launched):
    """Dagster knows nothing of what a failed step did; what is settled is not fetched again."""
    _, recorded = launched(tags=RANGE)
    for key in LOGONS:
        recorded.wipe_assets([key])
    before = fetched(recorded_stand)
    launched(tags=LATEST)
    assert fetched(recorded_stand)[DAYS[0]] == before[DAYS[0]]
    for key in LOGONS:
        assert recorded.get_materialized_partitions(key) == {str(day) for day in DAYS}


def test_shares_by_themselves_decide_nothing_with_days_that_were_never_fetched(recorded_stand, launched):
    shares = [dg.AssetKey(["small", "host_user_shares"])]
    launched(tags=LATEST, asset_selection=LOGONS)
    assert set(fetched(recorded_stand)) == {TODAY}, "a run that only fetches, fetches what it names"
    result, _ = launched(tags=LATEST, asset_selection=shares, expect_success=False)
    (message,) = told(result)
    assert (
        f"3 of 4 days of the look-back window were never fetched with present settings, the first {DAYS[0]}"
        in message
    )


def test_single_days_may_be_fetched_one_after_another_before_a_run_decides(recorded_stand, launched):
    for day in DAYS[:-1]:
        launched(tags={PARTITION: str(day)}, asset_selection=LOGONS)
    launched(tags={PARTITION: str(DAYS[-1])})
    assert recorded_stand.written() == WRITTEN


# Nothing is written on what another run decided


def told(result):
    return [failure_message(failure.step_failure_data.error) for failure in result.get_step_failure_events()]


@pytest.mark.parametrize(
    ("option", "wrong", "says"),
    [
        ("limit", -1, "limit: -1 would write nothing; give 1 or more"),
        ("limit", 0, "limit: 0 would write nothing; give 1 or more"),
        ("lookback_days", -5, "lookback_days: -5 is no number of days; give 1 to 3,660"),
        ("lookback_days", 0, "lookback_days: 0 is no number of days; give 1 to 3,660"),
    ],
)
def test_the_launchpad_takes_no_number_that_means_something_else(
    recorded_stand, launched, option, wrong, says
):
    """As with the command line; `limit: -1` wrote all hosts of the plan but one."""
    keys = resource_keys(load_instance(recorded_stand.instance_file()))
    options = {"resources": {keys.scan: {"config": {option: wrong}}}}
    result, _ = launched(tags=LATEST, run_config=options, expect_success=False)
    assert all(message.startswith(says) for message in told(result))
    assert recorded_stand.written() == {}


def small_job():
    """The small company's job, for Dagster to build anew."""
    instance = load_instance(Path(os.environ["SMALL"]))
    return build_definitions([instance], Path(os.environ["ASSET_OWNERS_HOME"])).resolve_job_def("small")


def test_a_run_that_is_executed_again_from_failure_looks_at_the_inventory_anew(recorded_stand, monkeypatch):
    """The brake ended the first one; meanwhile somebody has given a host an owner."""
    monkeypatch.setenv("SMALL", str(recorded_stand.instance_file({"writes": {"max_writes": 1}})))
    job = dg.reconstructable(small_job)
    with dagster_instance(recorded_stand.home) as recorded:
        with dg.execute_job(job, recorded, tags=LATEST, raise_on_error=False) as first:
            assert "2 owners are planned" in told(first)[0]
        monkeypatch.setenv("SMALL", str(recorded_stand.instance_file()))
        recorded_stand.inventory.state.set_field("h-2", "asset_owner", "cyd")
        again = dg.ReexecutionOptions.from_failure(first.run_id, recorded)
        with dg.execute_job(
            job, recorded, tags=LATEST, reexecution_options=again, raise_on_error=False
        ) as second:
            assert second.success
    rows = recorded_stand.tables.run_writes(second.run_id)
    assert dict(rows.select("host_id", "outcome").iter_rows()) == {"h-1": "written", "h-2": "owned_meanwhile"}
    assert recorded_stand.written() == {"h-1": WRITTEN["h-1"]}


def test_a_run_that_is_executed_again_too_late_writes_nothing(recorded_stand, monkeypatch):
    monkeypatch.setenv("SMALL", str(recorded_stand.instance_file({"writes": {"max_writes": 1}})))
    job = dg.reconstructable(small_job)
    with dagster_instance(recorded_stand.home) as recorded:
        with dg.execute_job(job, recorded, tags=LATEST, raise_on_error=False) as first:
            assert not first.success
        monkeypatch.setenv("SMALL", str(recorded_stand.instance_file()))
        monkeypatch.setattr("assets_defs.writing.MAX_RUN_TIME", timedelta())
        again = dg.ReexecutionOptions.from_failure(first.run_id, recorded)
        with dg.execute_job(
            job, recorded, tags=LATEST, reexecution_options=again, raise_on_error=False
        ) as second:
            assert "hours ago" in told(second)[0]
    assert recorded_stand.written() == {}
