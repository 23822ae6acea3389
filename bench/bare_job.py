"""A job of empty assets and checks that imports what a run does: `python -m bench.bare_job HOME CHECKS`."""

import sys
from pathlib import Path

import dagster as dg
import pandera.polars  # noqa: F401  (imported because a run does)

from pipelines.cli import app, results  # noqa: F401
from pipelines.dagster_home import dagster_instance

ASSETS = 8


def main(home: Path, checks: int) -> None:
    """Run the job in this process, recorded as a run of the command line is."""
    assets = [dg.asset(name=f"asset_{number}")(lambda: None) for number in range(ASSETS)]
    passed = dg.AssetCheckResult(passed=True)
    definitions = dg.Definitions(
        assets=assets,
        asset_checks=[
            dg.asset_check(name=f"check_{number}", asset=assets[number % ASSETS])(lambda: passed)
            for number in range(checks)
        ],
        jobs=[dg.define_asset_job("bare")],
        executor=dg.in_process_executor,
    )
    with dagster_instance(home) as recorded:
        definitions.resolve_job_def("bare").execute_in_process(instance=recorded)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
