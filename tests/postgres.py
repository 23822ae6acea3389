"""A PostgreSQL server of the tests' own, from Debian's package."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from sandbox.engine import _end_with_parent

START_SECONDS = 60


def programs() -> Path | None:
    """The folder of the newest server that is installed; Debian does not put it on the path."""
    found = [Path(path) for path in [shutil.which("initdb")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """A server on the loopback interface with passwords, up as long as the `with` block.

    It refuses to run as root: root starts it as user `nobody`.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self._data = folder / "data"
        self.programs = programs
        self._password_file = folder / "password"
        self._log = folder / "log"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        self._password = secrets.token_hex(8)

    def __enter__(self) -> Self:
        self._password_file.write_text(self._password)
        self._password_file.chmod(0o644)
        initdb = [self.programs / "initdb", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        access = ["--username=admin", "--auth=scram-sha-256", f"--pwfile={self._password_file}"]
        subprocess.run(  # noqa: S603 (our own command)
            [*initdb, *access, self._data], check=True, stdout=subprocess.DEVNULL, cwd="/", **self._user
        )
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": ""}
        quick = {"fsync": "off", "max_connections": 40, "shared_buffers": "16MB"}
        options = [f"--{name}={value}" for name, value in (settings | quick).items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                [self.programs / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 (takes no lock: it only calls the kernel)
                **self._user,
            )
        began = time.monotonic()
        while True:
            try:
                self.ask("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() - began < START_SECONDS, self._log.read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End the server immediately, also with connections."""
        self._process.send_signal(2)
        self._process.wait(START_SECONDS)

    def ask(self, statement: str, *values: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Do something as administrator, in a connection of its own."""
        url = f"postgresql://admin:{self._password}@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def new_database(self, password: str | None = None) -> str:
        """The address of an empty database, with the user who owns it."""
        name, password = f"j{uuid.uuid4().hex[:12]}", password or secrets.token_hex(8)
        role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), password)
        self.ask(role.as_string())
        self.ask(f"CREATE DATABASE {name} OWNER {name}")
        return f"postgresql://{name}:{password}@127.0.0.1:{self.port}/{name}"

    def cut_off(self, database: str) -> int:
        """End all sessions in a database, and tell how many there were, when they are gone."""
        ended = self.ask(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", database
        )
        return len(ended)
