"""Prints our own log lines of a run, without Dagster's events.

Not needed once Dagster's loggers can omit events, and print a failure in one line.
"""

import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.execution import context_creation_job

from assets_defs.record import failure_message
from assets_defs.run_request import INSTANCE_TAG
from ownership.names import printable_lines
from pipelines.cli.options import columns_of, folded
from pipelines.dagster_gaps.launcher import is_by_command
from pipelines.dagster_gaps.log_lines import LOGGER, json_line
from resources.settings import logs_as_json

_SKIPPED_STEP = re.compile("Dependencies for step .* Not executing\\.")
"""Dagster's message, without an event, for each step after a failed one."""
_TERMINAL = os.dup(2) if columns_of(sys.stderr) else None  # during a step Dagster has a file in its place
HIDDEN = set[str]()  # lines that a command replaces by its own words
_kept: list[str] = []
"""Warnings of a command's run, which the command prints below its result."""


@dg.logger(config_schema={}, description="One line for each stage, on standard error.")
def console(_: dg.InitLoggerContext) -> logging.Logger:
    """Return a logger that starts each line with time and level (unless INFO).

    With ASSET_OWNERS_LOG=json each line is an object, which also names run, instance, job and step.
    """
    logger = logging.Logger(LOGGER, level=logging.getLogger(LOGGER).level or logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_printed_now)
    handler.setFormatter(_Line(datefmt="%H:%M:%S"))
    logger.addHandler(handler)
    return logger


def log_to_console_by_default() -> None:
    """Use this logger also for runs without configured `loggers`, and for failures before a run."""
    module: Any = context_creation_job
    module.default_system_loggers = lambda _: [(console, {})]


def take_warnings(start: str = "") -> list[str]:
    """Return the distinct warnings of this command's runs that begin so, and were not taken yet."""
    taken = [text for text in dict.fromkeys(_kept) if text.startswith(start)]
    _kept[:] = [text for text in _kept if text not in taken]
    return taken


def _is_printed_now(record: logging.LogRecord) -> bool:
    """Return whether a line is printed now; a command keeps its warnings for later, but not why it waits."""
    meta = vars(record)["dagster_meta"]
    if (text := _text_of(meta)) is None or text in HIDDEN:
        return False
    is_later = record.levelno == logging.WARNING and not vars(record).get("waits") and not logs_as_json()
    if is_kept := is_later and is_by_command(meta["run_id"], meta["job_tags"]):
        _kept.append(text)
    return not is_kept


def _text_of(meta: Mapping[str, Any]) -> str | None:
    """Return our own message, or why a run failed, which a command prints itself."""
    event = meta["dagster_event"]
    if event is None:
        return None if _SKIPPED_STEP.fullmatch(meta["orig_message"]) else meta["orig_message"]
    if event.event_type_value != "PIPELINE_FAILURE" or is_by_command(meta["run_id"], meta["job_tags"]):
        return None
    data = event.job_failure_data
    step = data.first_step_failure_event
    error = step.step_failure_data.error if step else data.error
    why = failure_message(error) or (error and (error.cause or error).message.strip())
    return f"Run {meta['run_id'][:8]} of {meta['job_name']} failed: {why or meta['orig_message']}"


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = vars(record)["dagster_meta"]  # Dagster adds it
        text, level = _text_of(meta) or "", record.levelname.lower()
        if logs_as_json():
            instance = (meta["job_tags"] or {}).get(INSTANCE_TAG)
            facts = {"run_id": meta["run_id"], "job": meta["job_name"], "step": meta["step_key"]}
            return json_line(text, level=level, at=record.created, instance=instance, **facts)
        start = f"{self.formatTime(record, self.datefmt)} "
        start += "" if record.levelno == logging.INFO else f"{level}: "
        width = shutil.get_terminal_size(os.get_terminal_size(_TERMINAL)).columns if _TERMINAL else 0
        return "\n".join(folded(f"{start}{line}", width) for line in printable_lines(text).split("\n"))
