"""`asset-owners forget`: a stand-in takes the place of a person in all that is stored of an instance."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from upath import UPath

from ownership.names import printable
from ownership.persons import Person
from ownership.tables import TABLES
from pipelines.cli.options import InstanceFile, Yes
from pipelines.cli.stored import own_tables
from pipelines.dagster_home import dagster_instance
from resources.errors import AssetOwnersError
from resources.settings import Instance, command_line, home, load_instance
from resources.store import forget as stored
from resources.store.files import TEMPORARY
from resources.store.forget import Forgetting
from resources.store.tables import Tables, short_run_id
from resources.writeback.journal import Journal
from resources.writeback.target_lock import locked_journal

if TYPE_CHECKING:
    import dagster as dg

NOTHING_CHANGED = "Nothing has been changed; add --yes to do it."
EXPORTS = {".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".html"}


def forget(
    asked: Annotated[
        str, typer.Argument(metavar="PERSON", help="User name, e-mail address, or id of the user asset.")
    ],
    path: InstanceFile,
    *,
    yes: Yes = False,
) -> None:
    """Put a stand-in in the place of one person in all that is stored of an instance; say first what that is.

    It replaces their ids and names in tables, history and journal of writes, and empties notes, reasons and
    messages in these rows. Reports and exports in the home, and Dagster's records, are deleted. A name
    that fits several people lists them and changes nothing. After an interruption repeat it with the same
    words. `asset-owners docs data_protection` says what is left.

    Example: --instance NAME ann@corp.example
    """
    instance = load_instance(path)
    tables = own_tables(instance)
    if not (tables.folder.exists() or tables.disk.exists()):
        raise AssetOwnersError(f"Nothing is stored of {instance.name}")
    with (
        dagster_instance(home()) as dagster,
        locked_journal(tables, instance.platform) as journal,
        tables.changing(),
    ):
        person = _forgetting(asked, instance, tables, journal, dagster)
        counts = stored.forget(tables, journal, person, really=False)
        if yes:
            require_changeable(instance, tables, dagster)
            stored.store_unfinished(tables, person)
            stored.forget(tables, journal, person, really=True)
        print(f"  {'Replaced' if yes else 'To replace'} by stand-ins, with copies of earlier runs:")
        for table, number in counts.items():
            print(f"  {number:>9,} rows of {table}{', deleted' * (table == stored.DELETED)}")
        print(f"  {'Deleted' if yes else 'To delete'}:")
        delete_beside_tables(instance, tables, dagster, exports=True, really=yes)
        if yes:
            stored.delete_unfinished(tables)
    for file in stored.unknown_files(tables):
        print(f"  {file}: not known to this version; delete it if you do not need it")
    print(
        "  Not covered, check these yourself: other instances, reports and exports elsewhere, copies of the "
        f"home, logs, other machines, the instance file ({instance.file}), and both services: the next run "
        "stores again what they hold"
    )
    print("Done: stand-ins are in their place." if yes else NOTHING_CHANGED)


def _forgetting(
    asked: str, instance: Instance, tables: Tables, journal: Journal, dagster: "dg.DagsterInstance"
) -> Forgetting:
    """Find the one person whom words name; fails if there is none, or if there are several."""
    from assets_defs.dagster_records import names_in_records, runs_of

    rules = instance.rules.as_rules()
    before = stored.read_unfinished(tables)
    if before and not before.is_about(asked):
        again = command_line(instance, "forget", before.asked, "--yes")
        raise AssetOwnersError(f"Somebody else was not forgotten to the end; do that first: {again}")
    found = stored.known_persons(tables, journal, rules).find(asked)
    if before:
        found = [one for one in found if one.user_id in before.ids or before.names.keys() & one.names]
    elif not found and names_in_records(dagster, runs_of(dagster, instance.name), asked.strip()):
        found = [Person(asked.strip(), {})]
    elif len(found) > 1:
        names = {one.user_id or "no user asset": sorted({*one.names, *one.shared}) for one in found}
        people = (f"{printable(one)}: {', '.join(map(printable, names[one]))}" for one in names)
        raise AssetOwnersError(
            f"{len(found)} people fit '{printable(asked)}'. Name one by id or whole e-mail address:\n  "
            + "\n  ".join(people)
        )
    elif not found:
        raise AssetOwnersError(f"{instance.name} knows no person '{printable(asked)}'")
    person = Forgetting.of_person(asked.strip(), *found, rules=rules, before=before)
    names = ", ".join(map(printable, sorted({*person.ids, *person.names})))
    print(f"{printable(instance.name)}: {printable(asked)} is {names}")
    if shared := [printable(name) for one in found for name in one.shared]:
        print(f"  Left, for other people have these names, too: {', '.join(shared)}")
    return person


def require_changeable(instance: Instance, tables: Tables, dagster: "dg.DagsterInstance") -> None:
    """Fail, before anything is changed, while a run is under way or where records cannot be deleted."""
    from assets_defs.dagster_records import runs_in_progress
    from pipelines.dagster_gaps.launcher import fail_dead_runs

    fail_dead_runs(dagster, instance.name)
    if runs := runs_in_progress(dagster, instance.name):
        raise AssetOwnersError(
            f"Run {', '.join(map(short_run_id, runs))} of {instance.name} is under way and would store again "
            "what is deleted; wait until it has ended, or terminate it in Dagster, and repeat this"
        )
    root = [Path(dagster.root_directory)] if dagster.is_persistent else []
    stored.require_writable(tables, home(), home() / "reports", *root)


def delete_beside_tables(
    instance: Instance, tables: Tables, dagster: "dg.DagsterInstance", *, exports: bool = False, really: bool
) -> None:
    """Name reports and Dagster's records of an instance, and exports in the home; `really` deletes them."""
    from assets_defs.dagster_records import delete_runs, delete_unlisted, overwrite_deleted, runs_of
    from assets_defs.specs import asset_key

    for file in dict.fromkeys([*reports_of(instance, tables), *(exports_beside(tables) if exports else ())]):
        print(f"  {file}")
        if really:
            file.unlink()
    runs = runs_of(dagster, instance.name)
    print(f"  {len(runs):>9,} runs in Dagster's records")
    if really:
        for unfinished in (home() / "reports").glob(f"{TEMPORARY}*/{instance.slug}.*"):  # by killed runs
            shutil.rmtree(unfinished.parent)
        delete_runs(dagster, runs)
        delete_unlisted(dagster)
        dagster.wipe_assets([asset_key(instance, table) for table in TABLES])
        overwrite_deleted(dagster)


def reports_of(instance: Instance, tables: Tables) -> list[Path | UPath]:
    """Return the reports of an instance that the home keeps, and the one beside tables in an object store."""
    from assets_defs.report import published_report, report_file

    published = published_report(instance, tables)
    kept = sorted(report_file(instance, home()).parent.glob(f"{instance.slug}.*"))
    return [*kept, published] if published not in kept and published.exists() else [*kept]


def exports_beside(tables: Tables) -> list[Path]:
    """Return the exports in the home and its reports, but for reports of other instances."""
    others = {folder.name for folder in tables.folder.parent.glob("*")} - {tables.slug}
    files = [*home().glob("*"), *(home() / "reports").glob("*")]
    exports = (file for file in files if file.suffix.lower() in EXPORTS and file.is_file())
    return sorted(file for file in exports if file.name.partition(".")[0] not in others)
