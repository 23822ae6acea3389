"""Sheets in which people answer: reading them back, as workbooks or as CSV with any usual separator."""

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import polars as pl
from fastexcel import FastExcelError

from ownership.names import printable
from reports.exports import BOM, as_csv, as_xlsx, printable_texts, with_formulas

_YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
_NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
HOSTS = ("host_id", "hostname")
"""Columns that name the host of a row."""


class SheetError(ValueError):
    """A sheet that cannot be read as answers: in which line, and what to do."""


def sheet_content(table: pl.DataFrame, *, is_workbook: bool) -> bytes:
    """Return a sheet to hand out, as a workbook or as CSV; the column `right` is for yes or no."""
    shown = printable_texts(table)
    if is_workbook:
        return as_xlsx(shown, title="Audit", answer="right")
    return (BOM + as_csv(shown)).encode()


def read_rows(content: bytes, columns: Collection[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each line with its number: its cells by column, each in one line; "" is an empty one.

    Lines without any value in these columns are skipped.

    Raises:
        SheetError: it lacks one of the columns, or is a workbook that cannot be read.
        UnicodeDecodeError: it is CSV, and not in UTF-8.
    """
    table = _read_workbook(content) if content.startswith(b"PK") else _read_csv(content.decode("utf-8-sig"))
    if not {*columns} <= {*table.columns}:
        raise SheetError(f"it lacks one of the columns {', '.join(columns)}")
    for line, cells in enumerate(table.iter_rows(named=True), start=2):
        values = {name: _in_one_line(cell) for name, cell in cells.items()}
        if any(values[name] for name in columns):
            yield line, values


def as_handed_out(text: str | None) -> str:
    """Return a text as `read_rows` gives it where nobody has changed it in a sheet."""
    return _in_one_line(printable(text or ""))


def _in_one_line(text: str | None) -> str:
    """Return a text without blanks at its ends; editors of sheets change blanks and line breaks."""
    return " ".join((text or "").split())


def host_finder(table: pl.DataFrame) -> Callable[[Mapping[str, str]], int | None]:
    """Return a function that finds the number of the row in a sheet whose host a line names; None: no row.

    A spreadsheet may have made a number of an id: then the name tells the host, if only one host has it.
    """

    def numbers(column: str) -> dict[str, int]:
        texts = [as_handed_out(text) for text in table[column]]
        often = Counter(texts)
        return {text: number for number, text in enumerate(texts) if often[text] == 1}

    by_id, by_name = map(numbers, HOSTS)
    return lambda values: by_id.get(values["host_id"], by_name.get(values["hostname"]))


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


def _read_csv(text: str) -> pl.DataFrame:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    # Where a comma is the decimal sign, a spreadsheet writes other separators.
    separator = max(",;\t", key=lines.partition("\n")[0].count)
    try:
        table = pl.read_csv(
            lines.encode(), separator=separator, infer_schema=False, truncate_ragged_lines=True
        )
    except pl.exceptions.PolarsError as error:
        raise SheetError(f"this CSV cannot be read: {error}") from error
    return table.select(with_formulas(pl.all()))


def _read_workbook(content: bytes) -> pl.DataFrame:
    try:
        return pl.read_excel(io.BytesIO(content), infer_schema_length=0)
    except FastExcelError as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error
