"""Log lines as JSON objects, for what collects the logs of services and containers.

Dagster's own programs have `--log-format json`. Not needed once the loggers of its runs have it, too.
"""

import json
from datetime import UTC, datetime

LOGGER = "asset-owners"
"""The logger whose level says how much a command prints beside its result; by default lines of level INFO."""


def json_line(message: str, *, level: str, at: float | None = None, **facts: str | None) -> str:
    """Return a JSON object with time (UTC), level, message and the known facts; no control characters."""
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps(
        {"time": time.isoformat(timespec="milliseconds"), "level": level, "message": message} | known
    )
