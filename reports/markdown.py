"""Frames as Markdown tables, for readers who may be shown names that somebody chose with bad intentions."""

import polars as pl

from ownership.names import printable

MAX_ROWS = 40
MAX_TEXT = 80


def table(frame: pl.DataFrame, *, own_words: tuple[str, ...] = (), most_rows: int = MAX_ROWS) -> str:
    """A frame as a Markdown table, and how many rows were left out.

    Texts are shown as `literal` does, except those of the columns `own_words`, which this project wrote.
    """
    columns = frame.columns
    numeric = [kind.is_numeric() for kind in frame.dtypes]
    lines = [
        _row([name.replace("_", " ") for name in columns]),
        _row(["---:" if right else "---" for right in numeric]),
    ]
    for row in frame.head(most_rows).iter_rows():
        cells = (
            str(value) if name in own_words and value is not None else _cell(value)
            for name, value in zip(columns, row, strict=True)
        )
        lines.append(_row(list(cells)))
    if frame.height > most_rows:
        lines += ["", f"and {frame.height - most_rows:,} more"]
    return "\n".join(lines)


def literal(text: str) -> str:
    """Show a text as it is, whatever it holds: nothing in it can become Markdown, HTML or a link.

    In a code span only the backtick has a meaning, and in a table the pipe; those two, and what does not
    print (controls, line breaks, marks that turn the direction of writing), are shown as escapes. Long texts
    are cut.
    """
    shown = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    escaped = "".join(f"\\x{ord(c):02x}" if c in "`|" else c for c in printable(shown))
    return f"`{escaped}`" if escaped else ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list):
        return literal(", ".join(map(str, value)))
    return literal(value) if isinstance(value, str) else str(value)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
