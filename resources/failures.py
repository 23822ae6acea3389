"""Messages about full disks, databases and damaged files: which file, and what to do."""

import errno
import os
import sqlite3
from io import BytesIO
from pathlib import Path
from traceback import walk_tb

import duckdb
import polars as pl
from upath import UPath

from resources.errors import AssetOwnersError
from resources.settings import home, tables_location
from resources.store.files import parquet_files

MISTAKES = (sqlite3.IntegrityError, sqlite3.ProgrammingError)  # errors of a program that uses SQLite wrongly
_FULL_OR_FORBIDDEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS}


def operator_message(error: BaseException | None) -> str | None:
    """Return what happened and what to do; None for an error in the program."""
    if error is None:
        return None
    # Its cause, not its context, which may be unrelated.
    return _message_of(error) or operator_message(error.__cause__)


def _message_of(error: BaseException) -> str | None:
    original = getattr(error, "orig", None) or error  # SQLAlchemy's, so Dagster's
    if isinstance(original, MISTAKES):
        message = None
    elif isinstance(error, AssetOwnersError):
        message = str(error)
    elif _is_of_object_store(error):
        said = str(error) or type(error).__name__
        message = f"ASSET_OWNERS_TABLES: {tables_location()} cannot be used: {said}"
    elif isinstance(error, OSError):
        message = _file_failure(error)
    elif isinstance(error, sqlite3.Error):
        message = database_failure(error, "a database", f"below {home()}")
    elif isinstance(original, sqlite3.Error):
        folder = os.environ.get("DAGSTER_HOME") or home() / "dagster"
        message = database_failure(original, "Dagster's records of runs", f"below {folder}")
    elif isinstance(error, duckdb.Error):
        message = damaged_tables() or f"The catalogue {home() / 'warehouse.duckdb'} cannot be made: {error}"
    elif isinstance(error, pl.exceptions.PolarsError):
        message = damaged_tables()
    elif isinstance(error, RuntimeError) and str(error) == "Query interrupted":  # DuckDB's, by a signal
        message = "The query was interrupted"
    else:
        message = None
    return message


def _is_of_object_store(error: BaseException) -> bool:
    """Return whether an error comes from an object store; each driver, below fsspec, has its own errors."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    below = any(str(frame.f_globals.get("__name__")).startswith("fsspec.") for frame in frames)
    return below and not isinstance(tables_location(), Path)


def damaged_tables() -> str | None:
    """Return a message that names the damaged Parquet files, which Polars does not; None without any."""
    try:
        damaged = [str(path) for path in parquet_files(tables_location()) if _is_damaged(path)]
    except Exception:  # noqa: BLE001  (an object store has errors of its own; the first one is reported)
        return None
    if not damaged:
        return None
    return (
        f"Damaged tables: {', '.join(damaged)}. Restore them from a backup, or move them away (of a day "
        "both files, in logon_counts and in logon_days) and run again"
    )


def database_failure(error: sqlite3.Error, what: str, where: Path | str) -> str:
    """Return the message about an SQLite file: `what` it is, and `where` it is."""
    return (
        f"{what[0].upper()}{what[1:]} ({where}) cannot be used: {error}. Wait if it is locked, free space on "
        "its disk (a local one: SQLite needs file locks), let this user write it and its folder; if it is "
        "damaged, restore it from a backup, or move it away with those that begin with its name"
    )


def _file_failure(error: OSError) -> str:
    if error.strerror is None:  # raised with its own text
        said = str(error) or type(error).__name__
    else:
        said = f"{error.filename or f'A file below {home()}, or the output'}: {error.strerror}"
    if error.errno in _FULL_OR_FORBIDDEN:
        return f"{said}; free space there, and let the user that runs this own it, and read and write there"
    if not home().is_dir():
        return f"{said}; ASSET_OWNERS_HOME is {home()}: it must be a folder, or one that can be created"
    return said


def _is_damaged(path: UPath) -> bool:
    try:
        pl.read_parquet(BytesIO(path.read_bytes()))
    except pl.exceptions.PolarsError:
        return True
    except FileNotFoundError:  # a run has just deleted it
        return False
    return False
