"""`asset-owners remove`: delete all that is stored of an instance."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ownership.names import printable
from pipelines.cli.forget import NOTHING_CHANGED, delete_beside_tables, require_changeable
from pipelines.cli.options import INSTANCE_HELP, Yes, instance_file
from pipelines.cli.stored import own_tables
from pipelines.dagster_home import dagster_instance
from resources.errors import AssetOwnersError
from resources.settings import home, load_instance
from resources.store.catalogue import refresh_catalogue
from resources.store.files import delete, delete_file
from resources.store.stored_files import What, stored_files, table_folders
from resources.store.tables import CHANGING
from resources.writeback.target_lock import locked_ledger


def remove(
    path: Annotated[Path, typer.Argument(metavar="INSTANCE", parser=instance_file, help=INSTANCE_HELP)],
    *,
    yes: Yes = False,
) -> None:
    """Delete all that is stored of an instance; say first what that is.

    Example: NAME
    """
    from assets_defs.dagster_records import runs_of

    instance = load_instance(path)
    tables = own_tables(instance)
    with ExitStack() as held:
        dagster = held.enter_context(dagster_instance(home()))
        found = [file for file in stored_files(tables) if file.what is not What.EXPORT]
        if not (found or runs_of(dagster, instance.name, limit=1)):
            raise AssetOwnersError(f"Nothing is stored of {instance.name}")
        ledger = None
        if yes or tables.reads_ledger():
            ledger = held.enter_context(locked_ledger(tables, instance.platform))
        if yes:
            held.enter_context(tables.changing())
            require_changeable(instance, tables, dagster)
        pending = 0
        if ledger:
            pending = ledger.rows("owner_writes").filter(outcome="intended").height
            if yes:
                ledger.clear()
                ledger.overwrite_deleted()
        print(f"{printable(instance.name)}:\n  {'Deleted' if yes else 'To delete'}:")
        print(f"  {tables.folder}, and the ledger ({pending} writes pending)")
        delete_beside_tables(instance, tables, dagster, What.REPORT, really=yes)
        if yes:
            for file in stored_files(tables):
                # The lock goes last: what waits for it then finds nothing to look at.
                if file.what is not What.EXPORT and file.path.name != CHANGING:
                    delete_file(file.path)
            for folder in table_folders(tables):
                if isinstance(folder, Path):
                    delete(folder)
            refresh_catalogue(home(), tables.folder.parent, analysts=tables.analysts)
    print(f"  Not deleted: the instance file ({instance.file}), its secrets, and copies of the home")
    print("Done." if yes else NOTHING_CHANGED)
