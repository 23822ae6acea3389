"""The data dictionary: stored tables and views as a page, from their schemas and descriptions."""

import inspect
from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from ownership.declaration import Column, Table, columns_of, polars_schema
from ownership.tables import TABLES
from resources.store.catalogue import VIEWS, View, duckdb_type

_ENDS = ("low", "high")
"""How the names of columns end that hold an end of an interval."""

_HEAD = """\
# Data dictionary

The catalogue `warehouse.duckdb` has a schema for each instance, with these tables and
[views](#views). It shows the same descriptions:
`SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'owner_decisions'`.

Columns without a type are VARCHAR, or BIGINT where they count something; those that end in `_at` are
TIMESTAMPTZ. Columns that end in `low` and `high` are DOUBLE, the 95% interval of the number before them. Null
means that there is no value, or that it is not known, unless the description says something else.
"""

_SHARED = """\
## Shared columns

Columns that several tables have.
"""

_EXPLAINED = {
    "kind of host_profiles": "tuning.md#3-what-kind-of-host-what-kind-of-account",
    "kind of account_profiles": "tuning.md#3-what-kind-of-host-what-kind-of-account",
    "measure": "tuning.md#without-an-audit",
    "wrong_measure": "tuning.md#1-how-many-would-be-wrong",
}
"""Codes that another page explains, and where."""

_CODES = """\
## Codes

What the values of some columns mean.
"""

_VIEWS = """\
## Views

Queries over the tables above, used in the [cookbook](cookbook.md); `SELECT sql FROM duckdb_views()` shows
them.
"""


def data_dictionary() -> str:
    """Return the page as Markdown: each table with its grain and its columns, codes, and each view."""
    shared = dict(_shared_columns())
    columns = (_column(table, name) for name, table in shared.items())
    tables = (line for name, model in TABLES.items() for line in _table(name, model, shared))
    views = (line for name, view in VIEWS.items() for line in _view(name, view))
    return "\n".join([_HEAD, _SHARED, *columns, "", *tables, _CODES, *_codes(), _VIEWS, *views])


def _shared_columns() -> Iterator[tuple[str, str]]:
    """The columns that several tables describe alike, each with the first table that has it."""
    tables: dict[tuple[str, str], list[str]] = {}
    for table, model in TABLES.items():
        for name, column in _own_columns(model).items():
            tables.setdefault((name, column.description), []).append(table)
    yield from ((name, alike[0]) for (name, _), alike in tables.items() if len(alike) > 1)


def _own_columns(model: type[Table]) -> dict[str, Column]:
    """The columns that a table declares itself, but for the ends of intervals."""
    return {
        name: column
        for name, column in columns_of(model).items()
        if name in model.__annotations__ and not name.endswith(_ENDS)
    }


def _table(name: str, model: type[Table], shared: Mapping[str, str]) -> Iterator[str]:
    columns, own = columns_of(model), _own_columns(model)
    described = {column: columns_of(TABLES[table])[column].description for column, table in shared.items()}
    elsewhere = [column for column in own if own[column].description == described.get(column)]
    ends = [column for column in columns if column in model.__annotations__ and column.endswith(_ENDS)]
    yield f"## {name}\n"
    yield f"{inspect.getdoc(model)}\n"
    filled = f" Filled by `asset-owners {model.__filled_by__}`." if model.__filled_by__ else ""
    yield f"Key: {_listed(model.__key__)}.{filled}\n"
    yield from (_column(name, column) for column in own if column not in elsewhere)
    if elsewhere:
        yield f"- [Shared](#shared-columns): {_listed(elsewhere)}."
    if ends:
        yield f"- Intervals: {_listed(ends)}."
    if len(columns) > len(model.__annotations__.keys() & columns.keys()):
        base = next(table for table, parent in TABLES.items() if parent in model.__bases__)
        yield f"- All other columns are those of [{base}](#{base})."
    yield ""


def _column(table: str, name: str) -> str:
    """The line of a column."""
    model = TABLES[table]
    column = columns_of(model)[name]
    label = f"[`{name}`]({_heading(table, name)})" if column.codes else f"`{name}`"
    plain = name.endswith("_at") or polars_schema(model)[name] in (pl.String, pl.Int64)
    kind = "" if plain else f" {duckdb_type(polars_schema(model)[name])}"
    return f"- {label}{kind}: {column.description}"


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


def _codes() -> Iterator[str]:
    for heading, codes in _headings().items():
        if heading in _EXPLAINED:
            continue
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
    """Where the values of a column are explained, as a link."""
    of_table = f"{column} of {table}"
    heading = of_table if of_table in _headings() else column
    return _EXPLAINED.get(heading, f"#{heading.replace(' ', '-')}")


def _view(name: str, view: View) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{view.comment}\n"
    taken = {column: table for column, table in view.meanings.items() if table in TABLES}
    for table in dict.fromkeys(taken.values()):
        columns = (column for column in taken if taken[column] == table)
        yield f"- As in [{table}](#{table}): {_listed(columns)}."
    yield from (f"- `{name}`: {meaning}" for name, meaning in view.meanings.items() if name not in taken)
    yield ""
