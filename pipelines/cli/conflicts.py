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
from pipelines.cli.files import reading_sheet, require_file, require_new, write_sheet
from pipelines.cli.options import InstanceFile, RowsAs, RunId, file_option
from pipelines.cli.sql import sql
from pipelines.cli.stored import stored_tables
from reports.conflicts import conflicts_sheet, count_conflicts, read_conflict_answers
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, system_user
from resources.store.tables import Tables

LISTED = """\
SELECT hostname, host_id, coalesce(existing_owner_email, existing_owner) AS owner,
       coalesce(resolved_owner_email, resolved_owner) AS named_by_logons, round(share, 3) AS share,
       CAST(since AS DATE) AS since, acknowledged_by, CAST(acknowledged_at AS DATE) AS acknowledged_at, note
FROM conflicts ORDER BY conflicts.acknowledged_at NULLS FIRST, share DESC, events DESC, hostname, host_id
"""
COUNTED = """\
; SELECT count(*) AS conflicts, count(acknowledged_at) AS acknowledged,
         count_if(is_new AND acknowledged_at IS NULL) AS new
FROM conflicts
"""


def conflicts(
    path: InstanceFile,
    *,
    acknowledge: Annotated[
        str | None, typer.Option(metavar="HOST", help="Acknowledge the conflict of this host, by name or id.")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why the conflict is accepted.")] = None,
    out: Annotated[
        Path | None, file_option("Write them into a new sheet to answer in, .xlsx or .csv.")
    ] = None,
    answers: Annotated[Path | None, file_option("Read the answers of such a sheet.")] = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> int | None:
    """Print the conflicts of a run, those that nobody has acknowledged first, or acknowledge some.

    It shows since when, and who has acknowledged it. An acknowledged conflict is no longer a warning, until
    the evidence (its code) or one of its owners changes. In a sheet, yes in the column acknowledge does it
    for a host, and no undoes it.

    Example: --instance NAME --acknowledge PC-0815 --note 'a loan'
    """
    chosen = [option is not None for option in (acknowledge, out, answers)]
    if not any(chosen) and note is None:
        return sql(LISTED + COUNTED * (form == "table"), instance=path, form=form, run_id=run_id)
    if sum(chosen) != 1 or run_id or (note is not None and acknowledge is None):
        raise ConfigurationError(
            "--acknowledge HOST, --out and --answers are about the last run, each by itself and without "
            "--run; --note belongs to --acknowledge"
        )
    if acknowledge is not None:
        _acknowledge(path, acknowledge, note)
    elif out:
        _hand_out(path, out)
    elif answers:
        _read_answers(path, answers)
    return None


def _acknowledge(path: Path, host: str, note: str | None) -> None:
    """Store that the conflict of a host, by id or name, is known and may stay as it is."""
    instance, tables = stored_tables(path)
    name = normalise_hostname(pl.lit(host), short=instance.rules.as_rules().short_hostnames)
    by_name = pl.col("hostnames").list.contains(name).fill_null(value=False)
    found = _listed_conflicts(tables).filter((pl.col("host_id") == host) | by_name)
    if found.height != 1:
        which = f"{found.height} conflicts; name one by the host's id" if found.height else "no conflict"
        raise ConfigurationError(f"--acknowledge: {printable(host)} has {which}. `conflicts` lists them")
    with tables.changing():
        _store_answers(
            tables, found.select("host_id", acknowledge=pl.lit(value=True), note=pl.lit(note, pl.String))
        )
    print(f"The conflict of {printable(host)} is acknowledged until its evidence or an owner changes")
    print(_renew_report(instance))


def _hand_out(path: Path, out: Path) -> None:
    """Write the sheet of conflicts."""
    instance, tables = stored_tables(path)
    require_new("--out", out)
    write_sheet("--out", out, _sheet(tables), title="Conflicts", answer="acknowledge")
    number = count_conflicts(_listed_conflicts(tables), tables.read("acknowledged_conflicts").collect())
    read = command_line(instance, "conflicts", "--answers", str(out))
    print(
        f"{out} is written: {number}. Let somebody who knows write yes where one may stay, then:\n    {read}"
    )


def _read_answers(path: Path, answers: Path) -> None:
    """Store the answers of a sheet of conflicts."""
    instance, tables = stored_tables(path)
    require_file("--answers", answers)
    with tables.changing():
        with reading_sheet("--answers", answers) as content:
            found, changed = read_conflict_answers(content, _sheet(tables))
        _store_answers(tables, found)
    known = found.filter("acknowledge").height
    words = f"{known:,} conflict{'s' * (known != 1)} acknowledged, {found.height - known:,} no longer"
    if changed:
        names = ", ".join(changed)
        words += f". Skipped, for they have changed since the sheet was written: {names}"
    print(f"{words}.\n{_renew_report(instance)}")


def _sheet(tables: Tables) -> pl.DataFrame:
    """Return the sheet of conflicts as it would be handed out now."""
    acknowledged = tables.read("acknowledged_conflicts").collect()
    return conflicts_sheet(_listed_conflicts(tables), acknowledged, tables.read("inventory_users").collect())


def _renew_report(instance: Instance) -> str:
    """Say how the page comes to show what was just acknowledged."""
    return f"The report shows it after the next run, or now:\n    {command_line(instance, 'report')}"


def _listed_conflicts(tables: Tables) -> pl.DataFrame:
    """Return the decisions of the shown run that are conflicts."""
    return tables.read("owner_decisions").filter(action="conflict").collect()


def _store_answers(tables: Tables, answers: pl.DataFrame) -> None:
    """Store answers (host_id, acknowledge, note); where the note is null the conflict keeps its own."""
    earlier = tables.read("acknowledged_conflicts").collect()
    rows = (
        _listed_conflicts(tables)
        .join(answers.filter("acknowledge").rename({"note": "new_note"}), on="host_id")
        .join(earlier, on=ACKNOWLEDGED, how="left")
        .with_columns(
            note=pl.coalesce("new_note", "note").replace("", None),
            by=pl.lit(system_user()),
            acknowledged_at=pl.lit(datetime.now(UTC)),
        )
        .select(polars_schema(AcknowledgedConflicts).names())
    )
    others = earlier.join(answers, on="host_id", how="anti")
    tables.write("acknowledged_conflicts", pl.concat([others, rows]))
