"""Shared by several commands: options, opening tables, and printing on a terminal."""

import csv
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import requires
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import click
import typer

from ownership.names import printable, printable_lines
from ownership.persons import Persons
from ownership.rules import Rules
from pipelines.dagster_gaps.log_lines import LOGGER, json_line
from resources.errors import AssetOwnersError, ConfigurationError
from resources.failures import operator_message
from resources.findings import Finding
from resources.settings import BrokenInstance, Instance, command_line, load_instance, load_instances
from resources.store.tables import SNAPSHOTS, Tables, short_run_id, tables_of


def number(text: str, *, least: float = 1, most: float | None = None, default: str | bool = True) -> Any:
    """Return an option that takes a number from `least` to `most`; `default` is the one that help shows."""
    return typer.Option(metavar="NUMBER", min=least, max=most, show_default=default, help=text)


def file_option(text: str, *, default: str | bool = True) -> Any:
    """Return an option that takes the path of a file."""
    return typer.Option(metavar="FILE", show_default=default, help=text)


def flag(name: str, text: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=text)


def instance_file(given: str | None = None) -> Path:
    """Return the instance file for a path, a name or a slug; the only one of the folder for None."""
    if "_ASSET_OWNERS_COMPLETE" in os.environ:  # a shell completes options where there is no file, too
        return Path()
    from resources.settings import instance_path

    return instance_path(given if given is None else str(given))


def read_host_names(given: Sequence[str] | None, option: str = "--host") -> list[str]:
    """Return the hosts that an option names, those in files included; blanks around them do not count."""
    listed = (_hosts_in(option, name[1:]) if name[:1] == "@" else [name] for name in given or ())
    hosts = [*filter(None, map(str.strip, chain.from_iterable(listed)))]
    if given and not hosts:
        raise ConfigurationError(f"{option}: {' '.join(given)} names no host")
    return hosts


def _hosts_in(option: str, file: str) -> Iterable[str]:
    """Return the hosts of a list, one a line, or of a sheet such as `sql --format csv` prints."""
    import polars as pl

    from pipelines.cli.files import reading_sheet, require_file
    from reports.sheets import HOSTS, as_text, read_csv

    require_file(option, Path(file))
    with reading_sheet(option, Path(file)) as content:
        text = as_text(content)
        head = re.split(r'[",;\s]+', text.partition("\n")[0])
        if columns := [name for name in HOSTS if name in head]:
            return read_csv(text).select(pl.coalesce(columns)).to_series().drop_nulls()
        return [row[0] for row in csv.reader(text.splitlines()) if row]


INSTANCE_HELP = "The instance: its file, or the name or slug of one in ASSET_OWNERS_HOME/instances."
InstanceFile = Annotated[
    Path,
    typer.Option(
        "--instance",
        metavar="FILE",
        parser=instance_file,
        default_factory=instance_file,
        show_default="the only file there",
        help=INSTANCE_HELP,
    ),
]
OneOrAll = Annotated[
    Path | None,
    typer.Option(
        "--instance", metavar="FILE", parser=instance_file, help="Only this instance.", show_default="all"
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Only this host, by name or id; repeatable; @FILE: those in a file, one a line, or as `sql "
        "--format csv` prints them. Before an id that begins with @ write a blank: ' @7'.",
        show_default="all",
    ),
]
FailOn = Annotated[
    Literal["failed"] | None,
    typer.Option("--fail-on", help="Exit status 1 where a single write has failed, too."),
]
DetailedExitCode = Annotated[
    bool, flag("--detailed-exitcode", "With --dry-run: exit status 3 if there is something to write.")
]
DryRun = Annotated[bool, flag("--dry-run", "Plan only; write nothing.")]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN_ID",
        help="Id of a run, or its first 8 characters; may be a dry run.",
        show_default="the last that may write, or before any the last dry run",
    ),
]
Format = Literal["table", "csv", "json"]
RowsAs = Annotated[Format, typer.Option("--format", help="How rows are printed.")]
Json = Annotated[bool, flag("--json", "Print one JSON object as the last line.")]
Yes = Annotated[bool, flag("--yes", "Do it; without --yes the command only says what it would do.")]
Port = Annotated[int, number("Port of the UI.", most=65535)]


def readable_tables(path: Path) -> tuple[Instance | BrokenInstance, Tables]:
    """Return the instance of a file and its tables, also of an invalid one: for what needs no setting."""
    found = next(iter(load_instances(path)), None) or load_instance(path)  # which says why there is none
    if isinstance(found, BrokenInstance):
        note(f"{found.message}\nUntil that is corrected no run starts; this is what {found.slug} has stored.")
    return found, own_tables(found)


def _load(path: Path) -> Instance:
    """Return the instance of a file; an error says what does not need its settings."""
    try:
        return load_instance(path)
    except ConfigurationError as error:
        why = "This needs its `rules` and names of fields; `runs`, `conflicts` and `sql` show what is stored"
        raise ConfigurationError(f"{error}\n{why}") from error


def own_tables(instance: Instance | BrokenInstance) -> Tables:
    """Return the tables of an instance; an error if they belong to another one."""
    tables = tables_of(instance)
    tables.require_own()
    return tables


def stored_tables(path: Path, run: str | None = None) -> tuple[Instance, Tables]:
    """Load an instance file and find its tables, as the last run left them or a given one saw them.

    Where no run was allowed to write yet, they are those of the last dry run, and standard error says so.
    """
    instance = _load(path)
    return instance, _stored(instance, own_tables(instance), run)


@contextmanager
def held_tables(path: Path, run: str | None = None) -> Generator[tuple[Instance, Tables]]:
    """Yield the same; `forget` and `remove` wait until what follows from the tables is stored."""
    instance = _load(path)
    with holding(own_tables(instance)) as tables:
        yield instance, _stored(instance, tables, run)


@contextmanager
def holding(tables: Tables) -> Generator[Tables]:
    """Hold tables as they are; what is read before that may be of somebody who is forgotten meanwhile."""
    with ExitStack() as held:
        with suppress(OSError):  # nothing is stored, or this is an analyst, who cannot write here
            held.enter_context(tables.changing(existing=True))
        yield tables


def _stored(instance: Instance, tables: Tables, run: str | None) -> Tables:
    if not tables.holds("owner_decisions"):
        begin = command_line(instance, "run", "--dry-run")
        raise AssetOwnersError(f"{instance.name} has no tables; begin with {begin}")
    if run and not tables.holds("owner_decisions", run_id := tables.run_id(run)):
        raise ConfigurationError(
            f"RUN_ID: run {run_id} decided nothing, such as an undo, or its decisions are no longer kept. "
            "What it wrote: "
            + command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        )
    return as_of_run(_readable(tables), run)


def _readable(tables: Tables) -> Tables:
    """Return the tables, with the copies in place of the ledger where that cannot be read."""
    try:
        tables.has_written("")
    except AssetOwnersError as error:
        note(f"Runs and writes are shown as they were published last: {error}")
        return replace(tables, published=True)
    return tables


def as_of_run(tables: Tables, run: str | None) -> Tables:
    """Return the tables as of a run; a note on standard error names those that are no longer kept.

    `run` is an id or its first characters; None: the last run that published, else the last dry run.
    """
    name = tables.name or tables.slug
    if run is None:
        shown = tables.visible()
        if planned := shown.viewed:
            note(f"PLAN of run {short_run_id(planned)} of {name}: no run has been allowed to write yet.")
        return shown
    run_id = tables.run_id(run)
    lost = [table for table in SNAPSHOTS if not tables.holds(table, run_id)]
    if lost and tables.published_run() != run_id:
        note(f"Run {short_run_id(run_id)} no longer has these; the last run's are shown: {', '.join(lost)}.")
    return tables.view(run_id)


def persons_of(tables: Tables, rules: Rules) -> Persons:
    """Return the persons whom the tables of a run know."""
    return Persons(rules, ((name, tables.read(name).collect()) for name in (*SNAPSHOTS, "current_owners")))


def note(text: str) -> None:
    """Print something beside the answer, unless only that is asked for."""
    if logging.getLogger(LOGGER).isEnabledFor(logging.WARNING):
        print_message(text, level="warning")


def print_message(text: str, *, level: str, is_trace: bool = False, **about: Any) -> None:
    """Print on standard error, for a person or, with what it is `about`, for the log of a service."""
    if "json" in os.environ.get("ASSET_OWNERS_LOG", ""):  # also where another value is the error to tell
        print(json_line(text, level=level, **about), file=sys.stderr)
    elif is_trace:  # its lines stay whole, to be read and reported
        print(printable_lines(text), file=sys.stderr)
    else:
        print_lines(printable_lines(f"asset-owners: {text}").split("\n"), sys.stderr)


def message_and_status(error: Exception) -> tuple[str, int]:
    """Return the message and the exit status (rules 8.1); of an error in the program print the trace."""
    if isinstance(error, ModuleNotFoundError):
        named = f"asset-owners[{extra}]" if (extra := _extra_of(error.name or "")) else "asset-owners"
        return f"{error}. It comes with {named}: pip install '{named}'", 2
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:  # so Python reads other bytes
        wanted = "use UTF-8 in the terminal and its locale (LC_ALL=C.UTF-8)"
        return f"An argument, or what is given on standard input, is not UTF-8; {wanted}", 2
    message = operator_message(error)
    if message is None:
        print_message("".join(traceback.format_exception(error)), level="error", is_trace=True)
        message = f"an error in the program: {type(error).__name__}: {error}"
    return message, 2 if isinstance(error, ConfigurationError) else 1


def _extra_of(module: str) -> str | None:
    """Return the extra whose packages bring a module; their names differ in `_` and `-` only."""
    package = re.escape(module.partition(".")[0].replace("_", "-"))
    found = re.search(
        rf"(?m)^{package}(?![\w-]).*extra == '(\w+)'", "\n".join(requires("asset-owners") or ())
    )
    return found[1] if found else None


_COMMAND = re.compile(r"(?<![`\S])(?:\w+=\S+ )?(?:\S*/)?asset-owners (?:\w+ -|sandbox )")
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
"""What lies between two columns."""
_STATE = "(?P<state>ok|warning|wrong|not tried) +"
_START = re.compile(rf"(?P<sign>[+~-]) ....(?=.*  )|\s*(?:{_STATE}|(?!\d{{8}})[\d,]+  |\d\d:[\d:]{{5}} |- )?")
"""What a line begins with: a sign before columns, how well something is, a number of hosts, or a time."""
_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red", "+": "green", "-": "red", "~": "yellow"}


def is_on_terminal() -> bool:
    """Return whether a person reads what is printed and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def prompt(question: str, *, default: Any = None, show_default: bool = True, **options: Any) -> Any:
    """Ask for an answer, as `typer.prompt` does; Ctrl-C ends the command."""
    question += f" [{default}]" if default and show_default else ""
    ask = partial(typer.prompt, _question(question), default=default or "", show_default=False, **options)
    while not (answer := ask()) and default is None:
        print("An answer is needed")
    return answer


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask yes or no; Ctrl-C ends the command."""
    answers = "Y/n" if default else "y/N"
    return typer.confirm(_question(f"{question} [{answers}]"), default=default, show_default=False)


def _question(text: str) -> str:
    """Return a question as it fits the terminal, with a colon after it; Ctrl-C ends the read that follows."""
    # The handler of SIGINT that Polars sets as it loads makes the read go on.
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003  (it takes no name)
    return folded(text, max(columns_of() - len(": "), 0))


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, which on a terminal break between words, coloured by their sign or state."""
    width = columns_of(stream)
    is_coloured = width and not os.environ.get("NO_COLOR")
    for line in lines:
        text, start = folded(line, width), _START.match(line) if is_coloured else None
        if start and (sign := start["sign"]):
            text = click.style(text, fg=_COLOURS[sign])
        elif start and (state := start["state"]) in _COLOURS:
            text = text.replace(state, click.style(state, fg=_COLOURS[state]), 1)
        print(text, file=stream)


def columns_of(stream: TextIO | None = None) -> int:
    """Return how wide the terminal of a stream is; 0: it is not a terminal."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else 0


def folded(line: str, width: int | None = None) -> str:
    """Return a line that breaks where it is too long, the rest below its text; `width` as of `columns_of`.

    It breaks between columns if it has several, otherwise between words. A command in it stays whole, to be
    copied, and has a line of its own.
    """
    width = columns_of() if width is None else width
    if not 0 < width < len(line):
        return line
    if command := _COMMAND.search(line):
        before = line[: command.start()].rstrip()
        return f"{folded(before, width)}\n    {line[command.start() :]}" if before else line
    start = len(found[0] if (found := _START.match(line)) else "")
    fill = partial(textwrap.fill, width=width, break_on_hyphens=False, break_long_words=False)
    ends = [gap.start() for gap in _GAP.finditer(line, start) if gap.start() <= width]
    if not ends:
        return fill(line, subsequent_indent=" " * start)
    below = " " * max(start, 4)
    rest = ", ".join(_GAP.split(line[ends[-1] :].strip()))
    return f"{line[: ends[-1]]}\n{fill(rest, initial_indent=below, subsequent_indent=below)}"


def print_finding(finding: Finding) -> None:
    """Print one line, as `check` and `init` do."""
    text = " ".join(finding.text.split())  # a service's may hold line breaks
    print_lines([f"  {finding.state:<11}{finding.what}: {printable(text)}"])
