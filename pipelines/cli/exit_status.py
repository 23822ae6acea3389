"""What a command that failed prints, and its exit status."""

import os
import re
import sys
import traceback
from importlib.metadata import requires

from ownership.names import printable_lines
from pipelines.dagster_gaps.log_lines import json_line
from resources.errors import ConfigurationError
from resources.failures import operator_message


def message_and_status(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status (rules 8.1); of an error in the program print the trace."""
    if isinstance(error, ModuleNotFoundError):
        named = f"asset-owners[{extra}]" if (extra := _extra_of(error.name or "")) else "asset-owners"
        return f"{error}. It comes with {named}: pip install '{named}'", 2
    message = operator_message(error)
    if message is None:
        print_trace("".join(traceback.format_exception(error)))
        message = f"an error in the program: {type(error).__name__}: {error}"
    return message, 2 if isinstance(error, ConfigurationError) else 1


def _extra_of(module: str) -> str | None:
    """Return the extra whose packages bring a module; their names differ in `_` and `-` only."""
    package = re.escape(module.partition(".")[0].replace("_", "-"))
    found = re.search(
        rf"(?m)^{package}(?![\w-]).*extra == '(\w+)'", "\n".join(requires("asset-owners") or ())
    )
    return found[1] if found else None


def print_trace(trace: str) -> None:
    """Print the stack trace of an error in the program."""
    as_json = os.environ.get("ASSET_OWNERS_LOG") == "json"
    print(json_line(trace, level="error") if as_json else printable_lines(trace), file=sys.stderr)
