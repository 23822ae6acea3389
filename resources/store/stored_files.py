"""All files of one instance, each with what it is: whoever leaves is looked up, and deleted, by this list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from upath import UPath

from ownership.tables import TABLES
from resources.store.files import TEMPORARY, files_below
from resources.store.retention import REPORT
from resources.store.tables import Tables

EXPORTS = {".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".html"}


class What(Enum):
    """What a file of an instance is."""

    TABLE = auto()
    UNKNOWN_TABLE = auto()  # of another version
    REPORT = auto()  # also one that a killed run was writing
    EXPORT = auto()  # of whatever instance: its name need not say that
    LEFTOVER = auto()  # of a killed writer
    OTHER = auto()  # ledger, locks, and what says whose the tables are


@dataclass(frozen=True)
class StoredFile:
    """A file of an instance, and of which table it has rows."""

    path: UPath
    what: What
    table: str | None = None


def table_folders(tables: Tables) -> list[UPath]:
    """Return where the files of tables lie; also where they were before ASSET_OWNERS_TABLES moved them."""
    return [*dict.fromkeys((tables.folder, UPath(tables.disk)))]


def stored_files(tables: Tables) -> Iterator[StoredFile]:
    """Yield every file of an instance, links followed: its tables, and exports in the home and its `reports`.

    Raises:
        AssetOwnersError: a link leads nowhere.
    """
    for folder in table_folders(tables):
        for path in files_below(folder):
            yield _among_tables(path, path.relative_to(folder).parts)
    others = {folder.name for folder in tables.folder.parent.glob("*")} - {tables.slug}
    reports = UPath(tables.home / "reports")
    beside = (UPath(path) for path in tables.home.glob("*") if path.is_file())
    for path in (*beside, *files_below(reports)):
        instance = path.name.partition(".")[0]
        if path.suffix.lower() in EXPORTS and instance not in others:
            in_reports = reports in path.parents and instance == tables.slug
            yield StoredFile(path, What.REPORT if in_reports else What.EXPORT)


def _among_tables(path: UPath, parts: Sequence[str]) -> StoredFile:
    """Return what a file is that lies with the tables, at these parts of its path."""
    if any(part.startswith(TEMPORARY) for part in parts):
        return StoredFile(path, What.LEFTOVER)
    if path.suffix == ".parquet":
        table = Path(parts[2] if parts[0] == "runs" and len(parts) > 2 else parts[0]).stem
        return (
            StoredFile(path, What.TABLE, table) if table in TABLES else StoredFile(path, What.UNKNOWN_TABLE)
        )
    return StoredFile(path, What.REPORT if parts == (REPORT,) else What.OTHER)
