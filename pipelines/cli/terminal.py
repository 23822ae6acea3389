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
_START = re.compile(r"(?P<sign>[+~-]) .{4}|\s*(?:(?P<state>ok|warning|wrong|not tried) +|[\d,]+  |- )?")
"""What a line begins with, before its text: a sign, how well something is, or a number of hosts."""
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


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, which on a terminal break between words, coloured by their sign or state."""
    is_coloured = (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR")
    for line in lines:
        text, start = folded(line, stream), _START.match(line) if is_coloured else None
        if start and (sign := start["sign"]):
            text = click.style(text, fg=_COLOURS[sign])
        elif start and (state := start["state"]) in _COLOURS:
            text = text.replace(state, click.style(state, fg=_COLOURS[state]), 1)
        print(text, file=stream)


def folded(line: str, stream: TextIO | None = None) -> str:
    """Return a line that on a terminal breaks between words, below its text.

    One with a command stays whole, to be copied.
    """
    if not (stream or sys.stdout).isatty() or _COMMAND.search(line) or not line.strip():
        return line
    below = " " * len(start[0] if (start := _START.match(line)) else "")
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=below, break_on_hyphens=False, break_long_words=False)


def print_finding(finding: Finding) -> None:
    """Print one line, as `check` and `init` do."""
    text = " ".join(finding.text.split())  # a service's may hold line breaks
    print_lines([f"  {finding.state:<11}{finding.what}: {printable(text)}"])
