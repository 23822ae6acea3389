"""How a table is declared: columns, grain, layout of its files, the tables it is made of, and rules for rows.

Schema, reader, catalogue, `docs tables` and Dagster's metadata are made from the declarations in `tables`.
Pandera is imported when a table is stored: that takes longer than all other imports of a command that reads.
"""

import inspect
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, get_type_hints

import polars as pl

# Polars prefers the streaming engine, which once hung while it collected one row. It is named where frames
# are large: for counts, shares and evidence.
if "POLARS_ENGINE_AFFINITY" not in os.environ:
    pl.Config.set_engine_affinity("in-memory")

Instant = Annotated[pl.Datetime, "us", "UTC"]

_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 80


class Layout(Enum):
    """Which files a table is kept in."""

    SNAPSHOT = auto()  # one file, which a run replaces
    BY_DAY = auto()  # a file for each day
    LEDGER = auto()  # one file, a copy of what the ledger has


class PersonalData(Enum):
    """Which personal data a column of text holds, for `forget`; codes are not personal."""

    NOTHING = auto()
    USER_ID = auto()  # of a user asset
    JOINED_USER_IDS = auto()  # as `ownership.names` joins them
    ACCOUNT = auto()  # a name as the rules compare it
    SPELLING = auto()  # an account name as somebody spelled it, or an e-mail address
    STARTER = auto()  # `user` and a spelling, or `schedule` and its name
    WORDS = auto()  # of people and services; they go with the rows about a person
    SETTINGS = auto()  # a JSON object: names below exclude_users and set, words below reason


class Table:
    """A stored table: its columns, layout, and what it is made from.

    `__key__` is its grain: the columns that identify a row. `__reads__` is what Dagster's lineage draws: of a
    table that is made from results only these, or the lineage would have forty more lines.
    """

    __key__: ClassVar[tuple[str, ...]]
    __layout__: ClassVar[Layout] = Layout.SNAPSHOT
    __reads__: ClassVar[tuple[str, ...]] = ("owner_decisions",)
    __newest_first__: ClassVar[str] = ""  # the column by which analysts see the rows
    __filled_by__: ClassVar[str]

    def __init_subclass__(cls, filled_by: str = "") -> None:
        """Name the command that fills the table, if a run does not."""
        cls.__filled_by__ = filled_by
        cls.__key__ = tuple(name for name, column in columns_of(cls).items() if column.is_key)


class Column:
    """What a column holds, the codes that it may hold, and checks as for `pandera.Field`."""

    def __init__(
        self,
        description: str,
        *,
        codes: Mapping[str, str] = MappingProxyType({}),
        key: bool = False,
        nullable: bool = False,
        **checks: Any,
    ) -> None:
        self.description, self.codes, self.checks = description, codes, checks
        self.is_key, self.nullable = key, nullable


column: Any = Column  # a declaration is annotated with the type of its values


@dataclass(frozen=True)
class RowRule:
    """What must hold over several columns of each row, in words and as an expression."""

    text: str
    holds: pl.Expr


class InvalidTableError(ValueError):
    """A table that must not be stored: which column breaks which rule, and the first rows that do."""


def table_name(model: type[Table]) -> str:
    """Return the name of a table: that of its class, in lower case with underscores."""
    return re.sub("(?<!^)(?=[A-Z])", "_", model.__name__).lower()


def _declared(model: type[Table], kind: type) -> dict[str, Any]:
    """Return what a table declares of a kind by name, in order; that of its base first."""
    everything = {name: value for base in reversed(model.__mro__) for name, value in vars(base).items()}
    return {name: value for name, value in everything.items() if isinstance(value, kind)}


def columns_of(model: type[Table]) -> dict[str, Column]:
    """Return the columns of a table by name, in order."""
    return _declared(model, Column)


@cache
def polars_schema(model: type[Table]) -> pl.Schema:
    """Return the column names and types of a table, in order."""
    types = get_type_hints(model, include_extras=True)
    return pl.Schema({name: _data_type(types[name]) for name in columns_of(model)})


def _data_type(annotation: Any) -> Any:
    """Return the type of a column; that of a list or a struct holds further ones."""
    inner = [one for one in getattr(annotation, "__metadata__", ()) if not isinstance(one, PersonalData)]
    plain = getattr(annotation, "__origin__", annotation)
    return plain(*inner) if inner else plain


@cache
def personal_columns(model: type[Table]) -> dict[str, PersonalData]:
    """Return what the columns of a table say of persons; numbers, times and codes are not among them."""
    types = get_type_hints(model, include_extras=True)
    declared = {name: getattr(types[name], "__metadata__", ()) for name in columns_of(model)}
    return {name: one for name, meta in declared.items() for one in meta if isinstance(one, PersonalData)}


@cache
def _validator(model: type[Table]) -> Any:
    """Make the Pandera model that validates a table."""
    import pandera.polars as pa  # noqa: PLC0415  (see above)

    parts: dict[str, Any] = {"__annotations__": dict(polars_schema(model))}
    for name, column in columns_of(model).items():
        isin, unique = tuple(column.codes) or None, model.__key__ == (name,)
        parts[name] = pa.Field(nullable=column.nullable, isin=isin, unique=unique, **column.checks)
    for name, rule in _declared(model, RowRule).items():
        holds = classmethod(lambda _, data, rule=rule: data.lazyframe.select(rule.holds))
        parts[name] = pa.dataframe_check(holds, error=rule.text)
    return type(model.__name__, (pa.DataFrameModel,), parts)


def purpose(model: type[Table]) -> str:
    """Return what a table holds, as one paragraph."""
    return " ".join((inspect.getdoc(model) or "").split())


def description(model: type[Table]) -> str:
    """Return what a table holds, as one paragraph, and which command fills it."""
    filled = f" Filled by `asset-owners {model.__filled_by__}`." if model.__filled_by__ else ""
    return purpose(model) + filled


def column_descriptions(model: type[Table]) -> dict[str, str]:
    """Return what each column of a table holds, in order; for codes the meaning of each."""
    return {
        name: " ".join([column.description, *_meanings(column.codes)])
        for name, column in columns_of(model).items()
    }


def _meanings(codes: Mapping[str, str]) -> Iterator[str]:
    for code, meaning in codes.items():
        said = meaning.removeprefix(f"{code.capitalize()}: ")
        yield f"{code}: {said[0].lower()}{said[1:]}"


def empty(model: type[Table]) -> pl.DataFrame:
    """Return a table without rows."""
    return polars_schema(model).to_frame()


def validated(model: type[Table], frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` unchanged when it is a valid table; an error names what differs and the bad rows."""
    problems, schema = list[str](), polars_schema(model)
    if frame.schema != schema:
        problems.append(f"- its columns are {dict(frame.schema)}, not {dict(schema)}")
    elif frame.height:  # no rows break no rule
        from pandera.errors import SchemaErrors  # noqa: PLC0415  (see above)

        try:
            _validator(model).validate(frame, lazy=True)
        except SchemaErrors as errors:
            problems += _broken_rules(errors.failure_cases, frame, model)
    if problems:
        raise InvalidTableError(f"{table_name(model)} cannot be stored:\n" + "\n".join(problems))
    return frame


def _broken_rules(failures: pl.DataFrame, frame: pl.DataFrame, model: type[Table]) -> Iterator[str]:
    """Return each broken rule with the first rows that break it: their key and the column, or the whole row.

    Persons are not named: the message is kept where names are not expected.
    """
    persons = {name for name, holds in personal_columns(model).items() if holds is not PersonalData.NOTHING}
    for (column, rule), cases in failures.group_by("column", "check", maintain_order=True):
        rows = frame[cases["index"].head(_SHOWN_ROWS)]
        if column in frame.columns:
            rows = rows.select(*dict.fromkeys((*model.__key__, str(column))))
        yield f"- {column}: {rule}, broken by {cases.height} of {frame.height} rows:"
        for row in rows.iter_rows(named=True):
            shown = {name: "…" if value and name in persons else _shown(value) for name, value in row.items()}
            yield "    " + ", ".join(f"{name}={value}" for name, value in shown.items())


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
