"""Whole runs of the command line: what they add to the libraries, the first, the next day's, a night's."""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from assets_defs.checks import STEPS
from assets_defs.report import Report
from bench import extraction
from bench.bare_job import ASSETS
from bench.evidence import host_name, user_name
from bench.inventory import EMAIL, SECRET, TENANT, reset, served
from bench.logons import FIRST_DAY, days_from, load
from bench.results import Experiment, Figure, ratio, seconds
from bench.timing import (
    ASSET_OWNERS,
    Contender,
    Sample,
    Timing,
    alternate,
    function,
    instance_file,
    run_once,
    tell,
)
from pipelines.dagster_home import DAGSTER_YAML
from resources.settings import load_instance
from resources.store.tables import Tables, tables_of
from sandbox.stand import INDEX as DEMO_INDEX
from sandbox.stand import Sandbox

CHECKS = sum(map(len, STEPS.values()))
DAYS = 30
EVENTS_PER_HOST = 100
SCHEDULED_HOUR = 5
SLOTS: int = yaml.safe_load(DAGSTER_YAML)["concurrency"]["runs"]["max_concurrent_runs"]


def run_of(name: str, file: Path, home: Path, *options: str, **known: Any) -> Contender:
    """A run of an instance in a home."""
    environment = {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": "", **SECRET}
    return Contender(name, [ASSET_OWNERS, "run", "--instance", str(file), *options], environment, **known)


# What it adds to the libraries that it stands on, and what more hosts add to a run


def measure_overhead(
    sandbox: Sandbox, home: Path, folder: Path, *, hosts: int, repetitions: int
) -> Experiment:
    """Time `--help`, and runs over up-to-date stores: the demo's, and one of so many hosts."""
    words = Contender("asset-owners --help", [ASSET_OWNERS, "--help"])
    (helped,) = alternate([words], 2 * repetitions)
    job = [sys.executable, "-m", "bench.bare_job", str(home / "bare"), str(CHECKS)]
    name = f"bare Dagster job: {ASSETS} empty assets, {CHECKS} empty checks"
    bare_job = Contender(name, job, {"DAGSTER_HOME": ""})
    # Its own index alone: the sandbox's instance would count the events of other experiments, too.
    small = instance_file(sandbox, home / "alone", index=DEMO_INDEX)
    demo = run_of("asset-owners run, everything up to date", small, home)
    with large_company(sandbox, folder, hosts) as file:
        many = run_of(f"the same with {hosts:,} hosts", file, folder)
        for run in (demo, many):
            run_once(run)
        ours, larger, bare = alternate([demo, many, bare_job], repetitions)
    reports = [
        function(
            f"the report on {hosts:,} hosts, {what}",
            f"{__name__}:reporting",
            many.environment,
            file=str(file),
            changed=what == "made",
        )
        for what in ("made", "found up to date")
    ]
    made, kept = alternate(reports, repetitions)
    added = larger.minimum - ours.minimum, larger.median - ours.median
    return Experiment(
        "Overhead: the demo company (321 hosts, 30 days)",
        [helped, ours, larger, bare, made, kept],
        [
            seconds(5, "asset-owners --help", helped, 0.5),
            ratio(5, "asset-owners run over a bare job of as many assets and checks", ours, bare, "≤", 1.25),
            Figure(5, f"an up-to-date run of {hosts:,} hosts, more than the demo's", *added, "s", "≤", 1.5),
            *(seconds(5, report.name, report, 0.5) for report in (made, kept)),
        ],
        [
            "The bare job imports the modules that a run imports.",
            _where_it_goes("the demo's last run", ours, small, home),
            _where_it_goes(f"that of {hosts:,} hosts", larger, file, folder),
            "The command line collects garbage less often than Python does, and ends its process at once.",
        ],
    )


def reporting(file: str, *, changed: bool) -> Callable[[], dict[str, Any]]:
    """What a run does at its end: look whether the report is up to date, and make it where it is not."""
    instance = load_instance(Path(file))
    tables = tables_of(instance)

    def timed() -> dict[str, Any]:
        report = Report(instance, tables)
        return {"characters": len(report.html() if changed else report.fingerprint)}

    return timed


def _where_it_goes(which: str, timing: Timing, file: Path, home: Path) -> str:
    """Return a sentence on the time of each step of the last run, as the table `runs` has it."""
    runs = Tables(home, load_instance(file).slug).all_runs("runs").sort("started_at").last().collect()
    steps = json.loads(runs["seconds_by_step"].item())
    where = ", ".join(f"{step} {spent:.2f} s" for step, spent in steps.items())
    others = timing.samples[-1].seconds - sum(steps.values())
    return f"Where the time of {which} goes: {where}; Python, Dagster and all else {others:.2f} s."


@contextmanager
def large_company(sandbox: Sandbox, folder: Path, hosts: int) -> Generator[Path]:
    """Yield an instance file for a company of so many hosts and users, whose inventory is served meanwhile.

    The window ends today, so each run fetches the days that are not settled. Nobody owns anything yet.
    """
    index, days = "logs-bench-overhead", days_from(datetime.now(UTC).date() - timedelta(days=DAYS - 1), DAYS)
    events = EVENTS_PER_HOST * hosts
    load(
        sandbox.engine, index, events=events, hosts=hosts, users=hosts, days=days,
        hours_of_last_day=SCHEDULED_HOUR,
    )  # fmt: skip
    number = pl.int_range(hosts, eager=True).alias("number").to_frame()
    named = number.select(host_name(pl.col("number")).alias("host"), user=user_name(pl.col("number"))).rows()
    with served(100) as running:
        reset(running.state, named)
        (variable,) = SECRET
        account = {"email": EMAIL, "password": {"env": variable}, "tenant_id": TENANT}
        yield instance_file(
            sandbox, folder, name="bench overhead", index=index, platform={"url": running.url, **account}
        )


# The first run over a look-back window, whose days are yet to be fetched, against one that is up to date


def measure_first_run(sandbox: Sandbox, folder: Path, size: extraction.Size, repetitions: int) -> Experiment:
    """Run in an empty home, run again, and send the bare requests for the days on one connection.

    No host is an asset, so nothing is written.
    """
    engine, home, days = sandbox.engine, folder / "home", days_from(FIRST_DAY, size.days)
    load(engine, extraction.INDEX, events=size.events, hosts=size.hosts, users=size.hosts, days=days)
    scan = {"first_day": (FIRST_DAY - timedelta(days=1)).isoformat(), "lookback_days": size.days}
    file = instance_file(sandbox, folder, name="bench first", index=extraction.INDEX, scan=scan)
    as_of = ("--as-of", days[-1].isoformat())
    bare = function(
        "bare requests for the days, one connection",
        f"{extraction.__name__}:floor",
        {extraction.PASSWORD: engine.admin.password},
        url=engine.url,
        ca_file=str(engine.ca_file),
        days=size.days,
        connections=1,
    )
    run_once(bare)  # the engine compiles what it runs often, which the first try would pay for
    empty = run_of("first run", file, home, *as_of, before=lambda: shutil.rmtree(home, ignore_errors=True))
    timings = alternate([empty, run_of("up-to-date run", file, home, *as_of), bare], repetitions)
    first, again, requests = timings
    times = (
        (first.minimum - again.minimum) / requests.minimum,
        (first.median - again.median) / requests.median,
    )
    name = f"{size.events:,} events, {size.hosts:,} hosts"
    what = "first run less an up-to-date run, over the bare requests on one connection"
    return Experiment(
        f"First run: {name}, {size.days} days",
        timings,
        [Figure(2, f"{name}: {what}", *times, "times", "≤", 1.4)],
        ["Whole runs of the command line; the first one begins in an empty home."],
    )


# What a daily run costs the search service, against the first run over the look-back window


def measure_daily(sandbox: Sandbox, home: Path, *, events: int, hosts: int) -> Experiment:
    """Run over 30 days as if yesterday, then today; the engine's own counters say what it did."""
    index, today = "logs-bench-daily", datetime.now(UTC).date()
    days = days_from(today - timedelta(days=DAYS), DAYS + 1)
    load(
        sandbox.engine, index, events=events, hosts=hosts, users=hosts, days=days,
        hours_of_last_day=SCHEDULED_HOUR,
    )  # fmt: skip
    file = instance_file(sandbox, home, name="bench daily", index=index)

    def searches() -> dict[str, int]:
        found = sandbox.engine.request("GET", f"{index}/_stats/search")["_all"]["total"]["search"]
        names = {"searches": "query_total", "milliseconds in the engine": "query_time_in_millis"}
        return {name: found[counter] for name, counter in names.items()}

    def run(last: date) -> Sample:
        before = searches()
        sample = run_once(run_of("asset-owners run", file, home, "--as-of", last.isoformat()))
        counts = {name: count - before[name] for name, count in searches().items()}
        return Sample(sample.seconds, sample.cpu_seconds, sample.peak_bytes, counts, {})

    first = run(days[-2])
    tables = Tables(home, load_instance(file).slug)
    for row in tables.logon_days(days, run_id="none").iter_slices(1):  # a day passes
        earlier = row.with_columns(pl.col("fetched_at") - pl.duration(days=1))
        tables.write_days([(earlier, tables.logon_counts([row["day"].item()], run_id="none").collect())])
    next_day = run(today)
    name = f"{DAYS} days, {events:,} events"
    return Experiment(
        f"Incremental: {name}, {hosts:,} hosts",
        [Timing("first run", [first]), Timing("the next day's run", [next_day])],
        [
            Figure(2, f"{name}: {what} of a daily run over the first", times, None, "times", "≤", 1 / 8)
            for what in first.counts
            for times in (next_day.counts[what] / first.counts[what],)
        ],
        [
            "Whole runs of the command line; searches and milliseconds are the engine's own, by shard.",
            "The engine compiles what it runs often: the first run pays for that, too.",
            f"The daily run is {SCHEDULED_HOUR} h into the last day; three days before are not settled.",
        ],
    )


# A night with dead customers: what runs whose search service hangs cost those that share the slots


def measure_night(sandbox: Sandbox, folder: Path, *, healthy: int, dead: int) -> Experiment:
    """Let customers run in a queue with as many slots as Dagster's has, alone and with dead ones in between.

    A night ends with its last healthy run. Each customer plans over 30 days in a home of its own, which is
    fetched before; a dead one's search service takes connections and never answers.
    """

    def customer(name: str, **settings: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return instance_file(sandbox, folder / name, name=name, **settings)

    with socket.create_server(("127.0.0.1", 0), backlog=4096) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        alive = [customer(f"healthy-{number}") for number in range(healthy)]
        gone = [customer(f"dead-{number}", url=url) for number in range(dead)]
        tell(f"  {healthy} first runs")
        _night(alive, alive)
        alone = Timing("healthy customers alone", [_night(alive, alive)])
        # The dead ones evenly among the others, as names spread them.
        places = [(place / len(files), file) for files in (gone, alive) for place, file in enumerate(files)]
        spread = [file for _, file in sorted(places)]
        together = Timing(f"the same with {dead} dead ones in between", [_night(spread, alive)])
    name = f"{healthy} healthy and {dead} dead customers, {SLOTS} slots"
    what = f"{name}: until the last healthy run ends, over a night without dead ones"
    return Experiment(
        f"A night: {name}",
        [alone, together],
        [ratio(8, what, together, alone, "≤", 1.2)],
        [
            "Dry runs of the command line, each a process of its own, on the demo company (321 hosts).",
            "The search service of a dead customer accepts connections and never answers.",
        ],
    )


def _night(queue: Sequence[Path], waited_for: Sequence[Path]) -> Sample:
    """Run the customers in their order, so many together; measure until the last awaited one has ended."""
    began, used = time.perf_counter(), _cpu_seconds()
    with ThreadPoolExecutor(SLOTS) as slots:
        ended = dict(zip(queue, slots.map(_plan, queue), strict=True))
    for file, (status, _) in ended.items():
        if (status == 0) != (file in waited_for):
            raise RuntimeError(f"The run of {file.parent.name} ended with status {status}")
    spent = max(ended[file][1] for file in waited_for) - began
    return Sample(spent, _cpu_seconds() - used, 0, {"runs": len(queue)}, {})


def _cpu_seconds() -> float:
    """Processor time of all runs that have ended: what other work on the machine disturbs least."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _plan(file: Path) -> tuple[int, float]:
    """Plan for a customer; return the exit status and when it ended."""
    run = run_of("", file, file.parent / "home", "--dry-run", "--quiet")
    environment = {**os.environ, **run.environment}
    done = subprocess.run(run.command, env=environment, capture_output=True, check=False)  # noqa: S603  (ours)
    return done.returncode, time.perf_counter()
