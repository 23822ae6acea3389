"""A backup of a home as one tar file, and a home made from it.

Files go into it by name, so that no secret in the home does: everything below `tables` except locks and
unfinished files, instance files, and Dagster's records of runs and schedules. The catalogue is made anew.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from io import BytesIO
from pathlib import Path

from upath import UPath

from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import database_failure
from resources.format_version import own_format, require_known_format
from resources.settings import is_slug
from resources.store.catalogue import refresh_catalogue
from resources.store.files import NOT_OURS, TEMPORARY, replacing
from resources.store.tables import Tables

_CONTENTS = "contents.json"
"""The last file of a whole backup, with the hash of each other one, which shows damage."""

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
    """Write a backup of the home into a new file that only its owner can read; return the number of files.

    Waits for runs that are writing, and keeps others from writing meanwhile. Fails for tables of a newer
    program, whose files may be other ones.
    """
    _refuse_existing(out)
    if not any(_chosen(home)):
        raise AssetOwnersError(
            f"There is nothing to back up in {home}; set ASSET_OWNERS_HOME to the folder of the tables"
        )
    with ExitStack() as writing, replacing(out) as file:
        for slug in _slugs(home):
            writing.enter_context(Tables(home, slug).writing())
            Tables(home, slug).require_own()
        hashes: dict[str, str] = {}
        with tarfile.open(file, "w") as archive:
            for path in _chosen(home):
                name = path.relative_to(home)
                with suppress(FileNotFoundError):  # a run has just deleted what it need not keep
                    if path.suffix in _DATABASES:
                        _add_database(archive, hashes, name, path, file.parent / "database")
                    elif path.parent.name == "logon_days":
                        with Tables(home, name.parts[1]).changing():  # a day and its counts belong together
                            _add(archive, hashes, name, path)
                            counts = name.parents[1] / "logon_counts" / name.name
                            _add(archive, hashes, counts, home / counts)
                    else:
                        _add(archive, hashes, name, path)
            files = len(archive.getmembers())
            number, program = own_format()
            contents = {"version": program, "format": number, "files": files, "sha256": hashes}
            text = json.dumps(contents).encode()
            last = tarfile.TarInfo(_CONTENTS)
            last.size, last.mode = len(text), 0o600
            archive.addfile(last, BytesIO(text))
        _refuse_existing(out)
    return files


def restore(
    archive: Path, home: Path, location: UPath, *, analysts: int | None = None
) -> tuple[int, str | None]:
    """Make a home from a backup; return the number of files, and the version that made the backup."""
    if home.exists() and (not home.is_dir() or {path.name for path in home.iterdir()} - {NOT_OURS}):
        raise ConfigurationError(
            f"ASSET_OWNERS_HOME: {home} is not empty; a backup is restored into an empty folder or a new one"
        )
    if not archive.is_file():
        raise ConfigurationError(f"{archive}: the file does not exist")
    try:
        with tarfile.open(archive, "r:") as stored:
            members, program = _expected(stored)
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=home) as folder:
                for member in members:
                    _extract(stored, member, Path(folder, member.name))
                for path in Path(folder).iterdir():
                    path.rename(home / path.name)
    except (tarfile.TarError, ValueError) as error:
        raise ConfigurationError(f"{archive} is not a whole backup of asset-owners: {error}") from error
    instances = [Tables(home, slug, location=location, analysts=analysts) for slug in _slugs(home)]
    for tables in instances:
        tables.create_files()
    # All at the same time: the catalogue is copied for each change.
    refresh_catalogue(home, location, *(tables.slug for tables in instances), analysts=analysts)
    for tables in instances:
        tables.prepare()
    return len(members), program


def _expected(stored: tarfile.TarFile) -> tuple[list[tarfile.TarInfo], str | None]:
    """Return the files of a backup, and the version that made it; a ValueError says what is wrong."""
    *members, last = stored.getmembers() or [tarfile.TarInfo()]
    content = stored.extractfile(last) if last.name == _CONTENTS and last.isreg() else None
    contents = json.load(content) if content else None
    if not isinstance(contents, dict) or contents.get("files") != len(members):
        raise ValueError("its end is missing")
    require_known_format(contents.get("format", 0), contents.get("version"), f"The backup {stored.name}")
    names = set()
    for member in members:
        if not member.isreg() or not _NAMES.fullmatch(member.name) or member.name in names:
            raise ValueError(f"it holds {member.name[:MAX_SHOWN]!r}, which no backup does")
        names.add(member.name)
    hashes = contents.get("sha256", {})
    for member in members:
        file = stored.extractfile(member)
        if not file or hashlib.sha256(file.read()).hexdigest() != hashes.get(member.name):
            raise ValueError(f"{member.name} is damaged")
    return members, contents.get("version")


def _extract(stored: tarfile.TarFile, member: tarfile.TarInfo, file: Path) -> None:
    """Write content and time of a member; the filters of `tarfile` that do it came with Python 3.11.4."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = stored.extractfile(member)
    if content is None:
        raise ValueError(f"{member.name} is no file")
    with content, file.open("wb") as written:
        shutil.copyfileobj(content, written)
    os.utime(file, (member.mtime, member.mtime))  # by which files are outdated


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise ConfigurationError(f"--out: {out} exists; a backup overwrites nothing, so name another file")


def _slugs(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("tables/*") if path.is_dir() and is_slug(path.name))


def _chosen(home: Path) -> Iterator[Path]:
    """Yield the files that go into a backup, except those of `logon_counts`, which go with their days."""
    for pattern in ("tables/**/*", "instances/*.yaml", "instances/*.yml", "dagster/**/*.db"):
        for path in sorted(home.glob(pattern)):
            name = path.relative_to(home).as_posix()
            known = _NAMES.fullmatch(name) and "-" not in path.suffix  # -wal and -shm are SQLite's own
            if known and path.parent.name != "logon_counts" and path.is_file() and not path.is_symlink():
                yield path


def _add_database(
    archive: tarfile.TarFile, hashes: dict[str, str], name: Path, path: Path, copy: Path
) -> None:
    """Add a copy that SQLite makes of a database, with what its log holds."""
    try:
        with closing(sqlite3.connect(path, timeout=_LOCKED_SECONDS, isolation_level=None)) as source:
            source.execute("VACUUM INTO ?", [str(copy)])
    except sqlite3.Error as error:
        raise AssetOwnersError(database_failure(error, "a database", path)) from error
    _add(archive, hashes, name, copy)
    copy.unlink()


def _add(archive: tarfile.TarFile, hashes: dict[str, str], name: Path, path: Path) -> None:
    with path.open("rb") as content:  # before it is measured: a run may replace it
        member = archive.gettarinfo(arcname=name.as_posix(), fileobj=content)
        member.mode, member.uid, member.gid, member.uname, member.gname = 0o600, 0, 0, "", ""
        hashes[member.name] = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        archive.addfile(member, content)
