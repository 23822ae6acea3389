"""A scrape: `asset-owners metrics` of many customers with a long history, as Prometheus asks for it."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from bench.results import Experiment, seconds
from bench.timing import alternate, function, instance_content
from ownership.declaration import polars_schema
from ownership.tables import Runs
from pipelines.cli.metrics import Metrics
from resources.store.tables import Tables

MAX_SECONDS = 1.0


def measure(folder: Path, *, customers: int, runs: int, repetitions: int) -> Experiment:
    """Scrape customers that have run so often, each a file of the table `runs`."""
    _store(folder, customers=customers, runs=runs)
    place = {"ASSET_OWNERS_HOME": str(folder), "UNUSED": "password"}
    known = function("a scrape", "bench.scrape:scrape", place, first=False)
    first = function("the first scrape of a process", "bench.scrape:scrape", place, first=True)
    timings = alternate([known, first], repetitions, same="series")
    what = f"{customers} customers with {runs} runs each: a scrape"
    notes = [
        "In the process of the service. The first scrape also reads all instance files, and loads Dagster."
    ]
    return Experiment(f"Metrics: {what}", timings, [seconds(9, what, timings[0], MAX_SECONDS)], notes)


def scrape(*, first: bool) -> Callable[[], dict[str, Any]]:
    """Give what a scrape does; unless it is the first one, there was another one before."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(None))
    if not first:
        generate_latest(registry)
    return lambda: {"series": sum(line[:1] not in b"#" for line in generate_latest(registry).splitlines())}


def _store(folder: Path, *, customers: int, runs: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "instances").mkdir(parents=True)
    began = datetime.now(UTC) - timedelta(days=runs)
    blank = dict.fromkeys(polars_schema(Runs).names())
    row = {**blank, "run_id": "run", "kind": "run", "status": "succeeded", "options": "{}", "hosts": 1_000}
    row |= {"seconds_by_step": '{"inventory_hosts": 1.5, "owner_writes": 9.5}', "written": 3, "conflicts": 7}
    for number in range(customers):
        content = instance_content("UNUSED", {}, name=f"customer {number}", scan={"schedule": "0 3 * * *"})
        file = folder / "instances" / f"customer-{number}.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        tables = Tables(folder, f"customer_{number}", name=f"customer {number}")
        days = [began + timedelta(days=day) for day in range(runs)]
        rows = [
            row | {"run_id": f"run-{at:%F}", "started_at": at, "ended_at": at + timedelta(minutes=5)}
            for at in days
        ]
        with tables.ledger() as ledger:
            ledger.store("runs", pl.DataFrame(rows, schema=polars_schema(Runs)))
