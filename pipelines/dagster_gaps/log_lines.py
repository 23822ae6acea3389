"""Lines of the log as JSON objects, for what collects the logs of services and containers."""

import json
from datetime import UTC, datetime

LOGGER = "asset-owners"
"""The logger whose level says how much a command prints beside its result; not set: lines of level INFO."""


def json_line(message: str, *, level: str, at: float | None = None, **facts: str | None) -> str:
    """One JSON object: time (UTC), level, message, and the facts that are known; no control characters."""
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps(
        {"time": time.isoformat(timespec="milliseconds"), "level": level, "message": message} | known
    )
