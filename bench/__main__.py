"""`python -m bench [--long] [EXPERIMENT …]`: measure, and write results.md."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from bench import daily, extraction, inventory, overhead, resolution
from bench.results import Experiment, keep
from bench.timing import HOME, tell
from sandbox.stand import Sandbox, running_sandbox

DEMO = HOME / "demo"
MILLION = 1_000_000

Experiments = dict[str, Callable[[], Experiment]]
OpenSandbox = Callable[[], Sandbox]


def main() -> None:
    """Run the experiments named, or all, one after another."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the full sizes: most of an hour")
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT")
    options = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:

        @cache
        def sandbox() -> Sandbox:
            return running.enter_context(running_sandbox(DEMO, fresh=False, progress=tell))

        experiments = (full_sizes if options.long else small_sizes)(sandbox, Path(folder))
        if unknown := set(options.names) - experiments.keys():
            sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(experiments)}")
        for name in options.names or experiments:
            tell(name)
            keep("long" if options.long else "short", name, experiments[name]())


def small_sizes(sandbox: OpenSandbox, folder: Path) -> Experiments:
    """Under five minutes together."""
    events = extraction.Size(200_000, 2_000)
    rows = resolution.Size(2 * MILLION, 50_000, 40_000)
    return {
        "overhead": lambda: overhead.measure(sandbox(), DEMO, 3),
        "extraction": lambda: extraction.measure(sandbox().engine, events, 3),
        "sparse": lambda: extraction.measure_sparse(sandbox().engine, 3),
        "daily": lambda: daily.measure(sandbox(), folder, events=100_000, hosts=1_000),
        "listing": lambda: inventory.measure_listing(10_000, 3),
        "writing": lambda: inventory.measure_writing(1_000, 3),
        "resolution": lambda: resolution.measure(HOME, rows, 3),
    }


def full_sizes(sandbox: OpenSandbox, folder: Path) -> Experiments:
    """The sizes of the goals."""
    events = extraction.Size(2 * MILLION, 10_000)
    hosts = extraction.Size(2 * MILLION, 50_000, over_composites=(5, 9), over_reading=None)
    rows = resolution.Size(20 * MILLION, 500_000, 400_000, most_seconds=6, most_gb=4)
    slope = [number * MILLION for number in (1, 2, 5, 10, 20, 60)]
    return {
        "overhead": lambda: overhead.measure(sandbox(), DEMO, 5),
        "extraction": lambda: extraction.measure(sandbox().engine, events, 3),
        "extraction, many hosts": lambda: extraction.measure(sandbox().engine, hosts, 3),
        "sparse": lambda: extraction.measure_sparse(sandbox().engine, 5),
        "daily": lambda: daily.measure(sandbox(), folder, events=MILLION, hosts=10_000),
        "listing": lambda: inventory.measure_listing(100_000, 7),
        "writing": lambda: inventory.measure_writing(10_000, 3),
        "resolution": lambda: resolution.measure(HOME, rows, 3),
        "slope": lambda: resolution.measure_slope(HOME, slope, 2),
    }


if __name__ == "__main__":
    main()
