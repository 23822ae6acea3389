"""A backup of a home as one tar file, and a home made from it.

What goes into it is chosen by name, so that a secret that lies in the home does not: everything below
`tables` but locks and what is being written, instance files, and Dagster's records of runs and schedules.
The catalogue is not among it: it names files by their whole path, and is made anew.
"""

import json
import os
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import IO

from upath import UPath

from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import database_failure
from resources.store.files import TEMPORARY, replacing
from resources.store.tables import Tables

_CONTENTS = "contents.json"
"""The last file of a backup: what has it is whole."""

_NAMES = re.compile(
    r"tables/[a-z0-9_]{1,200}((/\w[\w.-]{0,254}){1,9}|/\.(instance|journal))"
    r"|instances/[^/.][^/]{0,249}\.ya?ml"
    r"|dagster/(history|schedules)(/\w[\w.-]{0,254}){0,9}/\w[\w.-]{0,251}\.db",
    re.ASCII,
)
MAX_SHOWN = 200
"""Characters of a name in a message."""
_DATABASES = {".sqlite", ".db"}
_LOCKED_SECONDS = 60


def back_up(home: Path, out: Path) -> int:
    """Write what the home holds into a new file, for its owner alone; return how many files went in.

    Waits for runs that are writing and keeps others from it meanwhile; runs may go on otherwise.

    Raises:
        ConfigurationError: `out` exists.
        AssetOwnersError: there is nothing to back up, a run does not end its writing, or a database cannot be
            read.
    """
    _refuse_existing(out)
    if not any(_chosen(home)):
        raise AssetOwnersError(
            f"There is nothing to back up in {home}; set ASSET_OWNERS_HOME to the folder of the tables"
        )
    with ExitStack() as writing, replacing(out) as file:
        for slug in _slugs(home):
            writing.enter_context(Tables(home, slug).writing())
        with tarfile.open(file, "w") as archive:
            for path in _chosen(home):
                _add(archive, home, path, file.parent / "database")
            files = len(archive.getmembers())
            contents = {"version": version("asset-owners"), "made_at": f"{datetime.now(UTC):%FT%TZ}"}
            text = json.dumps({**contents, "files": files}).encode()
            last = tarfile.TarInfo(_CONTENTS)
            last.size, last.mode = len(text), 0o600
            archive.addfile(last, BytesIO(text))
        _refuse_existing(out)
    return files


def restore(archive: Path, home: Path, location: UPath, *, analysts: int | None = None) -> int:
    """Make a home from a backup, with its catalogue; return how many files it has.

    Args:
        archive: what `back_up` wrote.
        home: the folder to fill, which is empty or not there.
        location: what holds the folders of all instances' tables.
        analysts: id of the group that may read tables and catalogue.

    Raises:
        ConfigurationError: the home is not empty, or the file is no backup, or no whole one.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConfigurationError(
            f"ASSET_OWNERS_HOME: {home} is not empty; a backup is restored into an empty folder or a new one"
        )
    if not archive.is_file():
        raise ConfigurationError(f"{archive}: there is no such file")
    try:
        with tarfile.open(archive, "r:") as stored:
            members = _expected(stored)
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=home) as folder:
                stored.extractall(folder, members, filter="data")
                for path in Path(folder).iterdir():
                    path.rename(home / path.name)
    except (tarfile.TarError, ValueError) as error:
        raise ConfigurationError(f"{archive} is no whole backup of asset-owners: {error}") from error
    for slug in _slugs(home):
        Tables(home, slug, location=location, analysts=analysts).prepare()
    return len(members)


def _expected(stored: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """The files of a backup.

    Raises:
        ValueError: saying what is missing, or should not be there.
    """
    *members, last = stored.getmembers() or [tarfile.TarInfo()]
    content = stored.extractfile(last) if last.name == _CONTENTS and last.isreg() else None
    contents = json.load(content) if content else None
    if not isinstance(contents, dict) or contents.get("files") != len(members):
        raise ValueError("its end is missing")
    names = set()
    for member in members:
        if not member.isreg() or not _NAMES.fullmatch(member.name) or member.name in names:
            raise ValueError(f"it holds {member.name[:MAX_SHOWN]!r}, which no backup does")
        names.add(member.name)
    return members


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise ConfigurationError(f"--out: {out} exists; a backup overwrites nothing, so name another file")


def _slugs(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("tables/*") if path.is_dir())


def _chosen(home: Path) -> Iterator[Path]:
    """The files that go into a backup; those of `logon_counts` go with their days."""
    for pattern in ("tables/**/*", "instances/*.yaml", "instances/*.yml", "dagster/**/*.db"):
        for path in sorted(home.glob(pattern)):
            name = path.relative_to(home).as_posix()
            known = _NAMES.fullmatch(name) and "-" not in path.suffix  # -wal and -shm are SQLite's own
            if known and path.parent.name != "logon_counts" and path.is_file() and not path.is_symlink():
                yield path


def _add(archive: tarfile.TarFile, home: Path, path: Path, copy: Path) -> None:
    """Add a file; of a database a copy that SQLite makes."""
    if path.suffix in _DATABASES:
        _copy_database(path, copy)
        _add_file(archive, home, path, copy)
        copy.unlink()
        return
    with suppress(FileNotFoundError):  # a run has just deleted what is older than the instance keeps
        if path.parent.name == "logon_days":
            _add_day(archive, home, path)
        else:
            _add_file(archive, home, path, path)


def _add_day(archive: tarfile.TarFile, home: Path, marker: Path) -> None:
    """Add a day's row and its counts as they belong together, also while a run replaces them.

    A run changes the row before and after the counts: a row that is still the same after the counts were
    opened belongs to them (see `Tables.write_days`).
    """
    counts = marker.parent.parent / "logon_counts" / marker.name
    if not counts.exists():  # the day is known to be damaged, and stays so
        _add_file(archive, home, marker, marker)
        return
    while True:
        with marker.open("rb") as row, counts.open("rb") as events:
            if os.path.samestat(os.fstat(row.fileno()), marker.stat()):
                _add_open(archive, home, counts, events)
                _add_open(archive, home, marker, row)
                return


def _add_file(archive: tarfile.TarFile, home: Path, path: Path, source: Path) -> None:
    with source.open("rb") as content:
        _add_open(archive, home, path, content)


def _add_open(archive: tarfile.TarFile, home: Path, path: Path, content: IO[bytes]) -> None:
    member = archive.gettarinfo(arcname=path.relative_to(home).as_posix(), fileobj=content)
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    archive.addfile(member, content)


def _copy_database(path: Path, copy: Path) -> None:
    """Let SQLite copy a file of its own, with what lies beside it and is not in it yet.

    Raises:
        AssetOwnersError: the file is damaged, or another process keeps it locked.
    """
    try:
        with (
            closing(sqlite3.connect(path, timeout=_LOCKED_SECONDS, isolation_level=None)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.execute("BEGIN")  # the copying itself would wait for a lock without end
            source.execute("SELECT 1 FROM sqlite_master").fetchall()
            source.backup(target)
    except sqlite3.Error as error:
        raise AssetOwnersError(database_failure(error, "a database", path)) from error
