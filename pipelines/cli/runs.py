"""`asset-owners runs`: what each run did, the newest first."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from assets_defs.record import result_in_words, undone_in_words
from ownership.names import printable
from pipelines.cli.stored import tables_of
from resources.errors import AssetOwnersError
from resources.settings import load_instance
from resources.store.tables import short_run_id

LONGEST = 100
"""Characters that are shown of a message; --json has all."""


def runs(path: Path, *, limit: int, as_json: bool) -> None:
    """List the runs of an instance."""
    instance = load_instance(path)
    tables = tables_of(instance)
    all_runs = tables.all_runs("runs").collect()
    undone = all_runs.filter(pl.col("written") > 0, kind="undo").sort("started_at").group_by("of_run")
    undos = undone.agg(pl.last("run_id"), pl.sum("written", "in_part"))
    undone_by = {undo["of_run"]: undo for undo in undos.iter_rows(named=True)}
    listed = all_runs.sort("started_at", descending=True).head(limit)
    if listed.is_empty():
        raise AssetOwnersError(
            f"{instance.name} has no runs yet; run it first: asset-owners run --instance {path}"
        )
    if as_json:
        rows = [_as_json(row, undone_by) for row in listed.iter_rows(named=True)]
        print(json.dumps({"instance": instance.name, "runs": rows}))
    else:
        print(*_table(listed, undone_by), sep="\n")


def _table(listed: pl.DataFrame, undone_by: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    rows = [("run", "kind", "started (UTC)", "took", "days, or run", "result")]
    for row in listed.iter_rows(named=True):
        days = f"{row['window_from']} to {row['window_to']}"
        result = result_in_words(row)
        if undo := undone_by.get(row["run_id"]):
            undone = undone_in_words(row["written"], back=undo["written"], in_part=undo["in_part"])
            result += f", {undone} by run {short_run_id(undo['run_id'])}"
        said = [result, *filter(None, [_first_line(row["message"])])]
        rows.append(
            (
                short_run_id(row["run_id"]),
                row["kind"].replace("_", " "),
                f"{row['started_at']:%Y-%m-%d %H:%M}",
                str(row["ended_at"] - row["started_at"]).partition(".")[0] if row["ended_at"] else "",
                days if row["window_to"] else f"run {short_run_id(row['of_run'])}",
                printable(": ".join(said)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _as_json(row: dict[str, Any], undone_by: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The row as it is stored, with its options as an object, and the run that put back what it wrote."""
    shown = {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
    return shown | {
        "options": json.loads(row["options"]),
        "undone_by": undone_by.get(row["run_id"], {}).get("run_id"),
    }


def _first_line(message: str | None) -> str:
    first = (message or "").strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 1].rstrip()}…"
