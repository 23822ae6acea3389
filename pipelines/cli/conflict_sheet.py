"""`asset-owners conflicts --out` and `--answers`: a sheet in which people acknowledge conflicts."""

from pathlib import Path

import polars as pl

from pipelines.cli.conflicts import listed_conflicts, renew_report, store_answers
from pipelines.cli.exit_status import require_file
from pipelines.cli.sheets import reading_sheet, require_new, write_sheet
from pipelines.cli.stored import stored_tables
from reports.conflicts import conflicts_sheet, count_conflicts, read_conflict_answers
from resources.settings import command_line
from resources.store.tables import Tables


def _sheet(tables: Tables) -> pl.DataFrame:
    acknowledged, users = (
        tables.read(table).collect() for table in ("acknowledged_conflicts", "inventory_users")
    )
    return conflicts_sheet(listed_conflicts(tables), acknowledged, users)


def hand_out(path: Path, out: Path) -> None:
    """Write the sheet of conflicts."""
    instance, tables = stored_tables(path)
    require_new("--out", out)
    table = _sheet(tables)
    write_sheet("--out", out, table, title="Conflicts", answer="acknowledge")
    number = count_conflicts(listed_conflicts(tables), tables.read("acknowledged_conflicts").collect())
    read = command_line(instance, "conflicts", "--answers", str(out))
    print(
        f"{out} is written: {number}. Let somebody who knows write yes where one may stay, then:\n    {read}"
    )


def read_answers(path: Path, answers: Path) -> None:
    """Store the answers of a sheet of conflicts."""
    instance, tables = stored_tables(path)
    require_file("--answers", answers)
    with tables.changing():
        with reading_sheet("--answers", answers) as content:
            found, changed = read_conflict_answers(content, _sheet(tables))
        store_answers(tables, found)
    known = found.filter("acknowledge").height
    words = f"{known:,} conflict{'s' * (known != 1)} acknowledged, {found.height - known:,} no longer"
    if changed:
        names = ", ".join(changed)
        words += f". Skipped, for they have changed since the sheet was written: {names}"
    print(f"{words}.\n{renew_report(instance)}")
