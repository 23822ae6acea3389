"""A company whose owners take a while to write, and runs on it in processes of their own."""

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import pytest

from pipelines.cli.app import app
from pipelines.cli.run import Overrides
from resources.inventory.client import InventoryClient
from tests.end_to_end.stand import TODAY, Stand, at_noon, in_memory, logons

IN_MEMORY = Overrides(recorded_in=in_memory)
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
    [__name__, "tests.chaos.days", "pipelines.cli.run", "alembic.config", "hypothesis", "reports.charts"]
)


class RunningProcess:
    """`asset-owners run` in a process of its own, a context manager; `log` gives the lines that it logs.

    It is forked from a process that has imported everything, and Dagster keeps its run in memory: both saves
    seconds, in which there is nothing of ours that a kill could disturb.
    """

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        """Calls `work` with the arguments, this process' environment and where it logs to."""
        ours, its = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=work, args=(*arguments, dict(os.environ), its), daemon=True)
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

    def wait_until_stopped(self) -> None:
        """Wait until a signal has stopped it."""
        state = Path(f"/proc/{self._process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)

    def go_on(self) -> None:
        """`kill -CONT`."""
        os.kill(self._process.pid or 0, signal.SIGCONT)

    @property
    def exit_status(self) -> int | None:
        """Negative where a signal ended it."""
        return self._process.exitcode


def start(
    stand: Stand, settings: Mapping[str, Any] = SETTINGS, *, stops_after_look_at: str | None = None
) -> RunningProcess:
    """Start a run; where a host is named, the process stops itself after its first look at it (SIGSTOP)."""
    return RunningProcess(_run, stand.instance_file(settings), stops_after_look_at)


def _run(file: Path, stops_after_look_at: str | None, environment: dict[str, str], log: Connection) -> None:
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(log.fileno(), 2)
    with pytest.MonkeyPatch.context() as patch:
        if stops_after_look_at:
            patch.setattr(InventoryClient, "read", _stopping(InventoryClient.read, stops_after_look_at))
        app(["run", "--instance", str(file), "--as-of", TODAY.isoformat()], obj=IN_MEMORY)


def _stopping(read: Any, host_id: str) -> Any:
    looks: list[str] = []

    def look(client: InventoryClient, asset_id: str) -> Any:
        fields = read(client, asset_id)
        if asset_id == host_id and not looks:
            looks.append(asset_id)
            os.kill(os.getpid(), signal.SIGSTOP)
        return fields

    return look
