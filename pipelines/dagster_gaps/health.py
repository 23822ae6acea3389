"""Adds `/healthz` to the web server: whether Dagster's services work.

Not needed once Dagster's own web server has it.
"""

from typing import Any

from dagster._core.errors import DagsterUserCodeUnreachableError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pipelines.dagster_home import silent_seconds

MAX_SILENCE_SECONDS = 300
"""Of a healthy daemon, which says each half minute that it works, but not while a slow sensor keeps it busy.
Whether any works at all (`pipelines.dagster_home.has_daemon`) is known sooner."""
ANSWERS, INVALID, UNREACHABLE = "answers", "invalid", "unreachable"
"""States of a code location; `invalid`: its code cannot be loaded."""


def routes(process_context: Any) -> list[Route]:
    """Return `/healthz`, whose status is 503 if the `process_context` misses a service."""

    def healthz(_: Request) -> JSONResponse:
        entries = process_context.create_request_context().get_code_location_entries()
        states = {name: _state_of(entry) for name, entry in entries.items()}
        try:
            silence = silent_seconds(process_context.instance)
        except Exception as error:  # noqa: BLE001  (of any database)
            reason = str(error).partition("\n")[0]
            body = {"code_locations": states, "storage": f"does not answer: {reason}"}
            return JSONResponse(body, status_code=503)
        silent = [name for name, seconds in silence.items() if seconds > MAX_SILENCE_SECONDS]
        healthy = {*states.values()} <= {ANSWERS} and not silent
        body = {"code_locations": states, "silent_daemons": silent}
        return JSONResponse(body, status_code=200 if healthy else 503)

    return [Route("/healthz", healthz)]


def _state_of(entry: Any) -> str:
    """Return the state of a code location, an entry of Dagster's workspace."""
    if entry.code_location is None:  # Dagster has noticed it itself
        is_away = entry.load_error and entry.load_error.cls_name == DagsterUserCodeUnreachableError.__name__
        return UNREACHABLE if is_away else INVALID
    try:
        entry.code_location.client.ping("")
    except DagsterUserCodeUnreachableError:
        return UNREACHABLE
    return ANSWERS
