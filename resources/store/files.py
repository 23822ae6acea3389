"""Files that appear whole: on a disk flushed and renamed, in an object store when the upload is complete."""

import errno
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

import polars as pl
from upath import UPath

from ownership.declaration import empty, polars_schema
from ownership.tables import TABLES
from resources.errors import AssetOwnersError

TEMPORARY = ".writing-"  # begins the names of the folders that files are written in
NOT_OURS = "lost+found"  # the folder at the top of a volume for what a check of its file system found
LEFTOVER_SECONDS = 24 * 3600
ROW_GROUP = 128 * 1024
"""Rows that Parquet keeps together; the names of twice as many took a fifth longer to write."""


@contextmanager
def replacing(path: Path | UPath, readers: int | None = None) -> Generator[Path]:
    """Yield a temporary path on a disk; what was written there replaces `path`, all or nothing.

    Only the owner and the group `readers` can read the file; an object store has rights of its own.
    """
    if not isinstance(path, Path):
        with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            path.fs.put_file(str(temporary), path.path)
        return
    require_target(path)
    path = path.resolve()  # a link stays, and nothing of before stays behind it
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            _flush(temporary)
            allow(temporary, readers)
            temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # where a disk is full, the system names no file
        raise


def create(path: UPath, content: bytes) -> None:
    """Store an object unless there is one; exactly one of several concurrent callers succeeds.

    Read it again afterwards: a store without conditional writes keeps the last caller's.
    """
    try:
        path.fs.pipe_file(path.path, content, mode="create")
    except Exception as error:  # each store's library has errors of its own
        if path.exists():
            return
        if not isinstance(error, TypeError) and "NotImplemented" not in str(error):
            raise
        path.fs.pipe_file(path.path, content)


def try_to_store(folder: UPath) -> None:
    """Store an object, read it and delete it again; an object store says no other way what it allows."""
    path = folder / f".check-{uuid.uuid4()}"
    path.fs.pipe_file(path.path, b"asset-owners")
    path.fs.cat_file(path.path)
    path.fs.rm(path.path)


def allow(path: Path, readers: int | None) -> None:
    """Let only the owner use a file or a folder, and the group `readers`, if any, read it."""
    # A catalogue is read-only: what somebody made in it would be gone with the next one.
    own = 0o700 if path.is_dir() else 0o400 if path.suffix == ".duckdb" else 0o600
    if readers is None:
        path.chmod(own)
    else:
        os.chown(path, -1, readers)
        path.chmod(own | (0o050 if path.is_dir() else 0o040))


def files_below(folder: UPath) -> Iterator[UPath]:
    """Yield all files in a folder and its folders, links followed.

    Raises:
        AssetOwnersError: a link leads nowhere.
    """
    if not isinstance(folder, Path):
        yield from (
            folder / str(PurePosixPath(path).relative_to(folder.path)) for path in folder.fs.find(folder.path)
        )
        return
    require_target(folder)
    walked = set[str]()  # a link may lead back
    for place, folders, files in os.walk(folder, followlinks=True):  # goes on where one is removed meanwhile
        above = Path(place)
        is_new = os.path.realpath(place) not in walked
        walked.add(os.path.realpath(place))
        folders[:] = [
            name
            for name in folders
            if is_new and name != NOT_OURS and (name.startswith(TEMPORARY) or name[0] != ".")
        ]
        for name in files if is_new else ():
            require_target(path := above / name)
            yield UPath(path)


def files_in(folder: UPath, pattern: str = "*.parquet") -> list[UPath]:
    """Return the files in a folder that fit a pattern, sorted; links followed, as `files_below` does."""
    require_target(folder)
    found = sorted(folder.glob(pattern))
    for file in found:
        require_target(file)
    return found


def require_target(path: UPath | Path) -> None:
    """Fail for a link that leads nowhere, itself or above: as of a disk that is not mounted."""
    for part in (path, *path.parents) if isinstance(path, Path) and not path.exists() else ():
        if part.is_symlink() and not part.exists():
            raise AssetOwnersError(
                f"{part} is a link that leads nowhere; mount what it leads to, or delete it, and repeat this"
            )


def parquet_files(below: UPath) -> list[UPath]:
    """Return all Parquet files in a folder and its folders, but those still being written, and lost ones."""
    found = (path for path in files_below(below) if path.suffix == ".parquet")
    return [
        path
        for path in found
        if not any(part.startswith(TEMPORARY) for part in path.relative_to(below).parts)
    ]


def delete_file(path: UPath) -> None:
    """Delete a file, also what it links to, and the folder that a killed writer made for it."""
    for one in (path.resolve(), path) if isinstance(path, Path) else (path,):
        one.unlink(missing_ok=True)
    if path.parent.name.startswith(TEMPORARY):
        with suppress(OSError):  # others are in it
            path.parent.rmdir()


def delete(path: UPath) -> None:
    """Delete a file or a whole folder, also what links lead to."""
    if not isinstance(path, Path):
        path.fs.rm(path.path, recursive=True)
        return
    for file in files_below(path) if path.is_dir() else (path,):
        delete_file(file)
    shutil.rmtree(path.resolve(), ignore_errors=True)  # empty, or a volume that stays
    if path.is_symlink():
        path.unlink()


def remove_leftovers(*beside: Path, below: Path | None = None, seconds: float = LEFTOVER_SECONDS) -> None:
    """Delete what killed writers of this user left in some folders, and anywhere below one, after a day."""
    places = {*beside}
    for file in files_below(UPath(below)) if below else ():
        places |= {*Path(str(file)).resolve().parents[:2]}  # it may be in such a folder
    with suppress(FileNotFoundError):  # another run's writer may end meanwhile
        for path in [path for folder in places for path in folder.glob(f"{TEMPORARY}*")]:
            found = path.stat()
            if found.st_uid == os.geteuid() and found.st_mtime < time.time() - seconds:
                shutil.rmtree(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # a shared folder may have no flush of folders
            raise
    finally:
        os.close(descriptor)


def read_files(table: str, paths: Sequence[UPath]) -> pl.LazyFrame:
    """Read files of a table; each is opened once, and an object is fetched in one request."""
    if not paths:
        return empty(TABLES[table]).lazy()
    # Without the schema Polars would open the first file twice: if it was replaced in between, no file ever
    # held those rows. Columns of a newer version are ignored.
    files: list[IO[bytes]] | list[str] = [str(path) for path in paths]
    if not isinstance(paths[0], Path):
        contents = paths[0].fs.cat_ranges([path.path for path in paths], None, None, on_error="raise")
        files = [BytesIO(content) for content in contents]
    return pl.scan_parquet(files, schema=polars_schema(TABLES[table]), extra_columns="ignore", glob=False)


def write_file(frame: pl.DataFrame, path: UPath, readers: int | None = None) -> None:
    """Store a file of a table, all or nothing."""
    try:
        with replacing(path, readers) as temporary:
            frame.write_parquet(temporary, row_group_size=ROW_GROUP)
    except pl.exceptions.ComputeError as error:  # Polars' error for a full disk
        raise AssetOwnersError(
            f"{path} cannot be written: {error}; free space on its disk, and run again"
        ) from error
