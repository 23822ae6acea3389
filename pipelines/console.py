"""What a run prints while it works: our own lines, and nothing of Dagster's bookkeeping.

The event log keeps everything; this is for the person at the terminal and for the log of a service.
"""

import logging
import re
import sys

import dagster as dg

from ownership.names import printable
from pipelines.log_lines import LOGGER, json_line
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
    handler.addFilter(_is_our_own)
    handler.setFormatter(_JsonLine() if logs_as_json() else _Line(datefmt="%H:%M:%S"))
    logger.addHandler(handler)
    return logger


def _is_our_own(record: logging.LogRecord) -> bool:
    meta = record.dagster_meta  # ty: ignore[missing-attribute]  (Dagster adds it)
    return meta["dagster_event"] is None and not _OF_DAGSTER.fullmatch(meta["orig_message"])


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.dagster_meta["orig_message"]  # ty: ignore[missing-attribute]  (Dagster adds it)
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        begin = f"{self.formatTime(record, self.datefmt)} {level}"
        return "\n".join(f"{begin}{line}" for line in map(printable, message.split("\n")))


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = record.dagster_meta  # ty: ignore[missing-attribute]  (Dagster adds it)
        return json_line(
            meta["orig_message"],
            level=record.levelname.lower(),
            at=record.created,
            run_id=meta["run_id"],
            job=meta["job_name"],
            step=meta["step_key"],
        )
