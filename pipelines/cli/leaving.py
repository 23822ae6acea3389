"""`asset-owners forget` and `asset-owners remove`: a person, or a customer, leaves."""

import shutil
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

import polars as pl

from assets_defs.dagster_records import delete_runs, runs_of
from assets_defs.report import report_file
from assets_defs.specs import asset_key
from ownership.names import printable
from ownership.tables import TABLES
from pipelines.cli.stored import own_tables, stored_tables
from pipelines.dagster_gaps.launcher import fail_dead_runs
from pipelines.dagster_home import dagster_instance
from reports.people import find_person
from resources.errors import AssetOwnersError
from resources.settings import Instance, home, load_instance
from resources.store.catalogue import refresh_catalogue
from resources.store.forgetting import Person
from resources.store.forgetting import forget as forget_in_tables
from resources.writeback.journal import Journal, Result
from resources.writeback.journals import has_journal
from resources.writeback.one_writer import only_writer

NOTHING_CHANGED = "Nothing has been changed; --yes does it."


def forget(path: Path, asked: str, *, yes: bool) -> None:
    """Put a hash in the place of a person in all that is stored of an instance; say first what that is."""
    instance, tables = stored_tables(path)
    users, matches = tables.read("inventory_users").collect(), tables.read("username_matches").collect()
    found = find_person(asked, users, matches)
    if not found:
        raise AssetOwnersError(f"{instance.name} knows no person '{asked}'")
    assets = users.filter(pl.col("user_id").is_in(found["user_ids"]))
    person = Person.known(tables.slug, found["usernames"], assets)
    names = ", ".join(map(printable, sorted({*person.user_ids, *person.usernames})))
    print(f"{printable(instance.name)}: {printable(asked)} is {names}")
    with only_writer(tables, instance.platform) as journal, tables.changing():
        rows = _forget_in_journal(journal, person, really=False)
        if yes:
            _forget_in_journal(journal, person, really=True)
        rows |= forget_in_tables(tables, person, really=yes)
    for table, number in rows.items():
        print(f"  {number:>9,} rows of {table}")
    _delete_beside_tables(instance, really=yes)
    print(
        "  Not here, and yours to look through: reports and exports elsewhere, backups, logs, the "
        f"instance file ({instance.file}), and both services: the next run stores again what they hold"
    )
    print("Done: a hash stands in their place." if yes else NOTHING_CHANGED)


def remove(path: Path, *, yes: bool) -> None:
    """Delete all that is stored of an instance; say first what that is."""
    instance = load_instance(path)
    tables = own_tables(instance)
    with dagster_instance(home()) as dagster:
        beside = [*_reports(instance), *runs_of(dagster, instance.name, limit=1)]
    if not (tables.folder.exists() or tables.disk.exists() or beside):
        raise AssetOwnersError(f"Nothing is stored of {instance.name}")
    with only_writer(tables, instance.platform) if yes or has_journal(tables) else nullcontext() as journal:
        open_writes = 0
        if journal:
            runs = list(journal.targets())
            open_writes = sum(journal.rows(run)["outcome"].eq("intended").sum() for run in runs)
            for run in runs if yes else ():
                journal.delete(run)
        print(f"{printable(instance.name)}: {tables.folder}, the journal of writes ({open_writes} open)")
        _delete_beside_tables(instance, really=yes)
        if yes:
            if tables.folder.exists():
                tables.folder.fs.rm(tables.folder.path, recursive=True)
            shutil.rmtree(tables.disk, ignore_errors=True)
            refresh_catalogue(home(), tables.folder.parent, analysts=tables.analysts)
    print(f"  Not deleted: the instance file ({instance.file}), its secrets, and backups")
    print("Done." if yes else NOTHING_CHANGED)


def _forget_in_journal(journal: Journal, person: Person, *, really: bool) -> dict[str, int]:
    """Count the rows of the journal with a person, and, `really`, store them with stand-ins."""
    found = 0
    for run in journal.targets():
        before = journal.rows(run)
        after = person.forgotten_in(before)
        changed = before.hash_rows() != after.hash_rows()
        if before.filter(changed, outcome="intended").height:
            raise AssetOwnersError(f"A write of run {run} for this person is open; a run settles it")
        found += before.filter(changed).height
        for row in after.filter(changed & really).iter_rows(named=True):
            result = Result(*(row[field.name] for field in fields(Result)))
            journal.complete(result, run_id=run, completed_at=row["completed_at"])
    return {"the journal of writes": found} if found else {}


def _delete_beside_tables(instance: Instance, *, really: bool) -> None:
    """Name reports and Dagster's records of an instance, and, `really`, delete them: any may name people."""
    for file in _reports(instance):
        print(f"  {file}")
        if really:
            file.unlink()
    with dagster_instance(home()) as dagster:
        if really:
            fail_dead_runs(dagster, instance.name)
        runs = runs_of(dagster, instance.name)
        print(f"  {len(runs):>9,} runs in Dagster's records")
        if really:
            delete_runs(dagster, runs)
            dagster.wipe_assets([asset_key(instance, table) for table in TABLES])


def _reports(instance: Instance) -> list[Path]:
    return sorted(report_file(instance, home()).parent.glob(f"{instance.slug}.*"))
