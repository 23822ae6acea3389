"""Each benchmark runs at a tiny size; no test looks at a time."""

from dataclasses import replace

import pytest
import yaml

from bench import daily, extraction, first_run, inventory, night, overhead, report, resolution, tuning
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


SMALL = extraction.Size(events=600, hosts=10, days=3)
LARGE_ENOUGH = replace(TINY, most_seconds=600.0, most_gb=64.0)
CASES = {
    "extraction": (lambda stand, _: extraction.measure(stand.engine, SMALL, 1), {"events": [600]}),
    "first run": (lambda stand, folder: first_run.measure(stand, folder, SMALL, 1), {"requests": [3]}),
    "daily": (lambda stand, folder: daily.measure(stand, folder, events=3_000, hosts=20), {}),
    "night": (lambda stand, folder: night.measure(stand, folder, healthy=2, dead=1), {"runs": [2, 3]}),
    "listing": (lambda *_: inventory.measure_listing(250, 1, page=10), {"assets": [500] * 2}),
    "writing": (lambda *_: inventory.measure_writing(40, 2), {}),
    "resolution": (lambda _, folder: resolution.measure(folder, TINY, 1), {}),
    "overhead": (lambda stand, folder: overhead.measure(stand, folder, 1), {}),
    "report": (lambda _, folder: report.measure(folder, TINY, 1), {"rows": [100]}),
    "tuning": (lambda _, folder: tuning.measure(folder, LARGE_ENOUGH, 1), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_benchmark_runs_and_counts_what_was_done(sandbox, tmp_path, case):
    (folder := tmp_path / "home").mkdir()
    measure, counted = CASES[case]
    found = measure(sandbox, folder)
    assert found.timings
    assert {what: counts(found, what) for what in counted} == counted
