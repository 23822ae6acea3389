"""`asset-owners runs`: what each run did, the newest first."""

import json
from collections.abc import Mapping
from textwrap import shorten
from typing import Annotated, Any

import polars as pl

from ownership.names import counted, printable
from pipelines.cli.options import InstanceFile, Json, flag, note, number, print_lines, readable_tables
from reports.run_results import result_in_words, undone_in_words
from reports.sentences import in_columns
from resources.errors import AssetOwnersError
from resources.settings import command_line
from resources.store.retention import RETRY_OF, latest_time
from resources.store.tables import short_run_id

LONGEST = 300
"""Characters that are shown of a message; --json has all."""


def runs(
    path: InstanceFile,
    *,
    limit: Annotated[int, number("How many runs to show.", most=1_000_000)] = 20,
    written: Annotated[bool, flag("--written", "Only runs that wrote or undid something.")] = False,
    as_json: Json = False,
) -> None:
    """Print the last runs of an instance; those that a clock dated in the future stand last.

    Example: --instance NAME
    """
    instance, tables = readable_tables(path)
    all_runs = tables.all_runs("runs").collect()
    undone = all_runs.filter(pl.col("written") > 0, kind="undo").sort("started_at").group_by("of_run")
    undos = undone.agg("run_id", pl.sum("written", "in_part"))
    undone_by = {undo["of_run"]: undo for undo in undos.iter_rows(named=True)}
    ahead = pl.col("started_at") > latest_time()
    every = all_runs.filter((pl.col("written") > 0) | (not written))
    listed = every.sort(~ahead, "started_at", descending=True).head(limit)
    if listed.is_empty():
        begin = command_line(instance, "run", "--dry-run")
        which = "that wrote" if all_runs.height else "yet"
        raise AssetOwnersError(f"{tables.name or tables.slug} has no runs {which}; begin with {begin}")
    if wrong := all_runs.filter(ahead).height:
        are = "run is" if wrong == 1 else "runs are"
        note(f"{wrong} {are} dated in the future by a clock that was ahead, and listed after all others.")
    if as_json:
        rows = [
            row
            | {name: json.loads(row[name] or "null") for name in ("options", "rules", "seconds_by_step")}
            | {"undone_by": undone_by.get(row["run_id"], {"run_id": [None]})["run_id"][-1]}
            for row in listed.iter_rows(named=True)
        ]
        print(
            json.dumps(
                {"instance": tables.name or tables.slug, "runs": rows}, default=lambda at: at.isoformat()
            )
        )
    else:
        heading = ("run", "kind", "started (UTC)", "by", "took", "days, or run", "result")
        lines = (_line(row, undone_by.get(row["run_id"])) for row in listed.iter_rows(named=True))
        print_lines(in_columns([heading, *lines]))
    if older := every.height - listed.height:
        note(f"{counted(older, 'older run')} not shown; --limit {every.height} shows all")


def _line(row: Mapping[str, Any], undo: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the row of a run as it is printed, with the undo of it, if there is one."""
    result = result_in_words(row)
    if undo and row["written"] is not None:
        undone = undone_in_words(row["written"], undone=undo["written"], in_part=undo["in_part"])
        several = "s" * (len(undo["run_id"]) > 1)
        result += f", {undone} by run{several} {', '.join(map(short_run_id, undo['run_id']))}"
    if first_line := (row["message"] or "").strip().partition("\n")[0]:
        result += f": {shorten(first_line, LONGEST, placeholder='…')}"
    days = f"{row['window_from']} to {row['window_to']}"
    again = json.loads(row["options"]).get(RETRY_OF)
    result += f"; repeats run {short_run_id(again)}" if again else ""
    return (
        short_run_id(row["run_id"]),
        row["kind"].replace("_", " "),
        f"{row['started_at']:%Y-%m-%d %H:%M}",
        printable((row["by"] or "").removeprefix("user ")),
        str(row["ended_at"] - row["started_at"]).partition(".")[0] if row["ended_at"] else "",
        days if row["window_to"] else f"run {short_run_id(row['of_run'])}",
        printable(result),
    )
