"""The DuckDB catalogue that analysts open: described views over the stored tables, and nothing else."""

import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
from filelock import FileLock

from ownership import schemas
from ownership.views import VIEWS
from resources.files import replacing

OLDEST_READER = "v1.0.0"  # analysts' DuckDB is often older than ours, and 1.x cannot open what 2.0 writes


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, analysts: int | None = None) -> None:
    """Rebuild the catalogue when the list of views has changed; open sessions keep the file they opened.

    The list lies beside the catalogue, because an analyst who has the catalogue open for writing would
    keep us from reading it.
    """
    listed = home / ".warehouse-views.json"
    with FileLock(home / ".warehouse.lock"):
        statements = list(_statements(home))
        if (
            catalogue_path(home).exists()
            and listed.exists()
            and json.loads(listed.read_text(encoding="utf-8")) == statements
        ):
            return
        with (
            replacing(catalogue_path(home), analysts) as path,
            duckdb.connect(path, config={"storage_compatibility_version": OLDEST_READER}) as connection,
        ):
            for statement in statements:
                connection.execute(statement)
        with replacing(listed) as path:
            path.write_text(json.dumps(statements), encoding="utf-8")


def _statements(home: Path) -> Iterator[str]:
    """Yield what makes the catalogue: a schema an instance; in it a view a table, and further views."""
    for folder in sorted(path for path in (home / "tables").glob("*") if path.is_dir()):
        files = {table: _files(folder, table) for table in schemas.TABLES}
        if not all(map(glob.glob, files.values())):
            continue  # being set up, or last used by an older version; its next run adds it
        yield f'CREATE SCHEMA "{folder.name}"'
        # The views beside the tables name them without a schema: it is the one that they are made in.
        yield f'USE {catalogue_path(home).stem}."{folder.name}"'
        for table, model in schemas.TABLES.items():
            # Without the option a folder named a=b on the way would become a column.
            source = f"read_parquet({_quoted(files[table])}, hive_partitioning = false)"
            yield f"CREATE VIEW {table} AS FROM {source}"
            yield from _comments(table, schemas.description(model), schemas.column_descriptions(model))
        for name, view in VIEWS.items():
            yield f"CREATE VIEW {name} AS {view.sql}"
            yield from _comments(name, view.comment, view.columns)


def _files(folder: Path, table: str) -> str:
    """A pattern for the files of a table."""
    several = (folder / table).is_dir()
    return glob.escape(str(folder)) + (f"/{table}/*.parquet" if several else f"/{table}.parquet")


def _comments(view: str, comment: str, columns: Mapping[str, str]) -> Iterator[str]:
    yield f"COMMENT ON VIEW {view} IS {_quoted(comment)}"
    for column, description in columns.items():
        yield f"COMMENT ON COLUMN {view}.{column} IS {_quoted(description)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
