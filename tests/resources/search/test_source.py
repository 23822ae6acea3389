"""The recipe for another source of logons, as docs/architecture.md shows it."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import polars as pl

from ownership.windows import Window
from resources.search.source import DayOfLogons, EvidenceSource
from tests.resources.search.documents import DAY, found

NAMES: dict[str, Any] = {
    one.__name__: one for one in (Iterator, Sequence, date, datetime, Path, DayOfLogons, EvidenceSource)
} | {"UTC": UTC, "pl": pl}


def test_a_folder_of_exports_is_a_source(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "architecture.md"
    (recipe,) = re.findall(r"```python\n(.*?class Exports.*?)```", page.read_text(), flags=re.DOTALL)
    exec(dedent(recipe), NAMES)  # noqa: S102  (ours)
    rows = {"host": ["PC", "PC", None, "FS"], "user": ["ann", "ann", "bob", None]}
    pl.DataFrame(rows).write_parquet(tmp_path / f"{DAY}.parquet")
    source: EvidenceSource = NAMES["Exports"](tmp_path)
    day, empty = source.logons([DAY, DAY + timedelta(days=1)])
    assert found(day) == (4, 1, 1, [("PC", "ann", 2)])
    assert found(empty) == (0, 0, 0, [])
    assert source.totals(DAY - timedelta(days=1), DAY) == (4, 1, 1)
    matching, senders = source.senders(DAY)
    assert (matching, senders.height, source.undated()) == (4, 0, 0)
    assert [*source.findings(Window(DAY, DAY))] == []
