"""The report that runs leave in the home."""

import pytest

from resources.store.tables import Tables
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue")


@pytest.fixture
def job(tmp_path):
    return Job(instance(), tmp_path, LogFile((LAST, "pc-1", "ann")), Shelf(hosts(host("h1", "pc-1"))))


@pytest.fixture
def page(tmp_path):
    return tmp_path / "reports" / "windows_logons.html"


def shown(result, table):
    """Where the page of a table says that the report is."""
    events = result.get_asset_materialization_events()
    (event,) = [event for event in events if event.asset_key.path[-1] == table]
    return event.materialization.metadata["report"].value


def test_a_run_that_may_write_leaves_the_report_and_its_tables_say_where(job, page):
    result = job()
    assert result.success
    assert "ann@corp.example" in page.read_text()
    assert [shown(result, table) for table in ("owner_decisions", "owner_writes")] == [str(page)] * 2
    written = page.read_text()
    undo = {"windows_logons__undo_run": {"config": {"run_id": result.run_id}}}
    undone = job("windows_logons__undo", ops=undo)
    assert shown(undone, "owner_writes") == str(page)
    assert page.read_text() != written


def test_a_dry_run_leaves_the_report_as_it_is_and_says_what_makes_one_of_it(job, page):
    planned = job(options={"dry_run": True})
    assert not page.exists()
    assert shown(planned, "owner_writes").endswith(f"--run {planned.run_id[:8]}")


def test_a_run_that_fails_when_its_tables_are_published_leaves_the_report_too(job, page):
    job.instance = instance(writes={"max_write_percent": 1})
    assert not job().success
    assert page.exists()


def test_a_report_that_cannot_be_written_fails_no_run(job, page, capfd):
    page.mkdir(parents=True)
    assert job().success
    assert "The report could not be written" in capfd.readouterr().err


def test_tables_that_cannot_be_read_for_the_report_fail_no_run(job, monkeypatch, capfd):
    def torn(_):
        raise OSError("torn")

    monkeypatch.setattr(Tables, "shown", torn)
    assert job().success
    assert "The report could not be written: torn" in capfd.readouterr().err
