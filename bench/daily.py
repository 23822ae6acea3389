"""Incremental: what a daily run costs the search service, against the first run over the look-back window."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl

from bench.logons import days_from, load
from bench.results import Experiment, Figure
from bench.timing import ASSET_OWNERS, Contender, Sample, Timing, instance_file, run_once
from resources.settings import slug_of
from resources.store.tables import Tables
from sandbox.stand import Sandbox

INDEX = "logs-bench-daily"
NAME = "bench daily"
SCHEDULED_HOUR = 5


def measure(sandbox: Sandbox, home: Path, *, events: int, hosts: int) -> Experiment:
    """Run over 30 days as if yesterday, then today; the engine's own counters say what it did."""
    today = datetime.now(UTC).date()
    days = days_from(today - timedelta(days=30), 31)
    load(
        sandbox.engine,
        INDEX,
        events=events,
        hosts=hosts,
        users=hosts,
        days=days,
        hours_of_last_day=SCHEDULED_HOUR,
    )
    file = instance_file(sandbox, home, name=NAME, index=INDEX)
    first = _run(sandbox, home, file, days[-2])
    _a_day_passes(Tables(home, slug_of(NAME)), days)
    daily = _run(sandbox, home, file, today)
    name = f"30 days, {events:,} events"
    return Experiment(
        f"Incremental: {name}, {hosts:,} hosts",
        [Timing("first run", [first]), Timing("the next day's run", [daily])],
        [
            Figure(
                2,
                f"{name}: {what} of a daily run over the first",
                daily.counts[what] / first.counts[what],
                None,
                "times",
                "≤",
                1 / 8,
            )
            for what in ("searches", "milliseconds in the engine")
        ],
        [
            "Whole runs of the command line; searches and milliseconds are the engine's own, by shard.",
            "The engine compiles what it runs often: the first run pays for that, too.",
            f"The daily run is {SCHEDULED_HOUR} h into the last day; three days before are not settled.",
        ],
    )


def _run(sandbox: Sandbox, home: Path, file: Path, last: date) -> Sample:
    before = _searches(sandbox)
    command = [ASSET_OWNERS, "run", "--instance", str(file), "--as-of", last.isoformat()]
    sample = run_once(Contender("asset-owners run", command, {"ASSET_OWNERS_HOME": str(home)}))
    counts = {name: count - before[name] for name, count in _searches(sandbox).items()}
    return Sample(sample.seconds, sample.cpu_seconds, sample.peak_bytes, counts, {})


def _searches(sandbox: Sandbox) -> dict[str, int]:
    found = sandbox.engine.request("GET", f"{INDEX}/_stats/search")["_all"]["total"]["search"]
    return {
        "searches": found["query_total"],
        "milliseconds in the engine": found["query_time_in_millis"],
    }


def _a_day_passes(tables: Tables, days: list[date]) -> None:
    """Let the stored days look as if they had been fetched a day earlier."""
    for row in tables.logon_days(days, run_id="none").iter_slices(1):
        earlier = row.with_columns(pl.col("fetched_at") - pl.duration(days=1))
        tables.write_days([(earlier, tables.logon_counts([row["day"].item()], run_id="none").collect())])
