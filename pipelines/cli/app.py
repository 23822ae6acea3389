"""The commands, and what holds for all of them. The options of a command stand in its module.

A module is imported when its command is called: Dagster and Polars take seconds, `--help` must not.
"""

import inspect
import logging
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pipelines.dagster_gaps.log_lines import LOGGER

_COMMANDS = {
    "init": ("init", "Write an instance file to fill in; it explains every setting."),
    "run": ("run", "Fetch logons and inventory, decide owners, and write them."),
    "apply": ("run", "Apply a stored plan; hosts that changed since are skipped."),
    "undo": ("run", "Undo what a run wrote, where hosts still hold it."),
    "diff": ("diff", "Compare the owners that two runs give, and say why they differ."),
    "explain": ("explain", "Explain why a host has an owner or none; list a person's hosts."),
    "report": ("report", "Write a report on the last run: a page, or a table of hosts."),
    "check": ("check", "Try both services without writing; show what to fix."),
    "tune": ("tune", "Estimate how often owners are wrong; propose better settings."),
    "runs": ("runs", "List the runs with their results, the newest first."),
    "conflicts": ("conflicts", "List hosts that have another owner than their primary user."),
    "metrics": ("metrics", "Print metrics of each instance for Prometheus."),
    "sql": ("sql", "Query the tables in SQL, for instance: FROM conflicts."),
    "forget": ("leave", "Remove a person from all that is stored for an instance."),
    "remove": ("leave", "Delete all that is stored for an instance."),
    "prepare": ("serve", "Make ASSET_OWNERS_HOME ready for Dagster's own programs."),
    "serve": ("serve", "Run the Dagster UI and the daemon that starts scheduled runs."),
    "docs": ("docs", "Print a guide, or what the tables hold."),
}
"""The module of each command, which has a function of the command's name, and what the command does."""
_ONLY_OF = {"wrong": "undo"}
"""Options that only one of the commands has that share a function."""
_GROUPS = {
    "Set up": ("init", "check", "tune", "docs", "sandbox"),
    "Daily work": ("run", "apply", "undo", "report", "conflicts"),
    "Ask": ("explain", "runs", "diff", "sql"),
    "Maintain": ("serve", "prepare", "metrics", "forget", "remove"),
}
"""The commands as `--help` lists them."""
_SANDBOX_COMMANDS = {
    "up": ("commands", "Run both services until Ctrl-C."),
    "demo": ("commands", "Plan and write a made-up company's owners; count the right ones."),
    "ui": ("commands", "Run both services and the Dagster UI until Ctrl-C."),
}

_LEVELS = {"quiet": logging.ERROR, "verbose": logging.DEBUG}
"""The least that is logged, by the option that says so."""


class _Commands(TyperGroup):
    """Lists its commands without importing them, and takes -q and -v behind each of them, too."""

    package, modules, groups = "pipelines.cli", _COMMANDS, _GROUPS

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        listed = {name: TyperCommand(name, help=text) for name, (_, text) in self.modules.items()}
        every = {**listed, **self.commands}
        ordered = chain(*self.groups.values(), every)  # commands of no group come last
        self.commands = {name: every[name] for name in ordered if name in every}

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (as Click calls it)
        """List the commands by group."""
        for title, names in self.groups.items():
            with formatter.section(title):
                listed = [name for name in self.commands if name in names]
                formatter.write_dl([(name, self.commands[name].get_short_help_str(70)) for name in listed])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, with its options, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.modules:
            command = self._load(name, f"{ctx.command_path} {name}")
        if command:
            shared = [option for option in ctx.find_root().command.params if option.name in _LEVELS]
            command.params += [option for option in shared if option not in command.params]
        return name, command, rest

    def _load(self, name: str, called: str) -> Any:
        """Make a command of the function of this name.

        Its parameters are the options; the later paragraphs of its docstring are the rest of the help, the
        last one of them an example. It returns the exit status, or None for 0.
        """
        module, text = self.modules[name]
        function = getattr(import_module(f"{self.package}.{module}"), name.replace("-", "_"))
        more, _, example = (inspect.getdoc(function) or "").partition("\n\n")[2].partition("Example: ")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name, help=f"{text}\n\n{more}", epilog=f"Example: {called} {example}")(function)
        command = typer.main.get_command(single)
        command.params = [one for one in command.params if _ONLY_OF.get(one.name or "", name) == name]
        return command


class _SandboxCommands(_Commands):
    package, modules, groups = "sandbox", _SANDBOX_COMMANDS, MappingProxyType({"Commands": _SANDBOX_COMMANDS})


def _exit(status: int | None, **_: Any) -> None:
    raise typer.Exit(status or 0)


app = typer.Typer(
    cls=_Commands,
    result_callback=_exit,
    help="Fills in the owners of hosts from Windows logon events.",
    epilog="ASSET_OWNERS_HOME (default ./var) holds the tables, the catalogue and Dagster's own home.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes show flags with a value, and cut names and paragraphs
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(
    typer.Typer(
        name="sandbox",
        cls=_SandboxCommands,
        help="Run a real search engine and an inventory service, to try it.",
        epilog="Example: asset-owners sandbox demo",
        no_args_is_help=True,
    )
)


def _set_level(context: typer.Context, option: typer.CallbackParam, chosen: bool) -> None:
    if chosen:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(_LEVELS[option.name or ""])
        context.call_on_close(lambda: logger.setLevel(logging.NOTSET))


def _global_flag(*names: str, text: str) -> Any:
    return typer.Option(*names, callback=_set_level, expose_value=False, help=text)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"asset-owners {version('asset-owners')}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    quiet: Annotated[bool, _global_flag("--quiet", "-q", text="Print only results and errors.")] = False,
    verbose: Annotated[bool, _global_flag("--verbose", "-v", text="Log details, too.")] = False,
) -> None:
    """The options of all commands."""
