"""Whether a person reads what a command prints; questions, colours and findings for them."""

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

import click
import typer

from ownership.names import printable
from resources.findings import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red", "+": "green", "-": "red", "~": "yellow"}


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


def print_changes(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines, each with the colour of its sign; on a terminal they break between words."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for sign, line in lines:
        if sign:  # others may hold a command, which is to be copied as a whole
            parts = textwrap.wrap(line, width, subsequent_indent=" " * 6, break_on_hyphens=False)
            print_styled(click.style("\n".join(parts), fg=_COLOURS[sign]))
        else:
            print_styled(line)


def print_finding(finding: Finding) -> None:
    """Print one line, as `check` and `init` do: on a terminal its first word has a colour."""
    state = click.style(f"{finding.state:<11}", fg=_COLOURS.get(finding.state))
    text = printable(" ".join(finding.text.split()))  # the words of a service may hold line breaks
    print_styled(f"  {state}{finding.what}: {text}")
