"""Sheets in which people answer: reading them back, as workbooks or as CSV with any usual separator."""

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import reduce

import polars as pl
from fastexcel import FastExcelError

from ownership.names import as_shown, printable
from reports.exports import BOM, as_csv, as_xlsx, printable_texts, with_formulas

_YES = frozenset(("yes", "y", "true", "right", "1", "ja", "j", "oui", "si", "sí"))
_NO = frozenset(("no", "n", "false", "wrong", "0", "nein", "non"))
_OLE = b"\xd0\xcf\x11\xe0"
"""Begins what Excel makes of a workbook with a password, and its old workbooks."""
_ROW, _CELL = re.compile(rb"<(?:\w+:)?row\b"), re.compile(rb"<(?:\w+:)?c\b")
_PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]{0,3})(\d{1,9})["']""")
MAX_BYTES, MAX_CELLS = 2**28, 2**24
"""Of a workbook unpacked, and of each sheet: all rows of sixteen columns."""
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
    if content.startswith(_OLE):
        raise SheetError("it has a password, or is an old .xls: save it as .xlsx without one")
    table = _read_workbook(content) if content.startswith(b"PK") else read_csv(content.decode("utf-8-sig"))
    if not {*columns} <= {*table.columns}:
        raise SheetError(f"it lacks one of the columns {', '.join(columns)}")
    for line, cells in enumerate(table.iter_rows(named=True), start=2):
        values = {name: _in_one_line(cell) for name, cell in cells.items()}
        if any(values[name] for name in columns):
            yield line, values


def _in_one_line(text: str | None) -> str:
    """Return a text without blanks at its ends; editors of sheets change blanks and line breaks."""
    return " ".join((text or "").split())


def host_finder(table: pl.DataFrame) -> Callable[[Mapping[str, str]], int | None]:
    """Return a function that finds the number of the row in a sheet whose host a line names; None: no row.

    A spreadsheet may have made a number of an id: then the name tells the host, if only one host has it.
    """

    def numbers(column: str) -> dict[str, int]:
        texts = [as_shown(text) for text in table[column]]
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


def read_csv(text: str) -> pl.DataFrame:
    """Return the texts of a CSV sheet, as they were before `without_formulas`."""
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
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            if "xl/workbook.xml" not in parts.namelist():
                raise SheetError("it is not an .xlsx: save it as one")
            too_large = sum(part.file_size for part in parts.infolist()) > MAX_BYTES
            if too_large or any(_cells_to_last(parts.read(name)) > MAX_CELLS for name in parts.namelist()):
                raise SheetError(
                    "it is too large, or has a cell far from the others: delete what is beyond them"
                )
        return pl.read_excel(io.BytesIO(content), infer_schema_length=0)
    except (FastExcelError, zipfile.BadZipFile, RuntimeError, zlib.error) as error:
        raise SheetError(f"this workbook cannot be read: {error}") from error


def _cells_to_last(sheet: bytes) -> int:
    """Return how many cells a sheet has up to its last row and column, or half of that: each takes memory."""
    columns, last_row = {b""}, 0
    for place in _PLACE.finditer(sheet):
        columns.add(place[1].upper())
        last_row = max(last_row, int(place[2]))
    last_column = max(reduce(lambda number, letter: 26 * number + letter - 64, name, 0) for name in columns)
    rows = _ROW.split(sheet)  # of which some, and their cells, may not say where they are
    return max(last_row, len(rows)) * max(last_column, *(len(_CELL.findall(row)) for row in rows))
