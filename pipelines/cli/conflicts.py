"""`asset-owners conflicts`: list them, and acknowledge those that may stay, one by one or in a sheet."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from ownership.declaration import polars_schema
from ownership.history import ACKNOWLEDGED
from ownership.names import normalise_hostname, printable
from ownership.tables import AcknowledgedConflicts
from pipelines.cli.exit_status import require_file, write_file
from pipelines.cli.options import InstanceFile, RowsAs, RunId, file_option
from pipelines.cli.sql import sql
from pipelines.cli.stored import stored_tables
from reports.audit import SheetError
from reports.conflicts import conflict_answers, conflicts_sheet
from reports.exports import BOM, as_csv, as_xlsx
from resources.errors import ConfigurationError
from resources.settings import command_line, system_user
from resources.store.tables import Tables

LISTED = """\
SELECT hostname, host_id, coalesce(existing_owner_email, existing_owner) AS owner,
       coalesce(resolved_owner_email, resolved_owner) AS named_by_logons, round(share, 3) AS share,
       CAST(since AS DATE) AS since, acknowledged_by, CAST(acknowledged_at AS DATE) AS acknowledged_at, note
FROM conflicts ORDER BY conflicts.acknowledged_at NULLS FIRST, share DESC, events DESC, hostname, host_id
"""


def conflicts(
    path: InstanceFile,
    *,
    acknowledge: Annotated[
        str | None, typer.Option(metavar="HOST", help="Acknowledge the conflict of this host, by name or id.")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it may stay.")] = None,
    out: Annotated[
        Path | None, file_option("Write them into a new sheet to answer in, .xlsx or .csv.", default="none")
    ] = None,
    answers: Annotated[Path | None, file_option("Read the answers of such a sheet.", default="none")] = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> int | None:
    """Print the conflicts of a run, those that nobody has acknowledged first, or acknowledge some.

    It shows since when, and who knows of it. An acknowledged conflict is no longer a warning, until the
    evidence (its code) or one of its owners changes. In a sheet, yes in the column acknowledge does it for a
    host, and no takes it back.

    Example: --instance NAME --acknowledge PC-0815 --note 'a loan'
    """
    chosen = [option is not None for option in (acknowledge, out, answers)]
    if not any(chosen) and note is None:
        return sql(LISTED, instance=path, form=form, run_id=run_id)
    if sum(chosen) != 1 or run_id or (note is not None and acknowledge is None):
        raise ConfigurationError(
            "--acknowledge HOST, --out and --answers are about the last run, each by itself and without "
            "--run; --note belongs to --acknowledge"
        )
    if out:
        _hand_out(path, out)
    elif answers:
        _read_back(path, answers)
    else:
        _acknowledge(path, str(acknowledge), note)
    return None


def _acknowledge(path: Path, host: str, note: str | None) -> None:
    """Store that the conflict of a host, by id or name, is known and may stay as it is."""
    instance, tables = stored_tables(path)
    name = normalise_hostname(pl.lit(host), short=instance.rules.as_rules().short_hostnames)
    by_name = pl.col("hostnames").list.contains(name).fill_null(value=False)
    found = _conflicts(tables).filter((pl.col("host_id") == host) | by_name)
    if found.height != 1:
        which = f"{found.height} conflicts; name one by the host's id" if found.height else "no conflict"
        raise ConfigurationError(f"--acknowledge: {printable(host)} has {which}. `conflicts` lists them")
    with tables.changing():
        _store(tables, found.select("host_id", acknowledge=pl.lit(value=True), note=pl.lit(note, pl.String)))
    print(f"The conflict of {printable(host)} is acknowledged until its evidence or an owner changes")


def _conflicts(tables: Tables) -> pl.DataFrame:
    return tables.read("owner_decisions").filter(action="conflict").collect()


def _store(tables: Tables, answers: pl.DataFrame) -> None:
    """Store answers (host_id, acknowledge, note); where the note is null the conflict keeps its own."""
    earlier = tables.read("acknowledged_conflicts").collect()
    rows = (
        _conflicts(tables)
        .join(answers.filter("acknowledge").rename({"note": "new_note"}), on="host_id")
        .join(earlier, on=ACKNOWLEDGED, how="left")
        .with_columns(
            note=pl.coalesce("new_note", "note"),
            by=pl.lit(system_user()),
            acknowledged_at=pl.lit(datetime.now(UTC)),
        )
        .select(polars_schema(AcknowledgedConflicts).names())
    )
    others = earlier.join(answers, on="host_id", how="anti")
    tables.write("acknowledged_conflicts", pl.concat([others, rows]))


def _sheet(tables: Tables) -> pl.DataFrame:
    acknowledged, users = (
        tables.read(table).collect() for table in ("acknowledged_conflicts", "inventory_users")
    )
    return conflicts_sheet(_conflicts(tables), acknowledged, users)


def _hand_out(path: Path, out: Path) -> None:
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


def _read_back(path: Path, answers: Path) -> None:
    """Store the answers of a sheet of conflicts."""
    _, tables = stored_tables(path)
    require_file("--answers", answers)
    with tables.changing():
        try:
            found, changed = conflict_answers(answers.read_bytes(), _sheet(tables))
        except UnicodeDecodeError as error:
            what = f"--answers: {answers} is not UTF-8; save it as `CSV UTF-8`"
            raise ConfigurationError(what) from error
        except (OSError, SheetError) as error:
            raise ConfigurationError(f"--answers: {answers} cannot be read: {error}") from error
        _store(tables, found)
    known = found.filter("acknowledge").height
    words = f"{known:,} conflict{'s' * (known != 1)} acknowledged, {found.height - known:,} no longer"
    if changed:
        names = ", ".join(map(printable, changed))
        words += f". Skipped, for they have changed since the sheet was written: {names}"
    print(words)
