"""Files of sheets in which people answer, for `tune` and `conflicts`."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from pipelines.cli.exit_status import write_file
from reports.sheets import SheetError, sheet_content
from resources.errors import ConfigurationError


def require_new(option: str, *files: Path) -> None:
    """Fail for files that exist: they may hold answers."""
    for file in files:
        if file.exists():
            raise ConfigurationError(f"{option}: {file} exists and is not replaced; name another file")


def write_sheet(option: str, file: Path, table: pl.DataFrame, *, title: str, answer: str) -> None:
    """Write a sheet, as a workbook or as CSV by the file's name; `answer` is the column for yes or no."""
    is_workbook = file.suffix.lower() == ".xlsx"
    write_file(option, file, sheet_content(table, title=title, answer=answer, is_workbook=is_workbook))


@contextmanager
def reading_sheet(option: str, file: Path) -> Generator[bytes]:
    """Give the content of a sheet, and say which file it is where it cannot be read."""
    try:
        yield file.read_bytes()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{option}: {file} is not UTF-8; save it as `CSV UTF-8`") from error
    except (OSError, SheetError) as error:
        raise ConfigurationError(f"{option}: {file} cannot be read: {error}") from error
