"""All writes of a run: several hosts at a time, each row and each outcome in the journal."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import polars as pl

from ownership.codes import SUCCESSES
from resources.writeback.journal import Journal, Result
from resources.writeback.outcomes import Row
from resources.writeback.writer import Writer, WritingEndedError

GRACE_SECONDS = 5
"""How long requests that are under way may take when the run is interrupted; whoever asks a container to end
waits ten seconds. What has no answer by then stays `intended`."""

_FAILURES = frozenset({"failed", "intended"})


def write_all(
    plan: pl.DataFrame,
    writer: Writer,
    attempt: Callable[[Writer, Row], Result],
    journal: Journal,
    *,
    concurrency: int,
    max_failed_writes: int,
    on_progress: Callable[[int, int], None],
) -> str | None:
    """Write the planned hosts, several at a time; each row and each outcome goes into the journal.

    Args:
        plan: rows of owner_writes of one run; those with outcome `planned` are tried, others only kept.
        writer: writes one host.
        attempt: how, a method of `Writer`.
        journal: stores the whole plan as `intended` before the first request goes out.
        concurrency: hosts at a time.
        max_failed_writes: so many failures without a success between them, in order of completion, end the
            writing, and so does what `Writer` ends it for; what was not tried by then is `not_written` and
            left for the next run.
        on_progress: called with how many of how many hosts are done.

    Returns:
        Why the writing ended early, or was in vain; None when it came to its end.
    """
    to_try = pl.col("outcome") == "planned"
    intended = plan.with_columns(outcome=pl.when(to_try).then(pl.lit("intended")).otherwise("outcome"))
    journal.intend(intended)
    run_id = plan["run_id"][0] if plan.height else ""
    rows = intended.filter(outcome="intended").rows(named=True)
    tries = _Tries(writer, attempt, max_failed_writes)
    workers = _Workers(rows, tries, concurrency)

    def complete(result: Result) -> None:
        journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))

    def leave_the_rest() -> None:
        reason = f"the run ended before this host's turn: {tries.ended_by}"
        journal.leave(run_id, reason, completed_at=datetime.now(UTC))

    try:
        for done, result in enumerate(workers.results(), start=1):
            complete(result)
            on_progress(done, len(rows))
    except BaseException:
        tries.end("it was interrupted")
        try:
            workers.wait(GRACE_SECONDS)
        finally:  # also where somebody is impatient and interrupts the waiting
            writer.abandon()
        for result in workers.finished():
            complete(result)
        leave_the_rest()
        raise
    if tries.ended_by:
        leave_the_rest()
        return tries.ended_by
    ended_by, corrected = writer.check_effect(journal.rows(run_id))
    for result in corrected:
        complete(result)
    return ended_by


class _Tries:
    """Tries hosts until something ends the writing."""

    def __init__(
        self, writer: Writer, attempt: Callable[[Writer, Row], Result], max_failed_writes: int
    ) -> None:
        self._writer = writer
        self._attempt = attempt
        self._max_failed_writes = max_failed_writes
        self._lock = Lock()
        self._failures_in_a_row = 0
        self.ended_by: str | None = None

    def __call__(self, row: Row) -> Result | None:
        """Try one host; None: the writing has ended."""
        if self.ended_by:
            return None
        try:
            result = self._attempt(self._writer, row)
        except WritingEndedError as error:
            self.end(str(error))
            return error.result
        # Counted here: by the time the journal hears of it, others have been tried.
        with self._lock:
            if result.outcome in _FAILURES:
                self._failures_in_a_row += 1
            elif result.outcome in SUCCESSES:
                self._failures_in_a_row = 0
            if self._failures_in_a_row >= self._max_failed_writes:
                self.end(f"{self._max_failed_writes} writes failed one after another")
        return result

    def end(self, reason: str) -> None:
        self.ended_by = self.ended_by or reason
        self._writer.stop(reason)


class _Workers:
    """Threads that try rows one after another; they begin when the results are asked for.

    Those of a ThreadPoolExecutor would keep the process from its end until the last request has its answer.
    """

    def __init__(
        self, rows: Sequence[Row], attempt: Callable[[Row], Result | None], concurrency: int
    ) -> None:
        self._attempt = attempt
        self._rows: SimpleQueue[Row] = SimpleQueue()
        for row in rows:
            self._rows.put(row)
        self._results: SimpleQueue[Result | BaseException | None] = SimpleQueue()
        number = min(concurrency, len(rows))
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(number)]

    def _work(self) -> None:
        try:
            while result := self._attempt(self._rows.get_nowait()):
                self._results.put(result)
        except Empty:
            pass
        except BaseException as error:  # noqa: BLE001  (raised where the results are awaited)
            self._results.put(error)
        finally:
            self._results.put(None)

    def results(self) -> Iterator[Result]:
        """Let the threads begin, and give each result as it comes; raises what a thread raised."""
        for thread in self._threads:
            thread.start()
        at_work = len(self._threads)
        while at_work:
            result = self._results.get()
            if isinstance(result, BaseException):
                raise result
            if result:
                yield result
            else:
                at_work -= 1

    def wait(self, seconds: float) -> None:
        """Wait for the end of all threads that have begun, but not for longer."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(deadline - time.monotonic(), 0))

    def finished(self) -> Iterator[Result]:
        """Give the results that are here and were not given yet."""
        while not self._results.empty():
            if isinstance(result := self._results.get(), Result):
                yield result
