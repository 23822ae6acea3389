"""`asset-owners forget` removes a person from what is stored, `asset-owners remove` an instance's data."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from ownership.names import counted, did_you_mean, near_names, printable, some_of
from ownership.persons import Person
from ownership.tables import TABLES
from pipelines.cli.options import INSTANCE_HELP, InstanceFile, Yes, instance_file, own_tables, print_lines
from pipelines.dagster_home import dagster_instance
from resources.errors import AssetOwnersError
from resources.ledger.ledger import Ledger
from resources.settings import Instance, command_line, home, load_instance
from resources.store import forget as stored
from resources.store.catalogue import refresh_catalogue
from resources.store.files import delete, delete_file
from resources.store.forget import Forgetting
from resources.store.retention import What, stored_files, table_folders
from resources.store.tables import CHANGING, Tables, short_run_id
from resources.writeback.target_lock import locked_ledger

if TYPE_CHECKING:
    import dagster as dg

NOTHING_CHANGED = "Nothing has been changed; add --yes to do it."


def forget(
    asked: Annotated[
        str, typer.Argument(metavar="PERSON", help="User name, e-mail address, or id of the user asset.")
    ],
    path: InstanceFile,
    *,
    yes: Yes = False,
) -> None:
    """Replace one person by a stand-in in everything that is stored for an instance; list it first.

    It replaces their ids and names in tables, history and ledger, and empties notes, reasons and
    messages in these rows. Reports and exports in the home, and all runs of the instance in Dagster, are
    deleted, also those about others. A name that fits several people lists them and changes nothing. After an
    interruption repeat it with the same words. `asset-owners docs data_protection` says what is left.

    Example: --instance NAME ann@corp.example
    """
    instance = load_instance(path)
    tables = own_tables(instance)
    if not any(stored_files(tables)):
        raise AssetOwnersError(f"Nothing is stored of {instance.name}")
    if not tables.reads_ledger() and not tables.all_runs("runs").limit(1).collect().is_empty():
        raise AssetOwnersError(
            f"{tables.disk} lacks the ledger of {instance.name}, which would restore the forgotten person: "
            "repeat this with the home that has it; if that is lost, run once first"
        )
    with (
        dagster_instance(home()) as dagster,
        locked_ledger(tables, instance.platform) as ledger,
        tables.changing(),
    ):
        person = _forgetting(asked, instance, tables, ledger, dagster)
        counts = stored.forget(tables, ledger, person, really=False)
        if yes:
            require_changeable(instance, tables, dagster)
            stored.store_unfinished(tables, person)
            stored.forget(tables, ledger, person, really=True)
        owned = pl.col("owner_ids").list.set_intersection([*person.ids]).list.len() > 0
        if hosts := tables.read("current_owners").filter(owned).collect()["hostname"].to_list():
            names = some_of([printable(name or "no name") for name in hosts])
            first = "give them another owner there first, because undo cannot do so after this"
            print_lines([f"  Owned in the inventory: {names}; {first}"])
        print(f"  {'Replaced' if yes else 'To replace'} by stand-ins, with copies of earlier runs:")
        for table, number in counts.items():
            print(
                f"  {number:>9,} row{'s' * (number != 1)} of {table}{', deleted' * (table == stored.DELETED)}"
            )
        print(f"  {'Deleted' if yes else 'To delete'}:")
        delete_beside_tables(instance, tables, dagster, What.REPORT, What.EXPORT, really=yes)
        if yes:
            stored.delete_unfinished(tables)
    for file in stored_files(tables):
        if file.what is What.UNKNOWN_TABLE:
            print(f"  {file.path}: not known to this version; delete it if you do not need it")
    others = (
        "  Not covered, check these yourself: other instances, audit sheets, reports and exports elsewhere, "
        f"copies of the home, logs, other machines, the instance file ({instance.file}). Take the person out "
        "of both services first: the next run stores again what they hold"
    )
    print_lines([others, "Done: stand-ins are in their place." if yes else NOTHING_CHANGED])


def _forgetting(
    asked: str, instance: Instance, tables: Tables, ledger: Ledger, dagster: "dg.DagsterInstance"
) -> Forgetting:
    """Find the one person whom words name; fails if there is none, or if there are several."""
    from assets_defs.cleanup import names_in_records, runs_of

    rules = instance.rules.as_rules()
    before = stored.read_unfinished(tables)
    if before and not before.is_about(asked):
        again = command_line(instance, "forget", before.asked, "--yes")
        raise AssetOwnersError(f"Forgetting another person was interrupted; finish that first: {again}")
    persons = stored.known_persons(tables, ledger, rules)
    found = persons.find(asked)
    if before:
        found = [one for one in found if one.user_id in before.ids or before.names.keys() & one.names]
    elif not found and names_in_records(dagster, runs_of(dagster, instance.name), asked.strip()):
        found = [Person(asked.strip(), {})]
    elif len(found) > 1:
        people = [(one.user_id or "no user asset", sorted({*one.names, *one.shared})) for one in found]
        lines = (f"\n  {printable(who)}: {', '.join(map(printable, names))}" for who, names in people)
        fit = f"{len(found)} people fit '{printable(asked)}'. Name one by id or whole e-mail address:"
        raise AssetOwnersError(fit + "".join(lines))
    elif not found:
        meant = did_you_mean(near_names(asked, persons.accounts()))
        raise AssetOwnersError(f"{instance.name} knows no person '{printable(asked)}'.{meant}")
    person = Forgetting.of_person(asked.strip(), *found, rules=rules, before=before)
    names = ", ".join(map(printable, sorted({*person.ids, *person.names})))
    print_lines([f"{printable(instance.name)}: {printable(asked)} is {names}"])
    if shared := [printable(name) for one in found for name in one.shared]:
        print_lines([f"  Kept, because other people have these names, too: {', '.join(shared)}"])
    return person


def require_changeable(instance: Instance, tables: Tables, dagster: "dg.DagsterInstance") -> None:
    """Fail, before anything is changed, while a run is under way or where records cannot be deleted."""
    from assets_defs.cleanup import runs_of
    from pipelines.dagster_gaps.launcher import fail_dead_runs

    fail_dead_runs(dagster, instance.name)
    if runs := runs_of(dagster, instance.name, finished=False):
        raise AssetOwnersError(
            f"Run {', '.join(map(short_run_id, runs))} of {instance.name} is under way or queued. It would "
            "store again what is deleted; wait until it ended, or terminate it in Dagster, and repeat this"
        )
    root = [Path(dagster.root_directory)] if dagster.is_persistent else []
    stored.require_writable(tables, home(), home() / "reports", *root)


def delete_beside_tables(
    instance: Instance, tables: Tables, dagster: "dg.DagsterInstance", *kinds: What, really: bool
) -> None:
    """Name files of these kinds, and Dagster's records of an instance; `really` deletes them."""
    from assets_defs.asset_specs import asset_key
    from assets_defs.cleanup import delete_runs, delete_unlisted, overwrite_deleted, runs_of

    for path in sorted(file.path for file in stored_files(tables) if file.what in kinds):
        print(f"  {path}")
        if really:
            delete_file(path)
    runs = runs_of(dagster, instance.name)
    of_others = ", also about others (the table runs stays)" * (What.EXPORT in kinds)
    logs = f"with their logs{of_others}; its assets start empty"
    of_it = f"All runs of {printable(instance.name)} in Dagster ({len(runs):,}), {logs}"
    print_lines([f"  {of_it if runs else 'No runs in Dagster'}."])
    if really:
        delete_runs(dagster, runs)
        delete_unlisted(dagster)
        dagster.wipe_assets([asset_key(instance, table) for table in TABLES])
        overwrite_deleted(dagster)


def remove(
    path: Annotated[Path, typer.Argument(metavar="INSTANCE", parser=instance_file, help=INSTANCE_HELP)],
    *,
    yes: Yes = False,
) -> None:
    """Delete everything that is stored for an instance; list it first.

    Example: NAME
    """
    from assets_defs.cleanup import runs_of

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
        print(f"  {tables.folder}, and the ledger ({counted(pending, 'write')} pending)")
        delete_beside_tables(instance, tables, dagster, What.REPORT, really=yes)
        if yes:
            for file in stored_files(tables):
                # The lock goes last: what waits for it then finds nothing left.
                if file.what is not What.EXPORT and file.path.name != CHANGING:
                    delete_file(file.path)
            for folder in table_folders(tables):
                if isinstance(folder, Path):
                    delete(folder)
            refresh_catalogue(home(), tables.folder.parent, analysts=tables.analysts)
    kept = f"  Not deleted: the instance file ({instance.file}), its secrets, and copies of the home"
    print_lines([kept, "Done." if yes else NOTHING_CHANGED])
