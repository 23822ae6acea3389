"""The row of a run in the table `runs`, the tags by which an operator finds it, and what people are told.

The row is stored when the first step begins, and again when a step knows more; steps may work in several
processes. A run that was killed stays `started` until a later one has settled its pending writes.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, get_args
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl

from assets_defs.run_request import BACKFILL
from ownership.codes import SUCCESSES
from ownership.declaration import InvalidTableError, polars_schema
from ownership.names import counted, printable
from ownership.plan import Command
from ownership.rules import Rules
from ownership.tables import Runs
from ownership.windows import Window
from reports.run_results import counts_in_words, plans_only, undone_in_words
from resources.errors import AssetOwnersError, RunEndedError, TransientError
from resources.failures import operator_message
from resources.locks import end_if_stuck
from resources.notify import Kind, send_notices
from resources.settings import Instance, command_line, ui_url
from resources.settings.environment import system_user
from resources.store.retention import KEEP, RETRY_OF
from resources.store.tables import Tables, short_run_id

MAX_RETRIES = 2  # how often Dagster executes a run again that a service failed which did not answer
NO_RETRIES = {"dagster/max_retries": "0", "dagster/retry_strategy": "ALL_STEPS"}
"""Dagster retries nothing that may have written; what `RunRecord.fail` lets it retry is a whole run."""
MAX_SILENCE_SECONDS = 60  # how long Dagster may not answer whether a run that writes still counts as running
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
"""The run for which a proxy named the user in `BY_TAG`: a run that executes it again inherits both tags."""

RESULT_TAG = "asset_owners/result"
RETRY_TAG = f"asset_owners/{RETRY_OF}"
"""The run that this one executes again: Dagster's list of runs says only that it is one of these."""


@dataclass
class RunRecord:
    """The row of one run; `announce` is called with it when the run has ended, and is not executed again."""

    tables: Tables
    run_id: str
    recorded: dg.DagsterInstance | None  # has its tags and its steps, where Dagster runs it
    log: logging.Logger
    _: KW_ONLY
    announce: Callable[[Mapping[str, Any]], None] = lambda _: None
    settings: Mapping[str, Any] | None = None  # of `resources.store.retention.Retention`
    _answered_at: float = field(default=-math.inf, init=False)

    def row(self, run_id: str | None = None) -> dict[str, Any]:
        """Return the row by column, as it is stored now; empty before the run has begun."""
        return next(iter(self.tables.rows("runs", run_id or self.run_id).to_dicts()), {})

    def require_running(self) -> None:
        """Raise RunEndedError when Dagster no longer counts the run as running (rules 7.12)."""
        if not self.recorded:
            return
        try:
            run = self.recorded.get_run_by_id(self.run_id)
        except Exception as error:  # of any database; its restart does not end a run
            if time.monotonic() - self._answered_at > MAX_SILENCE_SECONDS:
                message = "Dagster did not say whether this run is still running; it writes nothing more"
                raise AssetOwnersError(message) from error
            return
        self._answered_at = time.monotonic()
        if run and run.status not in ENDED:
            return
        events = self.recorded.all_logs(self.run_id, of_type=ENDING)
        why = f" ({events[-1].user_message or events[-1].message})" if events else ""
        status = f"counts as {run.status.value}" if run else "was deleted"
        raise RunEndedError(
            f"This run {status} in Dagster{why}; it writes nothing more, and the next run writes the rest",
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
        with self.tables.changing():
            if self.row():
                return False
            run = self.recorded.get_run_by_id(self.run_id) if self.recorded else None
            starter, by = _started_by(run)
            part_of = {RETRY_OF: run.parent_run_id, "backfill": run.tags.get(BACKFILL)} if run else {}
            part_of = {name: value for name, value in part_of.items() if value}
            row = dict.fromkeys(polars_schema(Runs)) | {
                "run_id": self.run_id,
                "kind": kind,
                "status": "started",
                "started_at": datetime.now(UTC),
                "window_from": window and window.first,
                "window_to": window and window.last,
                "rules": rules and rules.as_json(),
                "options": json.dumps({**(options or {}), **part_of}),
                "by": f"{starter} {by}",
            }
            _store(self.tables, row | known)
        tags = {BY_TAG: by} if run and BY_TAG in run.tags else {}
        tags |= {RETRY_TAG: short_run_id(part_of[RETRY_OF])} if RETRY_OF in part_of else {}
        self._tag({KIND_TAG: kind, **NO_RETRIES, **tags})
        return True

    def add(self, **found: Any) -> None:
        """Store more of the row, by column of `runs`."""
        with self.tables.changing():
            if row := self.row():
                _store(self.tables, row | found)

    def count_writes(self) -> None:
        """Store the outcomes of this run's writes: from then on it was not cut off while writing."""
        if row := self.row():
            self.add(**_counts(row, self.tables.run_writes(self.run_id)))

    def require_none_failed(self) -> None:
        """Fail a step that needs no other one if one has failed: its work would be useless."""
        if "FAILURE" in _states(self._steps()):
            message = self.row().get("message")
            raise AssetOwnersError(message or "Not started: another step of the run failed")

    def succeed(self) -> None:
        """Store that the run succeeded; if another step has failed, only its outcomes."""
        self._end("succeeded", None)

    def fail(self, message: str, *, transient: bool = False) -> None:
        """Store why the run failed; the first reason stays.

        `transient`: a service did not answer, and nothing was written. Where `run_retries` are enabled,
        Dagster then executes the whole run again, when no other one waits.
        """
        try:
            if transient:
                self._tag({"dagster/max_retries": str(MAX_RETRIES), "dagster/priority": "-1"})
            self._end("failed", message, transient=transient)
        except Exception as error:  # noqa: BLE001  (what made the run fail matters more, and may be the same)
            self.log.warning(f"How this run ended could not be stored in the table runs: {error}")

    def _end(self, status: str, message: str | None, *, transient: bool = False) -> None:
        """Count the outcomes of the run; a step may go on, and write, after another one has failed it."""
        steps = self._steps()
        with self.tables.changing():
            row = self.row()
            if not row:
                return
            status_before = row["status"]
            before = json.loads(row["seconds_by_step"] or "{}")
            states = _states(steps)
            if row["status"] != "failed":
                row |= {"status": status, "message": message or row["message"]}
            # Every step that had failed was started again and went well; only the caller's is at work.
            elif status == "succeeded" and states.count("IN_PROGRESS") == 1 and "FAILURE" not in states:
                row |= {"status": status, "message": None}
            row |= {
                "ended_at": datetime.now(UTC),
                "seconds_by_step": json.dumps(before | self._seconds_of(steps)),
                **_counts(row, self.tables.run_writes(self.run_id)),
            }
            _store(self.tables, row)
            if row["kind"] in get_args(Command) and row["owned_after"] is not None:
                self.tables.store_coverage(self.run_id)
            if self.settings:
                with self.tables.ledger() as ledger:
                    ledger.store_setting(KEEP, dict(self.settings))
        # Short: the list of runs cuts long tags off.
        self._tag({RESULT_TAG: ", ".join(counts_in_words(row))})
        if self.recorded and row["kind"] == "undo" and row["written"]:
            self._tag_undone(row["of_run"], self.recorded)
        if row["status"] != status_before and not (transient and self._is_retried()):
            self.announce(row)

    def _is_retried(self) -> bool:
        """Return whether Dagster's daemon executes the run again, once it has failed (see `fail`)."""
        if not self.recorded or not self.recorded.run_retries_enabled:
            return False
        run = self.recorded.get_run_by_id(self.run_id)
        if not run or run.remote_job_origin is None:  # of the command line
            return False
        again = dg.RunsFilter(tags={"dagster/root_run_id": run.root_run_id or run.run_id})
        return self.recorded.get_runs_count(again) < MAX_RETRIES

    def recount(self, run_id: str) -> None:
        """Count the outcomes of a run that was cut off again, once its pending writes are settled."""
        with self.tables.changing():
            if not (row := self.row(run_id)):
                return
            if row["status"] == "started":
                message = "cut off while writing; a later run has settled its writes"
                row |= {"status": "failed", "ended_at": datetime.now(UTC), "message": message}
            row |= _counts(row, self.tables.run_writes(run_id))
            _store(self.tables, row)

    def _steps(self) -> Sequence[Any]:
        return self.recorded.get_run_step_stats(self.run_id) if self.recorded else []

    def _seconds_of(self, steps: Sequence[Any]) -> dict[str, float]:
        now = datetime.now(UTC).timestamp()
        prefix = f"{self.tables.slug}__"
        return {
            step.step_key.removeprefix(prefix): round((step.end_time or now) - step.start_time, 3)
            for step in steps
            if step.start_time
        }

    def _tag(self, tags: Mapping[str, str]) -> None:
        if self.recorded:
            self.recorded.add_run_tags(self.run_id, tags)

    def _tag_undone(self, run_id: str, recorded: dg.DagsterInstance) -> None:
        """Add to the result of a run how much of it was undone, where Dagster still has the run."""
        undos = self.tables.all_runs("runs").filter(kind="undo", of_run=run_id)
        undone, in_part = undos.select(pl.sum("written", "in_part")).collect().row(0)
        row = self.row(run_id)
        if row.get("written") and recorded.has_run(run_id):
            said = undone_in_words(row["written"], undone=undone, in_part=in_part)
            recorded.add_run_tags(run_id, {RESULT_TAG: ", ".join([*counts_in_words(row), said])})


def _started_by(run: dg.DagsterRun | None) -> tuple[str, str]:
    """Return who started a run: the user whom a proxy names or whose process this is, or the schedule."""
    tags = run.tags if run else {}
    # A run executed again inherits tags; where Dagster did that by itself, it has a number.
    by_hand = run and run.parent_run_id and "dagster/retry_number" not in tags
    if by_hand and tags.get(NAMED_TAG) != run.run_id:
        tags = {}
    schedule = None if tags.get(BY_TAG) else tags.get("dagster/schedule_name")
    name = schedule or tags.get(BY_TAG) or system_user()
    return "schedule" if schedule else "user", printable(name)


def _states(steps: Sequence[Any]) -> list[str]:
    return [step.status.value for step in steps if step.status]


def _store(tables: Tables, row: Mapping[str, Any]) -> None:
    tables.append("runs", pl.DataFrame([row], schema=polars_schema(Runs)), run_id=row["run_id"])


def _counts(row: Mapping[str, Any], writes: pl.DataFrame) -> dict[str, Any]:
    """Return the outcomes of the writes of a run, as columns of `runs`."""
    if row["kind"] == "backfill" and row["hosts"] is None:
        return {}
    by_outcome = dict(writes["outcome"].value_counts().iter_rows())
    done = sum(by_outcome.get(outcome, 0) for outcome in SUCCESSES)
    failed = by_outcome.get("failed", 0)
    before = row["owned_before"]
    return {
        # A run that follows another one plans fewer than it has rows: hosts that changed are skipped.
        "to_write": writes.height if None in (row["to_write"], row["of_run"]) else row["to_write"],
        "written": done,
        "in_part": writes.filter(pl.col("kept").list.len() > 0, outcome="undone").height,
        "failed": failed,
        "left_alone": writes.height - done - failed - by_outcome.get("planned", 0),
        "owned_after": None if before is None else before + _owners_gained(writes),
    }


def _owners_gained(writes: pl.DataFrame) -> int:
    old, new = (pl.col(values).struct.field("owner") for values in ("old_values", "new_values"))
    before, after = (
        (owner.fill_null("") != "").cast(pl.Int64).sum() for owner in (old, pl.coalesce(new, old))
    )
    return writes.filter(pl.col("outcome").is_in(SUCCESSES)).select(after - before).item()


@contextmanager
def as_dagster_failure(record: RunRecord | None = None, *, last: bool = False) -> Generator[None]:
    """Turn what an operator can fix into a failure that the UI shows as a message without a stack trace.

    Names in it come from outside, so it is printable. `record` gets the reason; from the `last` step of a run
    also that it succeeded. Work that makes no progress ends its process (`resources.locks`).

    Raises:
        dagster.DagsterUserCodeExecutionError: with the message.
        dagster.DagsterExecutionInterruptedError: the run was canceled, so that it stays canceled.
    """
    with end_if_stuck():
        try:
            yield
        except dg.DagsterExecutionInterruptedError:
            if record:
                record.fail(_why_interrupted(record))
            raise
        except Exception as error:
            is_invalid = isinstance(error, InvalidTableError)
            message = str(error) if is_invalid else operator_message(error)
            message = message if is_invalid or message is None else printable(message)
            if record:
                record.fail(
                    message or printable(f"an error in the program: {type(error).__name__}: {error}"),
                    transient=isinstance(error, TransientError) and not last,
                )
            if message is None:
                raise
            if isinstance(error, RunEndedError) and error.canceled:
                raise dg.DagsterExecutionInterruptedError(message) from None
            raise failure(message) from AssetOwnersError()
        else:
            if record and last:
                record.succeed()


def _why_interrupted(record: RunRecord) -> str:
    """Return who ended a run that was interrupted: somebody in Dagster, or a signal from elsewhere."""
    try:
        record.require_running()
    except RunEndedError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  (of Dagster's database; the run ends all the same)
        logging.getLogger(__name__).warning(f"Dagster did not say why this run was interrupted: {error}")
    return "interrupted; the next run settles the pending writes"


def failure(message: str) -> dg.DagsterUserCodeExecutionError:
    """Return what fails a step with a message; raise it from an error that was not raised itself."""
    # Dagster's UI shows the cause's stack trace, which is empty; of a `dagster.Failure` its own.
    cause = AssetOwnersError(message)
    return dg.DagsterUserCodeExecutionError(
        message, user_exception=cause, original_exc_info=(type(cause), cause, None)
    )


def failure_message(error: Any) -> str:
    """Return the message in what Dagster keeps of a step's error; empty for an error in the program."""
    if error is None or error.cls_name != dg.DagsterUserCodeExecutionError.__name__:
        return ""
    # Python puts the name of the class before a message, and nothing after it where there is none.
    return error.message.partition(f"{error.cls_name}: ")[2].strip()


def announce(instance: Instance, row: Mapping[str, Any], log: logging.Logger) -> None:
    """Tell the addresses of `notify` the result of a run, by its row of `runs`; never fails the run."""
    if text := run_notice(instance, row):
        tell(instance, text, log, kind="failure" if row["status"] == "failed" else "info")


def tell(instance: Instance, text: str, log: logging.Logger, *, kind: Kind) -> None:
    """Send a text to the addresses of `notify`, and warn of those that did not get it."""
    try:
        for setting, reason in send_notices(instance, text, kind=kind).items():
            log.warning(f"A notice was not delivered ({setting}): {reason}")
    except Exception as error:  # noqa: BLE001  (such as no thread left; the run has done its work)
        log.warning(f"Notices were not sent (notify): {printable(str(error))}")


def run_notice(instance: Instance, row: Mapping[str, Any]) -> str | None:
    """Return what to tell of a run that failed, wrote owners, or found new conflicts; None: nothing."""
    # A run that does not write is reported where no run of the instance does, and if it failed.
    is_expected_to_plan = instance.writes.dry_run and row["kind"] == "dry_run"
    if not instance.notify or (plans_only(row) and not is_expected_to_plan):
        return None
    failed, conflicts = row["status"] == "failed", row["new_conflicts"] or 0
    if not failed and not row["written"] and not conflicts:
        return None
    result = [words for words in counts_in_words(row) if not words.startswith("0 ")]
    if conflicts:
        result.append(counted(conflicts, "new conflict"))
    what = row["kind"] if row["kind"] in {"apply", "undo"} else "run"
    more = [command_line(instance, "runs" if failed else "report")]
    if url := ui_url():
        more.insert(0, f"{url}/runs/{row['run_id']}")
    if failed and row["message"]:
        why = row["message"].removeprefix("Nothing was written. ").partition("\n")[0]
        more.insert(0, f"{why.partition('. ')[0].removesuffix('.')}.")
    return "\n".join([f"{what} {short_run_id(row['run_id'])}: {', '.join(result)}", *more])


def overdue_notice(instance: Instance, tick: datetime) -> str:
    """Return what to tell where no run has succeeded since the schedule's last tick."""
    at = f"{tick.astimezone(ZoneInfo(instance.scan.timezone)):%Y-%m-%d %H:%M} ({instance.scan.timezone})"
    more = ui_url() or command_line(instance, "runs")
    return f"No run has succeeded since the schedule's last tick, {at}\n{more}"
