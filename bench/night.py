"""A night with dead customers: what runs whose search service hangs cost the others that share the slots."""

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.results import Experiment, ratio
from bench.timing import ASSET_OWNERS, Sample, Timing, instance_file, tell
from pipelines.dagster_home import DAGSTER_YAML
from sandbox.stand import Sandbox

SLOTS: int = yaml.safe_load(DAGSTER_YAML)["concurrency"]["runs"]["max_concurrent_runs"]
MAX_TIMES = 1.2


def measure(sandbox: Sandbox, folder: Path, *, healthy: int, dead: int) -> Experiment:
    """Let customers run in a queue with as many slots as Dagster's has, alone and with dead ones in between.

    A night ends with its last healthy run. Each customer plans over 30 days in a home of its own, which is
    fetched before; a dead one's search service takes connections and never answers.
    """

    def customer(name: str, **settings: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return instance_file(sandbox, folder / name, name=name, **settings)

    with hanging_service() as url:
        alive = [customer(f"healthy-{number}") for number in range(healthy)]
        gone = [customer(f"dead-{number}", url=url) for number in range(dead)]
        tell(f"  {healthy} first runs")
        _night(alive, alive)
        alone = Timing("healthy customers alone", [_night(alive, alive)])
        spread = _spread(alive, gone)
        together = Timing(f"the same with {dead} dead ones in between", [_night(spread, alive)])
    name = f"{healthy} healthy and {dead} dead customers, {SLOTS} slots"
    return Experiment(
        f"A night: {name}",
        [alone, together],
        [
            ratio(
                8,
                f"{name}: until the last healthy run ends, over a night without dead ones",
                together,
                alone,
                "≤",
                MAX_TIMES,
            )
        ],
        [
            "Dry runs of the command line, each a process of its own, on the demo company (321 hosts).",
            "The search service of a dead customer accepts connections and never answers.",
        ],
    )


@contextmanager
def hanging_service() -> Generator[str]:
    """The address of a service that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _spread(alive: Sequence[Path], gone: Sequence[Path]) -> list[Path]:
    """The dead customers evenly among the others, as names spread them."""
    places = [(place / len(files), file) for files in (gone, alive) for place, file in enumerate(files)]
    return [file for _, file in sorted(places)]


def _night(queue: Sequence[Path], waited_for: Sequence[Path]) -> Sample:
    """Run the customers in their order, so many together; measure until the last awaited one has ended."""
    began, used = time.perf_counter(), _cpu_seconds()
    with ThreadPoolExecutor(SLOTS) as slots:
        ended = dict(zip(queue, slots.map(_run, queue), strict=True))
    for file, (status, _) in ended.items():
        if (status == 0) != (file in waited_for):
            raise RuntimeError(f"The run of {file.parent.name} ended with status {status}")
    seconds = max(ended[file][1] for file in waited_for) - began
    return Sample(seconds, _cpu_seconds() - used, 0, {"runs": len(queue)}, {})


def _cpu_seconds() -> float:
    """Processor time of all runs that have ended: what other work on the machine disturbs least."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(file: Path) -> tuple[int, float]:
    """Plan for a customer; return the exit status and when it ended."""
    command = [ASSET_OWNERS, "--quiet", "run", "--dry-run", "--instance", str(file)]
    environment = {"ASSET_OWNERS_HOME": str(file.parent / "home"), "DAGSTER_HOME": ""}
    done = subprocess.run(  # noqa: S603  (our own command)
        command, env={**os.environ, **environment}, capture_output=True, check=False
    )
    return done.returncode, time.perf_counter()
