"""The files that commands write, and the sheets among them in which people answer."""

import csv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from reports.sheets import SheetError
from resources.errors import ConfigurationError, why_unreadable
from resources.store.files import remove_leftovers, replacing

LEFT_BY_KILLED_SECONDS = 3600
"""What a command still writes after so long was left by one that was killed."""


def require_file(argument: str, path: Path) -> None:
    """Refuse a folder, which an empty argument means as well, and a device or a pipe as a file to write."""
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{argument}: {str(path)!r} is not a file; name one")


def write_file(argument: str, path: Path, content: bytes) -> None:
    """Write a file for its owner alone, over one that is there; a folder, a pipe or a device is refused."""
    require_file(argument, path)
    try:
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(0, f"the folder {path.resolve().parent} does not exist; create it first")
        remove_leftovers(path.resolve().parent, seconds=LEFT_BY_KILLED_SECONDS)
        with replacing(path.resolve()) as file:
            file.write_bytes(content)
    except OSError as error:
        reason = f"{argument}: {path} cannot be written: {error.strerror or error}"
        raise ConfigurationError(reason) from error


@contextmanager
def reading_sheet(option: str, file: Path) -> Generator[bytes]:
    """Give the content of a sheet, and say which file it is where it cannot be read."""
    try:
        yield file.read_bytes()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{option}: {file} is not UTF-8; save it as `CSV UTF-8`") from error
    except (OSError, SheetError, csv.Error) as error:
        raise ConfigurationError(f"{option}: {file} cannot be read: {why_unreadable(error)}") from error
