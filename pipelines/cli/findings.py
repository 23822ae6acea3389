"""Findings as `check` and `init` print them: on a terminal their first word has a colour."""

import os

import click

from ownership.names import printable
from resources.findings import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red", "not tried": None}


def print_finding(finding: Finding) -> None:
    """Print one line, in colour on a terminal, unless NO_COLOR is set."""
    state = click.style(f"{finding.state:<11}", fg=_COLOURS[finding.state])
    text = printable(" ".join(finding.text.split()))  # the words of a service may hold line breaks
    click.echo(f"  {state}{finding.what}: {text}", color=False if os.environ.get("NO_COLOR") else None)
