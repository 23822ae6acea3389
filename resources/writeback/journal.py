"""The journal of writes: what a run intends stands here before its first request, each outcome as it comes.

An SQLite file of the instance in the home, or a database that several machines share
(`resources.writeback.postgres`). When a run ends, its rows move into owner_writes; what is still here then
belongs to a run that was cut off, or to another target. Columns are those of `OwnerWrites`, beside them
whether a request may have been sent, and since which start of the machine the row is here.
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

_COLUMNS = (
    *("run_id", "host_id", "hostname", "outcome", "old_values", "new_values", "message"),
    *("intended_at", "completed_at", "target", "undoes", "kept"),
)


@dataclass(frozen=True)
class Result:
    """What became of one write.

    `old_values` is what the host held just before, where it was read; `new_values` what was sent to it, where
    anything was: of an undo only the fields that still held what was written. `kept` are its other fields.
    """

    host_id: str
    outcome: str
    message: str | None = None
    old_values: Values | None = None
    new_values: Values | None = None
    kept: Sequence[str] | None = None


class Journal:
    """The journal file of one instance, a context manager; several threads may use it.

    `place` says where it is. A subclass keeps the same rows elsewhere.
    """

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
        """Refuse the journal of a newer program before it is changed, and let older ones refuse this one."""
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
        """Raise unless what was locked is surely still this run's."""

    def intend(self, writes: pl.DataFrame, *, sent: bool = False) -> None:
        """Store rows of owner_writes, all or none, on disk before this returns.

        `sent`: requests may have gone out for them.
        """
        boot = self._boot()
        rows = [
            [*(_as_text(row[name]) for name in _COLUMNS), int(sent), boot]
            for row in writes.iter_rows(named=True)
        ]
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        self._insert(f"INSERT INTO writes ({', '.join(_COLUMNS)}, sent, boot) VALUES ({marks})", rows)  # noqa: S608 (no values)

    def mark_attempted(self, run_id: str, host_id: str) -> None:
        """Store, before the host is read, that from here on a request may go out."""
        self._execute("UPDATE writes SET sent = 1 WHERE run_id = ? AND host_id = ?", run_id, host_id)

    def mark_sent(
        self,
        run_id: str,
        host_id: str,
        *,
        old_values: Values,
        new_values: Values,
        kept: Sequence[str] | None = None,
    ) -> None:
        """Store what the host holds, what it is sent, and which fields an undo leaves unchanged."""
        self._execute(
            "UPDATE writes SET old_values = ?, new_values = ?, kept = ? WHERE run_id = ? AND host_id = ?",
            json.dumps(old_values),
            json.dumps(new_values),
            _as_text(kept),
            run_id,
            host_id,
        )

    def never_sent(self, run_id: str) -> set[str]:
        """Return the host ids of the run to which surely no request went out.

        None from before the machine was restarted: a loss of power may take what `mark_attempted` stored.
        """
        rows = self._execute(
            "SELECT host_id FROM writes WHERE run_id = ? AND sent = 0 AND boot = ?", run_id, self._boot()
        )
        return {host_id for (host_id,) in rows}

    def complete(self, result: Result, *, run_id: str, completed_at: datetime) -> None:
        """Store the outcome of one write; a pending one stays without completed_at."""
        self._execute(
            "UPDATE writes SET outcome = ?, message = ?, completed_at = ?, kept = ?,"
            " old_values = coalesce(?, old_values), new_values = coalesce(?, new_values)"
            " WHERE run_id = ? AND host_id = ?",
            result.outcome,
            result.message,
            None if result.outcome == "intended" else completed_at.isoformat(),
            _as_text(result.kept),
            json.dumps(result.old_values) if result.old_values else None,
            json.dumps(result.new_values) if result.new_values else None,
            run_id,
            result.host_id,
        )

    def abandon_rest(self, run_id: str, message: str, *, completed_at: datetime) -> None:
        """Store that no more hosts are tried: those to which no request went out are not written."""
        self._execute(
            "UPDATE writes SET outcome = 'not_written', message = ?, completed_at = ?"
            " WHERE run_id = ? AND outcome = 'intended' AND sent = 0",
            message,
            completed_at.isoformat(),
            run_id,
        )

    def targets(self) -> dict[str, str]:
        """The target of each run with rows in the journal, the oldest run first."""
        rows = self._execute(
            "SELECT run_id, min(target) FROM writes GROUP BY run_id ORDER BY min(intended_at), min(rowid)"
        )
        return dict(rows)

    def rows(self, run_id: str) -> pl.DataFrame:
        """The run's rows of owner_writes, by host id."""
        rows = self._execute(
            f"SELECT {', '.join(_COLUMNS)} FROM writes WHERE run_id = ? ORDER BY host_id",  # noqa: S608
            run_id,
        )
        schema = polars_schema(OwnerWrites)
        try:
            stored = [_as_stored(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
        except (ValueError, TypeError) as error:
            raise AssetOwnersError(
                f"The journal of writes ({self.place}) is damaged: {error}; put it back from a backup"
            ) from error
        return pl.DataFrame(stored, schema=schema)

    def delete(self, run_id: str) -> None:
        """Delete the run's rows, once they are stored in owner_writes."""
        self._execute("DELETE FROM writes WHERE run_id = ?", run_id)

    def _execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _insert(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        with self._lock, self._connection:  # commits, or rolls back whatever goes wrong
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, rows)
        # From here on a killed process loses nothing; a power cut may lose outcomes, never intentions,
        # and the next run settles those from the inventory.
        self._execute("PRAGMA synchronous = NORMAL")

    def _boot(self) -> str | None:
        """Identifies this start of the machine; None where the system does not say."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text(encoding="ascii").strip() if path.exists() else None


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict | list) else value


def _as_stored(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("old_values", "new_values"):
        row[name] = json.loads(row[name])
    row["kept"] = row["kept"] and json.loads(row["kept"])
    for name in ("intended_at", "completed_at"):
        row[name] = row[name] and datetime.fromisoformat(row[name])
    return row
