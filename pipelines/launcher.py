"""Where Dagster starts runs, and how it learns that one has died with its machine, or with the service."""

import json
import socket

from dagster import DagsterRun, DefaultRunLauncher
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG


class WatchfulRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, for runs that die with the code server that started them.

    A code server notices itself that the process of a run has died. Nobody does where it died as well, with
    all that it had started; so `run_monitoring` asks here whether it still listens. Of one on another
    machine, at a port, nothing is known.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Yes: it is asked of each run at work."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the code server of a run may still be there; Dagster counts the run as failed otherwise."""
        path = json.loads(run.tags.get(GRPC_INFO_TAG, "{}")).get("socket")
        if path and not _listens(path):
            return CheckRunHealthResult(WorkerStatus.FAILED, "the service that ran it has ended")
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
