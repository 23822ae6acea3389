"""`asset-owners backup` and `asset-owners restore`: a home as one file, and a home made from it."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.files import require_file
from pipelines.dagster_home import dagster_folder, dagster_instance
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


def backup(
    out: Annotated[Path, typer.Option(metavar="FILE.tar", help="The file to write; never an existing one.")],
) -> None:
    """Write a backup of the home into a new file, readable by its owner alone, and say what is not in it.

    That is tables, journals, instance files and Dagster's records; no secrets. It waits for a run that is
    writing owners.

    Example: --out backup.tar
    """
    require_file("--out", out)
    journal = journal_url()
    folders = {"the tables": tables_location(), "the instance files": instances_folder()}
    folders |= {"Dagster's records": dagster_folder(home())}
    files = back_up(home(), out)
    print(f"{out} is written: {files:,} files of {home()}")
    print("Not in it: secrets, dagster.yaml, and the catalogue, which `asset-owners restore` makes again.")
    not_in_it = [f"{what} in {folder}" for what, folder in folders.items() if home() not in folder.parents]
    if journal:
        shown = without_password(journal)
        dump = "pg_dump --schema=asset_owners --file=FILE.sql"
        not_in_it.append(f"the journal of writes in {shown}, by {dump} {shown}")
    settings = dagster_folder(home()) / "dagster.yaml"
    if settings.exists() and b"\nstorage:" in b"\n" + settings.read_bytes():
        not_in_it.append(f"Dagster's records in the storage that {settings} names, PostgreSQL by pg_dump")
    for what in not_in_it:
        print(f"Not in it either, back it up as well: {what}")


def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE.tar", help="What `backup` wrote.")],
) -> None:
    """Make the home from a backup.

    Example: backup.tar
    """
    files, version = restored(archive, home(), tables_location(), analysts=analysts_group())
    if (home() / "dagster").absolute() == dagster_folder(home()) and (home() / "dagster").is_dir():
        import dagster as dg

        # What was at work then is not any more; on another machine it would hold its place for half a day.
        at_work = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
        with dagster_instance(home()) as recorded:
            for run in recorded.get_runs(dg.RunsFilter(statuses=at_work)):
                recorded.report_run_failed(run, "It had not ended when the backup was made")
    print(f"{home()} is restored: {files:,} files of {archive}, which version {version} made")
