"""The row of a run in the table `runs`, and the tags by which an operator finds the run.

The row is stored when the first step begins, and again whenever a step knows more: a run that was killed
stays `started`, until a later one has settled the writes that it left open.
"""

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import polars_schema
from ownership.names import printable
from ownership.rules import Rules
from ownership.tables import Runs
from ownership.windows import Window
from reports.run_results import counts_in_words, undone_in_words
from resources.errors import AssetOwnersError, RunEndedError
from resources.settings.environment import system_user
from resources.store.tables import Tables

MAX_RETRIES = 2
"""How often Dagster executes a run again that a service failed which did not answer."""
NO_RETRIES = {"dagster/max_retries": "0", "dagster/retry_strategy": "ALL_STEPS"}
"""Dagster retries nothing that may have written; what `RunRecord.fail` lets it retry is a whole run."""
MAX_SILENCE_SECONDS = 60
"""How long Dagster may not answer whether a run that writes still counts as running."""
CANCELED = {dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED}
ENDED = {*CANCELED, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}
ENDING = {
    dg.DagsterEventType.PIPELINE_CANCELING,
    dg.DagsterEventType.PIPELINE_CANCELED,
    dg.DagsterEventType.PIPELINE_FAILURE,
}

KIND_TAG = "asset_owners/kind"
BY_TAG = "asset_owners/by"
NAMED_TAG = ".asset_owners/named"
"""The run for which a proxy named the user in `BY_TAG`: whoever executes it again inherits both tags."""

RESULT_TAG = "asset_owners/result"


class RunRecord:
    """The row of one run; `recorded` has its tags and its steps, where Dagster runs it."""

    def __init__(
        self, tables: Tables, run_id: str, recorded: dg.DagsterInstance | None, log: logging.Logger
    ) -> None:
        self._tables = tables
        self._run_id = run_id
        self.recorded = recorded
        self._log = log
        self._answered_at = -math.inf

    def get(self, column: str) -> Any:
        """What the row holds in a column; None before the run has begun."""
        return next(iter(self._row()[column]), None)

    def require_running(self) -> None:
        """Raise RunEndedError when Dagster no longer counts the run as running (rules 7.12).

        Somebody terminated it, or it counts as failed, as where it was started a second time.
        """
        if not self.recorded:
            return
        try:
            run = self.recorded.get_run_by_id(self._run_id)
        except Exception:  # of whichever database; a restart of it ends no run
            if time.monotonic() - self._answered_at > MAX_SILENCE_SECONDS:
                raise
            return
        self._answered_at = time.monotonic()
        if run and run.status not in ENDED:
            return
        events = self.recorded.all_logs(self._run_id, of_type=ENDING)
        why = f" ({events[-1].user_message or events[-1].message})" if events else ""
        status = f"has ended as {run.status.value}" if run else "was deleted"
        raise RunEndedError(
            f"This run {status} in Dagster{why}; it sends nothing more, and the next run writes the rest",
            canceled=bool(run) and run.status in CANCELED,
        )

    def begin(
        self,
        kind: str,
        *,
        window: Window | None = None,
        rules: Rules | None = None,
        options: Mapping[str, Any] | None = None,
        **known: Any,
    ) -> bool:
        """Store that the run has begun, and what is known of it, by column; return whether it is new."""
        with self._tables.changing():
            if not self._row().is_empty():
                return False
            run = self.recorded.get_run_by_id(self._run_id) if self.recorded else None
            by = _started_by(run)
            row = {
                "run_id": self._run_id,
                "kind": kind,
                "status": "started",
                "started_at": datetime.now(UTC),
                "window_from": window and window.first,
                "window_to": window and window.last,
                "rules": rules and rules.as_json(),
                "options": json.dumps(options or {}),
                "by": by,
            }
            schema = polars_schema(Runs)
            frame = pl.DataFrame([dict.fromkeys(schema.names()) | row | known], schema=schema)
            self._tables.append("runs", frame, run_id=self._run_id)
        inherited = {BY_TAG: by} if run and BY_TAG in run.tags else {}
        self._tag({KIND_TAG: kind, **NO_RETRIES, **inherited})
        return True

    def add(self, **found: Any) -> None:
        """Store what is known of the run by now, by column of `runs`."""
        with self._tables.changing():
            row = self._row()
            if not row.is_empty():
                _store(self._tables, row, found)

    def require_none_failed(self) -> None:
        """End a step that needs no other one with the message of one that failed: all would be in vain."""
        if "FAILURE" in _states(self._steps()):
            raise AssetOwnersError(self.get("message") or "Not begun: another step of the run has failed")

    def succeed(self) -> None:
        """Store that the run has done what it was for; if another step has failed, only what came of it."""
        self._end("succeeded", None)

    def fail(self, message: str, *, transient: bool = False) -> None:
        """Store why the run failed; the first reason stays.

        `transient`: a service did not answer, and nothing was written. Where `run_retries` are enabled,
        Dagster then executes the whole run again, when no other one waits.
        """
        try:
            if transient:
                self._tag({"dagster/max_retries": str(MAX_RETRIES), "dagster/priority": "-1"})
            self._end("failed", message)
        except Exception as error:  # noqa: BLE001  (what made the run fail matters more, and may be the same)
            self._log.warning(f"How this run ended could not be stored in the table runs: {error}")

    def _end(self, status: str, message: str | None) -> None:
        """Count what came of the run; a step may go on, and write, after another one has failed it."""
        steps = self._steps()
        with self._tables.changing():  # steps may work in several processes
            row = self._row()
            if row.is_empty():
                return
            before = json.loads(row["seconds_by_step"].item() or "{}")
            found = {
                "ended_at": datetime.now(UTC),
                "seconds_by_step": json.dumps(before | self._seconds_of(steps)),
                **_counts(row, self._tables.run_writes(self._run_id)),
            }
            if row["status"].item() != "failed":
                found |= {"status": status, "message": message or row["message"].item()}
            elif status == "succeeded" and _all_done_again(steps):
                found |= {"status": status, "message": None}
            ended = _store(self._tables, row, found).row(0, named=True)
        # Short: the list of runs cuts long tags off.
        self._tag({RESULT_TAG: ", ".join(counts_in_words(ended))})
        if self.recorded and ended["kind"] == "undo" and ended["written"]:
            _tag_undone(self._tables, ended["of_run"], self.recorded)

    def _steps(self) -> Sequence[Any]:
        """What Dagster has recorded of the steps of the run."""
        return self.recorded.get_run_step_stats(self._run_id) if self.recorded else []

    def _seconds_of(self, steps: Sequence[Any]) -> dict[str, float]:
        """How long each step has taken, by its name without the instance's."""
        now = datetime.now(UTC).timestamp()
        prefix = f"{self._tables.slug}__"
        return {
            step.step_key.removeprefix(prefix): round((step.end_time or now) - step.start_time, 3)
            for step in steps
            if step.start_time
        }

    def _tag(self, tags: Mapping[str, str]) -> None:
        if self.recorded:
            self.recorded.add_run_tags(self._run_id, tags)

    def _row(self) -> pl.DataFrame:
        return self._tables.appended("runs", self._run_id)


def _tag_undone(tables: Tables, run_id: str, recorded: dg.DagsterInstance) -> None:
    """Add to the result of a run how much of it was put back, where Dagster still has the run."""
    undos = tables.all_runs("runs").filter(kind="undo", of_run=run_id)
    back, in_part = undos.select(pl.sum("written", "in_part")).collect().row(0)
    for row in tables.appended("runs", run_id).filter(pl.col("written") > 0).iter_rows(named=True):
        undone = undone_in_words(row["written"], undone=back, in_part=in_part)
        if recorded.has_run(run_id):
            recorded.add_run_tags(run_id, {RESULT_TAG: ", ".join([*counts_in_words(row), undone])})


def _started_by(run: dg.DagsterRun | None) -> str:
    """Who started a run: whom a proxy names, the schedule, or the user whose process this is."""
    tags = run.tags if run else {}
    # Who executes a run again inherits its tags; only what Dagster does so by itself bears a number.
    by_hand = run and run.parent_run_id and "dagster/retry_number" not in tags
    if by_hand and tags.get(NAMED_TAG) != run.run_id:
        tags = {}
    named = (tags.get(BY_TAG), tags.get("dagster/schedule_name"))
    return printable(next(filter(None, named), None) or system_user())


def _all_done_again(steps: Sequence[Any]) -> bool:
    """Whether whatever step had failed a run was started again under the run's id, and went well.

    The step that asks is at work; another one that is may have failed the run, too.
    """
    states = _states(steps)
    return states.count("IN_PROGRESS") == 1 and "FAILURE" not in states


def _states(steps: Sequence[Any]) -> list[str]:
    return [step.status.value for step in steps if step.status]


def recount(tables: Tables, run_id: str) -> None:
    """Count again what came of a run that was cut off, when a later one has settled its writes."""
    with tables.changing():
        row = tables.appended("runs", run_id)
        if row.is_empty():
            return
        found = _counts(row, tables.run_writes(run_id))
        if row["status"].item() == "started":
            found |= {
                "status": "failed",
                "ended_at": datetime.now(UTC),
                "message": "cut off while writing; a later run has settled its writes",
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
        "in_part": put_back_in_part(writes),
        "failed": failed,
        "left_alone": writes.height - done - failed - by_outcome.get("planned", 0),
        "owned_after": None if before is None else before + _owners_gained(writes),
    }


def put_back_in_part(writes: pl.DataFrame) -> int:
    """How many hosts keep something that somebody has changed since the write."""
    return writes.filter(pl.col("kept").list.len() > 0, outcome="undone").height


def _owners_gained(writes: pl.DataFrame) -> int:
    """How many more hosts have an owner after these writes than before."""
    old, new = (pl.col(values).struct.field("owner") for values in ("old_values", "new_values"))
    before, after = (
        (owner.fill_null("") != "").cast(pl.Int64).sum() for owner in (old, pl.coalesce(new, old))
    )
    return writes.filter(pl.col("outcome").is_in(SUCCESSES)).select(after - before).item()
