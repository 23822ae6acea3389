"""Options that several commands share, and how options are declared."""

import csv
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


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
    from resources.errors import ConfigurationError

    listed = (_hosts_in(option, name[1:]) if name[:1] == "@" else [name] for name in given or ())
    hosts = [*filter(None, map(str.strip, chain.from_iterable(listed)))]
    if given and not hosts:
        raise ConfigurationError(f"{option}: {' '.join(given)} names no host")
    return hosts


def _hosts_in(option: str, file: str) -> Iterable[str]:
    """Return the hosts of a list, one a line, or of a sheet such as `sql --format csv` prints."""
    import polars as pl

    from pipelines.cli.files import require_file
    from reports.sheets import HOSTS, read_csv
    from resources.errors import ConfigurationError, why_unreadable

    require_file(option, Path(file))
    try:
        text = Path(file).read_text("utf-8-sig")
        head = re.split(r'[",;\s]+', text.partition("\n")[0])
        if columns := [name for name in HOSTS if name in head]:
            return read_csv(text).select(pl.coalesce(columns)).to_series().drop_nulls()
        return [row[0] for row in csv.reader(text.splitlines()) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigurationError(f"{option}: {file} cannot be read: {why_unreadable(error)}") from error


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
        show_default="the last one",
    ),
]
Format = Literal["table", "csv", "json"]
RowsAs = Annotated[Format, typer.Option("--format", help="How rows are printed.")]
Json = Annotated[bool, flag("--json", "Print one JSON object as the last line.")]
Yes = Annotated[bool, flag("--yes", "Do it; without --yes the command only says what it would do.")]
Port = Annotated[int, number("Port of the UI.", most=65535)]
