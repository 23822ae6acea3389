"""Whether a person reads what a command prints, and colours for them."""

import os
import sys

import click


def is_on_terminal() -> bool:
    """Return whether a person reads what is printed and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def print_styled(text: str) -> None:
    """Print a text that may have colours: without them where it is not a terminal, or NO_COLOR is set."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
