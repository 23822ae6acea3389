"""How a command ends that failed: its message, its exit status, and a trace where it was unexpected."""

import os
import sys
import traceback
from pathlib import Path

from ownership.names import printable_lines
from pipelines.log_lines import json_line
from resources.errors import ConfigurationError
from resources.failures import operator_message


def message_and_status(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status (rules 8.1); of an error in the program print the trace."""
    message = operator_message(error)
    if message is None:
        print(printable_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        message = f"an error in the program: {type(error).__name__}: {error}"
    return message, 2 if isinstance(error, ConfigurationError) else 1


def print_error(message: str) -> None:
    """Tell the person at the terminal, or the log of a service, why a command failed."""
    as_json = os.environ.get("ASSET_OWNERS_LOG") == "json"
    line = json_line(message, level="error") if as_json else printable_lines(f"asset-owners: {message}")
    print(line, file=sys.stderr)


def require_file(argument: str, path: Path) -> None:
    """Refuse what is no file where one is to be written or replaced; an empty argument means a folder.

    A device or a pipe would be replaced by a file, so that whoever uses it gets nothing.

    Raises:
        ConfigurationError: naming the argument.
    """
    if path.is_dir():
        said = "it is empty, or a folder" if path == Path() else f"{path} is a folder"
    elif path.exists() and not path.is_file():
        said = f"{path} is a device or a pipe"
    else:
        return
    raise ConfigurationError(f"{argument}: {said}; name a file")
