"""The charts: columns drawn as SVG, inline in the report's page or as a picture in Markdown.

They hold numbers, days and words of our own, and no name that somebody else chose.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ownership.coverage import SHARE_STEP_PERCENT, STRENGTHS, shares_of_leaders

FRAME = {"left": 55, "right": 690, "top": 20, "bottom": 175}
"""Where the columns stand, in units of the drawing."""

_FOLDER = Path(__file__).parent
_MAX_LABELS = 10
_VARIABLE = re.compile(r"var\(--(\w+)\)")
"""Colours are variables of the page's style sheet, so that charts follow its light and dark theme."""

_LACKING = {"gap": "orange", "not fetched": "grey"}
_STRENGTH_COLOURS = dict(zip(STRENGTHS, ("grey", "blue", "green"), strict=True))


@dataclass(frozen=True)
class Column:
    """What stands below a column, its parts from the bottom up (colour and size), and its tooltip."""

    label: str
    parts: list[tuple[str, int]]
    tip: str
    behind: str | None = None
    """Colour of the whole strip in which the column stands."""


@dataclass(frozen=True)
class Chart:
    """Columns on an axis from 0 up, and what their colours mean."""

    title: str
    columns: list[Column]
    legend: Mapping[str, str]
    line_percent: int | None = None
    """Where a vertical line parts the columns, in percent of the width."""


def shares_chart(leaders: pl.DataFrame, *, threshold_percent: int) -> Chart:
    """How strong the leading user of each host is; of rows as `shares_of_leaders` takes them."""
    steps = shares_of_leaders(leaders, threshold_percent=threshold_percent)
    columns = []
    for upper in range(SHARE_STEP_PERCENT, 101, SHARE_STEP_PERCENT):
        hosts = dict(steps.filter(upper_percent=upper).select("strength", "hosts").iter_rows())
        parts = [
            (colour, hosts[strength]) for strength, colour in _STRENGTH_COLOURS.items() if strength in hosts
        ]
        tip = ", ".join(f"{number:,} hosts: {strength}" for strength, number in hosts.items())
        columns.append(
            Column(f"≤{upper}", parts, f"over {upper - SHARE_STEP_PERCENT}%, up to {upper}%: {tip}")
        )
    title = (
        f"Hosts by their leading user's share of the logons (%), and the threshold of {threshold_percent}%"
    )
    return Chart(
        title,
        columns,
        {colour: strength for strength, colour in _STRENGTH_COLOURS.items()},
        threshold_percent,
    )


def days_chart(days: pl.DataFrame) -> Chart:
    """The logon events of each day, those that lack some marked; of rows of `coverage.events_by_day`."""
    columns = [
        Column(
            f"{day:%d %b}",
            [("blue", events or 0)],
            f"{day}, {events or 0:,} logon events" + ("" if state == "ok" else f": {state}"),
            _LACKING.get(state),
        )
        for day, events, state in days.select("day", "events", "state").iter_rows()
    ]
    title = f"Logon events by day, {days['day'][0]} to {days['day'][-1]}"
    legend = {colour: state for state, colour in _LACKING.items() if state in days["state"]}
    return Chart(title, columns, legend)


def svg(chart: Chart) -> Markup:
    """Draw a chart as an element of the page; the page's style sheet has its colours."""
    # One unit of the axis must be whole: hosts and events are.
    largest = max(sum(size for _, size in column.parts) for column in chart.columns)
    steps = (step * 10**power for power in count() for step in (1, 2, 5))
    step = next(step for step in steps if largest <= 5 * step)
    top = step * max(-(-largest // step), 1)
    left, right, ceiling, floor = FRAME.values()
    width = (right - left) / len(chart.columns)

    def height(size: int) -> float:
        return round((floor - ceiling) * size / top, 1)

    bars, texts = [], []
    every = -(-len(chart.columns) // _MAX_LABELS)
    for number, column in enumerate(chart.columns):
        start, foot = left + number * width, float(floor)
        rows = []
        for colour, size in column.parts:
            foot -= height(size)
            rows.append((colour, round(foot, 1), height(size)))
        bars.append((round(start, 1), column, rows))
        if number % every == 0:
            texts.append((round(start + width / 2, 1), column.label))
    return Markup(  # noqa: S704  (the template escapes what it shows)
        templates()
        .get_template("chart.svg")
        .render(
            chart=chart,
            bars=bars,
            labels=texts,
            bar_width=round(width * (0.85 if len(chart.columns) <= 100 else 1), 1),
            strip_width=round(width, 1),
            ticks=[(value, floor - height(value)) for value in range(0, top + 1, step)],
            line=None if chart.line_percent is None else left + (right - left) * chart.line_percent / 100,
            **FRAME,
        )
    )


def as_markdown(chart: Chart) -> str:
    """Draw a chart as a picture of a few KB, in Markdown that needs no file beside it."""
    drawn = _VARIABLE.sub(lambda variable: _light_colours()[variable[1]], svg(chart))
    picture = re.sub(r"<title>[^<]*</title>", "", drawn)  # a picture shows no tooltips
    return f"![{chart.title}](data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()})"


@cache
def templates() -> Environment:
    """The templates beside this module; what they show is escaped."""
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _light_colours() -> dict[str, str]:
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+): light-dark\((#\w+),", style))
