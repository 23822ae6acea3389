"""`python -m bench [--long] [EXPERIMENT …]`: measure, and write results.md."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from bench import command_line, extraction, inventory, month, report, resolution
from bench.evidence import Size
from bench.results import Experiment, keep
from bench.timing import HOME, tell
from sandbox.stand import Sandbox, running_sandbox

DEMO = HOME / "demo"
MILLION = 1_000_000


def main() -> None:
    """Run the experiments named, or all, one after another."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the full sizes: an hour")
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
    size, tries = (10, 5) if long else (1, 3)
    rows, shown = (Size(n * size, n // 40 * size, n // 50 * size) for n in (2 * MILLION, 200_000))
    events, hosts = MILLION // 5 * size, 10_000 if long else 2_000
    night = {"healthy": 15 * size, "dead": 5 * size}
    return {
        "overhead": lambda: command_line.measure_overhead(sandbox(), DEMO, tries),
        "extraction": lambda: extraction.measure(sandbox().engine, events, hosts, 3),
        "night": lambda: command_line.measure_night(sandbox(), folder / "night", **night),
        "month": lambda: month.measure(range(5 if long else 1)),
        "listing": lambda: inventory.measure("listing", 10_000 * size, tries),
        "writing": lambda: inventory.measure("writing", 1_000 * size, 3),
        "resolution": lambda: resolution.measure(HOME, rows, 3),
        "report": lambda: report.measure(HOME, shown, tries),
    }


if __name__ == "__main__":
    main()
