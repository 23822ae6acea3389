"""The journal of writes: a run stores all it intends before its first request, and each outcome as it comes.

An SQLite file of the instance in the home, or a database that several machines share
(`resources.writeback.postgres`). When a run ends, its rows move into owner_writes; those that stay belong to
a run that was cut off, or to another target. Columns are those of `OwnerWrites`, beside them whether a
request may have been sent (`sent`), and the start of the machine that stored the row (`boot`).
"""

import json
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import OwnerWrites
from resources import format_version
from resources.errors import AssetOwnersError
from resources.inventory.adapter import Values
from resources.watchdog import made_progress

_COLUMNS = (
    *("run_id", "host_id", "hostname", "outcome", "old_values", "new_values", "message"),
    *("intended_at", "completed_at", "target", "undoes", "kept"),
)


@dataclass(frozen=True)
class Result:
    """What became of one write.

    `old_values` is what the host held when it was read; `new_values` what was sent to it: of an undo only the
    fields that still held what was written. `kept` are its other fields.
    """

    host_id: str
    outcome: str
    message: str | None = None
    old_values: Values | None = None
    new_values: Values | None = None
    kept: Sequence[str] | None = None


class Journal:
    """The journal file of one instance, at `place`, a context manager; several threads may use it."""

    place: str

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.place = str(path)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._execute("CREATE TABLE IF NOT EXISTS format (number INTEGER NOT NULL, version TEXT NOT NULL)")
        self._require_known_format()
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA secure_delete = ON")  # what is deleted is not left in free pages
        self._execute(
            "CREATE TABLE IF NOT EXISTS writes (run_id TEXT, host_id TEXT, hostname TEXT, outcome TEXT,"
            " old_values TEXT, new_values TEXT, message TEXT, intended_at TEXT, completed_at TEXT,"
            " sent INTEGER, boot TEXT, target TEXT, undoes TEXT, kept TEXT, PRIMARY KEY (run_id, host_id))"
        )
        if "kept" not in {name for _, name, *_ in self._execute("PRAGMA table_info(writes)")}:
            self._execute("ALTER TABLE writes ADD COLUMN kept TEXT")

    def _require_known_format(self) -> None:
        """Fail for the journal of a newer program before it is changed; record this one's format."""
        found = self._execute("SELECT number, version FROM format ORDER BY number DESC LIMIT 1")
        for number, version in found:
            format_version.require_known_format(number, version, f"The journal of writes ({self.place})")
        if not found or found[0][0] < format_version.FORMAT:
            self._execute("INSERT INTO format (number, version) VALUES (?, ?)", *format_version.own_format())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def lock(self, name: str, what: str) -> None:
        """Keep out other machines until the journal is closed; a file belongs to one machine."""

    def require_lock(self) -> None:
        """Raise unless this run surely still holds the lock."""

    def intend(self, writes: pl.DataFrame, *, sent: bool = False) -> None:
        """Store rows of owner_writes, all or none, on disk before this returns; `sent`: they may be sent."""
        boot = self._boot()
        rows = [
            [*(_as_text(value) for value in row), int(sent), boot]
            for row in writes.select(_COLUMNS).iter_rows()
        ]
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        self._insert(f"INSERT INTO writes ({', '.join(_COLUMNS)}, sent, boot) VALUES ({marks})", rows)  # noqa: S608 (no values)

    def mark_attempted(self, run_id: str, host_id: str) -> None:
        """Store, before the host is read, that from here on a request may go out."""
        self._execute("UPDATE writes SET sent = 1 WHERE run_id = ? AND host_id = ?", run_id, host_id)

    def mark_sent(self, pending: Result, *, run_id: str) -> None:
        """Store, before a request goes out, what the host holds and what it is sent."""
        self.complete(pending, run_id=run_id, completed_at=None)

    def never_sent(self, run_id: str) -> set[str]:
        """Return the hosts of the run to which surely no request went out.

        None if the machine was restarted since: a loss of power may take what `mark_attempted` stored.
        """
        rows = self._execute(
            "SELECT host_id FROM writes WHERE run_id = ? AND sent = 0 AND boot = ?", run_id, self._boot()
        )
        return {host_id for (host_id,) in rows}

    def complete(self, result: Result, *, run_id: str, completed_at: datetime | None) -> None:
        """Store the outcome of one write; a pending one has no completed_at."""
        self._execute(
            "UPDATE writes SET outcome = ?, message = ?, completed_at = ?, kept = ?,"
            " old_values = coalesce(?, old_values), new_values = coalesce(?, new_values)"
            " WHERE run_id = ? AND host_id = ?",
            *(result.outcome, result.message),
            None if result.outcome == "intended" else _as_text(completed_at),
            *map(_as_text, (result.kept, result.old_values, result.new_values)),
            *(run_id, result.host_id),
        )
        made_progress()

    def abandon_rest(self, run_id: str, message: str, *, completed_at: datetime) -> None:
        """Store that the hosts that were not attempted are not written."""
        self._execute(
            "UPDATE writes SET outcome = 'not_written', message = ?, completed_at = ?"
            " WHERE run_id = ? AND outcome = 'intended' AND sent = 0",
            *(message, _as_text(completed_at), run_id),
        )

    def targets(self) -> dict[str, str]:
        """Return the target of each run with rows in the journal, the one that began to write last first."""
        rows = self._execute(
            "SELECT run_id, min(target) FROM writes GROUP BY run_id ORDER BY min(rowid) DESC"
        )
        return dict(rows)

    def rows(self, run_id: str) -> pl.DataFrame:
        """Return the run's rows of owner_writes, by host id."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM writes WHERE run_id = ? ORDER BY host_id"  # noqa: S608
        try:
            rows = [_from_text(dict(zip(_COLUMNS, row, strict=True))) for row in self._execute(query, run_id)]
        except (ValueError, TypeError) as error:
            raise AssetOwnersError(
                f"The journal of writes ({self.place}) is damaged: {error}; restore it from a backup"
            ) from error
        return pl.DataFrame(rows, schema=polars_schema(OwnerWrites))

    def delete(self, run_id: str) -> None:
        """Delete the run's rows, once they are stored in owner_writes."""
        self._execute("DELETE FROM writes WHERE run_id = ?", run_id)

    def overwrite_deleted(self) -> None:
        """Overwrite on the disk what rows held before they were changed or deleted."""
        self._execute("VACUUM")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _insert(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        with self._lock, self._connection:  # commits, or rolls back
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, rows)
        # From here on a killed process loses nothing; a power cut may lose outcomes, never intentions,
        # and the next run settles those from the inventory.
        self._execute("PRAGMA synchronous = NORMAL")

    def _boot(self) -> str | None:
        """Return what identifies this start of the machine; None where the system does not say."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text(encoding="ascii").strip() if path.exists() else None


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict | list) else value


def _from_text(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("old_values", "new_values", "kept"):
        row[name] = row[name] and json.loads(row[name])
    for name in ("intended_at", "completed_at"):
        row[name] = row[name] and datetime.fromisoformat(row[name])
    return row
