"""Each benchmark runs at a tiny size, and its contenders come to the same result; no test looks at a time."""

import shutil
from dataclasses import replace

import polars as pl
import pytest
import yaml

from assets_defs.tuning import TABLES_OF_TUNING
from bench import daily, extraction, first_run, inventory, night, overhead, report, resolution, tuning
from bench.bare_job import ASSETS
from bench.logons import FIRST_DAY, days_from
from ownership.tables import TABLES
from resources.store.tables import Tables
from sandbox.inventory import InventoryService, InventoryState
from sandbox.stand import Sandbox
from tests.resources.inventory_world import ADMIN, TENANT
from tests.resources.samples import instance_content

pytestmark = pytest.mark.nightly

TINY = resolution.Size(rows=3_000, hosts=100, users=80)


@pytest.fixture
def sandbox(engine, tmp_path, monkeypatch):
    """Both services, an inventory without assets, and an instance file; nothing is loaded."""
    content = instance_content(
        name="Demo", url=engine.url, username="admin", ca_file=str(engine.ca_file), index="logs-nothing-*"
    )
    monkeypatch.setenv("SEARCH_PASSWORD", engine.admin.password)
    monkeypatch.setenv("INVENTORY_PASSWORD", ADMIN.password)
    with InventoryState(tmp_path / "state") as state, InventoryService(state) as service:
        state.reset([ADMIN], [], [], TENANT)
        content["platform"] |= {"url": service.url, "email": ADMIN.email, "tenant_id": TENANT}
        file = tmp_path / "demo.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        yield Sandbox(engine, service, file)


def counts(experiment, what):
    return [timing.counts[what] for timing in experiment.timings if what in timing.counts]


def test_extraction_counts_all_events(engine):
    found = extraction.measure(engine, extraction.Size(events=600, hosts=10, days=3), 1)
    assert counts(found, "events") == [600]
    assert counts(found, "requests") == [3]


def test_a_daily_run_asks_for_less_than_the_first(sandbox, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    first, later = daily.measure(sandbox, home, events=3_000, hosts=20).timings
    assert later.counts["searches"] < first.counts["searches"] / 4


def test_a_first_run_fetches_what_the_bare_requests_fetch_and_the_next_one_nothing(sandbox, tmp_path):
    found = first_run.measure(sandbox, tmp_path, extraction.Size(events=600, hosts=10, days=3), 1)
    assert counts(found, "requests") == [3]
    tables = Tables(tmp_path / "home", "bench_first")
    days = tables.logon_days(days_from(FIRST_DAY, 3), run_id=None)
    _, later = tables.all_runs("runs").select(pl.col("started_at").sort()).collect().to_series()
    assert days.height == 3
    assert days["fetched_at"].max() < later


def test_a_night_waits_for_its_healthy_runs_and_its_dead_ones_fail(sandbox, tmp_path):
    found = night.measure(sandbox, tmp_path, healthy=2, dead=1)
    assert counts(found, "runs") == [2, 3]


def test_the_inventory_is_listed_and_written_by_all():
    listed = inventory.measure_listing(250, 1, page=10)
    assert counts(listed, "assets") == [500] * 2
    written = inventory.measure_writing(40, 2).timings
    assert [[one.counts["written"] for one in timing.samples] for timing in written] == [[40, 40]] * 2


def test_shares_are_alike_in_polars_and_sql(tmp_path):
    found = resolution.measure(tmp_path, TINY, 1)
    ours = pl.read_parquet(tmp_path / "evidence-3000/tables/bench/owner_decisions.parquet")
    assert counts(found, "decisions") == [ours.height]
    assert set(ours["action"]) == {"write", "agree", "conflict", "keep", "none", "no_host"}
    assert resolution.differences(tmp_path / "evidence-3000") == []
    statement = tmp_path / "evidence-3000/tables/bench/shares_of_duckdb.parquet"
    pl.read_parquet(statement).with_columns(events=pl.col("events") + 1).write_parquet(statement)
    assert resolution.differences(tmp_path / "evidence-3000") == ["events"]


def test_the_bare_job_has_as_many_assets_as_a_run(sandbox, tmp_path):
    not_of_a_run = {"owner_decisions_history", "acknowledged_conflicts", "runs", *TABLES_OF_TUNING}
    assert len(TABLES.keys() - not_of_a_run) == ASSETS
    found = overhead.measure(sandbox, tmp_path / "home", 1)
    assert [len(timing.samples) for timing in found.timings] == [2, 1, 1]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser is installed")
def test_the_report_is_made_and_used(tmp_path):
    found = report.measure(tmp_path, TINY, 1)
    assert counts(found, "rows") == [100]
    assert [figure.unit for figure in found.figures] == ["MB", *["s"] * 6]


def test_all_settings_are_tried_on_67_days(tmp_path):
    assert tuning.STORED.days == 67
    found = tuning.measure(tmp_path, replace(TINY, most_seconds=600.0, most_gb=64.0), 1)
    assert counts(found, "lines") == [2 * 8 * 3 * 2 * 3] * 2, (
        "windows, thresholds, active days, metrics, devices"
    )
    assert [figure.verdict for figure in found.figures] == ["met"] * 3
