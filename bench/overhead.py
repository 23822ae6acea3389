"""Overhead: the command line against the libraries that it stands on, and what more hosts add to a run."""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from assets_defs.checks import STEPS
from assets_defs.report import Report
from bench.bare_job import ASSETS
from bench.evidence import host_name, user_name
from bench.inventory import EMAIL, SECRET, TENANT, served
from bench.logons import days_from, load
from bench.results import Experiment, Figure, ratio, seconds
from bench.timing import ASSET_OWNERS, Contender, Timing, alternate, function, instance_file, run_once
from resources.settings import load_instance
from resources.store.tables import Tables, tables_of
from sandbox.inventory import Account, InventoryState
from sandbox.stand import INDEX as DEMO_INDEX
from sandbox.stand import Sandbox

CHECKS = sum(map(len, STEPS.values()))
DAYS = 30
INDEX = "logs-bench-overhead"
EVENTS_PER_HOST = 100


def measure(sandbox: Sandbox, home: Path, folder: Path, *, hosts: int, repetitions: int) -> Experiment:
    """Time `--help`, and runs over up-to-date stores: the demo's, and one of so many hosts."""
    words = Contender("asset-owners --help", [ASSET_OWNERS, "--help"])
    (helped,) = alternate([words], 2 * repetitions)
    job = [sys.executable, "-m", "bench.bare_job", str(home / "bare"), str(CHECKS)]
    name = f"bare Dagster job: {ASSETS} empty assets, {CHECKS} empty checks"
    bare_job = Contender(name, job, {"DAGSTER_HOME": ""})
    # Its own index alone: the sandbox's instance would count the events of other experiments, too.
    small = instance_file(sandbox, home / "alone", index=DEMO_INDEX)
    demo = _run("asset-owners run, everything up to date", small, home)
    with large_company(sandbox, folder, hosts) as file:
        many = _run(f"the same with {hosts:,} hosts", file, folder)
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
    return Experiment(
        "Overhead: the demo company (321 hosts, 30 days)",
        [helped, ours, larger, bare, made, kept],
        [
            seconds(5, "asset-owners --help", helped, 0.5),
            ratio(5, "asset-owners run over a bare job of as many assets and checks", ours, bare, "≤", 1.25),
            Figure(
                5,
                f"an up-to-date run of {hosts:,} hosts, more than the demo's",
                larger.minimum - ours.minimum,
                larger.median - ours.median,
                "s",
                "≤",
                1.5,
            ),
            *(seconds(5, report.name, report, 0.5) for report in (made, kept)),
        ],
        [
            "The bare job imports the modules that a run imports.",
            _where_it_goes("the demo's last run", ours, small, home),
            _where_it_goes(f"that of {hosts:,} hosts", larger, file, folder),
            "The command line collects garbage less often than Python does, and ends its process at once.",
        ],
    )


def _run(name: str, file: Path, home: Path) -> Contender:
    environment = {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": "", **SECRET}
    return Contender(name, [ASSET_OWNERS, "run", "--instance", str(file)], environment)


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

    The window ends today, so each run fetches the days that are not settled.
    """
    days = days_from(datetime.now(UTC).date() - timedelta(days=DAYS - 1), DAYS)
    events = EVENTS_PER_HOST * hosts
    load(sandbox.engine, INDEX, events=events, hosts=hosts, users=hosts, days=days, hours_of_last_day=5)
    with served(100) as running:
        _fill(running.state, hosts)
        (variable,) = SECRET
        account = {"email": EMAIL, "password": {"env": variable}, "tenant_id": TENANT}
        yield instance_file(
            sandbox, folder, name="bench overhead", index=INDEX, platform={"url": running.url, **account}
        )


def _fill(state: InventoryState, hosts: int) -> None:
    """Let each host and each user of the logons be an asset; nobody owns anything yet."""
    number = pl.int_range(hosts, eager=True).alias("number").to_frame()
    named = number.select(host=host_name(pl.col("number")), user=user_name(pl.col("number"))).to_dicts()
    state.reset(
        [Account(EMAIL, *SECRET.values(), roles={TENANT: "admin"})],
        ({"id": f"h-{row['host']}", "search_agent_name": row["host"], "asset_owner": None} for row in named),
        (
            {"id": f"u-{row['user']}", "user_email": f"{row['user']}@corp.example", "user_department": "IT"}
            for row in named
        ),
        TENANT,
    )
