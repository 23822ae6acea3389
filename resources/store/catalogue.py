"""The DuckDB catalogue that analysts open: described views over the stored tables, and nothing else."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
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
    polars_schema,
)
from ownership.tables import TABLES
from resources.locks import locked
from resources.store.files import files_in, replacing
from resources.store.views import VIEWS

OLDEST_READER = "v1.2.0"  # analysts' DuckDB is often older than ours, and 1.x cannot open what 2.0 writes
_VERSION = "views_version"
"""The macro in each schema that says which views it has."""
NEVER_EMPTY = {"tune": "threshold_backtest", "tune --audit": "audit_sample"}
"""A table that has rows once a command has filled its tables, by the command."""


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, location: UPath, *slugs: str, analysts: int | None = None) -> None:
    """Update the views of these instances, and delete those whose tables are gone; open sessions go on."""
    catalogue = catalogue_path(home)
    statements = cache(lambda slug: [*_statements(home, location / slug)])  # alike for version and views

    def version(slug: str) -> str:
        return hashlib.sha256("\n".join(statements(slug)).encode()).hexdigest()

    with locked(home / ".warehouse.lock", f"The catalogue {catalogue}"):
        shown = _versions(catalogue)
        folders = {folder.name for folder in location.glob("*")}
        gone = shown.keys() - folders
        outdated = [slug for slug in slugs if slug in folders and shown.get(slug) != version(slug)]
        if not gone and not outdated:
            return
        if gone:  # DuckDB only marks as free what is dropped, and the name of a customer who left would stay
            outdated, shown = sorted({*shown, *slugs} & folders), {}
        with replacing(catalogue, analysts) as path:
            if shown:  # with many instances, making all views takes longer than a run
                shutil.copyfile(catalogue, path)
            with duckdb.connect(path, config={"storage_compatibility_version": OLDEST_READER}) as connection:
                register_file_system(connection, location)
                connection.begin()  # otherwise each statement is flushed to the disk
                for slug in shown.keys() & {*outdated}:
                    connection.execute(f"DROP SCHEMA {identifier(slug)} CASCADE")
                for slug in outdated:
                    for statement in statements(slug):
                        connection.execute(statement)
                    connection.execute(f"CREATE MACRO {_VERSION}() AS {quoted(version(slug))}")
                connection.commit()


def _versions(catalogue: Path) -> Mapping[str, str]:
    """Return the version of each instance's views; none if the file is missing, damaged, in use or older."""
    if not catalogue.exists():
        return {}
    file = catalogue.stat()
    return _versions_in(catalogue, file.st_ino, file.st_mtime_ns)


@lru_cache(maxsize=1)  # each step of a run asks; opening the catalogue takes longer than most of them
def _versions_in(catalogue: Path, *_: int) -> Mapping[str, str]:
    try:
        with duckdb.connect(catalogue, read_only=True) as connection:
            query = "SELECT schema_name, macro_definition FROM duckdb_functions() WHERE function_name = ?"
            found = connection.execute(query, [_VERSION]).fetchall()
            return {schema: version.strip("'") for schema, version in found}
    except duckdb.Error:
        return {}


def schemas(home: Path, location: UPath | None = None) -> set[str]:
    """Return the instances that have views; with a location those alone whose views read tables there."""
    catalogue = catalogue_path(home)
    if not catalogue.exists():
        return set()
    place = quoted(f"{escape(str(location))}/")[:-1] if location else ""
    with duckdb.connect(catalogue, read_only=True) as connection:
        query = "SELECT schema_name FROM duckdb_views() WHERE NOT internal AND contains(sql, ?)"
        return {name for (name,) in connection.execute(query, [place]).fetchall()}


def register_file_system(connection: duckdb.DuckDBPyConnection, location: UPath) -> None:
    """Let a connection read tables in an object store, without DuckDB's extension."""
    if not isinstance(location, Path):
        connection.register_filesystem(location.fs)


def _statements(home: Path, folder: UPath) -> Iterator[str]:
    """Yield the statements that make the schema of an instance."""
    rows = {}
    for table, model in TABLES.items():
        files = f"{table}/*.parquet" if model.__layout__ is Layout.BY_DAY else f"{table}.parquet"
        rows[table] = _rows(model, f"{escape(str(folder))}/{files}")
    yield from _schema(catalogue_path(home).stem, folder.name, rows)
    for table, model in TABLES.items():
        if model.__filled_by__:
            filled = _last_filled(folder / f"{NEVER_EMPTY[model.__filled_by__]}.parquet")
            yield f"COMMENT ON VIEW {table} IS {quoted(f'{description(model)} {filled}')}"


def _last_filled(file: UPath) -> str:
    """Say when a table was filled last, by its file."""
    with suppress(pl.exceptions.PolarsError, OSError), file.open("rb") as content:  # damaged, or just deleted
        if pl.read_parquet(content, n_rows=1).height:
            return f"Last filled {datetime.fromtimestamp(file.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC."
    return "Not filled yet."


def _schema(database: str, name: str, rows: Mapping[str, str]) -> Iterator[str]:
    """Yield the statements that make a schema: a view for the rows of each table, and further views."""
    schema = f"{identifier(database)}.{identifier(name)}"
    yield f"CREATE SCHEMA {schema}"
    yield f"USE {schema}"  # further views name the tables without a schema
    further = {view: one.sql.replace("$instance", quoted(name)) for view, one in VIEWS.items()}
    for view, query in {**rows, **further}.items():
        yield f"CREATE VIEW {view} AS {query}"
        yield from _comments(view)


def run_views(folder: UPath, run_id: str, database: str) -> Iterator[str]:
    """Yield the statements that show the tables as a run saw them, in a schema of a database in memory.

    What the run did not make itself comes from the published tables, attached as `warehouse`.
    """
    run, published = folder / "runs" / run_id, f"warehouse.{identifier(folder.name)}"
    rows = {table: f"FROM {published}.{table}" for table in TABLES}
    for table, model in TABLES.items():
        own = _files(run, table)
        if model.__layout__ is Layout.BY_DAY and own:
            fetched = _files(run, "logon_days") or own
            rows[table] = (
                f"{_rows(model, own)} UNION ALL BY NAME ({rows[table]} WHERE day NOT IN "  # noqa: S608  (our own names)
                f"(SELECT day FROM read_parquet({quoted(fetched)}, hive_partitioning = false)))"
            )
        elif table == "owner_writes":  # what became of the plan, or else the plan
            rows[table] += f" WHERE run_id = {quoted(run_id)}"
            if own:
                rows[table] += f" UNION ALL BY NAME ({_rows(model, own)} WHERE NOT EXISTS ({rows[table]}))"
        elif own:
            rows[table] = _rows(model, own)
    yield f"ATTACH ':memory:' AS {identifier(database)}"
    yield from _schema(database, folder.name, rows)


def _files(folder: UPath, table: str) -> str | None:
    """Return a pattern for the files of a table; None if there are none."""
    for pattern in (f"{table}/*.parquet", f"{table}.parquet"):
        if files_in(folder, pattern):
            return f"{escape(str(folder))}/{pattern}"
    return None


def _rows(model: type[Table], files: str) -> str:
    """Return the query of a table's rows."""
    # With hive_partitioning a folder named a=b in the path would become a column.
    rows = f"FROM read_parquet({quoted(files)}, hive_partitioning = false, union_by_name = true)"
    return f"SELECT {', '.join(map(identifier, polars_schema(model)))} {rows}"


@cache
def _comments(view: str) -> Sequence[str]:
    """Return the statements that describe a view and its columns, the same for each instance."""
    if model := TABLES.get(view):
        comment, columns = description(model), column_descriptions(model)
    else:
        comment, columns = VIEWS[view].comment, VIEWS[view].columns
    return (
        f"COMMENT ON VIEW {view} IS {quoted(comment)}",
        *(f"COMMENT ON COLUMN {view}.{column} IS {quoted(meaning)}" for column, meaning in columns.items()),
    )


def duckdb_type(kind: Any) -> str:
    """Return the name that DuckDB has for a column's type."""
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
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
