"""`asset-owners metrics`: the last runs of each instance, in the form that Prometheus reads."""

import errno
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest, make_asgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.cli.options import OneOrAll
from pipelines.cli.stored import own_tables
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.settings import BrokenInstance, Instance, instances_folder, load_instance, load_instances

_OF_LAST_RUN = {
    "hosts": ("hosts", "Host assets."),
    "owned_after": ("hosts_owned", "Host assets with an owner after the run."),
    "conflicts": ("conflicts", "Hosts with another owner than the logons name."),
    "new_conflicts": ("new_conflicts", "Conflicts that the previous decisions did not have."),
    "written": ("hosts_written", "Hosts that the run wrote."),
    "failed": ("write_failures", "Hosts whose write the service refused."),
    "left_alone": ("hosts_left_alone", "Hosts skipped, or whose outcome is not known."),
}
"""Columns of `runs`: name and meaning as metrics."""


class Metrics(Collector):
    """The table `runs` of one instance, or of all in the instances folder, read whenever it is asked for."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def collect(self) -> Iterator[Metric]:
        """Give each metric with its values for all instances."""
        instances = load_instances(self._path or instances_folder())
        # Where the folder is gone, no other series is left to raise an alarm.
        yield GaugeMetricFamily("asset_owners_instances", "Instance files found.", value=len(instances))
        readable = _gauge("instance_readable", "Whether instance file and tables can be read: 1, or 0.")
        succeeded = _gauge(
            "last_success_timestamp_seconds", "When a run of the kind last succeeded (Unix time).", "kind"
        )
        well = _gauge("last_run_succeeded", "Whether the last finished run or dry run succeeded: 1, or 0.")
        took = _gauge("last_run_seconds", "How long it took.")
        steps = _gauge("last_run_step_seconds", "How long its steps took.", "step")
        counts = {column: _gauge(f"last_run_{name}", text) for column, (name, text) in _OF_LAST_RUN.items()}
        for instance in instances:
            slug, rows = instance.slug, _runs(instance)
            readable.add_metric([slug], rows is not None)
            if rows is None:
                continue
            ends = rows.filter(status="succeeded").group_by("kind").agg(pl.max("ended_at")).sort("kind")
            for kind, end in ends.iter_rows():
                succeeded.add_metric([slug, kind], end.timestamp())
            finished = rows.filter(pl.col("kind").is_in(["run", "dry_run"])).drop_nulls("ended_at")
            for row in finished.tail(1).iter_rows(named=True):
                well.add_metric([slug], row["status"] == "succeeded")
                took.add_metric([slug], (row["ended_at"] - row["started_at"]).total_seconds())
                for step, seconds in json.loads(row["seconds_by_step"] or "{}").items():
                    steps.add_metric([slug, step], seconds)
                for column, gauge in counts.items():
                    if row[column] is not None:
                        gauge.add_metric([slug], row[column])
        yield from (readable, succeeded, well, took, steps, *counts.values())


def metrics(
    path: OneOrAll = None,
    *,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve until Ctrl-C.", show_default="print once and end"),
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


def _serve(registry: CollectorRegistry, listen: str) -> None:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen: {listen!r} has no port; write HOST:PORT, such as 127.0.0.1:9188")
    listening = listen_at("--listen", host.strip("[]") or "127.0.0.1", int(port))
    # Without threads: requests that never end hold no more than their connection.
    server = uvicorn.Server(uvicorn.Config(make_asgi_app(registry), log_level="warning", lifespan="off"))
    with suppress(KeyboardInterrupt):
        server.run([listening])


def _runs(instance: Instance | BrokenInstance) -> pl.DataFrame | None:
    """Return the rows of `runs`, in the order in which they began; None: they cannot be read."""
    try:
        if isinstance(instance, Instance):
            return own_tables(instance).all_runs("runs").collect().sort("started_at")
    except Exception as error:
        if operator_message(error) is None:
            raise
    return None


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"asset_owners_{name}", meaning, labels=["slug", *labels])
