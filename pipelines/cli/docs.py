"""`asset-owners docs`: the guides, which are installed with the program, and the tables."""

import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from resources.errors import ConfigurationError
from resources.settings import command_line

CHECKOUT = Path(__file__).parents[2] / "docs"
_WIDTH = 80
_CODE = re.compile(r"(?<=\.) (?=[\w.-]+: )")
"""The blank before each code in the comment of a column."""


def docs(
    topic: Annotated[str | None, typer.Argument(help="A guide or tables.", show_default="lists them")] = None,
    table: Annotated[str | None, typer.Argument(help="A table.", show_default="lists them")] = None,
) -> None:
    """Print a guide, or which there are.

    With tables it lists the stored tables, or describes one: key, columns, types and codes.

    Example: tables owner_decisions
    """
    folder = CHECKOUT if CHECKOUT.exists() else Path(sysconfig.get_path("data"), "share/doc/asset-owners")
    guides = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    if topic == "tables":
        print(*_tables(table), sep="\n")
    elif topic is None:
        titles = {name: text.splitlines()[0].lstrip("# ") for name, text in guides.items()}
        print(*_listed(titles | {"tables": "Tables and their columns"}), sep="\n")
        one = command_line(None, "docs", next(iter(guides), "tables"))
        print(f"\nThey lie in {folder}. One of them: {one}")
    elif topic not in guides:
        raise ConfigurationError(f"There is no guide {topic!r}; there are {', '.join(guides)} and tables")
    else:
        print(guides[topic], end="")


def _tables(wanted: str | None) -> Iterator[str]:
    """List the tables and views, or describe one."""
    from ownership.tables import TABLES
    from resources.store.catalogue import described_tables

    tables = described_tables()
    if wanted is None:
        yield from _listed({name: comment.partition(". ")[0] for name, (comment, _) in tables.items()})
        yield f"\nOne of them: {command_line(None, 'docs', 'tables', 'owner_decisions')}"
        return
    if wanted not in tables:
        raise ConfigurationError(f"There is no table {wanted!r}; there are {', '.join(tables)}")
    comment, columns = tables[wanted]
    key = f"Key: {', '.join(TABLES[wanted].__key__)}" if wanted in TABLES else "A view: read it like a table"
    yield f"{wanted}\n\n{fill(comment, _WIDTH)}\n{fill(key, _WIDTH)}\n"
    for name, kind, meaning in columns:
        head, *codes = _CODE.split(meaning)
        yield fill(f"{name} {kind}: {head}", _WIDTH, subsequent_indent=" " * 4)
        yield from (fill(code, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8) for code in codes)


def _listed(texts: Mapping[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        yield fill(f"{name:25} {text.rstrip('.')}", _WIDTH, subsequent_indent=" " * 26)
