"""`asset-owners sql`: ask the tables in SQL.

The catalogue is opened to read only. What an analyst wants to keep goes into a scratch file beside it, which
is the session's own and ends with it, unless it was named.
"""

import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from decimal import Decimal
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
from upath import UPath

from ownership.names import printable, printable_lines
from ownership.tables import TABLES
from pipelines.cli.stored import note, tables_of, viewed
from reports.exports import without_formulas
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import damaged_tables
from resources.locks import locked
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
    is_in_use,
    quoted,
    refresh_catalogue,
    register_file_system,
    run_views,
)
from resources.store.files import require_bucket
from resources.store.tables import Tables, short_run_id
from resources.store.views import VIEWS

Format = Literal["table", "csv", "json"]
Row = tuple[Any, ...]

ROWS_ON_SCREEN = 40
ROWS_AT_ONCE = 10_000
WITHOUT_LIMIT = 1_000_000_000
GUARD = "which__instance"  # no slug holds two underscores in a row
"""The database whose views answer names that leave out whose they are."""
FOLDER_PREFIX = "asset-owners-sql-"
NEW_SECONDS = 60


def sql(
    query: str | None, *, instance: Path | None, scratch: Path | None, form: Format, run_id: str | None = None
) -> int:
    """Answer a query, or let the user ask in DuckDB's shell; return the exit status.

    Without a query it is read from standard input, unless that is a terminal: then the shell starts.

    Args:
        query: one or more statements; the rows of each are printed, as JSON those of the last one.
        instance: the instance file of the schema that names without one are looked up in.
        scratch: the file to write in; None: one that is deleted at the end.
        form: how rows are printed; in CSV no text is a formula.
        run_id: id of a run, or its first characters, whose tables stand in the place of the last run's.

    Raises:
        ConfigurationError: the instance file or the query is wrong, or there has to be one; or there is no
            such run.
        AssetOwnersError: there are no tables yet, or DuckDB failed otherwise.
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
    with _query_errors(), _own_folder() as folder:
        chosen = [load_instance(instance)] if instance else load_instances(instances_folder())
        own = [tables_of(each) for each in chosen if isinstance(each, Instance)]
        slug = own[0].slug if instance else None
        if location != UPath(home() / "tables"):
            _take_up_shared(location, slug)
        schemas = _require_tables(home(), slug)
        scratch = scratch or folder / "scratch.duckdb"
        runs = _viewed_runs(location, schemas if slug is None else {slug}, run_id)
        if run_id is not None:  # which tells the instance
            slug = runs[0].slug
        opening = opening_lines(home(), scratch, slug, runs)
        if not scratch.exists():  # the shell is older than the library, and reads what is made for it
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
    home: Path, scratch: Path, slug: str | None = None, runs: Sequence[Tables] = ()
) -> list[str]:
    """The statements that open the tables and a scratch file in any DuckDB client: three of them, mostly.

    New tables go into the scratch file, and names without a schema are the instance's, or the only one's.
    Where there are several and none is chosen, a name needs its schema; whoever leaves it out is told so.
    Names with the schema of any instance are found, too.

    Args:
        home: ASSET_OWNERS_HOME.
        scratch: the file to write in.
        slug: the instance's.
        runs: views onto runs, which stand in the place of their instances' published tables.

    Raises:
        AssetOwnersError: there are no tables yet, or none of this instance.
    """
    schemas = _require_tables(home, slug)
    ordered = sorted(schemas, key=lambda name: (name != slug, name))
    path = ["scratch.main"]
    lines = [
        f"ATTACH {quoted(str(scratch))} AS scratch",
        f"ATTACH {quoted(str(catalogue_path(home)))} AS warehouse (READ_ONLY)",
    ]
    if slug is None and len(ordered) > 1:
        lines += _guard(ordered)
        path.append(f"{GUARD}.main")
    for view in runs:
        assert view.viewed  # noqa: S101  (that is what makes it a view)
        database = f"run_{short_run_id(view.viewed)}"
        lines += run_views(view.folder, view.viewed, database)
        path.append(f"{identifier(database)}.{identifier(view.slug)}")
    path += [f"warehouse.{identifier(name)}" for name in ordered]
    return [f"{line};" for line in [*lines, f"SET search_path = {quoted(','.join(path))}"]]


def _guard(slugs: Sequence[str]) -> Iterator[str]:
    """Yield what answers a name without a schema: which of several instances is meant nobody knows.

    Each such name is that of a view onto a table that is gone, whose name DuckDB puts into its message.
    """
    names = f"without an instance: write {slugs[0]}.NAME ({', '.join(slugs)}), or choose one with --instance"
    yield f"ATTACH ':memory:' AS {GUARD}"
    yield f"CREATE TABLE {GUARD}.main.{identifier(names)} AS SELECT 1 AS nothing"
    for name in (*TABLES, *VIEWS):
        yield f"CREATE VIEW {GUARD}.main.{name} AS FROM {GUARD}.main.{identifier(names)}"
    yield f"DROP TABLE {GUARD}.main.{identifier(names)}"


def _viewed_runs(location: UPath, slugs: Iterable[str], run: str | None) -> list[Tables]:
    """Views onto the run that is asked for, or onto the last plans of instances where no run published.

    Args:
        location: what holds the tables of all instances.
        slugs: of the instances.
        run: id of a run, or its first characters; None: the last one.

    Raises:
        ConfigurationError: there is no such run, or nobody can tell whose it is.
    """
    chosen = [Tables(home(), slug, location=location) for slug in sorted(slugs)]
    if run is None:
        return [view for tables in chosen if (view := viewed(tables, None)).viewed]
    if len(chosen) > 1:
        chosen = [tables for tables in chosen if tables.knows(run)]
    if len(chosen) != 1:
        raise ConfigurationError(
            f"RUN_ID: {'several instances have' if chosen else 'no instance has'} a run {run}; choose the "
            "instance with --instance"
        )
    return [viewed(chosen[0], run)]


def _take_up_shared(location: UPath, slug: str | None) -> None:
    """Make the views of instances that have run on another machine only, whose tables lie here as well.

    Where the catalogue has all instances of this machine, the store is not asked.

    Args:
        location: what holds the tables of all instances.
        slug: the instance that is asked; None: any.

    Raises:
        AssetOwnersError: there is no such store.
    """
    known = _schemas(home())
    wanted = {slug} if slug else {instance.slug for instance in load_instances(instances_folder())}
    if known and wanted <= known:
        return
    if not known:
        require_bucket(location)
    stored = {folder.name for folder in location.glob("*") if is_slug(folder.name)} - known
    if not (new := sorted(stored & wanted if known else stored, key=lambda name: (name not in wanted, name))):
        return
    try:
        refresh_catalogue(home(), location / new[0], analysts_group())
    except PermissionError:
        if not known or slug is not None:
            raise
        # Who may only read the home asks what is there.


def _require_tables(home: Path, slug: str | None) -> set[str]:
    """Return the instances that have tables.

    Raises:
        AssetOwnersError: there are none, or none of this instance.
    """
    schemas = _schemas(home)
    if schemas and slug in {None, *schemas}:
        return schemas
    location, setting = tables_location(), "ASSET_OWNERS_TABLES"
    require_bucket(location)
    names = [slug] if slug else [folder.name for folder in location.glob("*") if is_slug(folder.name)]
    if older := [name for name in names if Tables(home, name, location=location).have_runs()]:
        raise AssetOwnersError(
            f"The tables of {', '.join(sorted(older))} in {location} were made by an older version; the next "
            f"run lets them be asked ({command_line(None, 'run')}). Until then their last run is told by "
            f"{command_line(None, 'report')} and {command_line(None, 'explain')}"
        )
    place: Path | UPath = location
    if location == UPath(home / "tables"):
        place, setting = home, "ASSET_OWNERS_HOME"
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
def _own_folder() -> Generator[Path]:
    """A folder that ends with the session; those of sessions that were killed are removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        # In a folder that was just made the lock may still be to come; those of others cannot be entered.
        with suppress(OSError, AssetOwnersError):
            if time.time() - left.stat().st_mtime > NEW_SECONDS:
                with locked(left / "lock", str(left), timeout_seconds=0):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder, locked(Path(folder) / "lock", folder):
        yield Path(folder)


@contextmanager
def _query_errors() -> Generator[None]:
    try:
        yield
    except duckdb.Error as error:
        if any(word in str(error).lower() for word in (".parquet", "decompress")) and (
            message := damaged_tables()
        ):
            raise AssetOwnersError(message) from error
        if without := re.search("Table with name (without an instance: .+) does not exist", str(error)):
            raise ConfigurationError(f"The query is wrong: a table's name {without[1]}") from error
        if not isinstance(error, duckdb.ProgrammingError):
            damaged = str(catalogue_path(home())) in str(error) and not is_in_use(error)
            remedy = "\nIt holds no data of its own, and the next run makes it anew" if damaged else ""
            raise AssetOwnersError(f"DuckDB failed: {_indented(error)}{remedy}") from error
        raise ConfigurationError(f"The query is wrong: {_indented(error)}") from error


def _indented(error: duckdb.Error) -> str:
    """DuckDB's words, in which a name may break lines: no such line looks like one of ours."""
    return str(error).replace("\n", "\n  ")


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
        if form == "table":
            if (relation := connection.sql(_without_end(statement.query))) is not None:
                print_table(relation)
            continue
        answer = connection.execute(statement)
        columns = _numbered([name for name, *_ in answer.description or ()])
        if not columns or _only_counts(statement, columns):
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


def _only_counts(statement: duckdb.Statement, columns: list[str]) -> bool:
    """Tell whether a statement changed something, and its answer only counts what."""
    changes = {duckdb.ExpectedResultType.CHANGED_ROWS, duckdb.ExpectedResultType.NOTHING}
    return bool(changes & {*statement.expected_result_type}) and columns in (["Count"], ["Success"])


def _numbered(names: list[str]) -> list[str]:
    """Names of columns, each another one, as DuckDB makes them when it stores rows in a table.

    `a`, `a`, `A` become `a`, `a_1`, `A_2`: in a JSON object only one of them would be left.
    """
    used: Counter[str] = Counter()
    numbered = []
    for name in names:
        key, unique = name.lower(), name
        while used[unique.lower()]:
            unique = f"{name}_{used[key]}"
            used[key] += bool(used[unique.lower()])
        used[unique.lower()] += 1
        used[key] += unique != name
        numbered.append(unique)
    return numbered


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
        for row in _without_formulas([[_plain(value) for value in row] for row in rows]):
            print(*(_cell(value, shown) for value in row), sep=",")


def _without_formulas(rows: list[list[Any]]) -> Iterator[list[Any]]:
    texts = pl.Series([value for row in rows for value in row if isinstance(value, str)], dtype=pl.String)
    shown = iter(pl.select(without_formulas(pl.lit(texts))).to_series())
    for row in rows:
        yield [next(shown) if isinstance(value, str) else value for value in row]


def _plain(value: Any) -> Any:
    """What a cell holds: nothing, a number or a text; lists, structs and truth values as in JSON."""
    if isinstance(value, list | dict | bool):
        return json.dumps(_finite(value), default=str, ensure_ascii=False)
    return value if value is None or isinstance(value, int | float | Decimal) else str(value)


def _cell(value: Any, shown: Callable[[str], str]) -> str:
    if isinstance(value, str):
        return '"' + shown(value).replace('"', '""') + '"'
    return "" if value is None else str(value)


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
