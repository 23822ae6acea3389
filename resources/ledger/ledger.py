"""The ledger of an instance: its runs, their writes and coverage, changed decisions, acknowledged conflicts.

A run stores all it intends before its first request, and each outcome where it stands. The ledger is an
SQLite file in the home, or lies in a database that several machines share (`resources.ledger.postgres`).
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import polars as pl

from ownership.declaration import empty, polars_schema
from ownership.tables import TABLES
from resources import format_version
from resources.errors import AssetOwnersError
from resources.inventory.adapter import Values
from resources.locks import made_progress

BY_ROW = {"owner_writes": "writes", "runs": "runs"}
"""Tables whose rows the ledger keeps one by one, and their names in it.

Of others it keeps together what was stored together, as Parquet: single rows are never asked for.
"""

BEGUN = "begun_at"  # the setting that `begin` stores

Change = tuple[str, Iterable[Sequence[object]]]
"""A statement, and the values of each time that it is executed."""


def ledger_tables() -> dict[str, str]:
    """Return the tables of the ledger with their columns, as SQLite and PostgreSQL understand them."""
    columns = {
        name: ", ".join(
            f'"{column}" {"BIGINT" if kind == pl.Int64 else "TEXT"}'
            for column, kind in polars_schema(TABLES[table]).items()
        )
        for table, name in BY_ROW.items()
    }
    # Whether a request may have been sent, and the start of the machine that stored the row.
    columns["writes"] += ", sent INTEGER, boot TEXT"
    columns["together"] = "name TEXT, run_id TEXT, stored_at TEXT, rows BLOB"
    columns["settings"] = "name TEXT, value TEXT"
    return columns


KEYS = {"writes": "run_id, host_id", "runs": "run_id", "together": "name, run_id", "settings": "name"}
"""What is there once, by table of the ledger."""


@dataclass(frozen=True)
class Result:
    """The outcome of one write."""

    host_id: str
    outcome: str
    message: str | None = None
    old_values: Values | None = None  # what the host held when it was read
    new_values: Values | None = None  # what was sent: of an undo the fields that held what was written
    kept: Sequence[str] | None = None  # the other fields of an undo


class Ledger:
    """The ledger file of one instance, at `place`, a context manager; several threads may use it."""

    place: str

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.place = str(path)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._execute("CREATE TABLE IF NOT EXISTS format (number INTEGER NOT NULL, version TEXT NOT NULL)")
        self._require_known_format()
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA secure_delete = ON")  # what is deleted is not left in free pages
        for name, columns in ledger_tables().items():
            self._execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({KEYS[name]}))")

    def _require_known_format(self) -> None:
        """Fail for the ledger of another program before it is changed; record this one's format."""
        found = self._execute("SELECT number, version FROM format ORDER BY number DESC LIMIT 1")
        for number, version in found:
            format_version.require_known_format(number, version, f"The ledger ({self.place})")
        if not found:
            made_by = format_version.FORMAT, format_version.program_version()
            self._execute("INSERT INTO format (number, version) VALUES (?, ?)", *made_by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def lock(self, name: str, what: str) -> None:
        """Keep out other machines until the ledger is closed; a file belongs to one machine."""

    def require_lock(self) -> None:
        """Raise unless this run surely still holds the lock."""

    # Rows of the tables

    def rows(
        self, table: str, run_id: str | None = None, *, columns: Iterable[str] | None = None
    ) -> pl.DataFrame:
        """Return the rows of a table, or those that one run stored, in the order of their keys or of storing.

        Some `columns` alone are read in half the time; of a table not in `BY_ROW` all are returned.

        Raises:
            AssetOwnersError: the ledger is damaged.
        """
        where, values = (" WHERE run_id = ?", [run_id]) if run_id is not None else ("", [])
        schema = polars_schema(TABLES[table])
        schema = {name: schema[name] for name in columns or schema}
        try:
            if table not in BY_ROW:
                parts = [rows for run, _, rows in self._together(table) if run_id in (None, run)]
                return pl.concat([empty(TABLES[table]), *parts])
            columns, key = _listed(schema), _listed(TABLES[table].__key__)
            query = f"SELECT {columns} FROM {BY_ROW[table]}{where} ORDER BY {key}"  # noqa: S608  (no values)
            stored = {name: kind if kind == pl.Int64 else pl.String for name, kind in schema.items()}
            rows = pl.DataFrame(self._execute(query, *values), schema=stored, orient="row")
            return rows.select(_from_text(name, kind) for name, kind in schema.items())
        except (pl.exceptions.PolarsError, TypeError) as error:
            what = type(error).__name__  # the message may quote whom the rows name
            raise AssetOwnersError(
                f"The ledger ({self.place}) is damaged ({what} in {table}); restore it from a backup"
            ) from error

    def store(self, table: str, rows: pl.DataFrame, *, run_id: str = "") -> None:
        """Store rows, all or none, on disk before this returns.

        They take the place of rows with the same keys; of a table not in `BY_ROW`, of all that the run had.
        """
        if table not in BY_ROW:
            now = _as_text(datetime.now(UTC))
            self._change(
                (_DELETE_TOGETHER, [(table, run_id)]),
                (_STORE_TOGETHER, [(table, run_id, now, _as_parquet(rows))]),
            )
        else:
            self._change(self._deletion(table, rows), _insertion(BY_ROW[table], rows.columns, _texts(rows)))

    def begin(self, before: Mapping[str, pl.DataFrame]) -> None:
        """Store the rows of tables from before this ledger, all or none; what it holds itself stays."""
        now, replaced = _as_text(datetime.now(UTC)), list[tuple[str, str]]()
        changes = [(_STORE_SETTING, [(BEGUN, json.dumps(now))])]
        for table, rows in before.items():
            if table not in BY_ROW:
                key = TABLES[table].__key__
                missing = rows.join(self.rows(table), on=key, how="anti", nulls_equal=True)
                if not missing.is_empty():
                    replaced.append((table, ""))
                    together = pl.concat([self.rows(table, ""), missing])
                    changes.append((_STORE_TOGETHER, [(table, "", now, _as_parquet(together))]))
            else:
                changes.append(_insertion(BY_ROW[table], rows.columns, _texts(rows)))
        # Another process may begin it at the same time.
        inserted = ((f"{statement} ON CONFLICT DO NOTHING", rows) for statement, rows in changes)
        self._change((_DELETE_TOGETHER, replaced), *inserted)

    def delete(self, table: str, rows: pl.DataFrame) -> None:
        """Delete the rows with these keys."""
        self._change(self._deletion(table, rows))

    def replace(self, table: str, replaced: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Replace each row by what a function returns for it; its key and the time of storing stay."""
        if table not in BY_ROW:
            rows = [(_as_parquet(replaced(part)), table, run) for run, _, part in self._together(table)]
            self._change(("UPDATE together SET rows = ? WHERE name = ? AND run_id = ?", rows))
            return
        key, after = TABLES[table].__key__, replaced(self.rows(table))
        columns = ", ".join(f'"{name}" = ?' for name in after.columns)
        statement = f"UPDATE {BY_ROW[table]} SET {columns} WHERE {_same(key)}"  # noqa: S608  (no values)
        self._change((statement, _texts(after.select(pl.all(), pl.col(*key).name.suffix(" ")))))

    def merge(self, table: str, *, before: datetime, kept: Callable[[pl.LazyFrame], pl.DataFrame]) -> int:
        """Keep, of what runs stored before an instant, what a function returns; return how many they were."""
        outdated = [part for part in self._together(table) if part[1] < _as_text(before)]
        runs = [run for run, *_ in outdated if run]
        if runs:
            rows = kept(pl.concat(rows for *_, rows in outdated).lazy())
            self._change(
                (_DELETE_TOGETHER, [(table, run) for run in ("", *runs)]),
                (_STORE_TOGETHER, [(table, "", "", _as_parquet(rows))]),
            )
        return len(runs)

    def has_stored(self, table: str, *, except_run: str | None = None) -> bool:
        """Return whether any other run stored rows of a table not in `BY_ROW`, even if none."""
        runs = self._execute("SELECT run_id FROM together WHERE name = ? LIMIT 2", table)
        return any(run_id != except_run for (run_id,) in runs)

    def _together(self, table: str) -> Iterator[tuple[str, str, pl.DataFrame]]:
        """Yield what runs stored of a table: the run, when, and the rows."""
        query = "SELECT run_id, stored_at, rows FROM together WHERE name = ? ORDER BY stored_at, run_id"
        for run_id, stored_at, rows in self._execute(query, table):
            yield run_id, stored_at, pl.read_parquet(BytesIO(rows))

    def _deletion(self, table: str, rows: pl.DataFrame) -> Change:
        key = TABLES[table].__key__
        return f"DELETE FROM {BY_ROW[table]} WHERE {_same(key)}", rows.select(key).rows()  # noqa: S608  (no values)

    def clear(self) -> None:
        """Delete all rows of the instance."""
        for name in KEYS:
            self._execute(f"DELETE FROM {name}")  # noqa: S608  (no values)

    def store_setting(self, name: str, value: Any) -> None:
        """Store what can be written as JSON, under a name."""
        self._change(
            ("DELETE FROM settings WHERE name = ?", [(name,)]),
            (_STORE_SETTING, [(name, json.dumps(value))]),
        )

    def setting(self, name: str) -> Any:
        """Return what was stored under a name; None: nothing was."""
        rows = self._execute("SELECT value FROM settings WHERE name = ?", name)
        return next((json.loads(value) for (value,) in rows), None)

    # Writes

    def intend(self, writes: pl.DataFrame) -> None:
        """Store rows of owner_writes, not sent yet, all or none, on disk before this returns."""
        boot = self._boot()
        rows = ([*row, 0, boot] for row in _texts(writes))
        self._change(_insertion("writes", [*writes.columns, "sent", "boot"], rows))

    def mark_attempted(self, run_id: str, host_id: str) -> None:
        """Store, before the host is read, that from here on a request may go out."""
        self._execute("UPDATE writes SET sent = 1 WHERE run_id = ? AND host_id = ?", run_id, host_id)

    def never_sent(self, run_id: str) -> set[str]:
        """Return the hosts of the run to which surely no request went out."""
        # None if the machine was restarted: a loss of power may take what `mark_attempted` stored.
        rows = self._execute(
            "SELECT host_id FROM writes WHERE run_id = ? AND sent = 0 AND boot = ?", run_id, self._boot()
        )
        return {host_id for (host_id,) in rows}

    def complete(self, result: Result, *, run_id: str, completed_at: datetime | None = None) -> None:
        """Store the outcome of one write, by default of now; a pending one has no completed_at."""
        self._execute(
            "UPDATE writes SET outcome = ?, message = ?, completed_at = ?, kept = ?,"
            " old_values = coalesce(?, old_values), new_values = coalesce(?, new_values)"
            " WHERE run_id = ? AND host_id = ?",
            *(result.outcome, result.message),
            None if result.outcome == "intended" else _as_text(completed_at or datetime.now(UTC)),
            *map(_as_text, (result.kept, result.old_values, result.new_values)),
            *(run_id, result.host_id),
        )
        made_progress()

    def abandon_rest(self, run_id: str, message: str) -> None:
        """Store that the hosts that were not attempted are not written."""
        self._execute(
            "UPDATE writes SET outcome = 'not_written', message = ?, completed_at = ?"
            " WHERE run_id = ? AND outcome = 'intended' AND sent = 0",
            *(message, _as_text(datetime.now(UTC)), run_id),
        )

    def targets(self) -> dict[str, str]:
        """Return the target of each run that was cut off while it wrote, or not counted; the last first."""
        rows = self._execute(
            "SELECT w.run_id, min(w.target) FROM writes AS w LEFT JOIN runs AS r ON r.run_id = w.run_id"
            " GROUP BY w.run_id HAVING max(CASE WHEN w.outcome = 'intended' THEN 1 ELSE 0 END) = 1"
            " OR max(CASE WHEN r.status = 'started' AND r.written IS NULL THEN 1 ELSE 0 END) = 1"
            " ORDER BY min(w.rowid) DESC"
        )
        return dict(rows)

    def overwrite_deleted(self) -> None:
        """Overwrite on the disk what rows held before they were changed or deleted."""
        self._execute("VACUUM")
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def _change(self, *changes: Change) -> None:
        """Execute statements, all or none."""
        with self._lock, self._connection:  # commits, or rolls back
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, rows in changes:
                self._connection.executemany(statement, rows)
        # From here on a killed process loses nothing; a power cut may lose outcomes, never intentions,
        # and the next run settles those from the inventory.
        self._execute("PRAGMA synchronous = NORMAL")

    def _boot(self) -> str | None:
        """Return what identifies this start of the machine; None where the system does not say."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text(encoding="ascii").strip() if path.exists() else None


_STORE_SETTING = "INSERT INTO settings (name, value) VALUES (?, ?)"
_DELETE_TOGETHER = "DELETE FROM together WHERE name = ? AND run_id = ?"
_STORE_TOGETHER = "INSERT INTO together (name, run_id, stored_at, rows) VALUES (?, ?, ?, ?)"


def _insertion(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Change:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {name} ({_listed(columns)}) VALUES ({marks})", rows  # noqa: S608  (no values)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _same(key: Iterable[str]) -> str:
    return " AND ".join(f'"{column}" = ?' for column in key)


def _as_parquet(rows: pl.DataFrame) -> bytes:
    file = BytesIO()
    rows.write_parquet(file)
    return file.getvalue()


def _texts(rows: pl.DataFrame) -> Iterator[Sequence[object]]:
    return ([_as_text(value) for value in row] for row in rows.iter_rows())


def _as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict | list) else value


def _from_text(name: str, kind: Any) -> pl.Expr:
    """Return a column as it was before `_as_text`."""
    text = pl.col(name)
    if isinstance(kind, pl.Struct | pl.List):
        return text.str.json_decode(kind)
    if isinstance(kind, pl.Datetime):
        return text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.6f%:z", time_unit="us", time_zone="UTC")
    return text.str.to_date("%Y-%m-%d") if kind == pl.Date else text
