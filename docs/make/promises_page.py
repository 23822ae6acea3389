"""The page of the promises, from tests/promises.yaml."""

from collections.abc import Iterator
from pathlib import Path

import yaml

PAGE = Path(__file__).parents[1] / "promises.md"
PROMISES = Path(__file__).parents[2] / "tests" / "promises.yaml"


def refresh() -> None:
    """Write today's promises into the page."""
    PAGE.write_text(promises_page(), encoding="utf-8")


def promises_page() -> str:
    """Return the page as Markdown."""
    promises = yaml.safe_load(PROMISES.read_text(encoding="utf-8"))
    missing = promises.pop("not promised")
    lines = [line for number, promise in promises.items() for line in _lines(number, promise)]
    head = ["# Promises\n", "What you may rely on, and a test that shows it; `tests/promises.yaml` has all."]
    return "\n".join([*head, *lines, "\n## What is not promised\n", *(f"- {one}" for one in missing), ""])


def _lines(number: str, promise: dict[str, str | list[str]]) -> Iterator[str]:
    if "heading" in promise:
        yield f"\n## {promise['heading']}\n"
    measured = f" Measured: {promise['measured']}." if "measured" in promise else ""
    test = promise["tests"][0].rpartition("::")[2]
    yield f"- **{number}** {promise['promise']}{measured} (`{test}`)"
