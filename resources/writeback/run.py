"""All writes of a run: several hosts at a time, each row and each outcome in the journal."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from threading import Lock

import polars as pl

from resources.writeback.journal import Journal, Result
from resources.writeback.outcomes import Row
from resources.writeback.writer import SUCCESSES, Writer, WritingEndedError

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
    lock = Lock()
    failures_in_a_row = 0
    ended_by: str | None = None

    def end(reason: str) -> None:
        nonlocal ended_by
        ended_by = ended_by or reason
        writer.stop(reason)

    def attempt_unless_stopped(row: Row) -> Result:
        nonlocal failures_in_a_row
        if ended_by:
            return Result(row["host_id"], "not_written", f"the run ended before this host's turn: {ended_by}")
        try:
            result = attempt(writer, row)
        except WritingEndedError as error:
            end(str(error))
            return error.result
        # Counted here: by the time the journal hears of it, the pool has tried some more.
        with lock:
            if result.outcome in _FAILURES:
                failures_in_a_row += 1
            elif result.outcome in SUCCESSES:
                failures_in_a_row = 0
            if failures_in_a_row >= max_failed_writes:
                end(f"{max_failed_writes} writes failed one after another")
        return result

    with ThreadPoolExecutor(concurrency) as pool:
        try:
            rows = intended.filter(outcome="intended").iter_rows(named=True)
            tasks = [pool.submit(attempt_unless_stopped, row) for row in rows]
            for done, task in enumerate(as_completed(tasks), start=1):
                journal.complete(task.result(), run_id=run_id, completed_at=datetime.now(UTC))
                on_progress(done, len(tasks))
        except BaseException:
            end("it was interrupted")  # the pool must not write on
            raise
    if ended_by is None:
        ended_by, corrected = writer.check_effect(journal.rows(run_id))
        for result in corrected:
            journal.complete(result, run_id=run_id, completed_at=datetime.now(UTC))
    return ended_by
