"""The DuckDB catalogue that analysts open: views over the stored tables, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
from filelock import FileLock

from ownership import schemas
from resources.files import replacing


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, analysts: int | None = None) -> None:
    """Rebuild the catalogue when the list of views has changed; open sessions keep the file they opened.

    The list lies beside the catalogue, because an analyst who has the catalogue open for writing would
    keep us from reading it.
    """
    views = list(_views(home))
    listed = home / ".warehouse-views.json"
    with FileLock(home / ".warehouse.lock"):
        if (
            catalogue_path(home).exists()
            and listed.exists()
            and json.loads(listed.read_text(encoding="utf-8")) == views
        ):
            return
        with replacing(catalogue_path(home), analysts) as path, duckdb.connect(path) as connection:
            for schema, table, files in views:
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
                connection.execute(f'CREATE VIEW "{schema}".{table} AS FROM read_parquet({_quoted(files)})')
        with replacing(listed) as path:
            path.write_text(json.dumps(views), encoding="utf-8")


def _views(home: Path) -> Iterator[list[str]]:
    """Yield each view's schema and name and the files it reads."""
    for folder in sorted(path for path in (home / "tables").glob("*") if path.is_dir()):
        for table in schemas.TABLES:
            files = folder / table / "*.parquet" if (folder / table).is_dir() else folder / f"{table}.parquet"
            yield [folder.name, table, str(files)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
