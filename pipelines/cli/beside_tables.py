"""What is stored of an instance beside its tables: reports, and Dagster's records of its runs."""

from pathlib import Path

from assets_defs.dagster_records import delete_runs, runs_of
from assets_defs.report import report_file
from assets_defs.specs import asset_key
from ownership.tables import TABLES
from pipelines.dagster_gaps.launcher import fail_dead_runs
from pipelines.dagster_home import dagster_instance
from resources.settings import Instance, home


def delete_beside_tables(instance: Instance, *, really: bool) -> None:
    """Name reports and Dagster's records of an instance, and, `really`, delete them: any may name people."""
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
    return sorted(report_file(instance, home()).parent.glob(f"{instance.slug}.*"))
