"""The DuckDB catalogue that analysts open: described views over the stored tables, and nothing else."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from glob import escape
from io import BytesIO
from pathlib import Path

import duckdb
import polars as pl
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from ownership.declaration import (
    Layout,
    Table,
    column_descriptions,
    description,
    empty,
    later_columns,
    polars_schema,
)
from ownership.tables import TABLES
from resources.locks import locked
from resources.settings import is_slug
from resources.store.dictionary import duckdb_type
from resources.store.files import replacing
from resources.store.views import VIEWS

OLDEST_READER = "v1.2.0"  # analysts' DuckDB is often older than ours, and 1.x cannot open what 2.0 writes


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, folder: UPath, analysts: int | None = None) -> None:
    """Bring the catalogue up to date when the list of views has changed; open sessions keep their file.

    The files of other instances are looked at where their views are not those that this version makes: a
    run's time should not grow with the number of instances, and a look at an object store is a request.

    The list lies beside the catalogue, because an analyst who has the catalogue open for writing would
    keep us from reading it. It bears the time of the catalogue that it tells of: where the two differ,
    somebody has written into the catalogue, and it is made anew as a whole.

    Args:
        home: ASSET_OWNERS_HOME.
        folder: what holds the tables of the instance, beside the folders of the others.
        analysts: id of the group that may read the catalogue.
    """
    catalogue, listed = catalogue_path(home), home / ".warehouse-views.json"
    with locked(home / ".warehouse.lock", f"The catalogue {catalogue}"):
        recorded = _recorded(listed) if catalogue.exists() else {}
        wanted = dict(_schemas(home, folder, recorded))
        # To open it takes longer the more instances there are, and most runs find it as it was left.
        if wanted == recorded and (_changed_at(catalogue) == _changed_at(listed) or _can_be_read(catalogue)):
            return
        with replacing(catalogue, analysts) as path:
            known = recorded
            if recorded and not _copied(catalogue, listed, path):
                known, wanted = {}, dict(_schemas(home, folder, {}))
            with duckdb.connect(path, config={"storage_compatibility_version": OLDEST_READER}) as connection:
                if not isinstance(folder, Path):
                    connection.register_filesystem(_WithoutRows(folder.parent, wanted))
                connection.begin()  # one for all: each would be flushed to the disk by itself
                for schema in known:
                    if known[schema] != wanted.get(schema):
                        connection.execute(f"DROP SCHEMA {identifier(schema)} CASCADE")
                for schema, statements in wanted.items():
                    if known.get(schema) != statements:
                        for statement in statements:
                            connection.execute(statement)
                connection.commit()
            made_at = _changed_at(path)
        with replacing(listed) as path:
            path.write_text(json.dumps(wanted), encoding="utf-8")
        os.utime(listed, ns=(made_at, made_at))


def _recorded(listed: Path) -> dict[str, list[str]]:
    """The statements that made the catalogue, by schema; none where that is not known."""
    try:
        recorded = json.loads(listed.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}  # up to 0.2.0 a list without schemas


def _copied(catalogue: Path, listed: Path, path: Path) -> bool:
    """Copy the catalogue if it is as we left it.

    With many instances, to make it anew takes longer than a run, and the first run of each one changes it.
    """
    if _changed_at(catalogue) == _changed_at(listed):
        shutil.copyfile(catalogue, path)
        if _changed_at(catalogue) == _changed_at(listed):
            return True
        path.unlink()  # it changed while it was copied
    return False


def _can_be_read(catalogue: Path) -> bool:
    """Whether it is a database, perhaps one that an analyst has open for writing; a damaged one is none."""
    try:
        duckdb.connect(catalogue, read_only=True).close()
    except duckdb.Error as error:
        return is_in_use(error)
    return True


def is_in_use(error: duckdb.Error) -> bool:
    """Whether a database could not be opened because another process has it open for writing."""
    return "Could not set lock" in str(error)


def _changed_at(path: Path) -> int:
    return path.stat().st_mtime_ns


def register_file_system(connection: duckdb.DuckDBPyConnection, location: UPath) -> None:
    """Let a connection read tables that lie in an object store, without an extension of DuckDB's."""
    if not isinstance(location, Path):
        connection.register_filesystem(location.fs)


def view_rows(folder: UPath, name: str) -> pl.DataFrame:
    """Ask a view for its rows, by the query of this version, whatever the catalogue holds.

    Args:
        folder: what holds the tables of one instance.
        name: the view; its columns are numbers, texts and days.
    """
    with duckdb.connect() as connection:
        register_file_system(connection, folder.parent)
        for table, model in TABLES.items():
            if pattern := _files(folder, table):
                connection.execute(f"CREATE VIEW {table} AS {_rows(model, pattern)}")
        answer = connection.execute(VIEWS[name].sql)
        columns = list(VIEWS[name].columns)
        return pl.DataFrame(answer.fetchall(), schema=columns, orient="row", infer_schema_length=None)


def _schemas(home: Path, own: UPath, recorded: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the schema of each instance and what makes it."""
    for folder in sorted(own.parent.glob("*"), key=str):
        if not is_slug(folder.name):
            continue  # no instance's
        statements = list(_statements(home, folder))
        # Others are being set up, or were last used by an older version; their next run adds them.
        if folder.name == own.name or recorded.get(folder.name) == statements or _has_all_tables(folder):
            yield folder.name, statements


def _statements(home: Path, folder: UPath) -> Iterator[str]:
    """Yield what makes a schema: in it a view a table, and further views."""
    schema = identifier(folder.name)
    yield f"CREATE SCHEMA {schema}"
    # The views beside the tables name them without a schema: it is the one that they are made in.
    yield f"USE {catalogue_path(home).stem}.{schema}"
    for table, model in TABLES.items():
        yield f"CREATE VIEW {table} AS {_rows(model, _pattern(folder, table))}"
        yield from _comments(table)
    for name, view in VIEWS.items():
        yield f"CREATE VIEW {name} AS {view.sql}"
        yield from _comments(name)


def _pattern(folder: UPath, table: str) -> str:
    """The files of an instance's published table."""
    files = f"{table}.parquet" if TABLES[table].__layout__ is Layout.SNAPSHOT else f"{table}/*.parquet"
    return f"{escape(str(folder))}/{files}"


def _has_all_tables(folder: UPath) -> bool:
    if isinstance(folder, Path):
        return all(_files(folder, table) for table in TABLES)
    # In an object store no folder is without a file, and a look into each would be three requests.
    return TABLES.keys() <= {path.stem for path in folder.glob("*")}


class _WithoutRows(MemoryFileSystem):
    """Stands in for an object store, with tables that have no rows, while views are made.

    DuckDB opens a view's files to learn its columns, and those of each view that it builds upon: hundreds of
    requests an instance.
    """

    cachable = False

    def __init__(self, location: UPath, slugs: Iterable[str]) -> None:
        """Holds the files of these instances that lie at the location."""
        super().__init__()
        self.protocol = location.fs.protocol
        self.store, self.pseudo_dirs = {}, [""]  # its own: those of the class are everybody's
        for table, model in TABLES.items():
            content = BytesIO()
            empty(model).write_parquet(content)
            for slug in slugs:
                path = _pattern(location / slug, table).replace("*", "empty")
                self.pipe_file(path, content.getvalue())


def run_views(folder: UPath, run_id: str, database: str) -> Iterator[str]:
    """Yield what shows the tables as a run saw them, in a schema of a database in memory.

    The published tables are attached as `warehouse`; they stand for what the run has not of its own.

    Args:
        folder: the instance's, named by its slug.
        run_id: the run.
        database: the name of the new database; its schema is called like the instance's.
    """
    schema, run = f"{identifier(database)}.{identifier(folder.name)}", folder / "runs" / run_id
    published = f"warehouse.{identifier(folder.name)}"
    appended = folder / "owner_writes" / f"{run_id}.parquet"
    yield f"ATTACH ':memory:' AS {identifier(database)}"
    yield f"CREATE SCHEMA {schema}"
    yield f"USE {schema}"
    for table, model in TABLES.items():
        rows = f"FROM {published}.{table}"
        own = escape(str(appended)) if table == "owner_writes" and appended.exists() else _files(run, table)
        if model.__layout__ is Layout.BY_DAY and own:
            fetched = _files(run, "logon_days") or own
            rows = (
                f"{_rows(model, own)} UNION ALL BY NAME ({rows} WHERE day NOT IN "  # noqa: S608  (our own names)
                f"(SELECT day FROM read_parquet({quoted(fetched)}, hive_partitioning = false)))"
            )
        elif own:
            rows = _rows(model, own)
        elif table == "owner_writes":
            rows = f"{rows} WHERE run_id = {quoted(run_id)}"
        elif table == "owner_decisions_history" and _files(run, "owner_decisions"):
            rows = "SELECT *, false AS carried_over FROM owner_decisions"
        yield f"CREATE VIEW {table} AS {rows}"
        yield from _comments(table)
    for name, view in VIEWS.items():
        history = "owner_decisions_history"  # the run's own begins with the run
        query = view.sql.replace(history, f"{published}.{history}") if view.looks_back else view.sql
        yield f"CREATE VIEW {name} AS {query}"
        yield from _comments(name)


def _files(folder: UPath, table: str) -> str | None:
    """A pattern for the files of a table; None where there are none yet."""
    for pattern in (f"{table}/*.parquet", f"{table}.parquet"):
        if any(folder.glob(pattern)):
            return f"{escape(str(folder))}/{pattern}"
    return None


def _rows(model: type[Table], files: str) -> str:
    """The query of a table's rows; columns that files of older versions lack are null in their rows."""
    later = later_columns(model)
    # Without the option a folder named a=b on the way would become a column.
    options = f"hive_partitioning = false{', union_by_name = true' if later else ''}"
    rows = f"FROM read_parquet({quoted(files)}, {options})"
    if not later:
        return rows
    kinds = polars_schema(model)
    lacking = ", ".join(f"CAST(NULL AS {duckdb_type(kinds[name])}) AS {name}" for name in later)
    older = f"SELECT {lacking} WHERE false"
    return f"SELECT {', '.join(kinds)} FROM ({rows} UNION ALL BY NAME {older})"  # noqa: S608  (our own names)


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


def identifier(name: str) -> str:
    """Write a name as SQL does."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Write a text as SQL does."""
    return "'" + text.replace("'", "''") + "'"
