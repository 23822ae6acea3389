"""The commands and their options: what `--help` shows. What a command does is in the module of its name.

Those modules are imported when their command is called: Dagster and Polars take seconds, `--help` must not.
"""

import logging
import sys
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from pipelines.dagster_gaps.log_lines import LOGGER

HERE = "pipelines.cli"


class _Commands(TyperGroup):
    """Takes -q and -v behind each command, too."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        shared = [option for option in self.params if option.name in _LEVELS]
        for command in self.commands.values():
            for each in (command, *getattr(command, "commands", {}).values()):
                each.params += shared


app = typer.Typer(
    cls=_Commands,
    help="Fills in the owners of host assets from Windows logon events.",
    epilog="ASSET_OWNERS_HOME (default ./var) holds the tables, the catalogue and Dagster's own home.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stderr.isatty() else None,  # its boxes fold the lines of a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(
    example: str,
    *,
    of: str | None = None,
    name: str | None = None,
    text: str | None = None,
    group: typer.Typer = app,
) -> Any:
    """Define a command by a function that has its options and its help, and no body.

    The function of the same name in the module of that name, or in the module `of`, does it and returns the
    exit status, or None for 0.
    """

    def define(options: FunctionType) -> FunctionType:
        called = name or options.__name__
        words = f"asset-owners {group.info.name or ''} {called} {example}"

        @group.command(called, help=text, epilog=f"Example: {' '.join(words.split())}")
        @wraps(options)
        def command(**given: Any) -> None:
            function = getattr(import_module(of or f"{HERE}.{called}"), called)
            raise typer.Exit(function(**given) or 0)

        return options

    return define


def _number(text: str, *, least: float = 1, most: float | None = None, default: str | bool = True) -> Any:
    return typer.Option(metavar="NUMBER", min=least, max=most, show_default=default, help=text)


def _file(text: str, *, default: str | bool = True) -> Any:
    return typer.Option(metavar="FILE", show_default=default, help=text)


def _meant(given: str | None = None) -> Path:
    """The instance file that a user means by a path, a name or a slug; the only one where none is named."""
    from resources.settings import instance_path

    return instance_path(given if given is None else str(given))


INSTANCE_HELP = "The instance: its file, or the name or slug of one in ASSET_OWNERS_HOME/instances."
InstanceFile = Annotated[
    Path,
    typer.Option(
        "--instance",
        metavar="FILE",
        parser=_meant,
        default_factory=_meant,
        show_default="the only file there",
        help=INSTANCE_HELP,
    ),
]
OneOrAll = Annotated[
    Path | None,
    typer.Option("--instance", metavar="FILE", parser=_meant, help="Only this instance.", show_default="all"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Plan only; write nothing.")]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN_ID",
        help="Id of a run, or its first 8 characters; may be a dry run.",
        show_default="the last one",
    ),
]
RowsAs = Annotated[
    Literal["table", "csv", "json"],
    typer.Option("--format", help="How rows are printed."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Do it; without --yes the command only says what it would do.")
]

_LEVELS = {"quiet": logging.ERROR, "verbose": logging.DEBUG}
"""The least that is logged, by the option that says so."""


def _log_from(context: typer.Context, option: typer.CallbackParam, chosen: bool) -> None:
    if chosen:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(_LEVELS[option.name or ""])
        context.call_on_close(lambda: logger.setLevel(logging.NOTSET))


def _of_all(*names: str, text: str) -> Any:
    return typer.Option(*names, callback=_log_from, expose_value=False, help=text)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"asset-owners {version('asset-owners')}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
    quiet: Annotated[bool, _of_all("--quiet", "-q", text="Print only results and errors.")] = False,
    verbose: Annotated[bool, _of_all("--verbose", "-v", text="Log details, too.")] = False,
) -> None:
    """Fills in the owners of host assets from Windows logon events."""


@_command("head-office.yaml")
def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="To be written, - for standard output; never an existing one.",
            show_default="instances/instance.yaml in ASSET_OWNERS_HOME",
        ),
    ] = None,
) -> None:
    """Write an instance file to fill in, with every setting explained."""


@_command("--instance NAME --dry-run")
def run(
    path: InstanceFile,
    *,
    lookback_days: Annotated[
        int | None,
        _number("Look-back window in calendar days.", most=3660, default="scan.lookback_days"),
    ] = None,
    dry_run: DryRun = False,
    no_enrich: Annotated[
        bool, typer.Option("--no-enrich", help="Leave department and criticality of hosts as they are.")
    ] = False,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="Last day of the window.", show_default="today")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write although the window ended more than scan.late_days ago.")
    ] = False,
    limit: Annotated[int | None, _number("Write at most this many hosts, to try it on a few.")] = None,
    as_json: Json = False,
) -> None:
    """Fetch logons and inventory, decide each host's owner, and write.

    Exit status: 0 success, also when single writes failed; 1 the run failed; 2 the instance file, a secret
    or an argument is wrong.
    """


def follow_up(
    path: InstanceFile,
    run_id: Annotated[
        str, typer.Argument(metavar="RUN_ID", help="Id of the run, or its first 8 characters.")
    ],
    allow_writes: Annotated[
        int | None, _number("The most hosts to write, in place of max_writes and max_write_percent.")
    ] = None,
    dry_run: DryRun = False,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why you do it; kept in `options` of the table runs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Options of the commands that follow a run."""


_following = partial(_command, "--instance NAME 1a2b3c4d --dry-run", of=f"{HERE}.follow_up")
_following(
    name="apply",
    text="Carry out a plan that an earlier run stored; hosts that changed since are left alone.",
)(follow_up)
_following(
    name="undo",
    text="Put back what a run wrote, field by field, where hosts still hold it.",
)(follow_up)


@_command("--instance NAME PC-0815")
def explain(
    path: InstanceFile,
    asked: Annotated[
        str,
        typer.Argument(
            metavar="HOST_OR_PERSON",
            help="Host name in any spelling or id of a host asset; or user name, e-mail address or id of a "
            "user asset.",
        ),
    ],
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Explain why a host has, or has not, an owner, and what would change that; or list a person's hosts."""


@_command("--instance NAME --out report.html")
def report(
    path: InstanceFile,
    out: Annotated[
        Path | None,
        _file(
            "The file to write or replace, - for standard output.",
            default="reports/NAME.FORMAT in ASSET_OWNERS_HOME, NAME.RUN.FORMAT with --run",
        ),
    ] = None,
    kind: Annotated[
        Literal["html", "xlsx", "csv"], typer.Option("--format", help="A page, or a table of all hosts.")
    ] = "html",
    *,
    raw: Annotated[
        bool, typer.Option("--raw", help="With xlsx and csv: all columns of owner_decisions as they are.")
    ] = False,
    run: RunId = None,
) -> None:
    """Write a report on the last run: a page that needs no network, or a table of its hosts.

    CSV has an apostrophe before whatever a spreadsheet could run as a formula, also after ; or a tab;
    `sql --format json` has every name as it is.
    """


@_command("--instance NAME")
def check(path: InstanceFile, as_json: Json = False) -> None:
    """Try both services without writing; show what works and what to fix."""


@_command("--instance NAME --target-precision 0.95")
def tune(
    path: InstanceFile,
    *,
    target_precision: Annotated[
        float,
        _number("Share of right owners that proposed settings must reach, such as 0.95.", least=0.5, most=1),
    ] = 0.90,
    keep: Annotated[
        float, _number("Percent of the present writes that they must keep.", least=0, most=100)
    ] = 90,
    audit: Annotated[
        int | None, _number("Draw so many of the owners that the last run planned, for people to look at.")
    ] = None,
    seed: Annotated[int | None, _number("Draw the same ones again.", least=0, default="by chance")] = None,
    audit_file: Annotated[
        Path | None,
        _file("The sheet to write, CSV or .xlsx; never an existing one.", default="standard output"),
    ] = None,
    audit_answers: Annotated[
        Path | None, _file("Read this sheet, with yes or no in its last column, and then estimate.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate how often the rules are wrong, and which settings would do better; writes no owner.

    Before the first run that writes: draw 50 planned owners with --audit, let somebody who knows answer, and
    give the answers back with --audit-answers.
    """


@_command("--instance NAME --limit 5")
def runs(
    path: InstanceFile,
    limit: Annotated[int, _number("How many runs to show.", most=1_000_000)] = 20,
    as_json: Json = False,
) -> None:
    """List the runs, the newest first: what each of them did, and what came of it."""


@_command("--instance NAME --acknowledge PC-0815 --note 'a loan'")
def conflicts(
    path: InstanceFile,
    *,
    acknowledge: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Acknowledge the conflict of this host, by name or id."),
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it may stay.")] = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> None:
    """List conflicts: hosts that have another owner than the logons name, since when, and who knows of it.

    An acknowledged conflict is no warning any more until what the logons say (its evidence code), or one of
    its owners, changes.
    """


@_command("--listen 127.0.0.1:9188")
def metrics(
    path: OneOrAll = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve them until Ctrl-C.", show_default="print them once and end"
        ),
    ] = None,
) -> None:
    """Print metrics of each instance for Prometheus: last success, hosts owned, conflicts, failures."""


@_command("--instance NAME 'FROM conflicts' --format csv > conflicts.csv")
def sql(
    query: Annotated[
        str | None, typer.Argument(help="The query.", show_default="standard input, or DuckDB's shell")
    ] = None,
    instance: OneOrAll = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> None:
    """Query the tables in SQL, for instance: FROM conflicts.

    They are read-only, and can be read while a run writes them; new tables are kept in memory. Of several
    statements --format json prints the last one's rows. Without a query DuckDB's shell starts.
    """


@_command("--out backup.tar")
def backup(
    out: Annotated[Path, typer.Option(metavar="FILE.tar", help="The file to write; never an existing one.")],
) -> None:
    """Write tables, journals, instance files and Dagster's records of ASSET_OWNERS_HOME into one file.

    Waits for a run that is writing owners. The file holds no secrets.
    """


@_command("backup.tar", of=f"{HERE}.backup")
def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE.tar", help="What `backup` wrote.")],
) -> None:
    """Make ASSET_OWNERS_HOME, a new or an empty folder, from a backup."""


@_command("--instance NAME ann@corp.example", of=f"{HERE}.leaving")
def forget(
    asked: Annotated[
        str, typer.Argument(metavar="PERSON", help="User name, e-mail address, or id of the user asset.")
    ],
    path: InstanceFile,
    yes: Yes = False,
) -> None:
    """Remove a person from all that is stored for an instance; a hash takes the place of their names.

    That is tables, history, journal of writes and Dagster's records. `asset-owners docs data_protection` says
    what is left.
    """


@_command("NAME", of=f"{HERE}.leaving")
def remove(
    path: Annotated[Path, typer.Argument(metavar="INSTANCE", parser=_meant, help=INSTANCE_HELP)],
    yes: Yes = False,
) -> None:
    """Delete all that is stored for an instance, when a customer leaves."""


@_command("", of=f"{HERE}.serve")
def prepare() -> None:
    """Make ASSET_OWNERS_HOME ready for Dagster: the folder of instance files, and `dagster.yaml`.

    `serve` does it by itself; this is for Dagster's own programs as services.
    """


Port = Annotated[int, _number("Port of the UI.", most=65535)]


@_command("--port 3001")
def serve(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the UI is served; it asks for no log-in.")
    ] = "127.0.0.1",
    port: Port = 3000,
) -> None:
    """Run the Dagster UI, and the daemon that starts scheduled runs, until Ctrl-C."""


@_command("tuning")
def docs(
    topic: Annotated[str | None, typer.Argument(help="A guide's name.", show_default="lists them")] = None,
) -> None:
    """Print a guide: how owners are decided, every setting, the daily work."""


sandbox = typer.Typer(
    name="sandbox",
    help="A real search engine and a small inventory service, for trying and testing.",
    epilog="Example: asset-owners sandbox demo",
    no_args_is_help=True,
)
app.add_typer(sandbox)
_sandbox = partial(_command, of="sandbox.commands", group=sandbox)


@_sandbox("--port 9200")
def up(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again with the demo's data of today.")
    ] = False,
    port: Annotated[
        int | None,
        _number(
            "Port of the search service; the inventory service has the next one.",
            most=65534,
            default="those of last time",
        ),
    ] = None,
) -> None:
    """Run both services until Ctrl-C."""


@_sandbox("")
def demo() -> None:
    """Fill in the owners of a made-up company, twice, and say how many are right."""


@_sandbox("--port 3001")
def ui(port: Port = 3000) -> None:
    """Run both services, the Dagster webserver and its daemon until Ctrl-C."""
