"""How a table is declared: columns, grain, layout of its files, the tables it is made of, and rules for rows.

Schema, reader, catalogue, data dictionary and Dagster's metadata are made from the declaration. The
declarations themselves are in `tables`.
"""

import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, ClassVar

import pandera.polars as pa
import polars as pl
from pandera.api.polars.types import PolarsData
from pandera.backends.polars.checks import PolarsCheckBackend
from pandera.errors import SchemaErrors

Strings = Annotated[pl.List, pl.String]
Instant = Annotated[pl.Datetime, "us", "UTC"]

_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 80


class Layout(Enum):
    """Which files a table is kept in."""

    SNAPSHOT = auto()
    """One file, which a run replaces."""
    BY_DAY = auto()
    """A file for each day."""
    BY_RUN = auto()
    """A file for each run; runs only ever add."""


class Table(pa.DataFrameModel):
    """A stored table. Its class says what the columns do not.

    Attributes:
        __key__: The grain: the columns that identify a row.
        __layout__: Which files it is kept in.
        __reads__: Tables that it is made of.
    """

    __key__: ClassVar[tuple[str, ...]] = ()
    __layout__: ClassVar[Layout] = Layout.SNAPSHOT
    __reads__: ClassVar[tuple[str, ...]] = ()


def column(
    description: str,
    *,
    codes: Mapping[str, str] | None = None,
    since: str | None = None,
    nullable: bool = False,
    **checks: Any,
) -> Any:
    """Declare a column: what it holds, the codes that it may hold, and checks as for `pandera.Field`.

    `since` is the version that brought it, where it came later than its table: older rows have null there.
    """
    metadata = {"since": since, "codes": dict(codes or {})}
    isin = tuple(codes) if codes else None
    nullable = nullable or since is not None
    return pa.Field(description=description, metadata=metadata, isin=isin, nullable=nullable, **checks)


def row_rule(text: str, holds: pl.Expr) -> Any:
    """Declare a rule over several columns of each row; `text` says what must hold."""
    return pa.dataframe_check(classmethod(lambda _, data: data.lazyframe.select(holds)), error=text)


class InvalidTableError(ValueError):
    """A table that must not be stored: which column breaks which rule, and the first rows that do."""


def table_name(model: type[Table]) -> str:
    """Name of a table: that of its class, in lower case with underscores."""
    return re.sub("(?<!^)(?=[A-Z])", "_", model.__name__).lower()


@cache  # asked at each reading of a file
def polars_schema(model: type[Table]) -> pl.Schema:
    """Column names and types of a table, in order."""
    return pl.Schema({name: column.dtype.type for name, column in model.to_schema().columns.items()})


def description(model: type[Table]) -> str:
    """What a table holds, as one paragraph."""
    return " ".join((inspect.getdoc(model) or "").split())


def column_descriptions(model: type[Table]) -> dict[str, str]:
    """What each column of a table holds, in order; of codes the meaning of each."""
    return {
        name: " ".join([column.description, *_meanings(column.metadata["codes"])])
        for name, column in model.to_schema().columns.items()
    }


def _meanings(codes: Mapping[str, str]) -> Iterator[str]:
    for code, meaning in codes.items():
        said = meaning.removeprefix(f"{code.capitalize()}: ")
        yield f"{code}: {said[0].lower()}{said[1:]}"


def column_codes(model: type[Table]) -> dict[str, Mapping[str, str]]:
    """The values of each column that holds codes, with their meanings."""
    return _metadata(model, "codes")


@cache
def later_columns(model: type[Table]) -> dict[str, str]:
    """The columns that files of older versions lack, and the version that brought each; they read as null."""
    return _metadata(model, "since")


def _metadata(model: type[Table], key: str) -> dict[str, Any]:
    columns = model.to_schema().columns
    return {name: column.metadata[key] for name, column in columns.items() if column.metadata[key]}


def empty(model: type[Table]) -> pl.DataFrame:
    """A table without rows."""
    return polars_schema(model).to_frame()


def validated(model: type[Table], frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` unchanged when it is a valid table; an error names what differs and the bad rows."""
    problems = list(_differing_columns(polars_schema(model), frame.schema))
    if not problems and not _keeps_all_rules(model, frame):
        try:
            model.validate(frame, lazy=True)
        except SchemaErrors as errors:
            problems = list(_broken_rules(errors.failure_cases, frame, model.__key__))
    if problems:
        raise InvalidTableError(f"{table_name(model)} cannot be stored:\n" + "\n".join(problems))
    return frame


def _keeps_all_rules(model: type[Table], frame: pl.DataFrame) -> bool:
    """Whether pandera would find nothing, in one query: it asks Polars several times for each column."""
    schema, rows = model.to_schema(), frame.lazy()
    answers = [PolarsCheckBackend(rule).apply(PolarsData(rows)) for rule in schema.checks or ()]
    for name, declared in schema.columns.items():
        column = pl.col(name)
        holds = [
            _CHECKS[check.name](column, *(bound for bound in check.statistics.values() if bound is not None))
            for check in declared.checks
        ]
        holds += [column.is_unique()] if declared.unique else []
        if not declared.nullable:
            known = column.is_not_nan() if frame.schema[name].is_float() else column.is_not_null()
            holds.append(known.fill_null(value=False))
        answers += [rows.select(each) for each in holds]
    return all(answer.item() for answer in pl.collect_all([each.select(pl.all().all()) for each in answers]))


_CHECKS: Mapping[str, Callable[[pl.Expr, Any], pl.Expr]] = {
    "greater_than": operator.gt,
    "greater_than_or_equal_to": operator.ge,
    "less_than_or_equal_to": operator.le,
    "isin": lambda column, values: column.is_in(values),
    "str_length": lambda column, shortest: column.str.len_chars() >= shortest,
}
"""The checks that columns are declared with, by pandera's names; another one is to be added here."""


def _differing_columns(expected: pl.Schema, given: pl.Schema) -> Iterator[str]:
    yield from (f"- column {name} is missing" for name in expected if name not in given)
    yield from (f"- column {name} is unknown" for name in given if name not in expected)
    for name in expected:
        if name in given and given[name] != expected[name]:
            yield f"- column {name} is {given[name]}, not {expected[name]}"
    if set(given) == set(expected) and list(given) != list(expected):
        yield f"- columns are not in the order {', '.join(expected)}"


def _broken_rules(failures: pl.DataFrame, frame: pl.DataFrame, key: tuple[str, ...]) -> Iterator[str]:
    """Each broken rule with the first rows that break it: their key and the column, or the whole row."""
    for (column, rule), cases in failures.group_by("column", "check", maintain_order=True):
        rows = frame[cases["index"].head(_SHOWN_ROWS)]
        if column in frame.columns:
            rows = rows.select(*dict.fromkeys((*key, str(column))))
        yield f"- {column}: {rule}, broken by {cases.height} of {frame.height} rows:"
        for row in rows.iter_rows(named=True):
            yield "    " + ", ".join(f"{name}={_shown(value)}" for name, value in row.items())


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
