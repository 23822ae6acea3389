"""Sheets in which people answer: reading them back, as workbooks or as CSV with any usual separator."""

import csv
import io
from collections.abc import Collection, Iterator, Mapping

import polars as pl
from fastexcel import FastExcelError

from ownership.names import printable
from reports.exports import without_formulas

_YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
_NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
HOSTS = ("host_id", "hostname")
"""Columns that name the host of a row."""


class SheetError(ValueError):
    """A sheet that cannot be read as answers: in which line, and what to do."""


def read_rows(content: bytes, columns: Collection[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each line with its number: its cells by column, "" where one is empty or missing.

    Lines without any value in these columns are skipped.

    Raises:
        SheetError: it lacks one of the columns, or is a workbook that cannot be read.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    rows = _rows_of_workbook(content) if _is_workbook(content) else _rows_of_csv(content.decode("utf-8-sig"))
    if not rows or not {*columns} <= rows[0].keys():
        raise SheetError(f"it lacks one of the columns {', '.join(columns)}")
    for line, cells in enumerate(rows, start=2):
        values = {name: (cell or "").strip() for name, cell in cells.items() if name}
        if any(values[name] for name in columns):
            yield line, values


def as_handed_out(table: pl.DataFrame, content: bytes) -> pl.DataFrame:
    """Return a table of texts as a sheet of this kind has it: in CSV no cell is a formula."""
    return table if _is_workbook(content) else table.select(without_formulas(pl.all()))


def numbers_by_host(table: pl.DataFrame) -> dict[str, int]:
    """Return the number of each row by its host's id and name.

    A spreadsheet may have made a number of an id: then the name tells the host.
    """
    return {host: number for name in reversed(HOSTS) for number, host in enumerate(table[name])}


def host_of(values: Mapping[str, str]) -> str:
    """Return how a line calls its host, to be printed."""
    return printable(values["hostname"] or values["host_id"])


def yes_or_no(text: str, line: int) -> bool | None:
    """Return an answer; None: there is none. Raises SheetError where it is another word."""
    if text.lower() not in _YES | _NO | {""}:
        raise SheetError(
            f"line {line}: {printable(text)!r} is not an answer; write yes or no, or leave it empty"
        )
    return text.lower() in _YES if text else None


def _is_workbook(content: bytes) -> bool:
    return content.startswith(b"PK")


def _rows_of_csv(text: str) -> list[dict[str, str | None]]:
    # Where a comma is the decimal sign, a spreadsheet writes other separators.
    separator = max(",;\t", key=text.partition("\n")[0].count)
    try:
        return list(csv.DictReader(io.StringIO(text, newline=None), delimiter=separator))
    except csv.Error as error:
        raise SheetError(f"this CSV cannot be read: {error}") from error


def _rows_of_workbook(content: bytes) -> list[dict[str, str | None]]:
    try:
        return pl.read_excel(io.BytesIO(content), infer_schema_length=0).to_dicts()
    except FastExcelError as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error
