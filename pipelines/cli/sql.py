"""`asset-owners sql`: ask the tables in SQL.

The catalogue is opened to read only. What an analyst wants to keep goes into a scratch database beside it, in
memory unless a file was named.
"""

import io
import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
from upath import UPath

from ownership.names import printable, printable_lines
from pipelines.cli.stored import note, tables_of, viewed
from reports.exports import without_formulas
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import damaged_tables
from resources.settings import (
    Instance,
    analysts_group,
    command_line,
    home,
    instances_folder,
    is_slug,
    load_instance,
    load_instances,
    tables_location,
)
from resources.store.catalogue import (
    OLDEST_READER,
    catalogue_path,
    identifier,
    quoted,
    refresh_catalogue,
    register_file_system,
    run_views,
)
from resources.store.files import require_bucket
from resources.store.tables import Tables, short_run_id

Format = Literal["table", "csv", "json"]
Row = tuple[Any, ...]

ROWS_ON_SCREEN = 40
ROWS_AT_ONCE = 10_000
WITHOUT_LIMIT = 1_000_000_000


def sql(
    query: str | None, *, instance: Path | None, scratch: Path | None, form: Format, run_id: str | None = None
) -> int:
    """Answer a query, or let the user ask in DuckDB's shell; return the exit status.

    Without a query it is read from standard input, unless that is a terminal: then the shell starts. A query
    may be several statements; as JSON the rows of the last one are printed.
    """
    if query is not None and not query.strip():
        raise ConfigurationError("The query is empty; write one, such as: asset-owners sql 'FROM conflicts'")
    if query is None and not sys.stdin.isatty():
        query = sys.stdin.read()
    location = tables_location()
    if query is None and not isinstance(location, Path):
        raise ConfigurationError(
            "The tables lie in an object store (ASSET_OWNERS_TABLES), which DuckDB's shell cannot read by "
            "itself; give a query: asset-owners sql 'FROM conflicts'"
        )
    with _query_errors():
        chosen = [load_instance(instance)] if instance else load_instances(instances_folder())
        own = [tables_of(each) for each in chosen if isinstance(each, Instance)]
        slug = own[0].slug if instance else None
        schemas = _require_tables(location, slug)
        runs = _viewed_runs(location, schemas if slug is None else {slug}, run_id)
        if run_id is not None:  # which tells the instance
            slug = runs[0].slug
        opening = opening_lines(home(), scratch, slug, runs)
        if scratch and not scratch.exists():  # the shell is older than the library
            duckdb.connect(scratch, config={"storage_compatibility_version": OLDEST_READER}).close()
        if query is None:
            return _shell(opening)
        with duckdb.connect() as connection:
            register_file_system(connection, location)
            for line in opening:
                connection.execute(line)
            _answer(connection, query, form)
    return 0


def opening_lines(
    home: Path, scratch: Path | None, slug: str | None = None, runs: Sequence[Tables] = ()
) -> list[str]:
    """The statements that open the tables and a scratch database in any DuckDB client: three of them, mostly.

    New tables go into the scratch database, and names without a schema are the instance's, or the only one's.
    Where there are several instances and none is chosen, a name needs its schema, and that of a new table
    `scratch`. Runs stand in the place of the published tables of their instances.
    """
    schemas = _schemas(home)
    lines = [
        f"ATTACH {quoted(str(scratch or ':memory:'))} AS scratch",
        f"ATTACH {quoted(str(catalogue_path(home)))} AS warehouse (READ_ONLY)",
    ]
    if slug is None and len(schemas) > 1:
        return [f"{line};" for line in [*lines, "SET search_path = 'warehouse.main,scratch.main'"]]
    path = ["scratch.main"]
    for view in runs:
        assert view.viewed  # noqa: S101  (that is what makes it a view)
        database = f"run_{short_run_id(view.viewed)}"
        lines += run_views(view.folder, view.viewed, database)
        path.append(f"{identifier(database)}.{identifier(view.slug)}")
    ordered = sorted(schemas, key=lambda name: (name != slug, name))
    path += [f"warehouse.{identifier(name)}" for name in ordered]
    return [f"{line};" for line in [*lines, f"SET search_path = {quoted(','.join(path))}"]]


def _viewed_runs(location: UPath, slugs: Iterable[str], run: str | None) -> list[Tables]:
    """Views onto the run that is asked for, or onto the last plan of an instance where no run published."""
    chosen = [Tables(home(), slug, location=location) for slug in sorted(slugs)]
    if run is not None and len(chosen) > 1:
        chosen = [tables for tables in chosen if tables.knows(run)]
    if len(chosen) == 1:
        view = viewed(chosen[0], run)
        return [view] if view.viewed else []
    if run is not None:
        raise ConfigurationError(
            f"RUN_ID: {'several instances have' if chosen else 'no instance has'} a run {run}; choose the "
            "instance with --instance"
        )
    for tables in chosen:
        if tables.last_unpublished_run():
            note(f"{tables.slug} has only planned so far; --instance {tables.slug} shows its last plan")
    return []


def _require_tables(location: UPath, slug: str | None) -> set[str]:
    """Return the instances that have tables; in a shared store also those that ran on other machines only.

    Where the catalogue has all instances of this machine, the store is not asked.
    """
    known = _schemas(home())
    shared = location != UPath(home() / "tables")
    if shared:
        wanted = {slug} if slug else {instance.slug for instance in load_instances(instances_folder())}
        if not known or not wanted <= known:
            require_bucket(location)
            stored = {folder.name for folder in location.glob("*") if is_slug(folder.name)} - known
            if new := (stored & wanted) or (set() if known else stored):
                try:
                    refresh_catalogue(home(), location / min(new), analysts_group())
                except PermissionError:  # who may only read the home asks what is there
                    if not known or slug is not None:
                        raise
                known = _schemas(home())
    if known and slug in {None, *known}:
        return known
    names = [slug] if slug else [folder.name for folder in location.glob("*") if is_slug(folder.name)]
    if older := [name for name in names if Tables(home(), name, location=location).have_runs()]:
        raise AssetOwnersError(
            f"The tables of {', '.join(sorted(older))} in {location} were made by an older version; the next "
            f"run lets them be asked ({command_line(None, 'run')}). Until then their last run is told by "
            f"{command_line(None, 'report')} and {command_line(None, 'explain')}"
        )
    place, setting = (location, "ASSET_OWNERS_TABLES") if shared else (home(), "ASSET_OWNERS_HOME")
    raise AssetOwnersError(
        f"There are no tables{f' of {slug}' if slug else ''} in {place} yet; run the instance first "
        f"({command_line(None, 'run')}), or set {setting} to the folder that holds them"
    )


def _schemas(home: Path) -> set[str]:
    """The instances that have tables, but for those whose file is gone where others are still there."""
    catalogue = catalogue_path(home)
    if not catalogue.exists():
        return set()
    with duckdb.connect(catalogue, read_only=True) as connection:
        views = connection.execute("SELECT schema_name FROM duckdb_views() WHERE NOT internal").fetchall()
    names = {name for (name,) in views}
    kept = {instance.slug for instance in load_instances(instances_folder())}
    return {name for name in names if name in kept or not Tables(home, name).file_is_gone()} or names


@contextmanager
def _query_errors() -> Generator[None]:
    try:
        yield
    except duckdb.Error as error:
        if any(word in str(error).lower() for word in (".parquet", "decompress")) and (
            message := damaged_tables()
        ):
            raise AssetOwnersError(message) from error
        said = str(error).replace("\n", "\n  ")  # a name may break lines: none looks like one of ours
        if isinstance(error, duckdb.ProgrammingError):
            raise ConfigurationError(f"The query is wrong: {said}") from error
        raise AssetOwnersError(f"DuckDB failed: {said}") from error


def _shell(opening: list[str]) -> int:
    """Run DuckDB's shell; Ctrl-C is for it alone, where it ends a query."""
    shell = str(files("duckdb_cli") / "duckdb")  # itself: the script that starts it ends with Ctrl-C
    arguments = [argument for line in opening for argument in ("-cmd", line)]
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([shell, *arguments], check=False).returncode  # noqa: S603  (of our environment)
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(connection: duckdb.DuckDBPyConnection, query: str, form: Format) -> None:
    """Print the rows of each statement one after another, CSV with an empty line in between.

    JSON is one document: the rows of the last statement.
    """
    shown = 0
    statements = connection.extract_statements(query)
    for statement in statements:
        text = _without_end(statement.query)
        if form == "table":
            if (relation := connection.sql(text)) is not None:
                print_table(relation)
            continue
        # DuckDB renames columns of the same name in a subquery: a JSON object would keep one of them.
        is_query = statement.type == duckdb.StatementType.SELECT
        answer = connection.execute(f"SELECT * FROM (\n{text}\n)" if is_query else statement)  # noqa: S608  (the user's own)
        columns = [name for name, *_ in answer.description or ()]
        if not columns or (not is_query and columns in (["Count"], ["Success"])):
            continue
        if form == "json" and statement is not statements[-1]:
            note("--format json prints the rows of the last statement; those of one before it are left out")
            continue
        if shown and form == "csv":
            print()
        shown += 1
        portions = iter(lambda answer=answer: answer.fetchmany(ROWS_AT_ONCE), [])
        {"csv": _print_csv, "json": _print_json}[form](columns, portions)


def _without_end(statement: str) -> str:
    """A statement without semicolon and comments at its end, which DuckDB cannot show as a box."""
    text = statement.encode()
    end = len(text)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        if kind != duckdb.token_type.comment and text[offset : offset + 1] != b";":
            break
        end = offset
    return text[:end].decode()


def print_table(relation: duckdb.DuckDBPyRelation) -> None:
    """Print a box, on a terminal cut to its width; names come from outside, so what acts on it is escaped.

    Elsewhere than on a terminal all rows and columns are printed whole.
    """
    terminal = sys.stdout.isatty()
    box = io.StringIO()
    with redirect_stdout(box):
        relation.show(
            max_rows=ROWS_ON_SCREEN if terminal else WITHOUT_LIMIT,
            max_width=shutil.get_terminal_size().columns if terminal else WITHOUT_LIMIT,
            max_col_width=None if terminal else WITHOUT_LIMIT,
        )
    print(printable_lines(box.getvalue().rstrip()))


def _print_csv(columns: list[str], portions: Iterator[list[Row]]) -> None:
    """Print rows with every text in quotes, so that no program takes `007` or `1e5` for a number.

    Into a file or a program names go as they are; what acts on a terminal is escaped there.
    """
    shown = printable if sys.stdout.isatty() else str
    for rows in chain([[tuple(columns)]], portions):
        cells = [[_plain(value) for value in row] for row in rows]
        texts = pl.Series([cell for row in cells for cell in row if isinstance(cell, str)], dtype=pl.String)
        safe = iter(pl.select(without_formulas(pl.lit(texts))).to_series())
        for row in cells:
            quoted_row = (_in_quotes(shown(next(safe))) if isinstance(cell, str) else cell for cell in row)
            print(*("" if cell is None else cell for cell in quoted_row), sep=",")


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    """What a cell holds: nothing, a number or a text; lists, structs and truth values as in JSON."""
    if isinstance(value, list | dict | bool):
        return json.dumps(_finite(value), default=str, ensure_ascii=False)
    return value if value is None or isinstance(value, int | float | Decimal) else str(value)


def _print_json(columns: list[str], portions: Iterator[list[Row]]) -> None:
    """Print an array of objects, one a line."""
    separator = "["
    for row in chain.from_iterable(portions):
        found = _finite(dict(zip(columns, row, strict=True)))
        print(separator, json.dumps(found, default=str), sep="\n", end="")
        separator = ","
    print("[]" if separator == "[" else "\n]")


def _finite(value: Any) -> Any:
    """The value with nothing where JSON has no word for it: NaN and the infinities."""
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
