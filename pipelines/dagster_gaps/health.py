"""Whether Dagster's services work: `/healthz` and `/metrics` of the web server, which knows them all.

Not needed once Dagster's own web server has both.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assets_defs.launch import INSTANCE_TAG
from resources.settings import slug_of, slug_of_part

MAX_SILENCE_SECONDS = 300
"""How long a healthy daemon may not say that it works; it does each half minute."""
ANSWERS, INVALID, UNREACHABLE = "answers", "invalid", "unreachable"
"""What becomes of a code location: its code cannot be loaded, or its server is away."""


class ServiceMetrics(Collector):
    """Code locations, daemon, queue and runs, as the web server's `process_context` sees them."""

    def __init__(self, process_context: Any) -> None:
        self._context = process_context

    @property
    def _dagster(self) -> dg.DagsterInstance:
        return self._context.instance

    def code_locations(self) -> dict[str, str]:
        """Return what becomes of each code location, by name."""
        entries = self._context.create_request_context().get_code_location_entries()
        return {name: _state_of(entry) for name, entry in entries.items()}

    def heartbeats(self) -> dict[str, float]:
        """Return when each of the daemon's parts last said that it works (Unix time), 0 if never."""
        statuses = self._dagster.get_daemon_statuses().items()
        return {name: one.last_heartbeat.timestamp if one.last_heartbeat else 0.0 for name, one in statuses}

    def collect(self) -> Iterator[Metric]:
        """Give each metric with its values."""
        answers = _gauge(
            "code_location_answers", "Whether its code is loaded and its server answers.", "location"
        )
        for name, state in self.code_locations().items():
            answers.add_metric([name], state == ANSWERS)
        heartbeat = _gauge(
            "daemon_heartbeat_timestamp_seconds",
            "When a part of the daemon last said that it works.",
            "daemon",
        )
        for name, at in self.heartbeats().items():
            heartbeat.add_metric([name], at)
        queued = _gauge("queued_runs", "Runs that wait for their turn.")
        filters = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
        queued.add_metric([], self._dagster.get_runs_count(filters))
        running = _gauge(
            "running_seconds", "How long the longest run has been at work, of those that are.", "slug"
        )
        for slug, seconds in self._running().items():
            running.add_metric([slug], seconds)
        yield from (answers, heartbeat, queued, running)

    def _running(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        statuses = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
        for record in self._dagster.get_run_records(dg.RunsFilter(statuses=statuses)):
            run = record.dagster_run
            name = run.tags.get(INSTANCE_TAG)
            slug = slug_of(name) if name else slug_of_part(run.job_name)
            found[slug] = max(found[slug], time.time() - (record.start_time or time.time()))
        return found


def routes(process_context: Any) -> list[Route]:
    """Return `/healthz`, whose status is 503 if a service is away, and `/metrics`."""
    metrics = ServiceMetrics(process_context)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)

    def healthz(_: Request) -> JSONResponse:
        body: dict[str, Any] = {"code_locations": metrics.code_locations()}
        try:
            heartbeats = metrics.heartbeats()
        except Exception as error:  # noqa: BLE001  (of any database)
            reason = str(error).partition("\n")[0]
            return JSONResponse(body | {"storage": f"does not answer: {reason}"}, status_code=503)
        silent = [name for name, at in heartbeats.items() if at < time.time() - MAX_SILENCE_SECONDS]
        healthy = {*body["code_locations"].values()} <= {ANSWERS} and not silent
        return JSONResponse(body | {"silent_daemons": silent}, status_code=200 if healthy else 503)

    def scrape(_: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return [Route("/healthz", healthz), Route("/metrics", scrape)]


def _state_of(entry: Any) -> str:
    """Return what becomes of a code location that is an entry of Dagster's workspace."""
    if entry.code_location is None:  # once Dagster has noticed it itself
        is_away = entry.load_error and entry.load_error.cls_name == DagsterUserCodeUnreachableError.__name__
        return UNREACHABLE if is_away else INVALID
    try:
        entry.code_location.client.ping("")
    except DagsterUserCodeUnreachableError:
        return UNREACHABLE
    return ANSWERS


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"asset_owners_{name}", meaning, labels=labels)
