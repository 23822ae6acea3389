"""`asset-owners metrics`: how each instance fares, in the form that Prometheus reads."""

import io
import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import polars as pl
from prometheus_client import CollectorRegistry, MetricsHandler, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.cli.stored import tables_of
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.http import BoundedReader
from resources.settings import (
    BrokenInstance,
    Instance,
    instances_folder,
    load_instance,
    load_instances,
    tables_location,
)
from resources.settings.files import instance_files, instance_or_broken
from resources.store.files import require_bucket

_OF_LAST_RUN = {
    "hosts": ("hosts", "Host assets."),
    "owned_after": ("hosts_owned", "Host assets with an owner after the run."),
    "conflicts": ("conflicts", "Hosts with another owner than the logons name."),
    "new_conflicts": ("new_conflicts", "Conflicts that the decisions before did not have."),
    "written": ("hosts_written", "Hosts that the run wrote."),
    "failed": ("write_failures", "Hosts whose write the service refused."),
    "left_alone": ("hosts_left_alone", "Hosts not written, or not known to be."),
}
"""Columns of `runs`: name and meaning as metrics."""

MAX_REQUESTS = 32
"""Answered at a time; others wait until their turn comes."""

REQUEST_SECONDS = 5
"""In which a request must have come whole."""


class Metrics(Collector):
    """What the table `runs` of each instance tells, read when it is asked for.

    Args:
        path: the only instance file to tell of; None: all in the instances folder.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def collect(self) -> Iterator[Metric]:
        """Give each metric with its values for all instances."""
        instances = [instance_or_broken(self._path)] if self._path else load_instances(instances_folder())
        # Where the folder is gone, no other series is left to raise an alarm.
        yield GaugeMetricFamily(
            "asset_owners_instances", "Instance files that were found.", value=len(instances)
        )
        readable = _gauge("instance_readable", "Whether instance file and tables can be read: 1, or 0.")
        runs = []
        for instance in instances:
            found = _runs(instance)
            readable.add_metric([instance.slug], found is not None)
            if found is not None:
                runs.append((instance.slug, found))
        yield readable
        yield from _of_runs(runs)


def metrics(path: Path | None, *, listen: str | None) -> None:
    """Print the metrics once, or serve them until Ctrl-C.

    Args:
        path: the instance file; None: all in the instances folder.
        listen: HOST:PORT to serve them at.

    Raises:
        ConfigurationError: the instance file is wrong, or there is none, and nothing is served; `listen` is
            no address, or taken.
    """
    if listen is None and path is None and not instance_files(folder := instances_folder()):
        raise ConfigurationError(
            f"There is no instance file in {folder}, so there is nothing to tell; put one there, or set "
            "ASSET_OWNERS_HOME, or ASSET_OWNERS_INSTANCES, to where the instance files lie"
        )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(path))
    if listen is None:
        if path:
            load_instance(path)
        print(generate_latest(registry).decode(), end="")
        return
    address = re.fullmatch(r"(?:\[(.*)\]|([^\[\]]*)):([0-9]{1,5})", listen)
    if not address or int(address[3]) >= 2**16:
        raise ConfigurationError(
            f"--listen: {listen!r} is no address; write it as HOST:PORT, such as 127.0.0.1:9188, with a port "
            "up to 65535"
        )
    try:
        server = _Server(address[1] or address[2] or "127.0.0.1", int(address[3]), registry)
    except (ValueError, OSError) as error:  # a UnicodeError, a ValueError, where HOST cannot be a name
        said = getattr(error, "strerror", error)
        raise ConfigurationError(
            f"--listen: cannot serve at {listen!r}: {said}; write it as 127.0.0.1:9188, with a free port"
        ) from error
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()


class _Handler(MetricsHandler):
    timeout = REQUEST_SECONDS  # of a client that does not take the answer

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(BoundedReader(self.connection, REQUEST_SECONDS))


class _Server(ThreadingHTTPServer):
    """A server of metrics that answers so many requests at a time."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self._free = BoundedSemaphore(MAX_REQUESTS)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler.factory(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def _runs(instance: Instance | BrokenInstance) -> pl.DataFrame | None:
    """The rows of `runs`, in the order in which they began; None: they cannot be read."""
    if isinstance(instance, BrokenInstance):
        return None
    try:
        found = tables_of(instance).all_runs("runs").collect().sort("started_at")
        if found.is_empty():
            require_bucket(tables_location())
    except Exception as error:
        if operator_message(error) is None:
            raise
        return None
    return found


def _of_runs(runs: Sequence[tuple[str, pl.DataFrame]]) -> Iterator[Metric]:
    succeeded = _gauge(
        "last_success_timestamp_seconds", "When a run of the kind last ended well (Unix time).", "kind"
    )
    for slug, rows in runs:
        ends = rows.filter(status="succeeded").group_by("kind").agg(pl.max("ended_at")).sort("kind")
        for kind, end in ends.iter_rows():
            succeeded.add_metric([slug, kind], end.timestamp())
    yield succeeded
    last = [(slug, row) for slug, rows in runs if (row := _last_run(rows))]
    well = _gauge("last_run_succeeded", "Whether the last run or dry run that ended ended well: 1, or 0.")
    took = _gauge("last_run_seconds", "How long it took.")
    steps = _gauge("last_run_step_seconds", "How long its steps took.", "step")
    for slug, row in last:
        well.add_metric([slug], row["status"] == "succeeded")
        took.add_metric([slug], (row["ended_at"] - row["started_at"]).total_seconds())
        for step, seconds in json.loads(row["seconds_by_step"] or "{}").items():
            steps.add_metric([slug, step], seconds)
    yield from (well, took, steps)
    for column, (name, meaning) in _OF_LAST_RUN.items():
        gauge = _gauge(f"last_run_{name}", meaning)
        for slug, row in last:
            if row[column] is not None:
                gauge.add_metric([slug], row[column])
        yield gauge


def _last_run(rows: pl.DataFrame) -> dict[str, Any] | None:
    ended = rows.filter(pl.col("kind").is_in(["run", "dry_run"]), pl.col("ended_at").is_not_null())
    return ended.row(-1, named=True) if ended.height else None


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"asset_owners_{name}", meaning, labels=["instance", *labels])
