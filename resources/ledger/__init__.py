"""The books of an instance: what runs did. `open_ledger` chooses the file or database that keeps them."""

import os
import sqlite3
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

from upath import UPath

from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import MISTAKES, database_failure
from resources.findings import Finding, check_call
from resources.ledger.ledger import Ledger
from resources.settings import journal_url
from resources.store.files import replacing

FILE = "ledger.sqlite"
KEY = ".ledger"  # file beside the tables with what marks the instance's rows in a database that others share


@contextmanager
def open_ledger(disk: Path, tables: UPath) -> Generator[Ledger]:
    """Open the ledger of an instance: in the database of ASSET_OWNERS_JOURNAL, or else its file on a disk.

    `tables` is the folder of its tables: with them goes what its rows in a database are known by.
    """
    url = journal_url()
    try:
        with _postgres().PostgresLedger(url, partial(_key, tables)) if url else Ledger(disk / FILE) as ledger:
            yield ledger
    except MISTAKES:
        raise
    except sqlite3.Error as error:
        raise AssetOwnersError(database_failure(error, "the ledger", disk / FILE)) from error


def has_ledger(disk: Path, tables: UPath) -> bool:
    """Return whether there is a ledger that this process may open; analysts may not."""
    return has_shared_ledger(tables) if journal_url() else os.access(disk / FILE, os.R_OK | os.W_OK)


def has_shared_ledger(tables: UPath) -> bool:
    """Return whether an instance has ever had a ledger that machines share."""
    return (tables / KEY).exists()


def ledger_findings(url: str) -> Iterator[Finding]:
    """Yield what `check` finds in the database of ASSET_OWNERS_JOURNAL; only its empty tables stay there."""

    def try_all() -> None:
        with _postgres().PostgresLedger(url, lambda: "asset-owners check") as ledger:
            ledger.store_setting("check", None)
            ledger.clear()

    yield from check_call("ASSET_OWNERS_JOURNAL", try_all, "answers, and the user may keep the ledger there")


def _key(tables: UPath) -> str:
    file = tables / KEY
    if not file.exists():
        with replacing(file) as path:
            path.write_text(str(uuid.uuid4()), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _postgres() -> ModuleType:
    """Import the module for PostgreSQL, whose driver need not be installed and takes a while to load."""
    try:
        from resources.ledger import postgres  # noqa: PLC0415  (see above)
    except ImportError as error:
        raise ConfigurationError(
            f"ASSET_OWNERS_JOURNAL: PostgreSQL's driver cannot be loaded ({error}); install it beside the "
            "program: pip install 'psycopg[binary]'"
        ) from error
    return postgres
