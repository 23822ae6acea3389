"""The data dictionary: stored tables and views as a page, from their schemas and descriptions."""

import inspect
from collections.abc import Iterable, Iterator

from ownership.declaration import Table, columns_of, later_columns, polars_schema
from ownership.tables import TABLES
from resources.store.catalogue import duckdb_type
from resources.store.views import VIEWS, View

_FIRST_RELEASE = "1.0.0"
"""Columns that only unpublished versions lacked need no word about it."""

_HEAD = """\
# Data dictionary

`make docs` writes this page from `ownership/tables.py` and `resources/store/views.py`.

The catalogue `warehouse.duckdb` has a schema for each instance, with these tables, and the [views](#views)
that answer common questions. Tables and columns carry the same descriptions there:
`SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'owner_decisions'`.
"""

_CODES = """\
## Codes

The values of columns that hold codes.
"""

_VIEWS = """\
## Views

Queries over the tables above, used in the [cookbook](cookbook.md). `SELECT sql FROM duckdb_views()` shows
them.
"""


def data_dictionary() -> str:
    """Return the page as Markdown: each table with its grain and its columns, codes, and each view."""
    tables = (line for name, model in TABLES.items() for line in _table(name, model))
    views = (line for name, view in VIEWS.items() for line in _view(name, view))
    return "\n".join([_HEAD, *tables, _CODES, *_codes(), _VIEWS, *views])


def _table(name: str, model: type[Table]) -> Iterator[str]:
    columns = columns_of(model)
    inherited = [column for column in columns if column not in model.__annotations__]
    yield f"## {name}\n"
    yield f"{inspect.getdoc(model)}\n"
    yield f"Key: {_listed(model.__key__)}.\n"
    for column, kind in polars_schema(model).items():
        if column not in inherited:
            coded = columns[column].codes
            label = f"[`{column}`](#{_heading(name, column)})" if coded else f"`{column}`"
            said = "null: " in columns[column].description
            null = ", nullable" if columns[column].nullable and not said else ""
            version = later_columns(model).get(column, _FIRST_RELEASE)
            since = "" if version == _FIRST_RELEASE else f" Since {version}."
            yield f"- {label} {duckdb_type(kind)}{null}: {columns[column].description}{since}"
    if inherited:
        base = next(table for table, parent in TABLES.items() if parent in model.__bases__)
        yield f"- All other columns are those of [{base}](#{base})."
    yield ""


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


def _codes() -> Iterator[str]:
    for heading, codes in _headings().items():
        yield f"### {heading}\n"
        for code, meaning in codes.items():
            yield f"- `{code}`: {meaning}"
        yield ""


def _headings() -> dict[str, dict[str, str]]:
    """The values of columns that hold codes; one that holds others elsewhere is listed with its table."""
    meanings: dict[str, dict[str, str]] = {}
    for table, model in TABLES.items():
        coded = {name: column.codes for name, column in columns_of(model).items() if column.codes}
        for column, codes in coded.items():
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
    taken = {column: table for column, table in view.meanings.items() if table in TABLES}
    for table in dict.fromkeys(taken.values()):
        columns = (column for column in taken if taken[column] == table)
        yield f"- As in [{table}](#{table}): {_listed(columns)}."
    yield from (f"- `{name}`: {meaning}" for name, meaning in view.meanings.items() if name not in taken)
    yield ""
