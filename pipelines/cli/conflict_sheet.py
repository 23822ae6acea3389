"""`asset-owners conflicts --out` and `--answers`: a sheet in which people acknowledge conflicts."""

from pathlib import Path

import polars as pl

from ownership.names import printable
from pipelines.cli.conflicts import listed_conflicts, store_answers
from pipelines.cli.exit_status import require_file, write_file
from pipelines.cli.stored import stored_tables
from reports.audit import SheetError
from reports.conflicts import conflicts_sheet, read_conflict_answers
from reports.exports import BOM, as_csv, as_xlsx
from resources.errors import ConfigurationError
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
    if out.exists():  # it may hold answers
        raise ConfigurationError(f"--out: {out} exists and is not replaced; name another file")
    table = _sheet(tables)
    as_workbook = out.suffix.lower() == ".xlsx"
    choices = {"acknowledge": ("yes", "no")}
    content = (
        as_xlsx(table, title="Conflicts", choices=choices) if as_workbook else (BOM + as_csv(table)).encode()
    )
    write_file("--out", out, content)
    number = f"{table.height:,} conflict{'s' * (table.height != 1)}"
    read = command_line(instance, "conflicts", "--answers", str(out))
    print(
        f"{out} is written: {number}. Let somebody who knows write yes where one may stay, then:\n    {read}"
    )


def read_answers(path: Path, answers: Path) -> None:
    """Store the answers of a sheet of conflicts."""
    _, tables = stored_tables(path)
    require_file("--answers", answers)
    with tables.changing():
        try:
            found, changed = read_conflict_answers(answers.read_bytes(), _sheet(tables))
        except UnicodeDecodeError as error:
            what = f"--answers: {answers} is not UTF-8; save it as `CSV UTF-8`"
            raise ConfigurationError(what) from error
        except (OSError, SheetError) as error:
            raise ConfigurationError(f"--answers: {answers} cannot be read: {error}") from error
        store_answers(tables, found)
    known = found.filter("acknowledge").height
    words = f"{known:,} conflict{'s' * (known != 1)} acknowledged, {found.height - known:,} no longer"
    if changed:
        names = ", ".join(map(printable, changed))
        words += f". Skipped, for they have changed since the sheet was written: {names}"
    print(words)
