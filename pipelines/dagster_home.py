"""Dagster's own home under ASSET_OWNERS_HOME: runs, event log, schedules."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import dagster as dg

# No telemetry, and no sign-up dialog over the first page.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
"""


def dagster_home(home: Path) -> Path:
    """Return Dagster's home, created with our settings when it does not exist; DAGSTER_HOME wins."""
    folder = Path(os.environ.get("DAGSTER_HOME") or home / "dagster").absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        settings.write_text(DAGSTER_YAML, encoding="utf-8")
    return folder


@contextmanager
def dagster_instance(home: Path) -> Generator[dg.DagsterInstance]:
    """Open the Dagster instance that the UI under the same home shows.

    Dagster opens a connection for each event, and the last one to leave an SQLite file writes its log back
    and waits for the disk. One that stays spares that where events of all runs are kept. The file of the run
    itself is left alone: the UI follows a run by the changes of that file.
    """
    folder = dagster_home(home)
    with dg.DagsterInstance.from_config(str(folder)) as instance, ExitStack() as staying:
        for database in (folder / "history" / "runs.db", folder / "history" / "runs" / "index.db"):
            if database.exists():  # Dagster's home may name another storage
                connection = staying.enter_context(closing(sqlite3.connect(database)))
                connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # the first look is what joins
        yield instance
