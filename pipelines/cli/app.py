"""The commands and their options. What a command does is in the module of its name.

Those modules are imported when their command is called: Dagster and Polars take seconds, `--help` must not.
"""

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from pipelines.log_lines import LOGGER


class _Commands(TyperGroup):
    """Takes -q and -v behind each command, too, and says in one line what is wrong with an option's value."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        shared = [option for option in self.params if option.name in _LEVELS]
        for command in self.commands.values():
            for each in (command, *getattr(command, "commands", {}).values()):
                each.params += shared

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            if isinstance(error.__cause__, ValidationError):
                error.message = error.__cause__.errors()[0]["msg"]
            raise


app = typer.Typer(
    cls=_Commands,
    help="Fills in the owners of host assets from Windows logon events.",
    epilog="ASSET_OWNERS_HOME (default ./var) holds the tables, the catalogue and Dagster's own home.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stderr.isatty() else None,  # its boxes fold the lines of a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _meant(given: str | None = None) -> Path:
    """The instance file that a user means by a path, a name or a slug; the only one where none is named."""
    from resources.settings import instance_path

    return instance_path(given if given is None else str(given))


INSTANCE_HELP = "The instance: its file, or the name or slug of one in ASSET_OWNERS_HOME/instances."
ONLY = "the only file there"
InstanceFile = Annotated[
    Path,
    typer.Option(
        "--instance",
        metavar="FILE",
        parser=_meant,
        default_factory=_meant,
        show_default=ONLY,
        help=INSTANCE_HELP,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Plan only; write nothing.")]
AllowWrites = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        help="Allow this many writes, whatever max_writes and max_write_percent say.",
    ),
]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why you do it; kept in `options` of the table runs.")
]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN_ID",
        help="Id of a run, or its first 8 characters; may be a dry run.",
        show_default="the last one",
    ),
]
OfRun = Annotated[str, typer.Argument(metavar="RUN_ID", help="Id of the run, or its first 8 characters.")]
RowsAs = Annotated[
    Literal["table", "csv", "json"],
    typer.Option("--format", help="How rows are printed; as JSON those of the last statement."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


_LEVELS = {"quiet": logging.ERROR, "verbose": logging.DEBUG}
"""The least that is logged, by the option that says so."""


def _log_from(context: typer.Context, option: typer.CallbackParam, chosen: bool) -> None:
    if chosen:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(_LEVELS[option.name or ""])
        context.call_on_close(lambda: logger.setLevel(logging.NOTSET))


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
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", callback=_log_from, expose_value=False, help="Print only results and errors."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", callback=_log_from, expose_value=False, help="Log details, too."),
    ] = False,
) -> None:
    """Fills in the owners of host assets from Windows logon events."""


@app.command(epilog="Example: asset-owners init head-office.yaml")
def init(
    file: Annotated[
        Path, typer.Argument(help="The file to write, - for standard output; never an existing one.")
    ] = Path("instance.yaml"),
) -> None:
    """Write an instance file to fill in, with every setting explained."""
    from pipelines.cli import init as command

    command.init(file)


@app.command(epilog="Example: asset-owners run --instance NAME --dry-run")
def run(
    context: typer.Context,
    *,
    # Resolved by the command, which prints one object with --json whatever is wrong.
    instance: Annotated[
        str | None, typer.Option(metavar="FILE", help=INSTANCE_HELP, show_default=ONLY)
    ] = None,
    lookback_days: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=3660,
            help="Look-back window in calendar days.",
            show_default="scan.lookback_days",
        ),
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
    limit: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, help="Write at most this many hosts, to try it on a few."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch logons and inventory, decide each host's owner, and write.

    Exit status: 0 success, also when single writes failed; 1 the run failed; 2 the instance file, a secret
    or an argument is wrong.
    """
    from pipelines.cli import run as command

    raise typer.Exit(
        command.run(
            instance,
            lookback_days=lookback_days,
            dry_run=dry_run,
            enrich=not no_enrich,
            as_of=as_of,
            force=force,
            limit=limit,
            as_json=as_json,
            overrides=context.obj,
        )
    )


def _follow_up(job: Literal["apply", "undo"], text: str) -> None:
    """Define the command of a job that follows a run."""

    @app.command(job, help=text, epilog=f"Example: asset-owners {job} --instance NAME 1a2b3c4d --dry-run")
    def follow_up(
        context: typer.Context,
        instance: InstanceFile,
        run_id: OfRun,
        allow_writes: AllowWrites = None,
        dry_run: DryRun = False,
        reason: Reason = None,
        as_json: Json = False,
    ) -> None:
        from pipelines.cli import follow_up as command

        chosen = {"allow_writes": allow_writes, "dry_run": dry_run, "reason": reason, "as_json": as_json}
        raise typer.Exit(command.follow_up(instance, job, run_id, **chosen, overrides=context.obj))


_follow_up("apply", "Carry out a plan that an earlier run stored; hosts that changed since are left alone.")
_follow_up("undo", "Put back what a run wrote, field by field, where hosts still hold it.")


@app.command(epilog="Example: asset-owners explain --instance NAME PC-0815")
def explain(
    instance: InstanceFile,
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
    """Explain why a host has, or has not, an owner, and what would change that; or list a person's hosts.

    Exit status: 0 found, 1 no host and no person is known by that name, 2 an argument is wrong.
    """
    from pipelines.cli import explain as command

    raise typer.Exit(command.explain(instance, asked, run_id=run_id, as_json=as_json))


@app.command(epilog="Example: asset-owners report --instance NAME --out report.html")
def report(
    instance: InstanceFile,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file to write or replace, - for standard output.",
            show_default="reports/NAME.FORMAT in ASSET_OWNERS_HOME",
        ),
    ] = None,
    kind: Annotated[
        Literal["html", "csv", "json"],
        typer.Option("--format", help="A page for people; the decisions for a spreadsheet, or as JSON."),
    ] = "html",
    run_id: RunId = None,
) -> None:
    """Write a report on the last run: a page that needs no network, or its decisions and conflicts.

    CSV has an apostrophe before whatever a spreadsheet could run as a formula, also after ; or a tab.
    JSON has every name as it is.
    """
    from pipelines.cli import report as command

    command.report(instance, out, kind, run_id)


@app.command(epilog="Example: asset-owners check --instance NAME")
def check(instance: InstanceFile, as_json: Json = False) -> None:
    """Try both services without writing; show what works and what to fix.

    With --json: `instance`, `wrong` and `warnings` (how many), and `findings`, each with `section`, `state`
    (ok, warning, wrong, not tried), `what` and `text`; only `error` where the exit status is 2.

    Exit status: 0 all is well, 1 something is not, 2 the instance file, a secret or a setting of the
    environment is wrong.
    """
    from pipelines.cli import check as command

    raise typer.Exit(command.check(instance, as_json=as_json))


@app.command(epilog="Example: asset-owners tune --instance NAME --target-precision 0.95")
def tune(
    context: typer.Context,
    instance: InstanceFile,
    *,
    target_precision: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", min=0.5, max=1, help="Share of right owners that proposed settings must reach."
        ),
    ] = 0.90,
    keep: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", min=0, max=100, help="Percent of the present writes that they must keep."
        ),
    ] = 90,
    audit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Draw N of the owners that the last run planned, for people to look at.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, help="Draw the same ones again.", show_default="by chance"),
    ] = None,
    audit_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The sheet to write, as CSV; never an existing one.",
            show_default="standard output",
        ),
    ] = None,
    audit_answers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read this sheet, with yes or no in its last column, and then estimate."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate how often the rules are wrong, and which settings would do better; writes no owner.

    Before the first run that writes: draw 50 planned owners with --audit, let somebody who knows answer, and
    give the answers back with --audit-answers.
    """
    from resources.errors import ConfigurationError

    if audit is None and (seed is not None or audit_file):
        raise ConfigurationError("--seed and --audit-file go with --audit N, which draws")
    if audit is not None and audit_answers:
        raise ConfigurationError("--audit draws anew: give --audit-answers in a command of its own")
    if audit is not None:
        from pipelines.cli import audit as drawing

        return drawing.draw(instance, audit, seed=seed, out=audit_file, as_json=as_json)

    from pipelines.cli import tune as command
    from reports.tuning import Aim

    aim = Aim(target_precision, keep)
    raise typer.Exit(
        command.tune(instance, aim=aim, as_json=as_json, answers=audit_answers, overrides=context.obj)
    )


@app.command(epilog="Example: asset-owners runs --instance NAME --limit 5")
def runs(
    instance: InstanceFile,
    limit: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="How many runs to show.")] = 20,
    as_json: Json = False,
) -> None:
    """List the runs, the newest first: what each of them did, and what came of it."""
    from pipelines.cli import runs as command

    command.runs(instance, limit=limit, as_json=as_json)


@app.command(epilog="Example: asset-owners conflicts --instance NAME --acknowledge PC-0815 --note 'a loan'")
def conflicts(
    instance: InstanceFile,
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

    An acknowledged conflict is no warning any more until its evidence, or one of its owners, changes.
    """
    from pipelines.cli import conflicts as command

    if acknowledge is None and note is None:
        raise typer.Exit(command.list_conflicts(instance, form=form, run_id=run_id))
    if acknowledge is None or run_id:
        raise typer.BadParameter("--note goes with --acknowledge HOST, which is of the last run: no --run")
    command.acknowledge(instance, acknowledge, note)


@app.command(epilog="Example: asset-owners metrics --listen 127.0.0.1:9464")
def metrics(
    instance: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=_meant, help="Only this instance.", show_default="all"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve them until Ctrl-C.", show_default="print them once and end"
        ),
    ] = None,
) -> None:
    """Print metrics of each instance for Prometheus: last success, hosts owned, conflicts, failures."""
    from pipelines.cli import metrics as command

    command.metrics(instance, listen=listen)


@app.command(epilog="Example: asset-owners sql --instance NAME 'FROM conflicts' --format csv > conflicts.csv")
def sql(
    query: Annotated[
        str | None, typer.Argument(help="The query.", show_default="standard input, or DuckDB's shell")
    ] = None,
    instance: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=_meant,
            help="The instance whose tables are meant by names without a schema.",
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The DuckDB file that new tables go into.",
            show_default="in memory, until the end",
        ),
    ] = None,
    form: RowsAs = "table",
    run_id: RunId = None,
) -> None:
    """Query the tables in SQL, for instance: FROM conflicts.

    They are read-only, and can be read while a run writes them. Without a query DuckDB's shell starts.
    """
    from pipelines.cli import sql as command

    raise typer.Exit(command.sql(query, instance=instance, scratch=scratch, form=form, run_id=run_id))


@app.command(epilog="Example: asset-owners backup --out backup.tar")
def backup(
    out: Annotated[Path, typer.Option(metavar="FILE.tar", help="The file to write; never an existing one.")],
) -> None:
    """Write tables, journals, instance files and Dagster's records of ASSET_OWNERS_HOME into one file.

    Waits for a run that is writing owners. The file holds no secrets.
    """
    from pipelines.cli import backup as command

    command.backup(out)


@app.command(epilog="Example: asset-owners restore backup.tar")
def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE.tar", help="What `backup` wrote.")],
) -> None:
    """Make ASSET_OWNERS_HOME, a new or an empty folder, from a backup."""
    from pipelines.cli import backup as command

    command.restore(archive)


Yes = Annotated[
    bool, typer.Option("--yes", help="Do it; without --yes the command only says what it would do.")
]


@app.command()
def forget(
    person: Annotated[
        str, typer.Argument(metavar="PERSON", help="User name, e-mail address, or id of the user asset.")
    ],
    instance: InstanceFile,
    yes: Yes = False,
) -> None:
    """Remove a person from all that is stored for an instance; a hash takes the place of their names.

    That is tables, history, journal of writes and Dagster's records. `asset-owners docs data_protection` says
    what is left.
    """
    from pipelines.cli import leaving as command

    raise typer.Exit(command.forget_person(instance, person, yes=yes))


@app.command()
def remove(
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", parser=_meant, help=INSTANCE_HELP)],
    yes: Yes = False,
) -> None:
    """Delete all that is stored for an instance, when a customer leaves."""
    from pipelines.cli import leaving as command

    raise typer.Exit(command.remove(instance, yes=yes))


@app.command(epilog="Example: asset-owners workspace 4 > workspace.yaml")
def workspace(
    locations: Annotated[
        int, typer.Argument(min=1, max=1000, metavar="NUMBER", help="How many code locations.")
    ],
) -> None:
    """Print a workspace file for Dagster, in which several code locations share the instances.

    For hundreds of instances; `asset-owners docs scaling` says when.
    """
    from pipelines.cli import workspace as command

    command.workspace(locations)


@app.command()
def prepare() -> None:
    """Make ASSET_OWNERS_HOME ready for Dagster: the folder of instance files, and `dagster.yaml`.

    `serve` does it by itself; this is for Dagster's own programs as services.
    """
    from pipelines.cli import serve as command

    command.prepare()


@app.command(epilog="Example: asset-owners serve --port 3001")
def serve(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the UI is served; it asks for no log-in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="NUMBER", min=1, max=65535, help="Port of the UI.")] = 3000,
) -> None:
    """Run the Dagster UI, and the daemon that starts scheduled runs, until Ctrl-C."""
    from pipelines.cli import serve as command

    command.serve(host, port)


@app.command()
def docs(
    topic: Annotated[str | None, typer.Argument(help="A guide's name.", show_default="lists them")] = None,
) -> None:
    """Print a guide: how owners are decided, every setting, the daily work."""
    from pipelines.cli import docs as command

    command.docs(topic)


sandbox = typer.Typer(
    help="A real search engine and a small inventory service, for trying and testing.", no_args_is_help=True
)
app.add_typer(sandbox, name="sandbox")


@sandbox.command()
def up(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again with the demo's data of today.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=65534,
            help="Port of the search service; the inventory service has the next one.",
            show_default="those of last time",
        ),
    ] = None,
) -> None:
    """Run both services until Ctrl-C."""
    _sandbox_commands().up(fresh=fresh, port=port)


@sandbox.command()
def demo() -> None:
    """Fill in the owners of a made-up company, twice, and show the decisions with their reasons."""
    _sandbox_commands().demo()


@sandbox.command()
def ui(
    port: Annotated[int, typer.Option(metavar="NUMBER", help="Port of the Dagster webserver.")] = 3000,
) -> None:
    """Run both services, the Dagster webserver and its daemon until Ctrl-C."""
    _sandbox_commands().ui(port=port)


def _sandbox_commands() -> ModuleType:
    """The sandbox's commands; the sandbox is an extra that may not be installed."""
    from resources.errors import ConfigurationError

    try:
        from sandbox import commands
    except ImportError as error:
        raise ConfigurationError(
            f"the sandbox needs the extra `sandbox` of asset-owners, which is not installed ({error})"
        ) from error
    return commands
