"""The first run over a look-back window, whose days are yet to be fetched, against one that is up to date."""

import shutil
from datetime import timedelta
from pathlib import Path

from bench import extraction
from bench.logons import FIRST_DAY, days_from, load
from bench.results import Experiment, Figure
from bench.timing import ASSET_OWNERS, Contender, alternate, function, instance_file, run_once
from sandbox.stand import Sandbox

MAX_TIMES = 1.4


def measure(sandbox: Sandbox, folder: Path, size: extraction.Size, repetitions: int) -> Experiment:
    """Run in an empty home, run again, and send the bare requests for the days on one connection.

    No host is an asset, so nothing is written.
    """
    engine = sandbox.engine
    days = days_from(FIRST_DAY, size.days)
    load(engine, extraction.INDEX, events=size.events, hosts=size.hosts, users=size.hosts, days=days)
    scan = {"first_day": (FIRST_DAY - timedelta(days=1)).isoformat(), "lookback_days": size.days}
    file = instance_file(sandbox, folder, name="bench first", index=extraction.INDEX, scan=scan)
    home = folder / "home"
    run = [ASSET_OWNERS, "run", "--instance", str(file), "--as-of", days[-1].isoformat()]
    environment = {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": ""}
    empty = Contender("first run", run, environment, before=lambda: shutil.rmtree(home, ignore_errors=True))
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
    timings = alternate([empty, Contender("up-to-date run", run, environment), bare], repetitions)
    first, again, requests = timings
    name = f"{size.events:,} events, {size.hosts:,} hosts"
    return Experiment(
        f"First run: {name}, {size.days} days",
        timings,
        [
            Figure(
                2,
                f"{name}: first run less an up-to-date run, over the bare requests on one connection",
                (first.minimum - again.minimum) / requests.minimum,
                (first.median - again.median) / requests.median,
                "times",
                "≤",
                MAX_TIMES,
            )
        ],
        ["Whole runs of the command line; the first one begins in an empty home."],
    )
