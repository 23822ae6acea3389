"""Dagster's own home under ASSET_OWNERS_HOME: runs, event log, schedules."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import dagster as dg
from filelock import FileLock

from resources.errors import AssetOwnersError
from resources.failures import database_failure
from resources.store.files import replacing

# No telemetry, and no sign-up dialog over the first page.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
"""


def dagster_folder(home: Path) -> Path:
    """Return where Dagster's home is, or would be; DAGSTER_HOME wins."""
    return Path(os.environ.get("DAGSTER_HOME") or home / "dagster").absolute()


def dagster_home(home: Path) -> Path:
    """Return Dagster's home, created with our settings when it does not exist; DAGSTER_HOME wins."""
    folder = dagster_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        with replacing(settings) as file:
            file.write_text(DAGSTER_YAML, encoding="utf-8")
    return folder


@contextmanager
def dagster_instance(home: Path) -> Generator[dg.DagsterInstance]:
    """Open the Dagster instance that the UI under the same home shows.

    Dagster opens a connection for each event, and the last one to leave an SQLite file writes its log back
    and waits for the disk. One that stays spares that where events of all runs are kept. The file of the run
    itself is left alone: the UI follows a run by the changes of that file.
    """
    folder = dagster_home(home)
    with ExitStack() as staying:
        with FileLock(
            folder / ".opening.lock"
        ):  # at the first start Dagster makes its files, of two all fail
            instance = staying.enter_context(dg.DagsterInstance.from_config(str(folder)))
            for database in (folder / "history" / "runs.db", folder / "history" / "runs" / "index.db"):
                if database.exists():  # Dagster's home may name another storage
                    staying.enter_context(_joined(database))
        yield instance


@contextmanager
def _joined(database: Path) -> Generator[None]:
    with closing(sqlite3.connect(database)) as connection:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # the first look is what joins
        except sqlite3.Error as error:
            raise AssetOwnersError(database_failure(error, "Dagster's records of runs", database)) from error
        yield
