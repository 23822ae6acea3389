"""A company whose owners take a while to write, and runs on it in processes of their own."""

import itertools
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.app import app
from pipelines.cli.run import Overrides
from resources.inventory.client import InventoryClient
from tests.end_to_end.processes import RunningProcess, settle_in
from tests.end_to_end.stand import TODAY, Stand, at_noon, in_memory, logons
from tests.plots import draw_nothing

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


def start(
    stand: Stand, settings: Mapping[str, Any] = SETTINGS, *, stops_after_look_at: str | None = None
) -> RunningProcess:
    """Start a run; where a host is named, the process stops itself after its first look at it (SIGSTOP)."""
    return RunningProcess(_run, stand.instance_file(settings), stops_after_look_at)


def _run(file: Path, stops_after_look_at: str | None, environment: dict[str, str], log: Connection) -> None:
    settle_in(environment, os.devnull, log)
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
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
