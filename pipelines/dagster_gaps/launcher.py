"""Starts each run once, and notices runs that have died with their machine or service.

Not needed once Dagster's own launcher says whether a start may be repeated, and has a health check, as those
for Kubernetes and ECS do.
"""

import fcntl
import json
import logging
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, DefaultRunLauncher, RunsFilter
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.server import DagsterApiServer
from dagster._serdes import ConfigurableClassData

from assets_defs.run_request import INSTANCE_TAG
from resources.locks import hold_lock

LOCK_TAG = ".dagster/asset_owners_lock"
"""The machine of a command's run, and the lock of its process, as JSON. The UI hides the tag."""

_CHECK = "_check_for_orphaned_runs"
MAX_SILENCE = 600
"""Seconds without an answer after which runs of another machine are dead; code servers may restart."""


class WatchfulRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, which starts a run once, and notices runs that died with their code server.

    A code server notices that the process of a run has died, but not if it has died itself. So
    `run_monitoring` asks here whether it still listens, or whether the process of a command holds its lock.
    """

    supports_check_run_worker_health = True

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._silent_since: dict[str, float] = {}

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start a run, or leave it to `run_monitoring` where the code server does not confirm the start.

        Dagster would repeat such a start. The second process would end immediately, and the code server would
        report the run as failed while the first one writes.

        Raises:
            DagsterUserCodeUnreachableError: the code server is away; Dagster tries again later.
        """
        run, workspace = context.dagster_run, cast("Any", context.workspace)
        origin = cast("Any", run.remote_job_origin)
        workspace.get_code_location(origin.location_name).client.ping("")  # fails before anything has started
        try:
            super().launch_run(context)
        except DagsterUserCodeUnreachableError as error:
            seconds = self._instance.run_monitoring_start_timeout_seconds
            self._instance.report_engine_event(
                f"The code server did not confirm the start of this run: {error} It may still do so; if not, "
                f"the run fails {seconds} seconds after its launch (run_monitoring.start_timeout_seconds in "
                "dagster.yaml). If this happens often, raise DAGSTER_GRPC_TIMEOUT_SECONDS.",
                run,
            )

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return whether the process of a run may still be alive; otherwise Dagster fails the run."""
        worker, lives = "process", True
        if is_by_command(run.run_id, run.tags):
            lives = not _is_free(*json.loads(run.tags[LOCK_TAG]))
        elif served_by := run.tags.get(GRPC_INFO_TAG):
            worker, lives = "code server", self._is_served(run.run_id, json.loads(served_by))
        if lives:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"the {worker} that ran it has ended")

    def _is_served(self, run_id: str, code_server: Mapping[str, Any]) -> bool:
        """Return whether a code server listens, or is on another machine and has not been silent for long."""
        if _listens(code_server):
            self._silent_since.pop(run_id, None)
            return True
        if "socket" in code_server:
            return False
        now = time.monotonic()
        return now - self._silent_since.setdefault(run_id, now) < MAX_SILENCE


def fail_dead_runs(dagster: DagsterInstance, name: str) -> None:
    """Record the dead runs of an instance as failed, which otherwise only a daemon does."""
    # Those of a command that was killed before its first step have not started, and never will.
    launcher, statuses = WatchfulRunLauncher(), [DagsterRunStatus.STARTED, DagsterRunStatus.NOT_STARTED]
    for run in dagster.get_runs(RunsFilter(tags={INSTANCE_TAG: name}, statuses=statuses)):
        code_server = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
        if not Path(code_server.get("socket", "/")).exists():
            continue  # a service with a /tmp of its own (PrivateTmp) may listen there
        if launcher.check_run_worker_health(run).status == WorkerStatus.FAILED:
            dagster.report_run_failed(run)


def keep_noticing_dead_runs() -> None:
    """Let a code server continue to look for dead runs after an error, such as on a full disk.

    The first error would end Dagster's thread for good, and an instance would wait for a dead run until
    `max_runtime_seconds`.
    """
    check: Any = getattr(DagsterApiServer, _CHECK, None)
    if check is None or hasattr(check, "__wrapped__"):  # another Dagster, or already done
        return

    @wraps(check)
    def check_for_dead_runs(server: Any) -> None:
        try:
            check(server)
        except Exception as error:  # noqa: BLE001  (of any database)
            log = logging.getLogger("dagster.code_server")  # in the form of its other lines
            log.warning(f"A run that died cannot be recorded as failed; it is tried again: {error}")

    setattr(DagsterApiServer, _CHECK, check_for_dead_runs)


def _listens(code_server: Mapping[str, Any]) -> bool:
    try:
        if path := code_server.get("socket"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
        else:
            socket.create_connection((code_server["host"], code_server["port"]), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def locked_run(folder: Path, run_id: str) -> Generator[dict[str, str]]:
    """Hold a lock that shows whether this process is alive; yield the tag that names it."""
    file = folder / f".{run_id}.lock"
    with hold_lock(file, f"run {run_id}"):
        yield {LOCK_TAG: json.dumps([socket.gethostname(), str(file)])}
        file.unlink()


def is_by_command(run_id: str, tags: Mapping[str, str]) -> bool:
    """Return whether a command executes the run itself; re-executions have the same tags."""
    return run_id in tags.get(LOCK_TAG, "")


def _is_free(machine: str, file: str) -> bool:
    """Return whether a process of this machine has freed its lock; False for another machine."""
    try:
        with Path(file).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or of another user or container
        return False
    return machine == socket.gethostname()
