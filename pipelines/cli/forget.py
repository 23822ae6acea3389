"""`asset-owners forget`: a hash takes the place of a person in all that is stored of an instance."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from ownership.names import printable
from ownership.tables import TABLES
from pipelines.cli.options import InstanceFile, Yes
from pipelines.cli.stored import stored_tables
from pipelines.dagster_home import dagster_instance
from reports.people import find_person
from resources.errors import AssetOwnersError
from resources.settings import Instance, home
from resources.store.forget import Person
from resources.store.forget import forget as forget_in_tables
from resources.writeback.journal import Journal, Result
from resources.writeback.target_lock import locked_journal

NOTHING_CHANGED = "Nothing has been changed; add --yes to do it."


def forget(
    asked: Annotated[
        str, typer.Argument(metavar="PERSON", help="User name, e-mail address, or id of the user asset.")
    ],
    path: InstanceFile,
    *,
    yes: Yes = False,
) -> None:
    """Put a hash in the place of a person in all that is stored of an instance; say first what that is.

    A hash takes the place of their names in tables, history, journal of writes and Dagster's records.
    `asset-owners docs data_protection` says what is left.

    Example: --instance NAME ann@corp.example
    """
    instance, tables = stored_tables(path)
    users, matches = tables.read("inventory_users").collect(), tables.read("username_matches").collect()
    found = find_person(asked, users, matches)
    if not found:
        raise AssetOwnersError(f"{instance.name} knows no person '{asked}'")
    assets = users.filter(pl.col("user_id").is_in(found["user_ids"]))
    person = Person.known(tables.slug, found["usernames"], assets)
    names = ", ".join(map(printable, sorted({*person.user_ids, *person.usernames})))
    print(f"{printable(instance.name)}: {printable(asked)} is {names}")
    with locked_journal(tables, instance.platform) as journal, tables.changing():
        writes = _writes_for(journal, person)
        for write in writes if yes else ():
            result = Result(*(write[field.name] for field in fields(Result)))
            journal.complete(result, run_id=write["run_id"], completed_at=write["completed_at"])
        rows = {"the journal of writes": len(writes)} if writes else {}
        rows |= forget_in_tables(tables, person, really=yes)
    for table, number in rows.items():
        print(f"  {number:>9,} rows of {table}")
    delete_beside_tables(instance, really=yes)
    print(
        "  Not covered, check these yourself: reports and exports elsewhere, backups, logs, the "
        f"instance file ({instance.file}), and both services: the next run stores again what they hold"
    )
    print("Done: a hash stands in their place." if yes else NOTHING_CHANGED)


def delete_beside_tables(instance: Instance, *, really: bool) -> None:
    """Name reports and Dagster's records of an instance, and, `really`, delete them: any may name people."""
    from assets_defs.dagster_records import delete_runs, runs_of
    from assets_defs.specs import asset_key
    from pipelines.dagster_gaps.launcher import fail_dead_runs

    for file in reports_of(instance):
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


def reports_of(instance: Instance) -> list[Path]:
    """Return the reports of an instance that the home keeps."""
    from assets_defs.report import report_file

    return sorted(report_file(instance, home()).parent.glob(f"{instance.slug}.*"))


def _writes_for(journal: Journal, person: Person) -> list[dict[str, Any]]:
    """Return the journal's rows with a person, as they are once this person is forgotten."""
    found = []
    for run in journal.targets():
        stored = journal.rows(run)
        after = person.forgotten_in(stored)
        changed = stored.hash_rows() != after.hash_rows()
        if stored.filter(changed, outcome="intended").height:
            raise AssetOwnersError(
                f"A write of run {run} for this person is still pending; run once, then retry"
            )
        found += after.filter(changed).to_dicts()
    return found
