"""Formats log lines as JSON objects, for log collectors.

Not needed once the loggers of Dagster's runs can do it, as its programs can (`--log-format json`).
"""

import json
from datetime import UTC, datetime

LOGGER = "asset-owners"
"""The logger with the level of what a command prints beside its result; INFO by default."""


def json_line(message: str, *, level: str, at: float | None = None, **facts: str | None) -> str:
    """Return a JSON object with time (UTC), level, message and the known facts; no control characters."""
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps(
        {"time": time.isoformat(timespec="milliseconds"), "level": level, "message": message} | known
    )
