"""How a step fails: with a message for the person who can fix it, in Dagster and in the table `runs`."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import dagster as dg

from assets_defs.record import RunRecord
from ownership.declaration import InvalidTableError
from ownership.names import printable
from resources.errors import AssetOwnersError, RunEndedError, TransientError
from resources.failures import operator_message
from resources.watchdog import watched


@contextmanager
def as_dagster_failure(record: RunRecord | None = None, *, last: bool = False) -> Generator[None]:
    """Turn what an operator can fix into a failure that the UI shows as a message without a stack trace.

    Names in it come from outside, so it is printable. `record` gets the reason; from the `last` step of a run
    also that it succeeded. Work that makes no progress ends its process (`resources.watchdog`).

    Raises:
        dagster.DagsterUserCodeExecutionError: with the message.
        dagster.DagsterExecutionInterruptedError: the run was canceled, so that it stays canceled.
    """
    with watched():
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
    return "interrupted; the next run settles what was not known to be written"


def failure(message: str) -> dg.DagsterUserCodeExecutionError:
    """Return what fails a step with a message; raise it from an error that was not raised itself.

    Dagster's UI then shows the cause's stack trace, which is empty; of a `dagster.Failure` it shows its own.
    """
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
