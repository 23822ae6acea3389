"""What a run prints while it works: our own lines, and nothing of Dagster's bookkeeping.

The event log keeps everything; this is for the person at the terminal and for the log of a service.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets_defs.run import failure_message
from ownership.names import printable
from pipelines.dagster_gaps.launcher import process_tag
from pipelines.dagster_gaps.log_lines import LOGGER, json_line
from resources.settings import logs_as_json

_OF_DAGSTER = re.compile("Dependencies for step .* Not executing\\.")
"""What Dagster logs, and is no event, of each step that follows one that failed."""


@dg.logger(config_schema={}, description="One line a stage, on standard error.")
def console(_: dg.InitLoggerContext) -> logging.Logger:
    """A logger that prints time, level where it matters, and message: all three in each line.

    With ASSET_OWNERS_LOG=json each line is an object, which also names the run, the job and the step.
    """
    logger = logging.Logger(LOGGER, level=logging.getLogger(LOGGER).level or logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_told)
    handler.setFormatter(_JsonLine() if logs_as_json() else _Line(datefmt="%H:%M:%S"))
    logger.addHandler(handler)
    return logger


def _is_told(record: logging.LogRecord) -> bool:
    """Keep with a record what the formatters print of it; of most of Dagster's records that is nothing."""
    told = _told(record.dagster_meta)  # ty: ignore[missing-attribute]  (Dagster adds it)
    record.told = told
    return told is not None


def _told(meta: Mapping[str, Any]) -> str | None:
    """What is printed of a record: our own words, and why a run failed; a command says that itself."""
    event = meta["dagster_event"]
    if event is None:
        return None if _OF_DAGSTER.fullmatch(meta["orig_message"]) else meta["orig_message"]
    if event.event_type_value != "PIPELINE_FAILURE" or process_tag().items() <= meta["job_tags"].items():
        return None
    data = event.job_failure_data
    step = data.first_step_failure_event
    error = step.step_failure_data.error if step else data.error
    why = failure_message(error) or (error and (error.cause or error).message.strip())
    return f"Run {meta['run_id'][:8]} of {meta['job_name']} failed: {why or meta['orig_message']}"


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.told  # ty: ignore[missing-attribute]  (`_is_told` adds it)
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        begin = f"{self.formatTime(record, self.datefmt)} {level}"
        return "\n".join(f"{begin}{line}" for line in map(printable, message.split("\n")))


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = record.dagster_meta  # ty: ignore[missing-attribute]  (Dagster adds it)
        return json_line(
            record.told,  # ty: ignore[missing-attribute]  (`_is_told` adds it)
            level=record.levelname.lower(),
            at=record.created,
            run_id=meta["run_id"],
            job=meta["job_name"],
            step=meta["step_key"],
        )
