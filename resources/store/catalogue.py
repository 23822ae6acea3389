"""The DuckDB catalogue that analysts open: described views over the stored tables, and nothing else."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from glob import escape
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from upath import UPath

from ownership.decisions import IDLE_DAYS, IDLE_FACTOR, OTHER_DAYS
from ownership.declaration import Layout, Table, column_descriptions, description, polars_schema
from ownership.names import STAND_IN
from ownership.tables import TABLES
from resources.locks import hold_lock
from resources.store.files import files_in, replacing


@dataclass(frozen=True)
class View:
    """A view: what a row is, the meaning of each column in order, and the query."""

    comment: str
    meanings: Mapping[str, str]  # the name of a stored table stands for its description of the column
    sql: str  # $instance stands for the slug of the instance

    @property
    def columns(self) -> dict[str, str]:
        """The description of each column."""
        return {
            name: column_descriptions(TABLES[meaning])[name] if meaning in TABLES else meaning
            for name, meaning in self.meanings.items()
        }


def _from(table: str, columns: str) -> dict[str, str]:
    return dict.fromkeys(columns.split(), table)


_CERTAINTY = f"""\
coalesce(confidence, active_days / (host_days + {OTHER_DAYS}) * active_days / (user_days + {OTHER_DAYS})
    * events / total_events * CASE WHEN idle_days >= {IDLE_DAYS} THEN {IDLE_FACTOR} ELSE 1 END)"""
"""How sure an owner is, as `ownership.decisions.certainty` (rules 9.9)."""

_WRITTEN = {
    **_from("owner_writes", "hostname"),
    "owner_email": "E-mail address of the owner, as last listed.",
    "department_before": "Department that the host had.",
    "department": "Department written; null: not sent; empty: cleared.",
    **_from("owner_writes", "outcome completed_at"),
    "owner_before": "Id of the owner that the host had.",
    "owner": "Id of the owner written; null: not sent; empty: cleared.",
    "criticality_before": "Criticality that the host had.",
    "criticality": "Criticality written; null: not sent; empty: cleared.",
    **_from("owner_writes", "message host_id intended_at run_id by"),
}

VIEWS: Mapping[str, View] = {
    "audit_log": View(
        comment="Each run, write and acknowledged conflict, by whom and why, the oldest first.",
        meanings={
            "id": "The same each time: an index replaces what comes again.",
            "at": "When it ended or was done, or else began.",
            "type": "run, write or acknowledged_conflict; columns of the other types are null.",
            "instance": "Slug of the instance.",
            "run_id": "Id of the run.",
            "by": "Who did it: `user NAME` or `schedule NAME`.",
            "reason": "Why, in somebody's words.",
            **_from("runs", "kind status started_at ended_at window_from window_to of_run options"),
            **_from("runs", "hosts to_write written failed left_alone"),
            "message": "Why the run failed, or only planned, or what the service said of the write.",
            **_from("owner_writes", "host_id hostname outcome old_values new_values kept undoes target"),
            **_from("acknowledged_conflicts", "existing_owner resolved_owner evidence"),
        },
        sql="""\
SELECT concat_ws('/', $instance, key) AS id, "at", type, $instance AS instance, * EXCLUDE (key, "at", type)
FROM (
    SELECT run_id AS key, coalesce(ended_at, started_at) AS "at", 'run' AS type, run_id, "by",
           options ->> '$.reason' AS reason, kind, status, started_at, ended_at, window_from, window_to,
           of_run, options, hosts, to_write, written, failed, left_alone, message
    FROM runs
    UNION ALL BY NAME
    SELECT concat_ws('/', run_id, host_id) AS key, coalesce(completed_at, intended_at) AS "at",
           'write' AS type, run_id, writes."by", options ->> '$.reason' AS reason, writes.message, host_id,
           hostname, outcome, old_values, new_values, kept, undoes, target
    FROM owner_writes AS writes LEFT JOIN runs USING (run_id)
    UNION ALL BY NAME
    SELECT concat_ws('/', 'acknowledged', host_id) AS key, acknowledged_at AS "at",
           'acknowledged_conflict' AS type, concat('user ', "by") AS "by", note AS reason, host_id,
           hostname, existing_owner, resolved_owner, evidence
    FROM acknowledged_conflicts
)
ORDER BY "at", id""",
    ),
    "conflicts": View(
        comment="Hosts that have another owner than their primary user; the owner stays. The strongest "
        "evidence comes first.",
        meanings={
            **_from("owner_decisions", "hostname host_id existing_owner"),
            "existing_owner_email": "E-mail address of that owner.",
            **_from("owner_decisions", "username resolved_owner"),
            "resolved_owner_email": "E-mail address of that user asset.",
            **_from("owner_decisions", "matched_by events total_events share user_count"),
            **_from("owner_decisions", "runner_up_username runner_up_events first_seen last_seen"),
            "since": "When the host passed to username, or else a run first found it.",
            "is_new": "Whether it is new: new_conflict of owner_decisions.",
            "acknowledged_at": "When somebody acknowledged it as it is now.",
            "acknowledged_by": "Who that was.",
            **_from("acknowledged_conflicts", "note"),
        },
        sql="""\
WITH people AS (
    SELECT user_id, nullif(array_to_string(user_email, ', '), '') AS email FROM inventory_users
), owners AS (
    SELECT host_id, string_agg(email, ', ' ORDER BY email) AS email
    FROM (SELECT host_id, unnest(owner_ids) AS user_id FROM inventory_hosts) JOIN people USING (user_id)
    GROUP BY host_id
), found AS (
    SELECT decisions.*, new_conflict AS is_new, coalesce(conflict_since, decided_at) AS since,
           acknowledged_at, acknowledged."by" AS acknowledged_by, note
    FROM owner_decisions AS decisions
    LEFT JOIN acknowledged_conflicts AS acknowledged
        USING (host_id, existing_owner, resolved_owner, evidence)
    WHERE action = 'conflict'
)
SELECT hostname, host_id, existing_owner, owners.email AS existing_owner_email,
       username, resolved_owner, people.email AS resolved_owner_email, matched_by,
       events, total_events, share, user_count, runner_up_username, runner_up_events,
       first_seen, last_seen, since, is_new, acknowledged_at, acknowledged_by, note
FROM found
LEFT JOIN owners USING (host_id)
LEFT JOIN people ON people.user_id = resolved_owner
ORDER BY share DESC, events DESC, hostname, host_id""",
    ),
    "owners_gone": View(
        comment="Owners who are not user assets any more, by host, with the primary user of each host.",
        meanings={
            **_from("current_owners", "hostname host_id"),
            "owner": "Id of the owner who is gone.",
            **_from("current_owners", "source since run_id"),
            **_from("owner_decisions", "username resolved_owner"),
            "resolved_owner_email": "E-mail address of that user asset.",
        },
        sql=f"""\
SELECT owners.hostname, host_id, owner, source, since, owners.run_id, username, resolved_owner,
       nullif(array_to_string(people.user_email, ', '), '') AS resolved_owner_email
FROM (SELECT *, unnest(owner_ids) AS owner FROM current_owners) AS owners
ANTI JOIN inventory_users AS present ON present.user_id = owner
LEFT JOIN owner_decisions AS decisions USING (host_id)
LEFT JOIN inventory_users AS people ON people.user_id = resolved_owner
WHERE NOT regexp_matches(owner, '{STAND_IN}')
ORDER BY owners.hostname, host_id, owner""",  # noqa: S608  (our own pattern)
    ),
    "write_history": View(
        comment="What runs wrote, or planned to write, with the values before and after. The last write "
        "comes first; in a plan, the least certain.",
        meanings=_WRITTEN,
        sql=f"""\
SELECT hostname, nullif(array_to_string(user_email, ', '), '') AS owner_email,
       old_values.department AS department_before, new_values.department AS department, outcome, completed_at,
       old_values.owner AS owner_before, new_values.owner AS owner,
       old_values.criticality AS criticality_before, new_values.criticality AS criticality,
       message, host_id, intended_at, run_id, "by"
FROM owner_writes LEFT JOIN inventory_users ON user_id = new_values.owner
LEFT JOIN (SELECT host_id AS planned_id, {_CERTAINTY} AS certainty FROM owner_decisions)
    ON planned_id = host_id AND outcome = 'planned'
ORDER BY coalesce(completed_at, intended_at) DESC, certainty, hostname, host_id""",  # noqa: S608  (our own names)
    ),
    "writes_standing": View(
        comment="The last write of each host, if it was not undone since; the last write comes first.",
        meanings={**_WRITTEN, "is_held": "Whether the host still has the owner; null: not known."},
        sql="""\
SELECT last_write.*, list_contains(owner_ids, owner) AS is_held
FROM (
    FROM write_history WHERE outcome = 'written'
    QUALIFY row_number() OVER (PARTITION BY host_id ORDER BY completed_at DESC) = 1
) AS last_write
ANTI JOIN (SELECT host_id, undoes AS run_id FROM owner_writes WHERE outcome = 'undone') AS undone
    USING (host_id, run_id)
LEFT JOIN (SELECT host_id, owner_ids FROM current_owners) AS owners USING (host_id)
ORDER BY completed_at DESC, hostname, host_id""",
    ),
}

OLDEST_READER = "v1.2.0"  # analysts' DuckDB is often older than ours, and 1.x cannot open what 2.0 writes
_VERSION = "views_version"  # the macro in each schema that says which views it has
NEVER_EMPTY = {"tune": "threshold_backtest", "tune --audit": "audit_sample"}
"""A table that has rows once a command has filled its tables, by the command."""


def catalogue_path(home: Path) -> Path:
    """Return the file that analysts open."""
    return home / "warehouse.duckdb"


def refresh_catalogue(home: Path, location: UPath, *slugs: str, analysts: int | None = None) -> None:
    """Update the views of these instances, and delete those whose tables are gone; open sessions go on."""
    catalogue = catalogue_path(home)
    statements = cache(lambda slug: [*_statements(home, location / slug)])  # alike for version and views

    def version(slug: str) -> str:
        return hashlib.sha256("\n".join(statements(slug)).encode()).hexdigest()

    with hold_lock(home / ".warehouse.lock", f"The catalogue {catalogue}"):
        shown = _versions(catalogue)
        folders = {folder.name for folder in location.glob("*")}
        gone = shown.keys() - folders
        outdated = [slug for slug in slugs if slug in folders and shown.get(slug) != version(slug)]
        if not gone and not outdated:
            return
        if gone:  # DuckDB only marks as free what is dropped, and the name of a customer who left would stay
            outdated, shown = sorted({*shown, *slugs} & folders), {}
        with replacing(catalogue, analysts) as path:
            if shown:  # with many instances, making all views takes longer than a run
                shutil.copyfile(catalogue, path)
            with duckdb.connect(path, config={"storage_compatibility_version": OLDEST_READER}) as connection:
                register_file_system(connection, location)
                connection.begin()  # otherwise each statement is flushed to the disk
                for slug in shown.keys() & {*outdated}:
                    connection.execute(f"DROP SCHEMA {identifier(slug)} CASCADE")
                for slug in outdated:
                    for statement in statements(slug):
                        connection.execute(statement)
                    connection.execute(f"CREATE MACRO {_VERSION}() AS {quoted(version(slug))}")
                connection.commit()


def _versions(catalogue: Path) -> Mapping[str, str]:
    """Return the version of each instance's views; none if the file is missing, damaged, in use or older."""
    if not catalogue.exists():
        return {}
    file = catalogue.stat()
    return _versions_in(catalogue, file.st_ino, file.st_mtime_ns)


@lru_cache(maxsize=1)  # each step of a run asks; opening the catalogue takes longer than most of them
def _versions_in(catalogue: Path, *_: int) -> Mapping[str, str]:
    try:
        with duckdb.connect(catalogue, read_only=True) as connection:
            query = "SELECT schema_name, macro_definition FROM duckdb_functions() WHERE function_name = ?"
            found = connection.execute(query, [_VERSION]).fetchall()
            return {schema: version.strip("'") for schema, version in found}
    except duckdb.Error:
        return {}


def schemas(home: Path, location: UPath | None = None) -> set[str]:
    """Return the instances that have views; with a location those alone whose views read tables there."""
    catalogue = catalogue_path(home)
    if not catalogue.exists():
        return set()
    place = quoted(f"{escape(str(location))}/")[:-1] if location else ""
    with duckdb.connect(catalogue, read_only=True) as connection:
        query = "SELECT schema_name FROM duckdb_views() WHERE NOT internal AND contains(sql, ?)"
        return {name for (name,) in connection.execute(query, [place]).fetchall()}


def register_file_system(connection: duckdb.DuckDBPyConnection, location: UPath) -> None:
    """Let a connection read tables in an object store, without DuckDB's extension."""
    if not isinstance(location, Path):
        connection.register_filesystem(location.fs)


def _statements(home: Path, folder: UPath) -> Iterator[str]:
    rows = {}
    for table, model in TABLES.items():
        files = f"{table}/*.parquet" if model.__layout__ is Layout.BY_DAY else f"{table}.parquet"
        rows[table] = _rows(model, f"{escape(str(folder))}/{files}")
    yield from _schema(catalogue_path(home).stem, folder.name, rows)
    for table, model in TABLES.items():
        if model.__filled_by__:
            filled = _last_filled(folder / f"{NEVER_EMPTY[model.__filled_by__]}.parquet")
            quotes = quotes_needed(polars_schema(model))
            yield f"COMMENT ON VIEW {table} IS {quoted(f'{description(model)} {filled}{quotes}')}"


def _last_filled(file: UPath) -> str:
    """Say when a table was filled last, by its file."""
    with suppress(pl.exceptions.PolarsError, OSError), file.open("rb") as content:  # damaged, or just deleted
        if pl.read_parquet(content, n_rows=1).height:
            return f"Last filled {datetime.fromtimestamp(file.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC."
    return "Not filled yet."


def _schema(database: str, name: str, rows: Mapping[str, str]) -> Iterator[str]:
    """Yield the statements that make a schema: a view for the rows of each table, and further views."""
    schema = f"{identifier(database)}.{identifier(name)}"
    yield f"CREATE SCHEMA {schema}"
    yield f"USE {schema}"  # further views name the tables without a schema
    further = {view: one.sql.replace("$instance", quoted(name)) for view, one in VIEWS.items()}
    for view, query in {**rows, **further}.items():
        yield f"CREATE VIEW {view} AS {query}"
        yield from _comments(view)


def run_views(folder: UPath, run_id: str, database: str) -> Iterator[str]:
    """Yield the statements that show the tables as a run saw them, in a schema of a database in memory."""
    # What the run did not make itself comes from the published tables, attached as `warehouse`.
    run, published = folder / "runs" / run_id, f"warehouse.{identifier(folder.name)}"
    rows = {table: f"FROM {published}.{table}" for table in TABLES}
    for table, model in TABLES.items():
        own = _files(run, table)
        if model.__layout__ is Layout.BY_DAY and own:
            fetched = _files(run, "logon_days") or own
            rows[table] = (
                f"{_rows(model, own)} UNION ALL BY NAME ({rows[table]} WHERE day NOT IN "  # noqa: S608  (our own names)
                f"(SELECT day FROM read_parquet({quoted(fetched)}, hive_partitioning = false)))"
            )
        elif table == "owner_writes":  # what became of the plan, or else the plan
            rows[table] += f" WHERE run_id = {quoted(run_id)}"
            if own:
                rows[table] += f" UNION ALL BY NAME ({_rows(model, own)} WHERE NOT EXISTS ({rows[table]}))"
        elif own:
            rows[table] = _rows(model, own)
    yield f"ATTACH ':memory:' AS {identifier(database)}"
    yield from _schema(database, folder.name, rows)


def _files(folder: UPath, table: str) -> str | None:
    """Return a pattern for the files of a table; None if there are none."""
    for pattern in (f"{table}/*.parquet", f"{table}.parquet"):
        if files_in(folder, pattern):
            return f"{escape(str(folder))}/{pattern}"
    return None


def _rows(model: type[Table], files: str) -> str:
    # With hive_partitioning a folder named a=b in the path would become a column.
    rows = f"FROM read_parquet({quoted(files)}, hive_partitioning = false, union_by_name = true)"
    order = f" ORDER BY {model.__newest_first__} DESC" if model.__newest_first__ else ""
    return f"SELECT {', '.join(map(identifier, polars_schema(model)))} {rows}{order}"


@cache
def _comments(view: str) -> Sequence[str]:
    """Return the statements that describe a view and its columns, the same for each instance."""
    if model := TABLES.get(view):
        comment, columns = description(model), column_descriptions(model)
    else:
        comment, columns = VIEWS[view].comment, VIEWS[view].columns
    return (
        f"COMMENT ON VIEW {view} IS {quoted(comment + quotes_needed(columns))}",
        *(f'COMMENT ON COLUMN {view}."{name}" IS {quoted(meaning)}' for name, meaning in columns.items()),
    )


RESERVED = {"at", "by", "right"}
"""Columns that SQL takes for words of its own."""


def quotes_needed(words: Iterable[str]) -> str:
    """Say which of these words SQL takes for columns only in quotes, if there are any."""
    names = [identifier(word) for word in sorted(RESERVED.intersection(words))]
    return f" Without double quotes SQL does not take {', '.join(names)} for a column." if names else ""


@cache
def described_tables() -> Mapping[str, tuple[str, Sequence[tuple[str, str, str]]]]:
    """Return the comment of each table and view, and the name, type and comment of its columns, in order."""
    empty = {
        table: "SELECT "
        + ", ".join(f"NULL::{duckdb_type(kind)} AS {identifier(name)}" for name, kind in schema.items())
        for table, schema in ((table, polars_schema(model)) for table, model in TABLES.items())
    }
    views = "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY view_oid"
    columns = "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = ?"
    with duckdb.connect() as connection:
        for statement in _schema("memory", "described", empty):
            connection.execute(statement)
        return {
            name: (comment, connection.execute(columns, [name]).fetchall())
            for name, comment in connection.execute(views).fetchall()
        }


def duckdb_type(kind: Any) -> str:
    """Return the name that DuckDB has for a column's type."""
    if isinstance(kind, pl.List):
        return f"{duckdb_type(kind.inner)}[]"
    if isinstance(kind, pl.Struct):
        return f"STRUCT({', '.join(f'{field.name} {duckdb_type(field.dtype)}' for field in kind.fields)})"
    if isinstance(kind, pl.Datetime):
        return "TIMESTAMPTZ"
    names: dict[Any, str] = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE"}
    names |= {pl.Date: "DATE", pl.Boolean: "BOOLEAN"}
    return names[kind.base_type()]


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
