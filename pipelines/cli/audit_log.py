"""`asset-owners audit-log`: what was done, by whom and why, as JSON lines for a security team's own index."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import polars as pl
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
    slug, reasons = tables.slug, {}
    for row in tables.all_runs("runs").collect().iter_rows(named=True):
        row["options"] = json.loads(row["options"])
        reasons[row["run_id"]] = reason = row["options"].get("reason")
        yield {
            "id": f"{slug}/{row['run_id']}",
            "at": row["ended_at"] or row["started_at"],
            **_head("run", tables, row, reason),
            **{name: row[name] for name in _RUN},
        }
    writes = tables.all_runs("owner_writes").with_columns(at=pl.coalesce("completed_at", "intended_at"))
    for row in writes.collect().iter_rows(named=True):
        yield {
            "id": f"{slug}/{row['run_id']}/{row['host_id']}",
            "at": row["at"],
            **_head("write", tables, row, reasons.get(row["run_id"])),
            **{name: row[name] for name in _WRITE},
        }
    for row in tables.read("acknowledged_conflicts").collect().iter_rows(named=True):
        yield {
            "id": f"{slug}/acknowledged/{row['host_id']}",
            "at": row["acknowledged_at"],
            **_head("acknowledged_conflict", tables, row, row["note"]),
            **{name: row[name] for name in _ACKNOWLEDGED},
        }


def _head(kind: str, tables: Tables, row: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """Return the keys that all objects have, beside `id` and `at`."""
    who = {"by": row["by"], "reason": reason}
    return {"type": kind, "instance": tables.name, "run_id": row.get("run_id"), **who}
