"""What docs/scaling.md says works: other executors, ranges of any length, tables in an object store."""

from datetime import timedelta

import dagster as dg
import polars as pl
import polars.selectors as cs
import pytest

from assets_defs.run import RANGE_END, RANGE_START
from ownership.tables import TABLES
from pipelines.cli.stored import tables_of
from pipelines.dagster_home import dagster_instance
from pipelines.definitions import build_definitions, build_repository
from resources.settings import instances_folder, load_instance
from resources.store.tables import Tables
from tests.end_to_end.stand import TODAY, WRITTEN

DAYS = [TODAY - timedelta(days=age) for age in reversed(range(10))]
LOGONS = [dg.AssetKey(["small", table]) for table in ("logon_counts", "logon_days")]
MOMENTS = ("decided_at", "fetched_at", "listed_at", "intended_at", "completed_at")
DIFFERING = cs.by_name("run_id", *MOMENTS, require_all=False)


@pytest.fixture
def good_tables(tables_of_a_good_run):
    return Tables(tables_of_a_good_run.parents[1], "small")


def rows(tables, table):
    """The rows of a table, but for what differs from run to run."""
    folder = tables.folder
    files = folder.glob(f"{table}/*.parquet") if (folder / table).is_dir() else [folder / f"{table}.parquet"]
    frame = pl.concat([pl.read_parquet(path.fs.cat_file(path.path)) for path in files])
    return sorted(frame.drop(DIFFERING).rows(), key=repr)


def test_days_are_the_same_in_ranges_of_any_length(stand, good_tables):
    instance = load_instance(stand.instance_file())
    for length in (1, 7, 10):
        folder = stand.home / f"{length}-days"
        job = build_definitions([instance], folder).resolve_job_def(instance.slug)
        with dg.DagsterInstance.ephemeral() as recorded:
            for first in range(0, len(DAYS), length):
                days = DAYS[first : first + length]
                span = {RANGE_START: str(days[0]), RANGE_END: str(days[-1])}
                result = job.execute_in_process(instance=recorded, tags=span, asset_selection=LOGONS)
                assert result.success
        found = rows(Tables(folder, instance.slug), "logon_counts")
        assert found == rows(good_tables, "logon_counts"), length


def job_in_several_processes():
    """What a user who wants another executor writes; Dagster calls it anew in each step's process."""
    return build_repository(executor=dg.multiprocess_executor).get_job("small")


def test_days_are_the_same_when_another_process_fetches_them(recorded_stand, good_tables, monkeypatch):
    file = recorded_stand.instance_file()
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(recorded_stand.home / "instances"))
    instances_folder().mkdir()
    file.rename(instances_folder() / file.name)
    with (
        dagster_instance(recorded_stand.home) as recorded,
        dg.execute_job(
            dg.reconstructable(job_in_several_processes),
            recorded,
            tags={RANGE_START: str(TODAY - timedelta(days=3)), RANGE_END: str(TODAY)},
            asset_selection=LOGONS,
        ) as result,
    ):
        assert result.success
    assert rows(recorded_stand.tables, "logon_counts") == rows(good_tables, "logon_counts")


def test_a_run_with_tables_in_an_object_store_leaves_the_same_tables(stand, good_tables, request):
    request.getfixturevalue("object_store")
    ran = stand.run()
    assert ran.status == 0, ran.stderr
    assert stand.written() == WRITTEN
    tables = tables_of(load_instance(stand.instance_file()))
    for table in TABLES.keys() - {"runs"}:
        assert rows(tables, table) == rows(good_tables, table), table
    assert list(stand.home.rglob("*.parquet")) == []

    answer = stand.call("sql", "--format", "csv", "SELECT count(*) AS hosts FROM inventory_hosts")
    assert answer.stdout == '"hosts"\n4\n'
    again = stand.run()
    assert (again.status, again.report["writes"]) == (0, {})
    undone = stand.call("undo", "--instance", stand.instance_file(), ran.report["run_id"])
    assert undone.exit_code == 0, undone.output
