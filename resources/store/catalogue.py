"""The DuckDB catalogue that analysts open: described views over the stored tables, and nothing else."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from glob import escape
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from upath import UPath

from ownership.declaration import (
    Layout,
    Table,
    column_descriptions,
    description,
    later_columns,
    polars_schema,
)
from ownership.tables import TABLES
from resources.locks import locked
from resources.store.files import replacing
from resources.store.views import VIEWS

OLDEST_READER = "v1.2.0"  # analysts' DuckDB is often older than ours, and 1.x cannot open what 2.0 writes
_VERSION = "views_version"
"""The macro in each schema that says which views it has."""


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, location: UPath, *slugs: str, analysts: int | None = None) -> None:
    """Bring the views of these instances up to date; those of others go where their tables are gone.

    Open sessions keep their file.
    """
    catalogue = catalogue_path(home)
    with locked(home / ".warehouse.lock", f"The catalogue {catalogue}"):
        shown = _versions(catalogue)
        gone = shown.keys() - {folder.name for folder in location.glob("*")}
        version = hashlib.sha256("\n".join(_statements(home, location / "any")).encode()).hexdigest()
        outdated = [slug for slug in slugs if shown.get(slug) != version]
        if not gone and not outdated:
            return
        with replacing(catalogue, analysts) as path:
            if shown:  # with many instances, to make it anew takes longer than a run
                shutil.copyfile(catalogue, path)
            with duckdb.connect(path, config={"storage_compatibility_version": OLDEST_READER}) as connection:
                register_file_system(connection, location)
                connection.begin()  # one for all: each would be flushed to the disk by itself
                for slug in shown.keys() & {*gone, *outdated}:
                    connection.execute(f"DROP SCHEMA {identifier(slug)} CASCADE")
                for slug in outdated:
                    for statement in _statements(home, location / slug):
                        connection.execute(statement)
                    connection.execute(f"CREATE MACRO {_VERSION}() AS {quoted(version)}")
                connection.commit()


def _versions(catalogue: Path) -> Mapping[str, str]:
    """The version of each instance's views; none where the catalogue is missing, damaged, in use or older."""
    if not catalogue.exists():
        return {}
    file = catalogue.stat()
    return _versions_in(catalogue, file.st_ino, file.st_mtime_ns)


@lru_cache(maxsize=1)  # each step of a run asks, and to open the catalogue takes longer than most of them
def _versions_in(catalogue: Path, *_: int) -> Mapping[str, str]:
    """The same of a file, which is replaced and never changed."""
    try:
        with duckdb.connect(catalogue, read_only=True) as connection:
            query = "SELECT schema_name, macro_definition FROM duckdb_functions() WHERE function_name = ?"
            found = connection.execute(query, [_VERSION]).fetchall()
            return {schema: version.strip("'") for schema, version in found}
    except duckdb.Error:
        return {}


def register_file_system(connection: duckdb.DuckDBPyConnection, location: UPath) -> None:
    """Let a connection read tables that lie in an object store, without an extension of DuckDB's."""
    if not isinstance(location, Path):
        connection.register_filesystem(location.fs)


def _statements(home: Path, folder: UPath) -> Iterator[str]:
    """Yield what makes the schema of an instance."""
    rows = {table: _rows(model, _pattern(folder, table)) for table, model in TABLES.items()}
    return _schema(catalogue_path(home).stem, folder.name, rows)


def _schema(database: str, name: str, rows: Mapping[str, str]) -> Iterator[str]:
    """Yield what makes a schema: in it a view for the rows of each table, and further views."""
    schema = f"{identifier(database)}.{identifier(name)}"
    yield f"CREATE SCHEMA {schema}"
    # The views beside the tables name them without a schema: it is the one that they are made in.
    yield f"USE {schema}"
    for view, query in {**rows, **{name: view.sql for name, view in VIEWS.items()}}.items():
        yield f"CREATE VIEW {view} AS {query}"
        yield from _comments(view)


def _pattern(folder: UPath, table: str) -> str:
    """The files of an instance's published table."""
    files = f"{table}.parquet" if TABLES[table].__layout__ is Layout.SNAPSHOT else f"{table}/*.parquet"
    return f"{escape(str(folder))}/{files}"


def run_views(folder: UPath, run_id: str, database: str) -> Iterator[str]:
    """Yield what shows the tables as a run saw them, in a schema of a database in memory.

    The published tables, attached as `warehouse`, stand in for what the run did not make itself.
    """
    run, published = folder / "runs" / run_id, f"warehouse.{identifier(folder.name)}"
    appended = folder / "owner_writes" / f"{run_id}.parquet"
    rows = {table: f"FROM {published}.{table}" for table in TABLES}
    for table, model in TABLES.items():
        own = escape(str(appended)) if table == "owner_writes" and appended.exists() else _files(run, table)
        if model.__layout__ is Layout.BY_DAY and own:
            fetched = _files(run, "logon_days") or own
            rows[table] = (
                f"{_rows(model, own)} UNION ALL BY NAME ({rows[table]} WHERE day NOT IN "  # noqa: S608  (our own names)
                f"(SELECT day FROM read_parquet({quoted(fetched)}, hive_partitioning = false)))"
            )
        elif own:
            rows[table] = _rows(model, own)
        elif table == "owner_writes":
            rows[table] += f" WHERE run_id = {quoted(run_id)}"
    yield f"ATTACH ':memory:' AS {identifier(database)}"
    yield from _schema(database, folder.name, rows)


def _files(folder: UPath, table: str) -> str | None:
    """A pattern for the files of a table; None where there are none yet."""
    for pattern in (f"{table}/*.parquet", f"{table}.parquet"):
        if any(folder.glob(pattern)):
            return f"{escape(str(folder))}/{pattern}"
    return None


def _rows(model: type[Table], files: str) -> str:
    """The query of a table's rows; columns that files of older versions lack are null in their rows."""
    kinds, later = polars_schema(model), later_columns(model)
    # Without the option a folder named a=b on the way would become a column.
    rows = f"FROM read_parquet({quoted(files)}, hive_partitioning = false, union_by_name = true)"
    if later:
        lacking = ", ".join(f"CAST(NULL AS {duckdb_type(kinds[name])}) AS {name}" for name in later)
        rows = f"FROM ({rows} UNION ALL BY NAME SELECT {lacking} WHERE false)"
    return f"SELECT {', '.join(map(identifier, kinds))} {rows}"


@cache
def _comments(view: str) -> Sequence[str]:
    """What describes a view and its columns; kept, as it is the same for each instance."""
    if model := TABLES.get(view):
        comment, columns = description(model), column_descriptions(model)
    else:
        comment, columns = VIEWS[view].comment, VIEWS[view].columns
    return (
        f"COMMENT ON VIEW {view} IS {quoted(comment)}",
        *(f"COMMENT ON COLUMN {view}.{column} IS {quoted(meaning)}" for column, meaning in columns.items()),
    )


def duckdb_type(kind: Any) -> str:
    """Name a column's type as DuckDB does, which is what analysts see."""
    if isinstance(kind, pl.List):
        return f"{duckdb_type(kind.inner)}[]"
    if isinstance(kind, pl.Struct):
        return f"STRUCT({', '.join(f'{field.name} {duckdb_type(field.dtype)}' for field in kind.fields)})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMPTZ"
    names: dict[Any, str] = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE"}
    names |= {pl.Date: "DATE", pl.Boolean: "BOOLEAN"}
    return names[kind.base_type()]


def identifier(name: str) -> str:
    """Write a name as SQL does."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Write a text as SQL does."""
    return "'" + text.replace("'", "''") + "'"
