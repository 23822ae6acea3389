"""Whether a person reads what a command prints; questions, colours and findings for them."""

import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO

import click
import typer

from ownership.names import printable
from resources.findings import Finding

_COMMAND = re.compile(r"asset-owners \w+ -")
_START = re.compile(r"[+~-] .{4}|\s*(?:[\d,]+  |- |(?:ok|warning|wrong|not tried) +)?")
"""What a line begins with, before its text: a sign, a number of hosts, or how well something is."""
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
    """Print lines, each with the colour of its sign."""
    for sign, line in lines:
        print_styled(click.style(folded(line), fg=_COLOURS[sign]) if sign else folded(line))


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, which on a terminal break between words."""
    for line in lines:
        print(folded(line, stream), file=stream)


def folded(line: str, stream: TextIO | None = None) -> str:
    """Return a line that on a terminal breaks between words, below its text.

    One with a command stays whole, to be copied.
    """
    if not (stream or sys.stdout).isatty() or _COMMAND.search(line) or not line.strip():
        return line
    start = _START.match(line)
    below, width = " " * (start.end() if start else 0), shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=below, break_on_hyphens=False, break_long_words=False)


def print_finding(finding: Finding) -> None:
    """Print one line, as `check` and `init` do: on a terminal its first word has a colour."""
    state, text = f"{finding.state:<11}", " ".join(finding.text.split())  # a service's may hold line breaks
    line = folded(f"  {state}{finding.what}: {printable(text)}")
    print_styled(line.replace(state, click.style(state, fg=_COLOURS.get(finding.state)), 1))
