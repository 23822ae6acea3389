"""Results for spreadsheets."""

import io

import polars as pl
import polars.selectors as cs
from xlsxwriter import Workbook

from ownership.names import printable

BOM = "\ufeff"
"""By this mark a spreadsheet knows that a CSV file is UTF-8."""
FORMULA = r"""(^|[;\t\r\n])([[\s\p{C}"]--[\t\r\n]]*[=+\-@＝＋－＠]|')"""  # noqa: RUF001  (wide signs are formulas, too)
"""The beginning of a formula, for the page's script as well."""
_GUARDED_FORMULA = FORMULA.replace(")(", ")'(", 1)
_MAX_CELL = 32_767
_AS_THEY_ARE = {
    "in_memory": True,
    "remove_timezone": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
}


def as_csv(table: pl.DataFrame) -> str:
    """Return a table as CSV for a spreadsheet: texts quoted, and no formulas."""
    return table.with_columns(without_formulas(pl.col(pl.String)).name.keep()).write_csv(
        quote_style="non_numeric"
    )


def hosts_as_csv(sheet: pl.DataFrame) -> str:
    """Return `hosts_sheet` as CSV, with shares as people read them: 0.7 is 70%."""
    percent = pl.format("{}%", (100 * cs.float()).round().cast(pl.Int64))
    return BOM + as_csv(sheet.with_columns(percent.name.keep()))


def as_xlsx(table: pl.DataFrame, *, title: str, answer: str | None = None) -> bytes:
    """Return a table as a workbook of one sheet, in which no text is a formula or a link.

    Its head and first column stay in sight, and each column can be filtered; shares are percentages.
    `answer` is a column in which yes or no can be chosen.
    """
    box = io.BytesIO()
    long = [text.name for text in table.select(pl.col(pl.String)) if text.str.len_chars().gt(60).any()]
    with Workbook(box, _AS_THEY_ARE) as workbook:
        table.with_columns(pl.col(pl.String).str.slice(0, _MAX_CELL)).write_excel(
            workbook,
            title,
            freeze_panes=(1, 1),
            autofilter=True,
            autofit=True,
            dtype_formats={pl.Date: "yyyy-mm-dd", pl.Float64: "0%"},
            column_widths=dict.fromkeys(long, 420),
            column_formats=dict.fromkeys(long, workbook.add_format({"text_wrap": True})),
        )
        if answer:
            column, allowed = table.columns.index(answer), {"validate": "list", "source": ["yes", "no"]}
            sheet = workbook.get_worksheet_by_name(title)
            sheet.data_validation(1, column, max(1, table.height), column, allowed)
    return box.getvalue()


def without_formulas(text: pl.Expr) -> pl.Expr:
    """Write texts so that no spreadsheet runs them: a name in a log may look like a formula.

    With the list separator `;` or a tab a cell begins after each of them and each line break, also in quotes.
    Each part that starts like a formula or with an apostrophe gets one more, so that names stay distinct.
    """
    return text.str.replace_all(FORMULA, "$1'$2")


def with_formulas(text: pl.Expr) -> pl.Expr:
    """Return texts of a CSV file as they were before `without_formulas`."""
    return text.str.replace_all(_GUARDED_FORMULA, "$1$2")


def printable_texts(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with escapes in its texts for what does not print, which spreadsheets lose."""
    texts = table.select(pl.col(pl.String))
    return table.with_columns(
        pl.Series(column.name, [text and printable(text) for text in column], pl.String) for column in texts
    )
