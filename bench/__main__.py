"""`python -m bench [--long] [EXPERIMENT …]`: measure, and write results.md."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from bench import command_line, extraction, inventory, month, report, resolution, scrape
from bench.results import Experiment, keep
from bench.timing import HOME, tell
from sandbox.stand import Sandbox, running_sandbox

DEMO = HOME / "demo"
MILLION = 1_000_000


def main() -> None:
    """Run the experiments named, or all, one after another."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the full sizes: an hour and a half")
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT")
    options = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:

        @cache
        def sandbox() -> Sandbox:
            return running.enter_context(running_sandbox(DEMO, fresh=False, progress=tell, optimized=True))

        experiments = experiments_of(sandbox, Path(folder), long=options.long)
        if unknown := set(options.names) - experiments.keys():
            sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(experiments)}")
        for name in options.names or experiments:
            tell(name)
            keep("long" if options.long else "short", name, experiments[name]())


def experiments_of(
    sandbox: Callable[[], Sandbox], folder: Path, *, long: bool
) -> dict[str, Callable[[], Experiment]]:
    """What is measured, by name: at the sizes of the goals, or under five minutes together."""
    size = 10 if long else 1
    events = extraction.Size(MILLION // 5 * size, 2_000 * (5 if long else 1))
    hosts = extraction.Size(2 * MILLION, 50_000)
    goals = {"most_seconds": 6, "most_gb": 4} if long else {}
    rows = resolution.Size(2 * MILLION * size, 50_000 * size, 40_000 * size, **goals)
    tuning_goals = {"most_seconds": 60, "most_gb": 2} if long else {}
    tries = 5 if long else 3
    only_long = {
        "extraction, many hosts": lambda: extraction.measure(sandbox().engine, hosts, 3),
    }
    return {
        "overhead": lambda: command_line.measure_overhead(
            sandbox(), DEMO, folder / "overhead", hosts=10_000, repetitions=tries
        ),
        "extraction": lambda: extraction.measure(sandbox().engine, events, 3),
        "first run": lambda: command_line.measure_first_run(sandbox(), folder / "first", events, tries),
        "daily": lambda: command_line.measure_daily(
            sandbox(), folder, events=MILLION // 10 * size, hosts=1_000 * size
        ),
        "night": lambda: command_line.measure_night(
            sandbox(), folder / "night", healthy=15 * size, dead=5 * size
        ),
        "month": lambda: month.measure(range(5 if long else 1)),
        "listing": lambda: inventory.measure_listing(10_000 * size, 7 if long else 3),
        "writing": lambda: inventory.measure_writing(1_000 * size, 3),
        "resolution": lambda: resolution.measure(HOME, rows, 3),
        "tuning": lambda: resolution.measure_tuning(
            HOME, resolution.Size(MILLION * size, 10_000 * size, 8_000 * size, **tuning_goals), 3
        ),
        "scrape": lambda: scrape.measure(folder / "scrape", customers=20 * size, runs=365, repetitions=tries),
        "report": lambda: report.measure(
            HOME, resolution.Size(200_000 * size, 5_000 * size, 4_000 * size), tries
        ),
        **(only_long if long else {}),
    }


if __name__ == "__main__":
    main()
