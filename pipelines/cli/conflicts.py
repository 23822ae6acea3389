"""`asset-owners conflicts`: list them, and acknowledge one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from ownership.declaration import polars_schema
from ownership.history import ACKNOWLEDGED
from ownership.names import normalise_hostname, printable
from ownership.tables import AcknowledgedConflicts
from pipelines.cli.options import InstanceFile, RowsAs, RunId
from pipelines.cli.sql import sql
from pipelines.cli.stored import stored_tables
from resources.errors import ConfigurationError
from resources.settings import system_user

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
    form: RowsAs = "table",
    run_id: RunId = None,
) -> int | None:
    """Print the conflicts of a run, those that nobody has acknowledged first, or acknowledge one.

    It shows since when, and who knows of it. An acknowledged conflict is no longer a warning, until the
    evidence (its code) or one of its owners changes.

    Example: --instance NAME --acknowledge PC-0815 --note 'a loan'
    """
    if acknowledge is None and note is None:
        return sql(LISTED, instance=path, form=form, run_id=run_id)
    if acknowledge is None or run_id:
        raise ConfigurationError(
            "--acknowledge HOST is about the last run, without --run; --note belongs to it"
        )
    return _acknowledge(path, acknowledge, note)


def _acknowledge(path: Path, host: str, note: str | None) -> None:
    """Store that the conflict of a host, by id or name, is known and may stay as it is."""
    instance, tables = stored_tables(path)
    name = normalise_hostname(pl.lit(host), short=instance.rules.as_rules().short_hostnames)
    by_name = pl.col("hostnames").list.contains(name).fill_null(value=False)
    conflicts = tables.read("owner_decisions").filter(action="conflict").collect()
    found = conflicts.filter((pl.col("host_id") == host) | by_name)
    if found.height != 1:
        which = f"{found.height} conflicts; name one by the host's id" if found.height else "no conflict"
        raise ConfigurationError(f"--acknowledge: {printable(host)} has {which}. `conflicts` lists them")
    with tables.changing():
        earlier = tables.read("acknowledged_conflicts").collect()
        row = found.join(earlier, on=ACKNOWLEDGED, how="left").with_columns(
            note=pl.coalesce(pl.lit(note, pl.String), "note"),
            by=pl.lit(system_user()),
            acknowledged_at=pl.lit(datetime.now(UTC)),
        )
        others = earlier.filter(pl.col("host_id") != row["host_id"].item())
        rows = [others, row.select(polars_schema(AcknowledgedConflicts).names())]
        tables.write("acknowledged_conflicts", pl.concat(rows))
    print(f"The conflict of {printable(host)} is acknowledged until its evidence or an owner changes")
