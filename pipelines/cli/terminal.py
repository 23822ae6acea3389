"""Whether a person reads what a command prints; questions and colours for them."""

import os
import signal
import sys
from typing import Any

import click
import typer


def is_on_terminal() -> bool:
    """Return whether a person reads what is printed and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def prompt(question: str, **options: Any) -> Any:
    """Ask for an answer, as `typer.prompt` does; Ctrl-C ends the command."""
    _let_ctrl_c_through()
    return typer.prompt(question, **options)


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask yes or no; Ctrl-C ends the command."""
    _let_ctrl_c_through()
    return typer.confirm(question, default=default)


def _let_ctrl_c_through() -> None:
    """Let SIGINT end a read: the handler that Polars sets as it loads makes the read go on."""
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003  (it takes no name)


def print_styled(text: str) -> None:
    """Print a text that may have colours: without them where it is not a terminal, or NO_COLOR is set."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
