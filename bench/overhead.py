"""Overhead: the command line against the libraries that it stands on."""

import json
import sys
from pathlib import Path

from assets_defs.checks import STEPS
from bench.bare_job import ASSETS
from bench.results import Experiment, ratio, seconds
from bench.timing import ASSET_OWNERS, Contender, alternate, run_once
from resources.settings import load_instance
from resources.store.tables import Tables
from sandbox.stand import Sandbox

CHECKS = sum(map(len, STEPS.values()))


def measure(sandbox: Sandbox, home: Path, repetitions: int) -> Experiment:
    """Time `--help`, and a run over the demo's up-to-date store."""
    environment = {"ASSET_OWNERS_HOME": str(home), "DAGSTER_HOME": ""}
    command = [ASSET_OWNERS, "run", "--instance", str(sandbox.instance_file)]
    run = Contender("asset-owners run, everything up to date", command, environment)
    run_once(run)
    words = Contender("asset-owners --help", [ASSET_OWNERS, "--help"])
    (helped,) = alternate([words], 2 * repetitions)
    job = [sys.executable, "-m", "bench.bare_job", str(home / "bare"), str(CHECKS)]
    name = f"bare Dagster job: {ASSETS} empty assets, {CHECKS} empty checks"
    ours, bare = alternate([run, Contender(name, job, {"DAGSTER_HOME": ""})], repetitions)
    slug = load_instance(sandbox.instance_file).slug
    took = Tables(home, slug).all_runs("runs").sort("started_at").last().collect()["seconds_by_step"].item()
    steps = json.loads(took)
    where = ", ".join(f"{step} {spent:.2f} s" for step, spent in steps.items())
    others = ours.samples[-1].seconds - sum(steps.values())
    return Experiment(
        "Overhead: the demo company (321 hosts, 30 days)",
        [helped, ours, bare],
        [
            seconds(5, "asset-owners --help", helped, 0.5),
            ratio(5, "asset-owners run over a bare job of as many assets and checks", ours, bare, "≤", 1.5),
        ],
        [
            "The bare job imports the modules that a run imports.",
            f"Where the time of the last run goes: {where}; Python, Dagster and all else {others:.2f} s.",
            "The command line ends its process at once, where the bare job takes Python down.",
        ],
    )
