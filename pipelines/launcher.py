"""Where Dagster starts runs, and how it learns that one has died with its machine, or with the service."""

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, DefaultRunLauncher, RunsFilter
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._serdes import ConfigurableClassData

PROCESS_TAG = ".dagster/asset_owners_process"
"""Where a run of the command line works, as JSON: machine, process id, when that began. The UI hides it."""

MAX_SILENCE = 600
"""Seconds for which the code server of another machine may not answer before its runs count as dead.

So a network that fails for a moment, or a code server that starts again, ends no run.
"""


class WatchfulRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, for runs that die with the code server that started them.

    A code server notices itself that the process of a run has died. Nobody does where it died as well, with
    all that it had started; so `run_monitoring` asks here whether it still listens. Of a run of the command
    line it asks whether its process lives; of one on another machine nothing is known.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._silent_since: dict[str, float] = {}

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Yes: it is asked of each run at work."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether what works on a run may still be there; Dagster counts the run as failed otherwise."""
        # What Dagster executes again keeps the tags of the first run, and gets that of its own code server.
        if served_by := run.tags.get(GRPC_INFO_TAG):
            ended = None if self._is_served(run.run_id, json.loads(served_by)) else "service"
        else:
            machine, process, began = json.loads(run.tags.get(PROCESS_TAG, "[null, null, null]"))
            ended = "process" if machine == socket.gethostname() and _began(process) != began else None
        if ended:
            return CheckRunHealthResult(WorkerStatus.FAILED, f"the {ended} that ran it has ended")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _is_served(self, run_id: str, code_server: Mapping[str, Any]) -> bool:
        """Whether the code server of a run listens, or has, on another machine, not been silent for long."""
        if _listens(code_server):
            self._silent_since.pop(run_id, None)
            return True
        if "socket" in code_server:
            return False
        now = time.monotonic()
        return now - self._silent_since.setdefault(run_id, now) < MAX_SILENCE


def fail_dead_runs(dagster: DagsterInstance, name: str) -> None:
    """Record as failed the runs of an instance that died: where no daemon works, nobody else does."""
    launcher, at_work = WatchfulRunLauncher(), [DagsterRunStatus.STARTED]
    for run in dagster.get_runs(RunsFilter(tags={"asset_owners/instance": name}, statuses=at_work)):
        if launcher.check_run_worker_health(run).status == WorkerStatus.FAILED:
            dagster.report_run_failed(run)


def _listens(code_server: Mapping[str, Any]) -> bool:
    try:
        if path := code_server.get("socket"):
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(path)
        else:
            socket.create_connection((code_server["host"], code_server["port"]), timeout=5).close()
    except OSError:
        return False
    return True


def process_tag() -> dict[str, str]:
    """The tag by which the death of this process is noticed; none where the system shows no processes."""
    process = os.getpid()
    began = _began(process)
    return {PROCESS_TAG: json.dumps([socket.gethostname(), process, began])} if began else {}


def _began(process: int) -> str | None:
    """When a process began, and since which start of the machine that counts; None: there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return f"{stat.rpartition(')')[2].split()[19]} after {boot}"  # proc(5): starttime
