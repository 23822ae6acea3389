"""Homes as an upgrade finds them: copies of the stored ones, and a later home in the form of one."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import polars as pl

from resources.store.catalogue import catalogue_path
from tests.homes.make import ANY_PLACE

HOMES = Path(__file__).parent


def copy_home(stored: Path, folder: Path) -> None:
    """Copy the home of a stored version to a folder that does not exist yet."""
    # Not with the times of the checkout: what is older than `keep` says is deleted.
    shutil.copytree(stored / "home", folder, copy_function=shutil.copy)
    views = folder / ".warehouse-views.json"
    views.write_text(views.read_text(encoding="utf-8").replace(ANY_PLACE, str(folder)), encoding="utf-8")
    with duckdb.connect(catalogue_path(folder)) as catalogue:
        for statement in json.loads(views.read_text(encoding="utf-8")):
            catalogue.execute(statement)


def downgrade(folder: Path, stored: Path) -> None:
    """Give a home the form of a stored one: the tables, columns and journal of its version, no other file.

    What an older version would have decided otherwise stays as the present one decided it.
    """
    changed_at = {path: path.stat().st_mtime for path in folder.rglob("*")}
    shapes = {_table(path, stored / "home"): path for path in (stored / "home").rglob("*.parquet")}
    for journal in folder.rglob("*.sqlite"):
        _downgrade_journal(journal, next((stored / "home").rglob(journal.name)))
    for path in folder.rglob("*.*"):
        shape = shapes.get(_table(path, folder))
        if shape and path.suffix == ".parquet":
            schema = pl.Schema(pl.read_parquet_schema(shape))
            pl.read_parquet(path, columns=list(schema)).cast(schema).write_parquet(path)
        elif path.is_file() and path.suffix != ".sqlite":
            path.unlink()
    for path, at in changed_at.items():
        if path.exists():
            os.utime(path, (at, at))


def _table(path: Path, home: Path) -> str:
    """The table of a file, which lies in its instance's folder or in one of a run."""
    match path.relative_to(home).parts:
        case "tables", _, "runs", _, name, *_:
            return Path(name).stem
        case "tables", _, name, *_:
            return Path(name).stem
    return ""


def _downgrade_journal(journal: Path, stored: Path) -> None:
    with closing(sqlite3.connect(stored)) as old:
        [(table,)] = old.execute("SELECT sql FROM sqlite_master WHERE name = 'writes'")
        columns = ", ".join(row[1] for row in old.execute("PRAGMA table_info(writes)"))
    with closing(sqlite3.connect(journal)) as new, new:
        new.execute("ALTER TABLE writes RENAME TO later")
        new.execute(table)
        new.execute(f"INSERT INTO writes ({columns}) SELECT {columns} FROM later")  # noqa: S608 (the stored names)
        new.execute("DROP TABLE later")
