"""The journal of writes: what a run intends stands here before its first request, each outcome as it comes.

An SQLite file beside the tables of the instance. When a run ends, its rows move into owner_writes; what is
still here then belongs to a run that was cut off. Columns are those of `schemas.OwnerWrites`.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import polars as pl

from ownership import schemas

Values = Mapping[str, str | None]
"""What a host holds or is to hold: owner, department, criticality; None = nothing, or not sent."""


@dataclass(frozen=True)
class Result:
    """What became of one write; `old_values` is what the host held just before, where it was read."""

    host_id: str
    outcome: str
    message: str | None = None
    old_values: Values | None = None


class Journal:
    """The journal file of one instance, a context manager. To be used by one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS writes (run_id TEXT, host_id TEXT, hostname TEXT, outcome TEXT,"
            " old_values TEXT, new_values TEXT, message TEXT, intended_at TEXT, completed_at TEXT,"
            " PRIMARY KEY (run_id, host_id))"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def intend(self, writes: pl.DataFrame) -> None:
        """Store rows of owner_writes, all or none, on disk before this returns."""
        rows = [
            {**row, "old_values": json.dumps(row["old_values"]), "new_values": json.dumps(row["new_values"])}
            | {name: row[name] and row[name].isoformat() for name in ("intended_at", "completed_at")}
            for row in writes.iter_rows(named=True)
        ]
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._connection:  # commits, or rolls back whatever goes wrong
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT INTO writes VALUES (:run_id, :host_id, :hostname, :outcome, :old_values, :new_values,"
                " :message, :intended_at, :completed_at)",
                rows,
            )
        # From here on a killed process loses nothing; a power cut may lose outcomes, never intentions,
        # and the next run settles those from the inventory.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def complete(self, result: Result, *, run_id: str, completed_at: datetime) -> None:
        """Store the outcome of one write; one that is not known yet stays without completed_at."""
        self._connection.execute(
            "UPDATE writes SET outcome = ?, message = ?, completed_at = ?,"
            " old_values = coalesce(?, old_values) WHERE run_id = ? AND host_id = ?",
            (
                result.outcome,
                result.message,
                None if result.outcome == "intended" else completed_at.isoformat(),
                json.dumps(result.old_values) if result.old_values else None,
                run_id,
                result.host_id,
            ),
        )

    def run_ids(self) -> list[str]:
        """Runs with rows in the journal, oldest first."""
        found = self._connection.execute(
            "SELECT run_id FROM writes GROUP BY run_id ORDER BY min(intended_at)"
        )
        return [run_id for (run_id,) in found]

    def rows(self, run_id: str) -> pl.DataFrame:
        """The run's rows of owner_writes, by host id."""
        cursor = self._connection.execute("SELECT * FROM writes WHERE run_id = ? ORDER BY host_id", (run_id,))
        names = [description[0] for description in cursor.description]
        rows = [_as_stored(dict(zip(names, row, strict=True))) for row in cursor]
        return pl.DataFrame(rows, schema=schemas.polars_schema(schemas.OwnerWrites))

    def forget(self, run_id: str) -> None:
        """Drop the run's rows, which are stored in owner_writes by now."""
        self._connection.execute("DELETE FROM writes WHERE run_id = ?", (run_id,))


def _as_stored(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("old_values", "new_values"):
        row[name] = json.loads(row[name])
    for name in ("intended_at", "completed_at"):
        row[name] = row[name] and datetime.fromisoformat(row[name])
    return row
