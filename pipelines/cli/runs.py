"""`asset-owners runs`: what each run did, the newest first."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assets_defs.record import result_in_words
from ownership.names import printable
from pipelines.cli.stored import tables_of
from resources.errors import AssetOwnersError
from resources.settings import command_line, load_instance, tables_location
from resources.store.files import require_bucket
from resources.store.tables import short_run_id

STYLES = {"failed": "bold red", "started": "dim"}
LONGEST = 100
"""Characters that are shown of a message; --json has all."""


def runs(path: Path, *, limit: int, as_json: bool) -> None:
    """List the runs of an instance.

    Raises:
        ConfigurationError: the instance file is wrong, or the tables are another instance's.
        AssetOwnersError: there was none yet, or the bucket of the tables does not exist.
    """
    instance = load_instance(path)
    tables = tables_of(instance)
    if not tables.has_files("runs"):
        require_bucket(tables_location())
        if tables.have_runs():
            raise AssetOwnersError(
                f"{instance.name} was run by an older version, which kept no list of its runs; the next run "
                f"is listed. What the last one decided and wrote: {command_line(instance, 'report')}"
            )
        raise AssetOwnersError(
            f"{instance.name} has no runs yet; run it first: asset-owners run --instance {path}"
        )
    listed = tables.all_runs("runs").collect().sort("started_at", descending=True).head(limit)
    if as_json:
        print(json.dumps([_as_json(row) for row in listed.iter_rows(named=True)]))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 100_000  # lines of a file are not folded
        console.print(_table(listed))


def _table(listed: pl.DataFrame) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "kind", "started (UTC)", "took", "days, or run"):
        table.add_column(heading, no_wrap=True)
    table.add_column("result", overflow="fold")
    for row in listed.iter_rows(named=True):
        days = f"{row['window_from']} to {row['window_to']}"
        said = [result_in_words(row), *filter(None, [_first_line(row["message"])])]
        table.add_row(
            short_run_id(row["run_id"]),
            row["kind"].replace("_", " "),
            f"{row['started_at']:%Y-%m-%d %H:%M}",
            _duration(row["ended_at"] - row["started_at"]) if row["ended_at"] else "",
            days if row["window_to"] else f"run {short_run_id(row['of_run'])}",
            Text(printable(": ".join(said)), style=STYLES.get(row["status"], "")),
        )
    return table


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it is stored, with its options as an object."""
    shown = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
    return shown | {"options": json.loads(row["options"])}


def _first_line(message: str | None) -> str:
    first = (message or "").strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 1].rstrip()}…"


def _duration(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"
