"""The data dictionary: stored tables and views as a page, from their schemas and descriptions."""

import inspect
from collections.abc import Iterator
from typing import Any

import polars as pl

from ownership.declaration import Table, column_codes, later_columns, polars_schema
from ownership.tables import TABLES
from resources.store.views import VIEWS, View

_HEAD = """\
# Data dictionary

Generated from `ownership/tables.py` and `resources/store/views.py` by `make docs`; do not edit.

The catalogue `warehouse.duckdb` has one schema for each instance and in it one view for each of these tables,
and the [views](#views) that ask them the commonest questions. Tables and columns carry these descriptions
there as well: `SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'owner_decisions'`.
"""

_CODES = """\
## Codes

What the values of these columns mean, in whichever table they stand.
"""

_VIEWS = """\
## Views

Each is a query over the tables above; `SELECT sql FROM duckdb_views()` shows it. The
[cookbook](cookbook.md) puts them to use.
"""


def data_dictionary() -> str:
    """Return the page as Markdown: each table with its grain and its columns, codes, and each view."""
    tables = (line for name, model in TABLES.items() for line in _table(name, model))
    views = (line for name, view in VIEWS.items() for line in _view(name, view))
    return "\n".join([_HEAD, *tables, _CODES, *_codes(), _VIEWS, *views])


def _table(name: str, model: type[Table]) -> Iterator[str]:
    columns = model.to_schema().columns
    since = {column: f" Since {version}." for column, version in later_columns(model).items()}
    yield f"## {name}\n"
    yield f"{inspect.getdoc(model)}\n"
    yield f"One row for each {', '.join(f'`{column}`' for column in model.__key__)}.\n"
    yield "| column | type | null | meaning |"
    yield "|---|---|---|---|"
    for column, kind in polars_schema(model).items():
        null = "yes" if columns[column].nullable else ""
        link = f" [Its values](#{_heading(name, column)})." if columns[column].metadata["codes"] else ""
        meaning = f"{columns[column].description}{link}{since.get(column, '')}"
        yield f"| `{column}` | {duckdb_type(kind)} | {null} | {meaning} |"
    yield ""


def _codes() -> Iterator[str]:
    for heading, codes in _headings().items():
        yield f"### {heading}\n"
        yield "| value | meaning |"
        yield "|---|---|"
        for code, meaning in codes.items():
            yield f"| `{code}` | {meaning} |"
        yield ""


def _headings() -> dict[str, dict[str, str]]:
    """The values of columns that hold codes; one that holds others elsewhere is listed with its table."""
    meanings: dict[str, dict[str, str]] = {}
    for table, model in TABLES.items():
        for column, codes in column_codes(model).items():
            together = {**meanings.get(column, {}), **codes}
            alike = not meanings.get(column) or together.keys() in (codes.keys(), meanings[column].keys())
            meanings[column if alike else f"{column} of {table}"] = together if alike else dict(codes)
    return meanings


def _heading(table: str, column: str) -> str:
    """Where the page lists the values of a column, as a link."""
    of_table = f"{column} of {table}"
    return (of_table if of_table in _headings() else column).replace(" ", "-")


def _view(name: str, view: View) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{view.comment}\n"
    yield "| column | meaning |"
    yield "|---|---|"
    for column, meaning in view.columns.items():
        yield f"| `{column}` | {meaning} |"
    yield ""


def duckdb_type(kind: Any) -> str:
    """Name a column's type as DuckDB does, which is what analysts see."""
    if isinstance(kind, pl.List):
        return f"{duckdb_type(kind.inner)}[]"
    if isinstance(kind, pl.Struct):
        return f"STRUCT({', '.join(f'{field.name} {duckdb_type(field.dtype)}' for field in kind.fields)})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMPTZ"
    names = {
        pl.String: "VARCHAR",
        pl.Int64: "BIGINT",
        pl.Float64: "DOUBLE",
        pl.Date: "DATE",
        pl.Boolean: "BOOLEAN",
    }
    return names[kind.base_type()]
