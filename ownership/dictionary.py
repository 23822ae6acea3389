"""The data dictionary: the stored tables as a page, from their schemas."""

import inspect
from collections.abc import Iterator
from typing import Any

import polars as pl

from ownership.schemas import TABLES, Table, polars_schema

_HEAD = """\
# Data dictionary

Generated from `ownership/schemas.py` by `make docs`; do not edit.

The catalogue `warehouse.duckdb` has one schema for each instance and in it one view for each of these tables.
"""


def data_dictionary() -> str:
    """Return the page as Markdown: each table with its grain and its columns."""
    return "\n".join([_HEAD, *(line for name, model in TABLES.items() for line in _table(name, model))])


def _table(name: str, model: type[Table]) -> Iterator[str]:
    columns = model.to_schema().columns
    yield f"## {name}\n"
    yield f"{inspect.getdoc(model)}\n"
    yield f"One row for each {', '.join(f'`{column}`' for column in model.__key__)}.\n"
    yield "| column | type | null | meaning |"
    yield "|---|---|---|---|"
    for column, kind in polars_schema(model).items():
        null = "yes" if columns[column].nullable else ""
        yield f"| `{column}` | {_type(kind)} | {null} | {columns[column].description} |"
    yield ""


def _type(kind: Any) -> str:
    """A type as DuckDB names it."""
    if isinstance(kind, pl.List):
        return f"{_type(kind.inner)}[]"
    if isinstance(kind, pl.Struct):
        return f"STRUCT({', '.join(f'{field.name} {_type(field.dtype)}' for field in kind.fields)})"
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
