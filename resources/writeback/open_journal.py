"""Open the journal of an instance: its file in the home, or one in a database that machines share."""

import sqlite3
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType

import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import OwnerWrites
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import MISTAKES, database_failure
from resources.findings import Finding, tried
from resources.settings import journal_url
from resources.store.files import replacing
from resources.store.tables import Tables
from resources.writeback.journal import Journal

KEY = ".journal"
"""File beside the tables with what marks the instance's rows in a journal that others share."""


@contextmanager
def open_journal(tables: Tables) -> Generator[Journal]:
    """Open the journal of an instance: in the database of ASSET_OWNERS_JOURNAL, or else its file."""
    url = journal_url()
    try:
        with _shared(url, tables) if url else Journal(tables.journal) as journal:
            yield journal
    except MISTAKES:
        raise
    except sqlite3.Error as error:
        raise AssetOwnersError(database_failure(error, "the journal of writes", tables.journal)) from error


def has_journal(tables: Tables) -> bool:
    """Return whether an instance has ever had a journal there."""
    return has_shared_journal(tables) if journal_url() else tables.journal.exists()


def has_shared_journal(tables: Tables) -> bool:
    """Return whether an instance has ever had a journal that machines share."""
    return (tables.folder / KEY).exists()


def with_unsettled_writes(tables: Tables) -> Tables:
    """Return the tables with writes that only the journal knows: of a run that was cut off, or is running."""
    if not has_journal(tables):
        return tables
    with open_journal(tables) as journal:
        rows = [journal.rows(run_id) for run_id in journal.targets()]
    if not rows:
        return tables
    started = tables.all_runs("runs").select("run_id", "by").collect()
    writes = pl.concat(rows).drop("by").join(started, on="run_id", how="left")
    return replace(tables, unsettled=writes.select(polars_schema(OwnerWrites).names()))


def try_journal(tables: Tables) -> None:
    """Open the journal, if there is one, so that a run that cannot use it fails at once."""
    if has_journal(tables):
        with open_journal(tables):
            pass


def import_file_journal(journal: Journal, tables: Tables) -> None:
    """Move what runs left in the home's file into the journal in use, if that is another one."""
    if journal.place == str(tables.journal) or not tables.journal.exists():
        return
    with Journal(tables.journal) as left:
        taken = journal.targets()
        for run_id in reversed(left.targets()):
            if run_id not in taken:  # otherwise this was interrupted before
                journal.intend(left.rows(run_id), sent=True)  # the database does not know otherwise
            left.delete(run_id)


def journal_findings(url: str) -> Iterator[Finding]:
    """Yield what `check` finds in the database of ASSET_OWNERS_JOURNAL; only its empty tables stay there."""

    def try_all() -> None:
        with _postgres().PostgresJournal(url, lambda: "asset-owners check") as journal:
            journal.mark_attempted("", "")
            journal.delete("")

    yield from tried("ASSET_OWNERS_JOURNAL", try_all, "answers, and the user may keep the journal there")


def _shared(url: str, tables: Tables) -> Journal:
    """Return the journal in a database; the key of the instance's rows moves with its tables."""

    def key() -> str:
        file = tables.folder / KEY
        if not file.exists():
            with replacing(file) as path:
                path.write_text(str(uuid.uuid4()), encoding="utf-8")
        return file.read_text(encoding="utf-8")

    return _postgres().PostgresJournal(url, key)


def _postgres() -> ModuleType:
    """Import the module for PostgreSQL, whose driver need not be installed and takes a while to load."""
    try:
        from resources.writeback import postgres
    except ImportError as error:
        raise ConfigurationError(
            f"ASSET_OWNERS_JOURNAL: PostgreSQL's driver cannot be loaded ({error}); install it beside the "
            "program: pip install 'psycopg[binary]'"
        ) from error
    return postgres
