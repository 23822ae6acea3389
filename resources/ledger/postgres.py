"""The ledger in PostgreSQL, which machines share, and with it the lock of who may write.

Both belong to one session of the server: a run that has lost the lock cannot store that a request follows,
and so sends none.
"""

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from resources.errors import AssetOwnersError, ConfigurationError
from resources.ledger.ledger import KEYS, Change, Ledger, ledger_tables
from resources.locks import wait_until
from resources.redaction import redact
from resources.settings import without_password

T = TypeVar("T")

_CONNECTION = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "target_session_attrs": "read-write",
}
"""Where the address does not say otherwise: a server that is gone is noticed within half a minute."""

_SESSION = {
    "search_path": "asset_owners",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "default_transaction_isolation": "read committed",
}
"""The server notices as soon that a machine is gone, and frees its lock; waiting has no limit."""

ANSWER_SECONDS = 120
"""The server may take this long to answer; a server that hangs would otherwise hold the run for ever."""

_LAST_ANSWER_SECONDS = 5  # the same when the ledger is closed


def _tables() -> LiteralString:
    """Return the statements that make the tables, each with the rows of all ledgers, and a view of each."""
    statements = [
        "CREATE SCHEMA IF NOT EXISTS asset_owners",
        "CREATE TABLE asset_owners.format (number INTEGER NOT NULL, version TEXT NOT NULL)",
    ]
    for name, columns in ledger_tables().items():
        # Texts compare as in SQLite.
        declared = columns.replace(" TEXT", ' TEXT COLLATE "C"').replace(" BLOB", " BYTEA")
        names = ", ".join(column.split()[0] for column in columns.split(", "))
        # All other statements use the views, so that none touches rows of another ledger.
        statements.append(
            f"CREATE TABLE asset_owners.all_{name} ("
            "ledger TEXT NOT NULL DEFAULT current_setting('asset_owners.ledger'),"
            f" rowid BIGINT GENERATED ALWAYS AS IDENTITY, {declared}, PRIMARY KEY (ledger, {KEYS[name]}))"
        )
        statements.append(
            f"CREATE VIEW asset_owners.{name} AS SELECT {names}, rowid FROM asset_owners.all_{name}"  # noqa: S608  (no values)
            " WHERE ledger = current_setting('asset_owners.ledger')"
        )
    return cast("LiteralString", "; ".join(statements))


class PostgresLedger(Ledger):
    """The ledger of one instance in a shared database; `key` returns what marks its rows there."""

    def __init__(self, url: str, key: Callable[[], str]) -> None:
        self.place = without_password(url)
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # not quoted, for it may repeat the password
            raise ConfigurationError(
                f"ASSET_OWNERS_JOURNAL: what follows {self.place} cannot be read; write % as %25"
            ) from None
        self._secrets = [str(given[name]) for name in ("password", "sslpassword") if given.get(name)]
        self._lost: str | None = None
        # One thread talks to the server, so that interrupting another thread leaves no answer unread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._connection: Any = None  # until the server has answered
        name = f"asset-owners {os.getpid()} on {socket.gethostname()}"[:63]
        wanted: dict[str, Any] = {**_CONNECTION, **given, "application_name": name, "client_encoding": "utf8"}
        try:
            self._connection = self._in_thread(lambda: psycopg.connect(autocommit=True, **wanted))
            self._begin(key)
        except BaseException:
            self.__exit__()
            raise

    def _begin(self, key: Callable[[], str]) -> None:
        """Set up the session, and make the tables where they are missing."""
        [(process,)] = self._execute("SELECT pg_backend_pid()")
        if self._connection.info.backend_pid != process:
            raise AssetOwnersError(
                f"ASSET_OWNERS_JOURNAL: a connection pooler answers at {self.place}. The lock that keeps "
                "other writers away needs a session of its own: name the address of the server itself"
            )
        for name, value in _SESSION.items():
            self._execute("SELECT set_config(?, ?, false)", name, value)
        # What is stored is on the server's disk when the call returns, even if its default is otherwise.
        self._execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
        own = self._in_thread(lambda: self._make_tables(key))
        self._execute("SELECT set_config('asset_owners.ledger', ?, false)", own)
        self._require_known_format()

    def _make_tables(self, key: Callable[[], str]) -> str:
        """Make the tables, and the key, where they are missing; one of several callers does, others wait."""
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('asset_owners', 0))")
            [(found,)] = self._connection.execute("SELECT to_regclass('asset_owners.format')").fetchall()
            if found is None:
                self._connection.execute(_tables())
            return key()

    def __exit__(self, *_: object) -> None:
        self._in_thread(lambda: None, _LAST_ANSWER_SECONDS)
        self._thread.shutdown()
        if self._connection:
            self._connection.close()

    def lock(self, name: str, what: str) -> None:
        """Keep out other machines that share the ledger until the session ends."""

        def is_taken() -> bool:
            [(taken,)] = self._execute("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", name)
            return taken

        wait_until(is_taken, lambda: self._holder(name), what)

    def _holder(self, name: str) -> str | None:
        """Return who holds the lock, as far as the server knows."""
        rows = self._execute(
            "SELECT application_name || coalesce(' (' || host(client_addr) || ')', '') FROM pg_stat_activity"
            " JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted AND objsubid = 1"
            " AND (classid::bigint << 32) | objid::bigint = hashtextextended(?, 0)",
            name,
        )
        return rows[0][0] if rows else None

    def require_lock(self) -> None:
        """Raise unless the session lives, and with it what it locked."""
        self._execute("SELECT 1")

    def overwrite_deleted(self) -> None:
        """Free what rows held before; the server's own logs and backups are beyond reach."""
        for name in KEYS:
            self._execute(f"VACUUM asset_owners.all_{name}")

    def _execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        def fetch() -> list[tuple[Any, ...]]:
            cursor = self._connection.execute(_to_psycopg(statement), _escaped(values))
            rows = cursor.fetchall() if cursor.description else []
            return [tuple(map(_unescaped, row)) for row in rows]

        return self._in_thread(fetch)

    def _change(self, *changes: Change) -> None:
        def change() -> None:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                for statement, rows in changes:
                    cursor.executemany(_to_psycopg(statement), list(map(_escaped, rows)))

        self._in_thread(change)

    def _boot(self) -> str | None:
        """Return the server's timeline: a standby that takes over begins a new one, and may lack rows."""
        [(timeline,)] = self._execute("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
        return timeline

    def _in_thread(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Run work in the thread of the ledger and return its result; fails where the server hangs."""
        future = self._thread.submit(work)
        limit = seconds or ANSWER_SECONDS
        try:
            try:
                return future.result(limit)
            except TimeoutError:
                if self._connection is not None:  # else it is the driver that limits how long it tries
                    self._lost = f"no answer for {limit:g} s"
                    with socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
                        connection.shutdown(socket.SHUT_RDWR)
                return future.result()
        except psycopg.Error as error:
            raise AssetOwnersError(self._failure(error)) from error

    def _failure(self, error: psycopg.Error) -> str:
        said = " ".join(redact(str(error), self._secrets).split())
        if self._connection is None:
            remedy = "check that the server runs and lets this machine in, and address, user and password "
            remedy += "(there, in PGPASSWORD or in ~/.pgpass)"
        elif self._connection.closed:
            said = self._lost = self._lost or said
            remedy = "the lock of this run is lost with the connection, so nothing more is sent; run again"
        else:
            remedy = "the user must own the schema asset_owners, or be allowed to create it (GRANT CREATE ON "
            remedy += "DATABASE); the server's log says more"
        return f"ASSET_OWNERS_JOURNAL: the ledger in {self.place} cannot be used: {said}; {remedy}"


def _to_psycopg(statement: str) -> LiteralString:
    """Write a statement with the driver's marks for values; the statements are the program's own."""
    return cast("LiteralString", statement.replace("?", "%s"))


def _escaped(values: Sequence[object]) -> list[object]:
    """Escape texts, for PostgreSQL's cannot hold NUL."""
    return [value.encode("unicode_escape").decode() if isinstance(value, str) else value for value in values]


def _unescaped(value: object) -> object:
    if not isinstance(value, str):
        return value
    return value.encode("ascii", "backslashreplace").decode("unicode_escape")
