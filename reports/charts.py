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

_FOLDER = Path(__file__).parent
_MAX_LABELS = 10
_GREY, _BLUE, _GREEN, _ORANGE = "#a3a39c", "#2f6f9f", "#3f8f5f", "#d0743c"
"""They show on light and on dark ground; text and ground follow the theme of the page, if there is one."""

_LACKING = {"gap": _ORANGE, "not fetched": _GREY}
_STRENGTHS = dict(zip((_GREY, _BLUE, _GREEN), STRENGTHS, strict=True))


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
        parts = [(colour, hosts.get(strength, 0)) for colour, strength in _STRENGTHS.items()]
        told = ", ".join(f"{number:,} hosts: {strength}" for strength, number in hosts.items())
        tip = f"over {upper - SHARE_STEP_PERCENT}%, up to {upper}%: {told}"
        columns.append(Column(f"≤{upper}", parts, tip))
    title = f"Hosts by their leading user's share of the logons (%), threshold {threshold_percent}%"
    return Chart(title, columns, _STRENGTHS, threshold_percent)


def days_chart(days: pl.DataFrame) -> Chart:
    """The logon events of each day, those that lack some marked; of rows of `coverage.events_by_day`."""
    columns = [
        Column(
            f"{day:%d %b}",
            [(_BLUE, events or 0)],
            f"{day}, {events or 0:,} logon events" + ("" if state == "ok" else f": {state}"),
            _LACKING.get(state),
        )
        for day, events, state in days.select("day", "events", "state").iter_rows()
    ]
    title = f"Logon events by day, {days['day'][0]} to {days['day'][-1]}"
    legend = {colour: state for state, colour in _LACKING.items() if state in days["state"]}
    return Chart(title, columns, legend)


def svg(chart: Chart) -> Markup:
    """Draw a chart as an element of the page."""
    # One unit of the axis must be whole: hosts and events are.
    largest = max(sum(size for _, size in column.parts) for column in chart.columns)
    steps = (step * 10**power for power in count() for step in (1, 2, 5))
    step = next(step for step in steps if largest <= 5 * step)
    top = step * max(-(-largest // step), 1)
    return Markup(  # noqa: S704  (the template escapes what it shows)
        templates()
        .get_template("chart.svg")
        .render(
            chart=chart,
            top=top,
            ticks=range(0, top + 1, step),
            label_every=-(-len(chart.columns) // _MAX_LABELS),
        )
    )


def as_markdown(chart: Chart) -> str:
    """Draw a chart as a picture of a few KB, in Markdown that needs no file beside it."""
    picture = re.sub(r"<title>[^<]*</title>", "", svg(chart))  # a picture shows no tooltips
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
