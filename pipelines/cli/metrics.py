"""`asset-owners metrics`: the last runs of each instance, in the form that Prometheus reads."""

import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest, make_asgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.cli.options import OneOrAll, message_and_status
from resources.errors import ConfigurationError
from resources.settings import Instance, instances_folder, load_instance, load_instances, time_between_runs
from resources.store.retention import OVERDUE_AFTER, read_run_state
from resources.store.tables import tables_of

SECONDS_TO_READ = 8.0
"""Time to read all instances; the metrics say which were not read. Prometheus waits for ten seconds."""
READERS = 8
"""Instances read at the same time, for some lie behind a network; more threads wait for each other."""

_OF_LAST_RUN = {
    "hosts": ("hosts", "Hosts in the inventory."),
    "owned_after": ("hosts_owned", "Hosts with an owner after the run."),
    "conflicts": ("conflicts", "Hosts that have another owner than their primary user."),
    "new_conflicts": ("new_conflicts", "Conflicts that the previous decisions did not have."),
    "written": ("hosts_written", "Hosts that the run wrote."),
    "failed": ("write_failures", "Hosts whose write the service refused."),
    "left_alone": ("hosts_left_alone", "Hosts skipped, or whose outcome is not known."),
}
"""Columns of `runs`: name and meaning as metrics."""
_GAUGES: Mapping[str, Sequence[str]] = {
    "instance_readable": ("Whether instance file and tables can be read: 1, or 0.",),
    "writes_enabled": ("Whether its runs may write: 1; 0: writes.dry_run is on.",),
    "schedule_due_timestamp_seconds": (
        "When the last scheduled run was due that should have succeeded since (Unix time).",
    ),
    "last_success_timestamp_seconds": ("When a run of the kind last succeeded (Unix time).", "kind"),
    "last_run_success_timestamp_seconds": (
        "When a run last succeeded (Unix time); dry runs count where there are no others.",
    ),
    "failing_since_timestamp_seconds": (
        "When the first of the consecutive runs failed that have failed up to now (Unix time).",
    ),
    "plans_only_since_timestamp_seconds": (
        "When the first of the consecutive runs began that only planned (Unix time).",
    ),
    "last_run_succeeded": (
        "Whether the last finished run succeeded: 1, or 0; dry runs count where there are no others.",
    ),
    "last_run_seconds": ("How long it took.",),
    "last_run_step_seconds": ("How long its steps took.", "step"),
    **{f"last_run_{name}": (meaning,) for name, meaning in _OF_LAST_RUN.values()},
}
"""The meaning of each metric of an instance, and its labels beside the slug."""
Values = Sequence[tuple[str, Sequence[str], float]]


class Metrics(Collector):
    """The results of the last runs of one instance, or of all in the folder; read for each request."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="metrics")
        self._reading: dict[str, Future[Values | None]] = {}

    def collect(self) -> Iterator[Metric]:
        """Give each metric with its values for all instances."""
        instances = load_instances(self._path or instances_folder())
        # Where the folder is gone, no other series is left to raise an alarm.
        yield GaugeMetricFamily("asset_owners_instances", "Instance files found.", value=len(instances))
        gauges = {
            name: GaugeMetricFamily(f"asset_owners_{name}", meaning, labels=["slug", *labels])
            for name, (meaning, *labels) in _GAUGES.items()
        }
        known = self._values([instance for instance in instances if isinstance(instance, Instance)])
        for slug in (instance.slug for instance in instances):
            gauges["instance_readable"].add_metric([slug], known.get(slug) is not None)
            for name, labels, value in known.get(slug) or ():
                gauges[name].add_metric([slug, *labels], value)
        yield from gauges.values()

    def _values(self, instances: list[Instance]) -> dict[str, Values | None]:
        """Return the values of each instance that can be read in time, by slug; None: it cannot."""
        for instance in instances:  # one that hangs is not asked again before it answers
            if instance.slug not in self._reading:
                self._reading[instance.slug] = self._readers.submit(self._read, instance)
        done, _ = wait(self._reading.values(), SECONDS_TO_READ)
        ended = {slug: reading for slug, reading in self._reading.items() if reading in done}
        self._reading = {slug: each for slug, each in self._reading.items() if slug not in ended}
        return {slug: reading.result() for slug, reading in ended.items()}

    def _read(self, instance: Instance) -> Values | None:
        try:
            state = read_run_state(tables_of(instance), dry_run=instance.writes.dry_run)
            return [*_metrics_of(instance, state)]
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are shown; its trace is printed)
            message_and_status(error)
            return None


def _metrics_of(instance: Instance, state: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str], float]]:
    """Yield each metric of an instance that is known, its labels and its value."""
    yield "writes_enabled", (), not instance.writes.dry_run
    succeeded, row = state["succeeded"], state["last_run"]
    if last_due := due_at(instance, datetime.now(UTC), has_run=bool(succeeded)):
        yield "schedule_due_timestamp_seconds", (), last_due
    for kind, end in sorted(succeeded.items()):
        yield "last_success_timestamp_seconds", (kind,), end
    for name in ("last_run_success", "failing_since", "plans_only_since"):
        if state[name]:
            yield f"{name}_timestamp_seconds", (), state[name]
    if not row:
        return
    yield "last_run_succeeded", (), row["succeeded"]
    yield "last_run_seconds", (), row["ended_at"] - row["started_at"]
    for step, seconds in row["seconds_by_step"].items():
        yield "last_run_step_seconds", (step,), seconds
    for column, (name, _) in _OF_LAST_RUN.items():
        if row.get(column) is not None:
            yield f"last_run_{name}", (), row[column]


def due_at(instance: Instance, now: datetime, *, has_run: bool) -> float | None:
    """Return the last tick of the schedule at least `OVERDUE_AFTER` ago, in Unix seconds, if there is one.

    Nothing was due of an instance that has never run before its file was written.
    """
    if instance.scan.schedule is None:
        return None
    windows = time_between_runs(instance.scan.schedule, instance.scan.timezone)
    window = windows.get_prev_partition_window(now - OVERDUE_AFTER, respect_bounds=False)
    tick = window.end.timestamp() if window else 0.0
    written = instance.file.stat().st_mtime if instance.file and instance.file.exists() else 0.0
    return tick if has_run or tick > written else None


def metrics(
    path: OneOrAll = None,
    *,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve until Ctrl-C.", show_default="print once and exit"),
    ] = None,
) -> None:
    """Print the metrics of one instance, or of all, once, or serve them at HOST:PORT until Ctrl-C.

    Of each instance: last success, hosts, owners and conflicts, failures, and how long the steps took.

    Example: --listen 127.0.0.1:9188
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(path))
    if listen:
        _serve(registry, listen)
        return
    if path:
        load_instance(path)
    print(generate_latest(registry).decode(), end="")


def listen_at(option: str, host: str, port: int) -> socket.socket:
    """Listen at a port; an error names the option and the reason."""
    try:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror
        message = f"{option}: cannot serve at {host}:{port}: {why}; choose another one"
        raise ConfigurationError(message) from error


def notify(state: str) -> None:
    """Send a state, such as READY=1, to systemd (`Type=notify`) if it listens; Dagster's services do not."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            sender.send(state.encode())


def _serve(registry: CollectorRegistry, listen: str) -> None:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen: {listen!r} has no port; write HOST:PORT, such as 127.0.0.1:9188")
    listening = listen_at("--listen", host.strip("[]") or "127.0.0.1", int(port))
    # Without threads: requests that never end hold no more than their connection.
    server = uvicorn.Server(uvicorn.Config(make_asgi_app(registry), log_level="warning", lifespan="off"))
    notify("READY=1")
    with suppress(KeyboardInterrupt):
        server.run([listening])
