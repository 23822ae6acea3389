"""The DuckDB catalogue that analysts open: views over the stored tables, and nothing else."""

import glob
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
from filelock import FileLock

from ownership import schemas
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
    statements = list(_statements(home))
    listed = home / ".warehouse-views.json"
    with FileLock(home / ".warehouse.lock"):
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
    """Yield what makes the catalogue: a schema an instance, a view a table."""
    for folder in sorted(path for path in (home / "tables").glob("*") if path.is_dir()):
        yield f'CREATE SCHEMA "{folder.name}"'
        for table in schemas.TABLES:
            several = (folder / table).is_dir()
            files = glob.escape(str(folder)) + (f"/{table}/*.parquet" if several else f"/{table}.parquet")
            # Without the option a folder named a=b on the way would become a column.
            source = f"read_parquet({_quoted(files)}, hive_partitioning = false)"
            yield f'CREATE VIEW "{folder.name}".{table} AS FROM {source}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
