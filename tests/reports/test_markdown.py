from datetime import date
from itertools import pairwise

import polars as pl
import pytest
from markdown_it import MarkdownIt

from reports.markdown import MAX_TEXT, table


def shown(markdown):
    """The table as a reader of Markdown sees it: rows of (kind of content, text)."""
    rows, tokens = [], MarkdownIt("commonmark").enable("table").parse(markdown)
    for token, inside in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        if token.type in {"th_open", "td_open"}:
            rows[-1].append([(child.type, child.content) for child in inside.children or ()])
    return rows


@pytest.mark.parametrize(
    "name",
    [
        r"CORP\|bob",
        "trailing\\",
        "``ticks`",
        "<img src=x onerror=alert(1)>",
        "![x](https://evil.example/x.png)",
        "two\nlines\r\n| forged | row |",
        "right\u202eto\u2066left\u200f",
        "nul\x00 and bell\x07",
        "&lt;b&gt; *bold* _it_ # ~~no~~",
        "|" * 10_000,
    ],
)
def test_a_hostile_name_stays_one_cell_of_plain_text(name):
    head, row = shown(table(pl.DataFrame({"hostname": [name], "events": [5]})))
    assert [[kind for kind, _ in cell] for cell in head] == [["text"], ["text"]]
    assert row[1] == [("text", "5")]
    ((kind, text),) = row[0]
    assert kind == "code_inline"
    assert text.isprintable()
    assert len(text) <= 4 * MAX_TEXT + 10


def test_values_are_shown_for_readers():
    frame = pl.DataFrame(
        {
            "day": [date(2026, 3, 2)],
            "events": [1234567],
            "share": [0.5],
            "ids": [["a", "b|c"]],
            "ours": ["to write"],
            "none": [None],
        },
        schema_overrides={"none": pl.String},
    )
    assert table(frame, own_words=("ours",)).splitlines() == [
        "| day | events | share | ids | ours | none |",
        "| --- | ---: | ---: | --- | --- | --- |",
        r"| 2026-03-02 | 1,234,567 | 0.50 | `a, b\x7cc` | to write |  |",
    ]


def test_a_long_table_is_cut_and_says_so():
    text = table(pl.DataFrame({"n": range(50)}))
    assert len(shown(text)) == 41
    assert text.endswith("and 10 more")
