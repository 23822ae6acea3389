"""`asset-owners sql`: query the tables in SQL.

The catalogue is opened to read only; new tables go into a scratch database beside it, in memory.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from decimal import Decimal
from functools import partial
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any

import duckdb
import polars as pl
import typer
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential
from upath import UPath

from ownership.declaration import polars_schema, purpose
from ownership.names import as_shown, counted, printable_lines
from ownership.tables import TABLES
from pipelines.cli.options import (
    Format,
    OneOrAll,
    RowsAs,
    RunId,
    as_of_run,
    columns_of,
    folded,
    note,
    own_tables,
    readable_tables,
)
from reports.exports import as_csv, without_formulas
from reports.sentences import in_columns
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import damaged_tables
from resources.settings import (
    Instance,
    analysts_group,
    command_line,
    home,
    instances_folder,
    is_slug,
    load_instances,
    tables_location,
)
from resources.store.catalogue import (
    VIEWS,
    catalogue_path,
    identifier,
    quoted,
    quotes_needed,
    refresh_catalogue,
    register_file_system,
    run_views,
    schemas,
)
from resources.store.tables import Tables, short_run_id

ROWS_ON_SCREEN = 40
MIN_COLUMNS = 3  # for which long texts make room at least
MAX_BELOW = 3  # columns without room that come below each row; more are omitted
_NUMBER = re.compile("decimal|float|double|.*int(eger)?")  # DuckDB's types
_FIRST = (
    "at type hostname user_email kind started_at existing_owner_email owner_email owner_emails "
    "resolved_owner_email share username action evidence window_days threshold_percent min_active_days "
    "evidence_metric primary_devices to_write written failed conflicts owned_after since hostnames "
    "department criticality message note"
)
"""Columns that come first where a terminal has no room for all of a table."""
_FRACTION = re.compile(r"(?<=^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d+(?=\+|$)")
_BAR = "█▉▊▋▌▍▎▏"  # what DuckDB's `bar` draws with


def sql(
    query: Annotated[
        str | None, typer.Argument(help="The query.", show_default="standard input, or DuckDB's shell")
    ] = None,
    *,
    instance: OneOrAll = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> int:
    """Answer a query, or let the user ask in DuckDB's shell; return the exit status.

    The tables are read-only, and can be read while a run writes them; new tables are kept in memory. Of
    several statements --format json prints the last rows. Without a query it is read from standard
    input; if that is a terminal, DuckDB's shell starts.

    Example: --instance NAME 'FROM conflicts' --format csv
    """
    if query is None and not sys.stdin.isatty():
        query = sys.stdin.read()
    (query or "").encode()  # DuckDB would call other bytes a query of the wrong type
    location = tables_location()
    try:
        slug, run = _resolve(location, instance, run_id)
        # DuckDB would leave what does not fit into memory where the user happens to be, or may not write.
        spill = f"SET temp_directory = {quoted(gettempdir())};"
        opening = [spill, *opening_lines(home(), slug, run)]
        if query is None:
            return _shell(opening)
        with duckdb.connect() as connection:
            register_file_system(connection, location)
            for line in opening:
                connection.execute(line)
            _answer(connection, query, form)
    except duckdb.Error as error:
        raise _query_error(error, query or "") from error
    return 0


def opening_lines(home: Path, slug: str | None = None, run: Tables | None = None) -> list[str]:
    """Return the statements that open the tables and a scratch database in any DuckDB client.

    Names without a schema are those of the instance `slug`, or of the only one. Where there are several and
    none is chosen, a name needs its schema, and that of a new table `scratch`. The tables of a run stand in
    the place of the published ones of its instance.
    """
    instances = schemas(home)
    lines = [
        "ATTACH ':memory:' AS scratch",
        f"ATTACH {quoted(str(catalogue_path(home)))} AS warehouse (READ_ONLY)",
    ]
    if slug is None and len(instances) > 1:
        return [f"{line};" for line in [*lines, "SET search_path = 'warehouse.main,scratch.main'"]]
    path = ["scratch.main"]
    if run and run.viewed:
        database = f"run_{short_run_id(run.viewed)}"
        lines += run_views(run.folder, run.viewed, database)
        path.append(f"{identifier(database)}.{identifier(run.slug)}")
    ordered = sorted(instances, key=lambda name: (name != slug, name))
    path += [f"warehouse.{identifier(name)}" for name in ordered]
    return [f"{line};" for line in [*lines, f"SET search_path = {quoted(','.join(path))}"]]


def _resolve(location: UPath, instance: Path | None, run_id: str | None) -> tuple[str | None, Tables | None]:
    """Return the instance that names without a schema belong to, and its tables as of the run."""
    own = []
    for each in [] if instance else load_instances(instances_folder()):
        try:
            own += [own_tables(each).slug] if isinstance(each, Instance) else []
        except AssetOwnersError as error:
            note(str(error))
    if instance:
        own = [readable_tables(instance)[1].slug]
    known = schemas(home(), location)
    moved = schemas(home()) - known
    if moved or (location != UPath(home() / "tables") and not (known and known.issuperset(own))):
        # A shared store also has tables of instances that ran on other machines only.
        stored = {folder.name for folder in location.glob("*") if is_slug(folder.name)}
        if new := stored & moved or (stored.intersection(own) or stored) - known:
            # Who may only read the home asks what is there.
            with suppress(PermissionError) if known else nullcontext():
                refresh_catalogue(home(), location, *new, analysts=analysts_group())
            known = schemas(home(), location)
    slugs = own if instance else [*known]
    if not slugs or not known.issuperset(slugs):
        of = f" of {slugs[0]}" if slugs else ""
        run = command_line(None, "run", "--dry-run")
        raise AssetOwnersError(
            f"There are no tables{of} in {location} yet; run the instance first ({run}), or set "
            "ASSET_OWNERS_HOME, or ASSET_OWNERS_TABLES, to the folder that holds them"
        )
    if len(slugs) == 1:
        return slugs[0], as_of_run(Tables(home(), slugs[0], location=location), run_id)
    if run_id is not None:
        raise ConfigurationError("--run: several instances have tables; name its own with --instance")
    return None, None


def _query_error(error: duckdb.Error, query: str) -> AssetOwnersError:
    """Return what is wrong with a query, or with the tables."""
    reason = str(error).replace("\n", "\n  ")  # a name may break lines: none looks like one of ours
    wrong = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
    if not isinstance(error, wrong) and (message := damaged_tables()):
        return AssetOwnersError(message)
    if isinstance(error, duckdb.ParserException):
        words = re.findall(r"(?<!group )(?<!order )(?<!['\"])\b\w+", query.lower())
        reason = f"{reason}\n {quotes_needed(words)}".rstrip()
    if isinstance(error, duckdb.ProgrammingError):
        return ConfigurationError(f"The query is wrong: {reason}")
    return AssetOwnersError(f"DuckDB failed: {reason}")


def _shell(opening: list[str]) -> int:
    """Run DuckDB's shell; Ctrl-C is for it alone, where it ends a query."""
    shell = str(files("duckdb_cli") / "duckdb")  # itself: the script that starts it ends with Ctrl-C
    arguments = [argument for line in opening for argument in ("-cmd", line)]
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([shell, *arguments], check=False).returncode  # noqa: S603  (of our environment)
    finally:
        signal.signal(signal.SIGINT, previous)


def _answer(connection: duckdb.DuckDBPyConnection, query: str, form: Format) -> None:
    """Print the rows of each statement that selects, CSV with an empty line in between; as JSON the last."""
    last: str | None = None
    for statement in connection.extract_statements(query):
        if (text := _rows(connection, statement, form)) is None:
            continue
        if form != "json":
            _print("\n" * (form == "csv" and last is not None) + text)
        last = text
    if form == "json":
        _print(last or "")


@retry(
    # DuckDB opens a file twice, and has an error of no kind, or of files, if a run replaces it in between.
    retry=retry_if_exception(
        lambda error: type(error) is duckdb.Error or isinstance(error, duckdb.IOException)
    ),
    stop=stop_after_attempt(6),
    wait=wait_exponential(0.05),
    reraise=True,
)
def _rows(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, form: Format) -> str | None:
    """Return what a statement selects, as it is printed; None: it selects nothing."""
    # Before DuckDB 2.0 PIVOT becomes several statements, which have no text.
    relation = connection.sql(_without_end(statement.query) or statement)
    # This is what DuckDB returns of what only changes something. PIVOT is several statements; one selects.
    done = [["Success"], ["Count"]][: 1 if statement.type == duckdb.StatementType.MULTI else 2]
    selects = statement.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]
    if relation is None or (relation.columns in done and not selects):
        return None
    why_empty = partial(_say_why_empty, connection, statement.query)
    return {"table": partial(_for_people, why_empty=why_empty), "csv": _csv, "json": _json}[form](relation)


def _say_why_empty(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Say of tables that a query names and no run fills which command does, if they have no rows."""
    for table, model in TABLES.items():
        named = re.search(rf'(["\w]+\.)*\b{table}\b', query) if model.__filled_by__ else None
        with suppress(duckdb.Error):  # it is not the table's name
            if named and not connection.sql(f"FROM {named[0]} LIMIT 1").fetchall():
                view = f"FROM duckdb_views() SELECT comment WHERE view_name = {quoted(table)}"
                filled = re.search("Last filled [^.]+", str(connection.sql(view).fetchall()))
                by = f"`asset-owners {model.__filled_by__}`"
                when = f"{filled[0]} by {by}" if filled else f"{by} fills it"
                note(f"{table} has no rows: {purpose(model)} {when}")


def _without_end(statement: str) -> str:
    """Return a statement without semicolon and comments at its end, which is not a query to select from."""
    text = statement.encode()
    end = len(text)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        if kind != duckdb.token_type.comment and text[offset : offset + 1] != b";":
            break
        end = offset
    return text[:end].decode()


def _for_people(relation: duckdb.DuckDBPyRelation, *, why_empty: Callable[[], None]) -> str:
    """Return rows without types and NULL; names come from outside, so what acts on a terminal is escaped.

    A terminal has the first rows, and the first columns, for which it has room; the last line says so. A few
    come below each row, the same in all rows once. Long texts are cut, as little as needed, but never bars.
    """
    if relation.columns == ["explain_key", "explain_value"]:  # one text, drawn in many lines
        return "".join(f"{printable_lines(value)}\n" for _, value in relation.fetchall())
    cells = shown_cells(relation)
    if len(cells) == 1:
        why_empty()
    if not (width := columns_of()):
        return "".join(f"{line}\n" for line in in_columns(cells))
    shown, same = cells[: ROWS_ON_SCREEN + 1], ""
    columns = [*zip(*shown, strict=True)]
    if sum(max(map(len, column)) + 2 for column in columns) > width:
        whole = (*map(polars_schema, TABLES.values()), *(view.columns for view in VIEWS.values()))
        if cells[0] in map(list, whole):  # otherwise somebody chose the order
            columns.sort(key=lambda column: [*_FIRST.split(), column[0]].index(column[0]))
        differ = [column for column in columns if len({*column[1:]}) > 1] or columns
        alike = [column for column in columns if column not in differ]
        told = [f"{name} {_cut(value, width)}" for name, value, *_ in alike if value]
        empty = ", ".join(name for name, value, *_ in alike if not value)
        same = ", ".join([*told, *[f"nothing in {empty}"][: len(empty)]])
        shown = [[*row] for row in zip(*differ, strict=True)]
    for most in range(width, width // MIN_COLUMNS - 3, -1):
        cut = [[_cut(cell, most) for cell in row] for row in shown]
        ends = [*accumulate(max(map(len, column)) + 2 for column in zip(*cut, strict=True))]
        if ends[-1] <= width:
            break
    fitting = sum(end <= width for end in ends)
    heads, lines = shown[0][fitting:], [*in_columns([row[:fitting] for row in cut])]
    lacking = [f"the columns {', '.join(heads)}"] if len(heads) > MAX_BELOW else []
    for number, row in enumerate(shown[1:], start=1) if not lacking else ():
        parts = [f"{head} {cell}" for head, cell in zip(heads, row[fitting:], strict=True) if cell]
        lines[number] += "\n" + folded("    " + ", ".join(parts)) if parts else ""
    if more := len(cells[ROWS_ON_SCREEN + 1 :]):
        lacking.append(counted(more, "more row"))
    if same:
        lines.append(folded(f"  In each row: {same}"))
    if lacking:
        lines.append(folded(f"  Without {' and '.join(lacking)}: --format csv prints all"))
    return "".join(f"{line}\n" for line in lines)


def shown_cells(relation: duckdb.DuckDBPyRelation) -> list[list[str]]:
    """Return the names of the columns, then the rows, as people see them."""
    names, rows = _names_and_rows(relation)
    return [[*map(_shown, row)] for row in (names, *rows)]


def _shown(value: Any) -> str:
    """Return a value on one line; a float with four decimals, or four digits if those are all zero."""
    if isinstance(value, float):
        value = round(value, 4) or float(f"{value:.4g}")
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return "" if value is None else as_shown(_FRACTION.sub("", text))


def _cut(cell: str, most: int) -> str:
    """Return a text of at most this length; a bar stays whole, since a cut one misleads."""
    return cell if len(cell) <= most or not cell.strip(_BAR) else f"{cell[: most - 1]}…"


def _print(text: str) -> None:
    """Print what is for programs: as it is, but on a terminal, which names might act on."""
    print(printable_lines(text) if sys.stdout.isatty() else text, end="")


def _csv(relation: duckdb.DuckDBPyRelation) -> str:
    """Write rows with every text in quotes, so that no program takes `007` or `1e5` for a number."""
    names, rows = _names_and_rows(relation)
    headings = pl.Series(names).to_frame("name").select(without_formulas(pl.col("name"))).to_series()
    return as_csv(pl.DataFrame(rows, schema=[*headings], orient="row", infer_schema_length=None))


def _names_and_rows(relation: duckdb.DuckDBPyRelation) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns, and the rows, in which all but numbers are texts."""
    unique = relation.select("*")  # which renames columns of the same name
    columns = [
        column if _NUMBER.fullmatch(kind.id) else column.cast("VARCHAR")
        for column, kind in zip(map(duckdb.ColumnExpression, unique.columns), unique.types, strict=True)
    ]
    # By rows: of a relation that Polars reads as Arrow, DuckDB complains as the program ends.
    return unique.columns, unique.select(*columns).fetchall()


def _json(relation: duckdb.DuckDBPyRelation) -> str:
    """Write an array of objects; NaN and the infinities, for which JSON has no word, are null."""
    unique = relation.select("*")
    rows = [dict(zip(unique.columns, row, strict=True)) for row in unique.fetchall()]
    text = json.dumps(rows, default=lambda value: float(value) if isinstance(value, Decimal) else str(value))
    finite = json.loads(text, parse_constant=lambda _: None)
    return f"{json.dumps(finite)}\n"
