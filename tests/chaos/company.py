"""A company whose owners take a while to write, and runs on it in processes of their own."""

import itertools
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import dagster as dg
import pytest

from pipelines.cli.app import app
from tests.end_to_end.stand import TODAY, Stand, at_noon, logons

IN_MEMORY = ("pipelines.cli.run.dagster_instance", lambda _: dg.DagsterInstance.ephemeral())
INDEX = "logs-chaos"
WRITTEN = 12
CONCURRENCY = 3
SETTINGS = {"index": INDEX, "writes": {"concurrency": CONCURRENCY}}
USERS = [
    {"id": "ann", "user_email": "ann@corp.example", "user_department": "Sales", "criticality": "high"},
    {"id": 17, "user_email": "bob@corp.example", "user_department": "Works", "criticality": None},
]


def hosts_of(owners):
    return [
        {
            "id": f"h-{number:02}",
            "search_agent_name": f"PC-{number:02}",
            "asset_owner": owner,
            "department": "old",
        }
        for number, owner in enumerate(owners)
    ]


HOSTS = hosts_of([None] * WRITTEN + ["ann", "ann", 17, ["ann", 17]])


def logons_on(hosts):
    """Each host's are those of one user: ann and bob in turn."""
    users = itertools.cycle(["ann", "bob"])
    for host in hosts:
        yield from logons(str(host["search_agent_name"]).lower(), next(users), 3, at=at_noon(TODAY))


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [__name__, "pipelines.cli.run", "alembic.config", "hypothesis", "matplotlib.backends.backend_agg"]
)


class RunningProcess:
    """`asset-owners run` in a process of its own, a context manager; `log` gives the lines that it logs.

    It is forked from a process that has imported everything, and Dagster keeps its run in memory: both saves
    seconds, in which there is nothing of ours that a kill could disturb.
    """

    def __init__(self, file: Path) -> None:
        ours, its = FORKS.Pipe(duplex=False)
        arguments = ["run", "--instance", str(file), "--as-of", TODAY.isoformat()]
        self._process = FORKS.Process(target=_run, args=(arguments, dict(os.environ), its), daemon=True)
        self._process.start()
        its.close()
        self.log = os.fdopen(os.dup(ours.fileno()), encoding="utf-8")
        ours.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.read()
        self.log.close()
        self._process.join()

    def kill(self) -> None:
        """`kill -9`; any thread may call it."""
        if not wait([self._process.sentinel], timeout=0):
            os.kill(self._process.pid or 0, signal.SIGKILL)
            wait([self._process.sentinel])

    @property
    def exit_status(self) -> int | None:
        """Negative where a signal ended it."""
        return self._process.exitcode


def start(stand: Stand, settings: Mapping[str, Any] = SETTINGS) -> RunningProcess:
    return RunningProcess(stand.instance_file(settings))


def _run(arguments: list[str], environment: dict[str, str], log: Connection) -> None:
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(log.fileno(), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*IN_MEMORY)
        app(arguments)
