"""A company whose owners take a while to write, and runs on it in processes of their own."""

import itertools
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pipelines.cli.app import app
from tests.end_to_end.processes import RunningProcess, settle_in
from tests.end_to_end.stand import TODAY, Stand, at_noon, in_memory, logons

INDEX = "logs-chaos"
WRITTEN = 12
SETTINGS = {"index": INDEX, "writes": {"concurrency": 3}}
OWNERS = [None] * WRITTEN + ["ann", "ann", 17, ["ann", 17]]
HOSTS = [
    {
        "id": f"h-{number:02}",
        "search_agent_name": f"PC-{number:02}",
        "asset_owner": owner,
        "department": "old",
    }
    for number, owner in enumerate(OWNERS)
]


def logons_on(hosts):
    """Each host's are those of one user: ann and bob in turn."""
    users = itertools.cycle(["ann", "bob"])
    for host in hosts:
        yield from logons(str(host["search_agent_name"]).lower(), next(users), 3, at=at_noon(TODAY))


def start(stand: Stand) -> RunningProcess:
    """Start a run."""
    return RunningProcess(run, stand.instance_file(SETTINGS))


def run(file: Path, environment: dict[str, str], log: Connection) -> None:
    """Run the instance of a file as of today."""
    settle_in(environment, os.devnull, log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.cli.results.dagster_instance", in_memory)
        app(["run", "--instance", str(file), "--as-of", TODAY.isoformat()])
