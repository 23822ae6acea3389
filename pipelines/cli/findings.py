"""Findings as `check` and `init` print them: on a terminal their first word has a colour."""

import click

from ownership.names import printable
from pipelines.cli.terminal import print_styled
from resources.findings import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red", "not tried": None}


def print_finding(finding: Finding) -> None:
    """Print one line."""
    state = click.style(f"{finding.state:<11}", fg=_COLOURS[finding.state])
    text = printable(" ".join(finding.text.split()))  # the words of a service may hold line breaks
    print_styled(f"  {state}{finding.what}: {text}")
