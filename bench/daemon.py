"""Dagster's daemon and code server on a home, as services start them, and what the runs tell."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import dagster as dg
import yaml
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, ScheduleInstigatorData
from dagster._core.workspace.load_target import WorkspaceFileTarget

from bench.instances import wait_until_it_listens
from bench.timing import PROJECT, Sample
from bench.watch import Watch
from pipelines.dagster_home import dagster_folder, dagster_instance
from pipelines.repository import REPOSITORY

LOCATION = "asset-owners"
WORKSPACE = "workspace.yaml"
SECONDS_BEFORE_RUNS = 300
SECONDS_FOR_A_RUN = 60
SECONDS_TO_END = 30
OVER = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


@dataclass(frozen=True)
class Ran:
    """A run, with the moments of it that Dagster reported, in seconds since the epoch.

    Args:
        slug: the instance.
        queued: put into the queue.
        launched: taken from it by the daemon.
        first_step: its first step began.
        ended: it ended.
        cpu_to_first_step: processor time of its process until then.
        cpu_seconds: processor time of its process.
        peak_bytes: the most memory of its process.
    """

    slug: str
    queued: float
    launched: float
    first_step: float
    ended: float
    cpu_to_first_step: float
    cpu_seconds: float
    peak_bytes: int

    @property
    def until_first_step(self) -> Sample:
        """What it took before its first step."""
        seconds = self.first_step - self.launched
        return Sample(seconds, self.cpu_to_first_step, self.peak_bytes, counts={}, parts={})


class Daemon:
    """The daemon and the code server on a home in which nothing ran before, while the `with` block lasts."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with self._open as opening:
            self._recorded = opening.enter_context(dagster_instance(self._home))
            self._log = opening.enter_context((self._home / "dagster.log").open("wb"))
            self.started = time.time()
            port = str(_port(self._home))
            module = ("--module-name", "pipelines.definitions", "--location-name", LOCATION)
            self._server = self._start(
                opening, "dagster", "code-server", "start", *module, "--host", "127.0.0.1", "--port", port
            )
            wait_until_it_listens(int(port))
            workspace = str(self._home / WORKSPACE)
            self._daemon = self._start(opening, "dagster-daemon", "run", "--workspace", workspace)
            self._watch = opening.enter_context(Watch(self._server.pid, self._daemon.pid))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self, opening: ExitStack, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603  (our own command)
            [str(Path(sys.executable).with_name(program)), *arguments],
            stdout=self._log,
            stderr=self._log,
            cwd=PROJECT,
            env={
                **os.environ,
                "ASSET_OWNERS_HOME": str(self._home),
                "ASSET_OWNERS_INSTANCES": "",
                "ASSET_OWNERS_TABLES": "",
                "DAGSTER_HOME": str(dagster_folder(self._home)),
            },
            start_new_session=True,
        )
        opening.callback(_end, process)
        return process

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the daemon by itself so far."""
        return self._watch.process(self._daemon.pid, time.time()).cpu_seconds

    @property
    def cpu_seconds_of_all(self) -> float:
        """Processor time of the daemon, the code server and all runs so far."""
        return sum(process.cpu_seconds for process in list(self._watch.processes.values()))

    def until_over(self, number: int) -> list[Ran]:
        """Wait until so many runs are over, and tell of all.

        Raises:
            RuntimeError: a run failed, or they take too long.
        """
        self._wait(number)
        return [self._ran(record) for record in self._recorded.get_run_records()]

    def again(self, slug: str) -> Ran:
        """Put the run of an instance into the queue once more, and wait until it is over; raises the same."""
        (run, *_) = self._recorded.get_runs(dg.RunsFilter(job_name=slug))
        fresh = run._replace(run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.QUEUED)
        number = self._recorded.get_runs_count()
        self._recorded.add_run(fresh)
        self._wait(number + 1)
        (record,) = self._recorded.get_run_records(dg.RunsFilter(run_ids=[fresh.run_id]))
        return self._ran(record)

    def _wait(self, number: int) -> None:
        until = time.monotonic() + SECONDS_BEFORE_RUNS + number * SECONDS_FOR_A_RUN
        while self._recorded.get_runs_count(dg.RunsFilter(statuses=OVER)) < number:
            ended = (self._server.poll(), self._daemon.poll()) != (None, None)
            if ended or time.monotonic() > until:
                raise RuntimeError(f"{number} runs are not over; {self._said()}")
            time.sleep(0.5)
        over = self._recorded.get_runs(dg.RunsFilter(statuses=OVER))
        if failed := [f"{run.job_name} ({run.run_id})" for run in over if not run.is_success]:
            raise RuntimeError(f"runs that failed: {', '.join(failed)}; {self._said()}")

    def _ran(self, record: dg.RunRecord) -> Ran:
        run = record.dagster_run
        moments: dict[dg.DagsterEventType, float] = {}
        process_id = 0
        for entry in self._recorded.all_logs(run.run_id):
            if event := entry.dagster_event:
                moments.setdefault(event.event_type, entry.timestamp)
                if event.is_engine_event and (told := event.engine_event_data.metadata.get("pid")):
                    process_id = process_id or int(str(told.value))
        first_step = moments[dg.DagsterEventType.STEP_START]
        process = self._watch.process(process_id, first_step)
        return Ran(
            slug=run.job_name,
            queued=record.create_timestamp.timestamp(),
            launched=moments[dg.DagsterEventType.RUN_STARTING],
            first_step=first_step,
            ended=moments[dg.DagsterEventType.RUN_SUCCESS],
            cpu_to_first_step=process.cpu_until(first_step),
            cpu_seconds=process.cpu_seconds,
            peak_bytes=process.peak_bytes,
        )

    def _said(self) -> str:
        return (self._home / "dagster.log").read_text(encoding="utf-8", errors="replace")[-3000:]


def switch_on(home: Path, slugs: Sequence[str], cron: str, due: datetime) -> None:
    """Switch schedules on as if before a moment at which they were due; write the home's workspace file."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    server = {"host": "127.0.0.1", "port": port, "location_name": LOCATION}
    (home / WORKSPACE).write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
    (location,) = WorkspaceFileTarget([str(home / WORKSPACE)]).create_origins()
    repository = RemoteRepositoryOrigin(location, REPOSITORY)
    since = ScheduleInstigatorData(cron, (due - timedelta(minutes=1)).timestamp())
    with dagster_instance(home) as recorded:
        for slug in slugs:
            origin = repository.get_instigator_origin(slug)
            recorded.add_instigator_state(
                InstigatorState(origin, InstigatorType.SCHEDULE, InstigatorStatus.RUNNING, since)
            )


def _port(home: Path) -> int:
    (location,) = yaml.safe_load((home / WORKSPACE).read_text(encoding="utf-8"))["load_from"]
    return location["grpc_server"]["port"]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell a process to end, as systemd does; what is left of its group is killed."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_END)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
