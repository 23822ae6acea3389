"""The sandbox inventory's SQLite file: its tables, its transactions and the journal of what was changed.

The file is in WAL mode: it survives a restart or a killed process, and other processes may use it meanwhile.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SCHEMA = """
create table if not exists accounts (
    email text primary key,
    id text not null unique,
    salt blob not null,
    password_hash blob not null,
    mfa_secret text,
    mfa_last_step integer not null default 0,
    roles text not null,
    unread_notifications integer not null,
    avatar blob,
    avatar_type text
);
create table if not exists sessions (
    token text primary key,
    email text not null,
    verified integer not null,
    opened_at real not null,
    calls integer not null default 0
);
create table if not exists assets (
    id text primary key,
    tenant text not null,
    type text not null,
    position integer not null,  -- from 0, no gaps within tenant and type: one index look-up finds any page
    item text not null,         -- the asset as JSON, its id included
    words text not null,        -- its values, case-normalised, for the free-text search
    unique (tenant, type, position)
);
create table if not exists fields (type text, name text, primary key (type, name));
create table if not exists journal (
    seq integer primary key,
    at text not null,
    account text not null,
    path text,
    asset_id text,
    field text not null,
    old text not null,
    new text not null,
    request_id text
);
"""


@dataclass(frozen=True)
class Origin:
    """Where a change came from; `path` and `request_id` are None when it was made beside the API."""

    account: str
    path: str | None = None
    request_id: str | None = None


@dataclass(frozen=True)
class JournalEntry:
    """One field set by one accepted call, also when the new value equals the old one.

    `asset_id` is None when the account's own profile changed. All fields set by one request share its
    `request_id`; `path` and `request_id` are None for a change made beside the API.
    """

    seq: int
    at: datetime
    account: str
    path: str | None
    asset_id: str | None
    field: str
    old: Any
    new: Any
    request_id: str | None


class Database:
    """One connection to the file at `path`, shared by all threads; `clock` gives seconds since the epoch."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.clock = clock
        self._lock = threading.RLock()
        # Transactions are begun by hand: a change reads the old value and writes the new one under one write
        # lock, which the driver's own implicit transactions would take only at the write.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = normal")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Everything done inside is kept together, or not at all when it raises."""
        with self._lock, self._connection as connection:
            connection.execute("begin immediate")
            yield connection

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Runs one statement and returns all its rows."""
        with self._lock:
            return self._connection.execute(sql, parameters).fetchall()

    def write_journal(
        self, asset_id: str | None, changes: Mapping[str, tuple[Any, Any]], origin: Origin
    ) -> None:
        """Adds an entry for each field of `changes` (field to old and new value), inside a transaction."""
        at = datetime.fromtimestamp(self.clock(), UTC).isoformat()
        for name, (old, new) in changes.items():
            self.rows(
                "insert into journal (at, account, path, asset_id, field, old, new, request_id)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                at,
                origin.account,
                origin.path,
                asset_id,
                name,
                to_json(old),
                to_json(new),
                origin.request_id,
            )

    def journal(self) -> list[JournalEntry]:
        """Every change, oldest first."""
        rows = self.rows(
            "select at, old, new, seq, account, path, asset_id, field, request_id from journal order by seq"
        )
        return [
            JournalEntry(
                seq,
                datetime.fromisoformat(at),
                account,
                path,
                asset_id,
                field,
                json.loads(old),
                json.loads(new),
                request,
            )
            for at, old, new, seq, account, path, asset_id, field, request in rows
        ]


def to_json(value: Any) -> str:
    """JSON as the file keeps it."""
    return json.dumps(value, ensure_ascii=False)
