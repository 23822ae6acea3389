"""`asset-owners backup` and `asset-owners restore`: a home as one file, and a home made from it."""

from pathlib import Path

import yaml

from pipelines.cli.errors import require_file
from pipelines.dagster_home import dagster_folder
from resources.settings import (
    analysts_group,
    home,
    instances_folder,
    journal_url,
    tables_location,
    without_password,
)
from resources.store.backup import back_up
from resources.store.backup import restore as restored


def backup(out: Path) -> None:
    """Write a backup of the home into a new file, readable by its owner alone, and say what is not in it."""
    require_file("--out", out)
    journal = journal_url()
    places = {
        "the tables": tables_location(),
        "the instance files": instances_folder(),
        "Dagster's records": dagster_folder(home()),
    }
    files = back_up(home(), out)
    print(f"{out} is written: {files:,} files of {home()}")
    print("Not in it: secrets, dagster.yaml, and the catalogue, which `asset-owners restore` makes again.")
    for what, place in places.items():
        if not str(place).startswith(f"{home()}/"):
            print(f"Not in it either: {what} in {place}; back them up as well.")
    settings = dagster_folder(home()) / "dagster.yaml"
    if settings.exists() and "storage" in (yaml.safe_load(settings.read_text("utf-8")) or {}):
        print(
            f"Not in it either: Dagster's records in the storage that {settings} names; back them up as "
            "well, those in PostgreSQL by pg_dump"
        )
    if journal:
        shown = without_password(journal)
        print(
            f"Not in it either: the journal of writes in {shown}; back it up as well, by "
            f"pg_dump --schema=asset_owners --file=FILE.sql {shown}"
        )


def restore(archive: Path) -> None:
    """Make the home from a backup."""
    files, version = restored(archive, home(), tables_location(), analysts=analysts_group())
    print(f"{home()} is restored: {files:,} files of {archive}, which version {version} made")
