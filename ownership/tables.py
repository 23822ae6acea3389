"""The stored tables: what a row is, what each column holds and in which unit, and which values are refused.

One strict Pandera model for each table. Tables are read and written elsewhere; how rows come about is told
by the other modules of this room. The data dictionary is generated from here.
"""

import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import pandera.polars as pa
import polars as pl
from pandera.api.polars.model_config import BaseConfig
from pandera.errors import SchemaErrors

EVIDENCE = (
    "unreadable_asset",
    "no_hostname",
    "excluded_host",
    "hostname_collision",
    "no_logons",
    "too_few_events",
    "single_user",
    "majority",
    "no_majority",
)
"""What the logons of a host say, the first that applies (rules 2.3)."""

NAMING = ("single_user", "majority")
"""The evidence that names an owner; every other value leaves the host as it is (rules 1.2)."""

MATCH = ("matched", "no_user_asset", "ambiguous_user")
"""What the inventory says about the user whom the evidence names."""

ACTION = ("write", "agree", "conflict", "keep", "none", "no_host")
"""What follows for the host asset."""

GONE = "gone"
"""Stands for an action in owner_decisions_history where a host is decided about no more."""

OUTCOME = ("planned", "intended", "written", "owned_meanwhile", "failed", "not_written", "undone")
"""What became of an intended write (rules 7.5)."""

Strings = Annotated[pl.List, pl.String]
Instant = Annotated[pl.Datetime, "us", "UTC"]
OwnerValues = Annotated[pl.Struct, {"owner": pl.String, "department": pl.String, "criticality": pl.String}]

_NOT_EMPTY = {"min_value": 1}
_PROBLEM = "Why the asset cannot be read whole: field, type found there and setting; null: it can be."
_SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 80


def _rule(text: str, holds: pl.Expr) -> Any:
    """A rule over several columns of each row; `text` says what must hold."""
    return pa.dataframe_check(classmethod(lambda _, data: data.lazyframe.select(holds)), error=text)


def _null_has_a_reason(*columns: str) -> Any:
    """A rule: only of an asset that cannot be read a list is null, and the problem says why."""
    known = pl.all_horizontal(pl.col(column).is_not_null() for column in columns)
    return _rule(
        f"{', '.join(columns)} are null only where problem says why", pl.col("problem").is_not_null() | known
    )


def _since(version: str) -> dict[str, str]:
    """Metadata of a column that came later: the version that brought it. Older rows have null there."""
    return {"since": version}


class _Strict(BaseConfig):
    """Exactly the columns named, in this order."""

    strict = True
    ordered = True


class Table(pa.DataFrameModel):
    """A stored table; `__key__` is its grain, the columns that tell one row from another."""

    Config: type[BaseConfig] = _Strict
    __key__: ClassVar[tuple[str, ...]] = ()


class LogonCounts(Table):
    """How often a user logged on to a host on one day, both names spelled as the documents spell them."""

    __key__ = ("day", "document_hostname", "document_username")

    day: pl.Date = pa.Field(description="Calendar day in the instance's time zone.")
    document_hostname: pl.String = pa.Field(description="Host name as the documents spell it.")
    document_username: pl.String = pa.Field(description="User name as the documents spell it.")
    events: pl.Int64 = pa.Field(description="Logon events that day (documents).", ge=1)


class LogonDays(Table):
    """One fetched day: how many documents matched the query and could be counted, and when that was."""

    __key__ = ("day",)

    day: pl.Date = pa.Field(description="Calendar day in the instance's time zone.", unique=True)
    matching: pl.Int64 = pa.Field(description="Documents that match the query.", ge=0)
    counted: pl.Int64 = pa.Field(
        description="Events in logon_counts; a document with several users counts once for each.", ge=0
    )
    lacking_user: pl.Int64 = pa.Field(description="Matching documents without a user name.", ge=0)
    lacking_host: pl.Int64 = pa.Field(description="Matching documents without a host name.", ge=0)
    fetched_at: Instant = pa.Field(description="When the day was fetched (UTC).")
    settings_fingerprint: pl.String = pa.Field(
        description="Hash of the settings the day was fetched with (URL, index, query, fields, time zone).",
        str_length=_NOT_EMPTY,
    )

    lacking_within_matching = _rule(
        "lacking_user and lacking_host are at most matching",
        pl.max_horizontal("lacking_user", "lacking_host") <= pl.col("matching"),
    )


class InventoryHosts(Table):
    """A host asset as the inventory listed it."""

    __key__ = ("host_id",)

    host_id: pl.String = pa.Field(description="Id of the host asset.", unique=True, str_length=_NOT_EMPTY)
    hostnames: Strings = pa.Field(
        description="Values of the platform hostname field; empty: none; null: cannot be read.", nullable=True
    )
    owner_ids: Strings = pa.Field(
        description="Ids of the user assets that own the host; empty: no owner; null: cannot be read, so "
        "whether it has one is not known.",
        nullable=True,
    )
    department: pl.String = pa.Field(description="Department of the host.", nullable=True)
    criticality: pl.String = pa.Field(description="Criticality of the host.", nullable=True)
    problem: pl.String = pa.Field(description=_PROBLEM, nullable=True, metadata=_since("0.2.0"))
    listed_at: Instant = pa.Field(description="When the inventory was listed (UTC).")

    null_has_a_reason = _null_has_a_reason("hostnames", "owner_ids")


class InventoryUsers(Table):
    """A user asset as the inventory listed it."""

    __key__ = ("user_id",)

    user_id: pl.String = pa.Field(description="Id of the user asset.", unique=True, str_length=_NOT_EMPTY)
    user_value: Strings = pa.Field(
        description="Values of the instance's platform user value field; null: cannot be read.", nullable=True
    )
    user_email: Strings = pa.Field(description="E-mail addresses; null: cannot be read.", nullable=True)
    directory_user_sam_account_name: Strings = pa.Field(
        description="SAM account names; null: cannot be read.", nullable=True
    )
    directory_user_surname: Strings = pa.Field(description="Surnames; null: cannot be read.", nullable=True)
    user_department: pl.String = pa.Field(description="Department of the user.", nullable=True)
    criticality: pl.String = pa.Field(description="Criticality of the user.", nullable=True)
    problem: pl.String = pa.Field(description=_PROBLEM, nullable=True, metadata=_since("0.2.0"))
    listed_at: Instant = pa.Field(description="When the inventory was listed (UTC).")

    null_has_a_reason = _null_has_a_reason(
        "user_value", "user_email", "directory_user_sam_account_name", "directory_user_surname"
    )


class HostUserShares(Table):
    """A user's part in the logons of a host over the whole look-back window, excluded users left out."""

    __key__ = ("hostname", "username")

    hostname: pl.String = pa.Field(description="Normalised host name.", str_length=_NOT_EMPTY)
    username: pl.String = pa.Field(description="Normalised user name.", str_length=_NOT_EMPTY)
    events: pl.Int64 = pa.Field(description="Logon events of the user on the host in the window.", ge=1)
    total_events: pl.Int64 = pa.Field(
        description="Logon events of all users on the host in the window.", ge=1
    )
    share: pl.Float64 = pa.Field(description="events / total_events (0 to 1).", gt=0, le=1)
    rank: pl.Int64 = pa.Field(description="1 for the user with most events; ties by user name.", ge=1)
    first_seen: pl.Date = pa.Field(description="First day with a logon of the user on the host.")
    last_seen: pl.Date = pa.Field(description="Last day with a logon of the user on the host.")
    username_spellings: Strings = pa.Field(
        description="The user's name as this host's documents spell it, sorted."
    )
    hostname_spellings: Strings = pa.Field(
        description="The host's name as the documents spell it, those of excluded users included, sorted."
    )

    events_within_total = _rule("events is at most total_events", pl.col("events") <= pl.col("total_events"))
    seen_in_order = _rule("first_seen is not after last_seen", pl.col("first_seen") <= pl.col("last_seen"))


class UsernameMatches(Table):
    """A user asset that a user name of the evidence may stand for, and the first field that says so.

    A user name that fits no user asset has one row without one. A user name stands for a user asset where it
    has one decisive row, and that one without a problem.
    """

    __key__ = ("username", "user_id")

    username: pl.String = pa.Field(description="Normalised user name of the evidence.", str_length=_NOT_EMPTY)
    user_id: pl.String = pa.Field(
        description="Id of the user asset; null: no user asset has the name.", nullable=True
    )
    matched_by: pl.String = pa.Field(
        description="Field of the user asset that holds the name.", nullable=True
    )
    decisive: pl.Boolean = pa.Field(
        description="Whether the field is the first that gave any match, or the user asset cannot be read "
        "whole: then any of its fields makes the name ambiguous."
    )
    problem: pl.String = pa.Field(
        description="Why the user asset cannot be read whole, so that nobody is guessed; null: it can be.",
        nullable=True,
        metadata=_since("0.2.0"),
    )

    complete = _rule(
        "user_id and matched_by come together, and nobody is not decisive",
        pl.col("user_id").is_null().eq(pl.col("matched_by").is_null())
        & (pl.col("user_id").is_not_null() | ~pl.col("decisive")),
    )


class OwnerDecisions(Table):
    """What was decided for a host, and why.

    One row for each host asset, and one for each host name of the evidence that no host asset has.
    """

    __key__ = ("hostname", "host_id")

    hostname: pl.String = pa.Field(
        description="Normalised host name; null: the asset has none.", nullable=True
    )
    host_id: pl.String = pa.Field(
        description="Id of the host asset; null: no asset has the name.", nullable=True
    )
    evidence: pl.String = pa.Field(description="What the logons say.", isin=EVIDENCE)
    match: pl.String = pa.Field(
        description="What the user assets say; null: the evidence names nobody.", isin=MATCH, nullable=True
    )
    action: pl.String = pa.Field(description="What follows for the host asset.", isin=ACTION)
    username: pl.String = pa.Field(
        description="User with most events, ties by name; null: no logons.", nullable=True
    )
    events: pl.Int64 = pa.Field(description="Logon events of that user in the window.", ge=0)
    total_events: pl.Int64 = pa.Field(description="Logon events of all users in the window.", ge=0)
    share: pl.Float64 = pa.Field(
        description="events / total_events (0 to 1); null: no logons.", gt=0, le=1, nullable=True
    )
    user_count: pl.Int64 = pa.Field(description="Users with logons in the window.", ge=0)
    runner_up_username: pl.String = pa.Field(description="User with second most events.", nullable=True)
    runner_up_events: pl.Int64 = pa.Field(description="Logon events of the runner-up.", ge=1, nullable=True)
    first_seen: pl.Date = pa.Field(description="First day with a logon of username.", nullable=True)
    last_seen: pl.Date = pa.Field(description="Last day with a logon of username.", nullable=True)
    resolved_owner: pl.String = pa.Field(description="Id of the user asset found.", nullable=True)
    matched_by: pl.String = pa.Field(
        description="Field of the user assets that decided, also where it named several.", nullable=True
    )
    candidate_ids: Strings = pa.Field(
        description="Ids of the user assets the deciding field names, and of those that any field names and "
        "that cannot be read whole, sorted."
    )
    existing_owner: pl.String = pa.Field(
        description="Owner the host had, several joined with commas; null: none, or, of an asset that cannot "
        "be read, not known.",
        nullable=True,
    )
    window_from: pl.Date = pa.Field(description="First day of the look-back window.")
    window_to: pl.Date = pa.Field(description="Last day of the look-back window.")
    threshold_percent: pl.Int64 = pa.Field(
        description="Share that a leader among several users must exceed (percent).", ge=50, le=99
    )
    decided_at: Instant = pa.Field(description="When the run decided (UTC).")
    run_id: pl.String = pa.Field(description="Id of the run that decided.")
    problem: pl.String = pa.Field(
        description="Why the host asset cannot be read; null: it can be.",
        nullable=True,
        metadata=_since("0.2.0"),
    )

    events_within_total = _rule("events is at most total_events", pl.col("events") <= pl.col("total_events"))
    match_follows_evidence = _rule(
        "match is set exactly when the evidence names somebody",
        pl.col("match").is_not_null() == pl.col("evidence").is_in(NAMING),
    )
    owner_follows_match = _rule(
        "resolved_owner is set exactly when match is matched",
        pl.col("resolved_owner").is_not_null() == pl.col("match").eq_missing("matched"),
    )
    problem_is_the_evidence = _rule(
        "problem is set exactly when the evidence is unreadable_asset, and the action is none then",
        pl.col("problem").is_not_null().eq(pl.col("evidence") == "unreadable_asset")
        & (pl.col("problem").is_null() | pl.col("action").is_in(["none", GONE])),
    )
    never_overwrite = _rule(
        "write has a host asset without an owner, and a resolved owner",
        (pl.col("action") != "write")
        | pl.col("host_id").is_not_null()
        & pl.col("resolved_owner").is_not_null()
        & pl.col("existing_owner").is_null(),
    )


class OwnerDecisionsHistory(OwnerDecisions):
    """A decision that differs from the one before it, as the run that made it stored it.

    A decision holds until the host's next row: another name, evidence, problem, match, action, winner,
    candidates or owner make a row, other counts do not. A host that neither inventory nor logons know any
    more gets a last row with the action gone. Rows are kept for keep.history_days, and the older ones that
    still held then.
    """

    __key__ = ("hostname", "host_id", "decided_at")

    action: pl.String = pa.Field(
        description="What followed for the host asset; gone: the host is decided about no more, and the rest "
        "of the row is what was known last.",
        isin=(*ACTION, GONE),
    )
    carried_over: pl.Boolean = pa.Field(
        description="Whether older rows were deleted and this one stayed, because it still held."
    )


class OwnerWrites(Table):
    """An intended write of one host asset and what became of it; rows are only ever added."""

    __key__ = ("run_id", "host_id")

    run_id: pl.String = pa.Field(description="Id of the run that planned the write.", str_length=_NOT_EMPTY)
    host_id: pl.String = pa.Field(description="Id of the host asset.", str_length=_NOT_EMPTY)
    hostname: pl.String = pa.Field(description="Normalised host name.")
    outcome: pl.String = pa.Field(description="What became of the write.", isin=OUTCOME)
    old_values: OwnerValues = pa.Field(description="Owner, department and criticality before.")
    new_values: OwnerValues = pa.Field(
        description="Owner, department and criticality to be written; null: the field is not sent."
    )
    message: pl.String = pa.Field(description="What the service said.", nullable=True)
    intended_at: Instant = pa.Field(description="When the write was planned (UTC).")
    completed_at: Instant = pa.Field(description="When the outcome was known (UTC).", nullable=True)
    target: pl.String = pa.Field(
        description="Inventory that the write is for: platform URL, tenant, and a fingerprint of these, the "
        "contract and the names of the host fields; null: planned by a version before 0.2.0.",
        nullable=True,
        metadata=_since("0.2.0"),
    )


TABLES: Mapping[str, type[Table]] = MappingProxyType(
    {
        "logon_counts": LogonCounts,
        "logon_days": LogonDays,
        "inventory_hosts": InventoryHosts,
        "inventory_users": InventoryUsers,
        "host_user_shares": HostUserShares,
        "username_matches": UsernameMatches,
        "owner_decisions": OwnerDecisions,
        "owner_decisions_history": OwnerDecisionsHistory,
        "owner_writes": OwnerWrites,
    }
)
"""The stored tables by name, in the order in which a run fills them."""


class InvalidTableError(ValueError):
    """A table that must not be stored: which column breaks which rule, and the first rows that do."""


def polars_schema(model: type[Table]) -> pl.Schema:
    """Column names and types of a table, in order."""
    return pl.Schema({name: column.dtype.type for name, column in model.to_schema().columns.items()})


def description(model: type[Table]) -> str:
    """What a table holds, as one paragraph."""
    return " ".join((inspect.getdoc(model) or "").split())


def column_descriptions(model: type[Table]) -> dict[str, str]:
    """What each column of a table holds, in order."""
    return {name: column.description for name, column in model.to_schema().columns.items()}


def later_columns(model: type[Table]) -> dict[str, str]:
    """The columns that files of older versions lack, and the version that brought each; they read as null."""
    columns = model.to_schema().columns
    return {name: column.metadata["since"] for name, column in columns.items() if column.metadata}


def empty(model: type[Table]) -> pl.DataFrame:
    """A table without rows."""
    return polars_schema(model).to_frame()


def validated(model: type[Table], frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` unchanged when it is a valid table.

    Raises:
        InvalidTableError: names every differing column and every broken rule with its first rows.
    """
    problems = list(_differing_columns(polars_schema(model), frame.schema))
    if not problems:
        try:
            model.validate(frame, lazy=True)
        except SchemaErrors as errors:
            problems = list(_broken_rules(errors.failure_cases, frame, model.__key__))
    if problems:
        table = next(name for name, known in TABLES.items() if known is model)
        raise InvalidTableError(f"{table} cannot be stored:\n" + "\n".join(problems))
    return frame


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
