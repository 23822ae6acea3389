"""What a run tells of itself: its row in the table `runs`, and the tags by which an operator finds it.

The row is stored when the first step begins, and again whenever a step knows more: a run that was killed
stays `started`, until a later one has settled the writes that it left open.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import polars_schema
from ownership.tables import Runs
from ownership.windows import Window
from resources.store.tables import Tables

KIND_TAG = "asset_owners/kind"
RESULT_TAG = "asset_owners/result"
_TROUBLE = {"failed": "failed", "left_alone": "left alone"}
"""Columns of `runs` that count hosts which were not written, and their words."""


class RunRecord:
    """The row of one run.

    Args:
        tables: the instance's.
        run_id: the run.
        tag: gives the run tags.
        seconds_by_step: tells how long each step has taken.
        log: hears when the row cannot be stored.
    """

    def __init__(
        self,
        tables: Tables,
        run_id: str,
        *,
        tag: Callable[[Mapping[str, str]], None],
        seconds_by_step: Callable[[], Mapping[str, float]],
        log: logging.Logger,
    ) -> None:
        self._tables = tables
        self._run_id = run_id
        self._tag = tag
        self._seconds_by_step = seconds_by_step
        self._log = log

    def started_at(self) -> datetime | None:
        """When the run's first step began, if one has."""
        return next(iter(self._row()["started_at"]), None)

    def executes_again(self) -> str | None:
        """The run whose tables this one has taken over, because it executes it again in part."""
        return next(iter(self._row()["of_run"]), None)

    def evidence_since(self) -> datetime:
        """When the run began, or the one that it executes again: its inputs are not older than that.

        The first day of the calendar where that is not known any more.
        """
        row = self._row()
        while (earlier := next(iter(row["of_run"]), None)) is not None:
            row = self._tables.appended("runs", earlier)
            if row.is_empty():
                return datetime.min.replace(tzinfo=UTC)
        return next(iter(row["started_at"]), datetime.now(UTC))

    def begin(
        self,
        kind: str,
        *,
        window: Window | None = None,
        options: Mapping[str, Any] | None = None,
        of_run: str | None = None,
        message: str | None = None,
    ) -> bool:
        """Store that the run has begun; tell whether this is its first step.

        Args:
            kind: as in `ownership.codes.KIND`.
            window: the days that it looks at.
            options: those chosen for this run.
            of_run: the run whose plan it carries out, whose writes it undoes, or that it executes again.
            message: why it only plans.
        """
        with self._tables.changing("runs"):
            if not self._row().is_empty():
                return False
            row = {
                "run_id": self._run_id,
                "kind": kind,
                "status": "started",
                "started_at": datetime.now(UTC),
                "window_from": window and window.first,
                "window_to": window and window.last,
                "options": json.dumps(options or {}),
                "of_run": of_run,
                "message": message,
            }
            schema = polars_schema(Runs)
            frame = pl.DataFrame([dict.fromkeys(schema.names()) | row], schema=schema)
            self._tables.append("runs", frame, run_id=self._run_id)
        self._tag({KIND_TAG: kind})
        return True

    def add(self, **found: Any) -> pl.DataFrame:
        """Store what is known of the run by now, by column of `runs`; return its row."""
        with self._tables.changing("runs"):
            row = self._row()
            return row if row.is_empty() else _store(self._tables, row, found)

    def succeed(self) -> None:
        """Store that the run has done what it was for; if another step has failed, only what came of it."""
        self._end("succeeded", None)

    def fail(self, message: str) -> None:
        """Store why the run failed; the first reason stays."""
        try:
            self._end("failed", message)
        except Exception as error:  # noqa: BLE001  (what made the run fail matters more, and may be the same)
            self._log.warning(f"The table runs does not tell how this run ended: {error}")

    def _end(self, status: str, message: str | None) -> None:
        """Count what came of the run; a step may go on, and write, after another one has failed it."""
        seconds_by_step = self._seconds_by_step()
        with self._tables.changing("runs"):  # steps may work in several processes
            row = self._row()
            if row.is_empty():
                return
            found = {
                "ended_at": datetime.now(UTC),
                "seconds_by_step": json.dumps(
                    json.loads(row["seconds_by_step"].item() or "{}") | {**seconds_by_step}
                ),
                **_counts(row, self._tables.run_writes(self._run_id)),
            }
            if row["status"].item() != "failed":
                found |= {"status": status, "message": message or row["message"].item()}
            row = _store(self._tables, row, found)
        # Short: the list of runs cuts long tags off.
        self._tag({RESULT_TAG: ", ".join(_counts_in_words(row.row(0, named=True)))})

    def _row(self) -> pl.DataFrame:
        return self._tables.appended("runs", self._run_id)


def count_again(tables: Tables, run_id: str) -> None:
    """Store anew what came of a run that was cut off amid writing, when a later one has settled its writes.

    Args:
        tables: the instance's.
        run_id: the earlier run; one of before the table runs has no row there.
    """
    with tables.changing("runs"):
        row = tables.appended("runs", run_id)
        if row.is_empty():
            return
        found = _counts(row, tables.run_writes(run_id))
        if row["status"].item() == "started":
            found |= {
                "status": "failed",
                "ended_at": datetime.now(UTC),
                "message": "cut off amid writing; a later run has settled its writes",
            }
        _store(tables, row, found)


def _store(tables: Tables, row: pl.DataFrame, found: Mapping[str, Any]) -> pl.DataFrame:
    """Store the row of a run with what was found, by column, and return it."""
    schema = polars_schema(Runs)
    row = row.with_columns(pl.lit(value, schema[name]).alias(name) for name, value in found.items())
    tables.append("runs", row, run_id=row["run_id"].item())
    return row


def _counts(row: pl.DataFrame, writes: pl.DataFrame) -> dict[str, Any]:
    """What became of the writes of a run, as columns of `runs`."""
    if row["kind"].item() == "backfill" and row["hosts"].item() is None:
        return {}
    by_outcome = dict(writes["outcome"].value_counts().iter_rows())
    done = sum(by_outcome.get(outcome, 0) for outcome in SUCCESSES)
    failed = by_outcome.get("failed", 0)
    before, planned, of_run = row.select("owned_before", "to_write", "of_run").row(0)
    return {
        # What follows a run plans fewer than it has rows: hosts that changed are left alone.
        "to_write": writes.height if planned is None or of_run is None else planned,
        "written": done,
        "failed": failed,
        "left_alone": writes.height - done - failed - by_outcome.get("planned", 0),
        "owned_after": None if before is None else before + _owners_gained(writes),
    }


def _owners_gained(writes: pl.DataFrame) -> int:
    """How many more hosts have an owner after these writes than before."""
    old, new = (pl.col(values).struct.field("owner") for values in ("old_values", "new_values"))
    has_one = [(owner.fill_null("") != "").cast(pl.Int64).sum() for owner in (old, pl.coalesce(new, old))]
    done = writes.filter(pl.col("outcome").is_in(SUCCESSES))
    return done.select(has_one[1] - has_one[0]).item()


def result_in_words(row: Mapping[str, Any]) -> str:
    """What came of a run, in a few words.

    Args:
        row: Of `runs`.
    """
    if row["status"] == "started":
        return "running, or ended without recording a result"
    conflicts = []
    if row["conflicts"]:
        said = f"{row['conflicts']:,} conflict{'s' * (row['conflicts'] != 1)}"
        conflicts.append(f"{said} ({row['new_conflicts'] or 0:,} new)")
    return ", ".join([*_counts_in_words(row), *conflicts])


def _counts_in_words(row: Mapping[str, Any]) -> Iterator[str]:
    """What became of hosts or days, and whether the run failed."""
    if row["status"] == "failed":
        yield "failed"
    if row["kind"] == "backfill" and row["status"] == "succeeded":
        yield f"{(row['window_to'] - row['window_from']).days + 1:,} days"
    back = row["kind"].endswith("undo")
    if plans_only(row) and (row["kind"] != "backfill" or row["to_write"] is not None):
        yield f"{row['to_write'] or 0:,} to {'put back' if back else 'write'}"
    elif row["to_write"] is not None:
        yield f"{row['written']:,} {'put back' if back else 'written'}"
    yield from (f"{row[name]:,} {words}" for name, words in _TROUBLE.items() if row[name])


def plans_only(row: Mapping[str, Any]) -> bool:
    """Tell whether a run sends nothing.

    Args:
        row: Of `runs`.
    """
    return row["kind"].startswith("dry_run") or row["kind"] == "backfill"
