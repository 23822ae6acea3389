"""All writes of a run: several hosts at a time, each row and each outcome in the ledger."""

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import TimeoutError as NoResultError
from multiprocessing.pool import ThreadPool
from threading import Lock

import polars as pl

from ownership.codes import SUCCESSES
from resources.failures import operator_message
from resources.ledger.ledger import Ledger, Result
from resources.writeback.decide import Decide, Row
from resources.writeback.writer import Writer, WritingEndedError

GRACE_SECONDS = 3
"""How long requests under way may take when the run is interrupted: containers are killed after ten seconds,
and on a busy machine it takes five more to store what became of the writes. Later answers are lost, and their
writes stay `intended`."""

SECONDS_BETWEEN_QUESTIONS = 2  # how often `require_running` and `on_progress` are called

_FAILURES = frozenset({"failed", "intended"})


def write_all(
    plan: pl.DataFrame,
    writer: Writer,
    decide: Decide,
    ledger: Ledger,
    *,
    concurrency: int,
    max_failed_writes: int,
    require_running: Callable[[], None],
    on_progress: Callable[[int, int], None],
) -> str | None:
    """Write the hosts of a plan, several at a time; return why that ended early or had no effect, or None.

    The whole plan is stored as `intended` before the first request; rows that are not `planned` are only
    kept. `on_progress` is called with how many of how many hosts are done, `require_running` before the first
    write and every few seconds; if it raises RunEndedError, nothing more is sent.
    """
    intended = plan.with_columns(pl.col("outcome").replace("planned", "intended"))
    ledger.intend(intended)
    run_id = plan["run_id"][0] if plan.height else ""
    rows = intended.filter(outcome="intended").rows(named=True)
    workers = _Workers(writer, decide, max_failed_writes)
    try:
        require_running()
    except Exception as error:
        writer.stop(str(error))
        ledger.abandon_rest(run_id, writer.not_reached_message())
        raise

    # These threads end with the process; a ThreadPoolExecutor's would keep it until the last answer.
    with ThreadPool(max(min(concurrency, len(rows)), 1)) as threads:
        results = threads.imap_unordered(workers.try_row, rows)
        try:
            done, asked_at = 0, time.monotonic()
            while True:
                if time.monotonic() - asked_at >= SECONDS_BETWEEN_QUESTIONS:
                    require_running()
                    asked_at = time.monotonic()
                with suppress(NoResultError):  # while a service hangs, progress is logged
                    result = results.next(SECONDS_BETWEEN_QUESTIONS)
                    if isinstance(result, BaseException):
                        raise result  # noqa: TRY301  (a thread's; it interrupts this one)
                    if result:
                        ledger.complete(result, run_id=run_id)
                        done += 1
                on_progress(done, len(rows))
        except StopIteration:
            pass
        except BaseException as error:
            writer.stop(operator_message(error))
            deadline = time.monotonic() + GRACE_SECONDS
            try:
                with suppress(StopIteration, NoResultError):
                    while True:
                        result = results.next(max(deadline - time.monotonic(), 0))
                        if isinstance(result, Result):
                            ledger.complete(result, run_id=run_id)
            finally:  # also if the waiting is interrupted
                writer.abandoned = True
            raise
        finally:
            if writer.stopped_by:
                ledger.abandon_rest(run_id, writer.not_reached_message())
    return writer.stopped_by or writer.reason_to_stop()


@dataclass
class _Workers:
    """Several threads try rows until something stops the writer; one until the writes are trusted."""

    writer: Writer
    decide: Decide
    max_failed_writes: int

    def __post_init__(self) -> None:
        self._failures_in_a_row = 0
        self._lock, self._alone = Lock(), Lock()

    def try_row(self, row: Row) -> Result | BaseException | None:
        """Return the result for a row, or what was raised; None if the writing had ended before."""
        with nullcontext() if self.writer.is_trusted else self._alone:
            if self.writer.stopped_by:
                return None
            try:
                result = self.writer.write(row, self.decide)
            except WritingEndedError as error:
                self.writer.stop(str(error))
                return error.result
            except BaseException as error:  # noqa: BLE001  (`write_all` raises it)
                self.writer.stop(operator_message(error))
                return error
            # Counted here, for others are tried before the outcome is in the ledger.
            with self._lock:
                if result.outcome in _FAILURES:
                    self._failures_in_a_row += 1
                elif result.outcome in SUCCESSES:
                    self._failures_in_a_row = 0
                if self._failures_in_a_row >= self.max_failed_writes:
                    failed = f"{self.max_failed_writes} writes failed one after another"
                    self.writer.stop(f"{failed}, the last one: {result.message}")
            return result
