"""The first run over a look-back window, whose days are yet to be fetched, against one that is up to date."""

import shutil
from datetime import timedelta
from pathlib import Path

import yaml

from bench import extraction
from bench.logons import FIRST_DAY, days_from, load
from bench.results import Experiment, Figure
from bench.timing import ASSET_OWNERS, Contender, Sample, Timing, function, run_once, tell
from sandbox.stand import Sandbox

MAX_TIMES = 1.6


def measure(sandbox: Sandbox, folder: Path, size: extraction.Size, repetitions: int) -> Experiment:
    """Run in an empty home, run again, and send the bare requests for the days on one connection.

    No host is an asset, so nothing is written.
    """
    engine = sandbox.engine
    days = days_from(FIRST_DAY, size.days)
    load(engine, extraction.INDEX, events=size.events, hosts=size.hosts, users=size.hosts, days=days)
    content = yaml.safe_load(sandbox.instance_file.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "instance.yaml"
    scan = {"first_day": (FIRST_DAY - timedelta(days=1)).isoformat(), "lookback_days": size.days}
    settings = {"name": "bench first", "index": extraction.INDEX, "scan": scan}
    file.write_text(yaml.safe_dump({**content, **settings}), encoding="utf-8")
    home = folder / "home"
    run = Contender(
        "asset-owners run",
        [ASSET_OWNERS, "run", "--instance", str(file), "--as-of", days[-1].isoformat()],
        {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": ""},
    )
    bare = function(
        "the bare requests",
        f"{extraction.__name__}:floor",
        {extraction.PASSWORD: engine.admin.password},
        url=engine.url,
        ca_file=str(engine.ca_file),
        days=size.days,
        connections=1,
    )
    run_once(bare)  # the engine compiles what it runs often, which the first try would pay for
    tries: list[tuple[Sample, Sample, Sample]] = []
    for _ in range(repetitions):
        shutil.rmtree(home, ignore_errors=True)
        tries.append((run_once(run), run_once(run), run_once(bare)))
    names = ("first run", "up-to-date run", "bare requests for the days, one connection")
    timings = [Timing(name, samples) for name, samples in zip(names, zip(*tries, strict=True), strict=True)]
    for timing in timings:
        tell(f"  {timing.name}: {', '.join(f'{one.seconds:.2f}' for one in timing.samples)} s")
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
