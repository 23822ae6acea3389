"""`asset-owners audit-log`: what was done, by whom and why, as JSON lines for a security team's own index."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from pipelines.cli.options import OneOrAll
from pipelines.cli.stored import note, own_tables
from resources.errors import ConfigurationError
from resources.failures import operator_message
from resources.settings import Instance, instances_folder, load_instance, load_instances
from resources.store.tables import Tables

_RUN = (
    *("kind", "status", "started_at", "ended_at", "window_from", "window_to", "of_run", "options"),
    *("hosts", "to_write", "written", "failed", "left_alone", "message"),
)
_WRITE = ("host_id", "hostname", "outcome", "old_values", "new_values", "kept", "undoes", "target", "message")
_ACKNOWLEDGED = ("host_id", "hostname", "existing_owner", "resolved_owner", "evidence")


def audit_log(
    path: OneOrAll = None,
    *,
    since: Annotated[str, typer.Option(metavar="DAY", help="First day (UTC), such as 2026-01-31.")],
) -> int:
    """Print each run, write and acknowledged conflict since a day, one JSON object a line, the oldest first.

    `id` is the same each time, so that an index takes what comes again in place of what it has. The exit
    status is 1 if an instance cannot be read; the others are printed.

    Example: --since 2026-01-31
    """
    begin = _instant(since)
    found, failed = [], False
    for instance in [load_instance(path)] if path else load_instances(instances_folder()):
        try:
            if not isinstance(instance, Instance):
                raise ConfigurationError(instance.message)  # noqa: TRY301  (as what cannot be read)
            found += [entry for entry in _entries(own_tables(instance)) if entry["at"] >= begin]
        except Exception as error:
            if path or (message := operator_message(error)) is None:
                raise
            note(message)
            failed = True
    for entry in sorted(found, key=lambda entry: (entry["at"], entry["id"])):
        print(json.dumps(entry, default=lambda value: value.isoformat()))
    return int(failed)


def _instant(day: str) -> datetime:
    try:
        moment = datetime.fromisoformat(day)
    except ValueError as error:
        raise ConfigurationError(f"--since: {day!r} is not a day; write it as 2026-01-31") from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _entries(tables: Tables) -> Iterator[dict[str, Any]]:
    """Yield an object for each run, write and acknowledged conflict of an instance."""

    def entry(
        kind: str, key: str, at: datetime, row: dict[str, Any], reason: str | None, columns: Sequence[str]
    ) -> dict[str, Any]:
        head = {"id": f"{tables.slug}/{key}", "at": at, "type": kind, "instance": tables.name}
        who = {"run_id": row.get("run_id"), "by": row["by"], "reason": reason}
        return {**head, **who, **{name: row[name] for name in columns}}

    reasons = {}
    for row in tables.all_runs("runs").collect().iter_rows(named=True):
        run_id, row["options"] = row["run_id"], json.loads(row["options"])
        reasons[run_id] = row["options"].get("reason")
        yield entry("run", run_id, row["ended_at"] or row["started_at"], row, reasons[run_id], _RUN)
    for row in tables.all_runs("owner_writes").collect().iter_rows(named=True):
        key, at = f"{row['run_id']}/{row['host_id']}", row["completed_at"] or row["intended_at"]
        yield entry("write", key, at, row, reasons.get(row["run_id"]), _WRITE)
    for row in tables.read("acknowledged_conflicts").collect().iter_rows(named=True):
        key, at = f"acknowledged/{row['host_id']}", row["acknowledged_at"]
        yield entry("acknowledged_conflict", key, at, row, row["note"], _ACKNOWLEDGED)
