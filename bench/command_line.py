"""Whole runs of the command line: what they add to Dagster, and a night of many instances."""

import resource
import shutil
import socket
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from assets_defs.checks import STEPS
from bench.bare_job import ASSETS
from bench.results import Experiment, compare, ratio
from bench.timing import ASSET_OWNERS, Contender, Sample, Timing, instance_file, run_once
from pipelines.dagster_home import DAGSTER_YAML
from sandbox.stand import INDEX, Sandbox

CHECKS = sum(map(len, STEPS.values()))
SLOTS: int = yaml.safe_load(DAGSTER_YAML)["concurrency"]["runs"]["max_concurrent_runs"]


def run_of(name: str, file: Path, home: Path, *options: str) -> Contender:
    """A run of an instance in a home."""
    environment = {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": ""}
    return Contender(name, [ASSET_OWNERS, "run", "--instance", str(file), *options], environment)


def measure_overhead(sandbox: Sandbox, home: Path, tries: int) -> Experiment:
    """Time a run of the demo over an up-to-date store, and a job of as many empty assets and checks."""
    job = [sys.executable, "-m", "bench.bare_job", str(home / "bare"), str(CHECKS)]
    bare = Contender(
        f"bare Dagster job: {ASSETS} empty assets, {CHECKS} empty checks", job, {"DAGSTER_HOME": ""}
    )
    # Its own index alone: the sandbox's instance would count the events of other experiments, too.
    file = instance_file(sandbox, home / "alone", index=INDEX)
    ours = run_of("asset-owners run, everything up to date", file, home)
    run_once(ours)
    return compare(
        "Overhead: the demo company (321 hosts, 30 days)",
        *(5, "asset-owners run over a bare job of as many assets and checks", 1.25, ours, bare, tries),
        notes=[
            "The bare job imports the modules that a run imports.",
            "The command line collects garbage less often than Python does, and ends its process at once.",
        ],
    )


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
        _night(alive, alive)  # the first runs
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
        [ratio(8, what, 1.2, together, alone)],
        [
            "Dry runs of the command line, each a process of its own, on the demo company (321 hosts).",
            "The search service of a dead customer accepts connections and never answers.",
        ],
    )


def _night(queue: Sequence[Path], alive: Collection[Path]) -> Sample:
    """Run the customers in their order, so many together; measure until the last healthy one has ended."""
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = {}

    def plan(file: Path) -> None:
        try:
            run_once(run_of(file.parent.name, file, file.parent / "home", "--dry-run", "--quiet"))
        except RuntimeError:
            if file in alive:
                raise
        else:
            ended[file] = time.perf_counter() - began

    with ThreadPoolExecutor(SLOTS) as slots:
        list(slots.map(plan, queue))
    if ended.keys() != set(alive):
        raise RuntimeError("A run whose search service never answers succeeded")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
    return Sample(max(ended.values()), cpu_seconds, 0, {"runs": len(queue)})
