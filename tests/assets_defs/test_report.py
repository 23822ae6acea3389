from dataclasses import replace
from urllib.parse import unquote

import dagster as dg
import polars as pl
import pytest
import yaml

from assets_defs.plans import write_planned
from assets_defs.report import Report, reporting, where_reported
from resources.errors import ServiceError
from resources.settings import tables_location
from resources.store.retention import What, stored_files
from tests.assets_defs.scans import ONE_DAY, decided, scan
from tests.assets_defs.test_writing import follow
from tests.ownership.builders import RUN, host
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.reports.test_page import packed
from tests.resources.samples import instance

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue")]


@pytest.fixture
def page(tmp_path):
    return tmp_path / "reports" / "windows_logons.html"


@pytest.fixture
def run(tmp_path):
    return decided(tmp_path, instance(), Shelf())


def shown(result, table, name="report"):
    """What the page of a table says: by default, where the report is."""
    observed = [one.asset_observation_data.asset_observation for one in result.get_asset_observation_events()]
    made = [one.materialization for one in result.get_asset_materialization_events()]
    (event,) = [event for event in (*made, *observed) if event.asset_key.path[-1] == table]
    return event.metadata[name].value


@pytest.mark.parametrize(
    ("served", "address"),
    [
        ({"ASSET_OWNERS_UI_HOSTS": "127.0.0.1"}, "/reports/windows_logons"),
        ({"ASSET_OWNERS_UI_URL": "https://ui.example/"}, "https://ui.example/reports/windows_logons"),
    ],
)
def test_the_report_is_a_link_where_our_server_shows_it(run, monkeypatch, served, address):
    for name, value in served.items():
        monkeypatch.setenv(name, value)
    assert where_reported(run) == dg.MetadataValue.url(address)


def test_a_run_that_may_write_leaves_the_report_and_its_tables_say_where(tmp_path, page):
    job = Job(tmp_path, instance())
    planned = job(options={"dry_run": True})
    assert (page.exists(), job.inventory.written) == (False, {})
    assert shown(planned, "owner_writes").endswith(f"--run {planned.run_id[:8]}")
    link = unquote(shown(planned, "owner_writes", "open_in_launchpad"))
    launchpad = link.partition("?config=")[2].strip(")")
    assert dg.validate_run_config(
        job.definitions().resolve_job_def("windows_logons__apply"), yaml.safe_load(launchpad)
    )
    assert planned.run_id in launchpad
    result = job()
    written = page.read_text()
    assert "ann@corp.example" in written
    assert [shown(result, table) for table in ("owner_decisions", "owner_writes")] == [str(page)] * 2
    undo = {"windows_logons__undo_run": {"config": {"run_id": result.run_id}}}
    undone = job("windows_logons__undo", ops=undo)
    assert shown(undone, "owner_writes") == str(page)
    assert page.read_text() != written


def test_a_run_that_finds_what_the_page_shows_leaves_it_as_it_is(tmp_path, page):
    job = Job(tmp_path, instance(), LogFile((LAST, "pc-1", "ann"), (LAST, "pc-2", "bob")))
    assert job().success
    wrote = page.read_bytes()
    assert job().success
    found = page.read_bytes()
    assert found != wrote
    assert job().success
    assert page.read_bytes() == found

    def is_left_as_it_is(settings=job.instance):
        before = page.read_bytes()
        with reporting(scan(job.tables, settings, ONE_DAY)):
            pass
        return page.read_bytes() == before

    assert is_left_as_it_is()
    changes = {
        "inventory_hosts": pl.lit("Sales").alias("department"),
        "owner_decisions": pl.col("events", "total_events") + 1,
    }
    for table, change in changes.items():
        rows = job.tables.read(table).with_columns(change)
        job.tables.write(table, rows.collect(), run_id=job.tables.published_run(), publish=True)
        assert not is_left_as_it_is(), table
    assert not is_left_as_it_is(instance(rules={"share_threshold_percent": 70}))
    page.write_text("<p>an older program's</p>")
    assert not is_left_as_it_is()


def test_a_run_that_fails_leaves_the_report_too(run, page):
    with pytest.raises(ServiceError), reporting(run):
        raise ServiceError("no answer")
    assert page.exists()


def test_a_report_that_cannot_be_written_fails_no_run(run, page, caplog):
    page.mkdir(parents=True)
    with reporting(run):
        pass
    assert "The report could not be written" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("object_store")
def test_with_tables_in_an_object_store_the_report_lies_beside_them(run, page, monkeypatch):
    """What a run in a container leaves in its home goes with the container."""
    tables = replace(run.tables, location=tables_location())
    tables.prepare()
    run, report = replace(run, tables=tables), tables.folder / "report.html"
    with reporting(run):
        pass
    assert (page.exists(), "Owners of hosts" in report.read_text()) == (False, True)
    monkeypatch.setattr(Report, "html", lambda _: pytest.fail("it is made again"))
    with reporting(run):
        pass
    kept = [file.path for file in stored_files(tables) if file.what is What.REPORT]
    assert kept == [report]


def test_a_plan_that_was_undone_and_applied_again_keeps_each_of_its_writes_in_the_report(run, page):
    write_planned(replace(run, why_no_writes="Dry run"))
    for run_id, what, about in (("1", "apply", RUN), ("2", "undo", "1"), ("3", "apply", RUN)):
        follow(run, what, about, run_id=run_id)
    with reporting(run):
        pass
    assert packed(page.read_text(encoding="utf-8"))["writes"]["outcome"] == ["written", "undone", "written"]


def test_after_some_hosts_of_a_plan_are_applied_the_page_counts_the_others_as_without_an_owner(
    tmp_path, page
):
    logons = LogFile((LAST, "pc-1", "ann"), (LAST, "pc-2", "ann"))
    job = Job(tmp_path, instance(), logons, Shelf(host("h1", "pc-1"), host("h2", "pc-2")))
    planned = job(options={"dry_run": True})
    ops = {"windows_logons__apply_plan": {"config": {"run_id": planned.run_id, "hosts": ["pc-1"]}}}
    assert job("windows_logons__apply", ops=ops).success
    assert "<b>0.0% → 50.0%</b>" in page.read_text(encoding="utf-8")
    found = packed(page.read_text(encoding="utf-8"))
    assert found["hosts"]["status"] == ["written", "no owner"]
    assert found["hosts"]["why"][1] == "not written yet"
    assert found["writes"]["outcome"] == ["written"]
