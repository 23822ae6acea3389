"""The plots: specifications for Vega-Lite, which a browser draws on the report's page, and PNGs of them.

They hold numbers, days and words of our own, and no name that somebody else chose.
"""

import base64
import re
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import vl_convert

from ownership.coverage import BRANCHES, SHARE_STEP_PERCENT, STRENGTHS, funnel, shares_of_leaders

Plot = alt.LayerChart | alt.FacetChart

# Colours are variables of the page's style sheet, so that plots follow its light and dark theme.
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_BRANCH_COLOURS = dict(zip(BRANCHES.values(), ("green", "green", "orange", "grey"), strict=True))
_STRENGTH_COLOURS = dict(zip(STRENGTHS, ("grey", "blue", "green"), strict=True))
_LACK_COLOURS = {"gap": "orange", "not fetched": "grey"}
_ROOM_FOR_COUNT = 60  # pixels
_MAX_DATES = 10
_MAX_APART = 100  # days with room between their bars
_DAYS_HEIGHT = 200  # pixels
_LOOKS: Mapping[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": "var(--line)",
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelPadding": 6,
        "title": None,
        "titleColor": "var(--muted)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {
        "columns": {"expr": "width < 400 ? 1 : 3"},
        "orient": "bottom",
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelLimit": 300,
        "symbolType": "square",
        "title": None,
    },
}
# A picture has its own background, for light and dark pages alike, and a font that comes with vl-convert.
_PICTURE: Mapping[str, Any] = {
    "background": "var(--paper)",
    "font": "Liberation Sans",
    "padding": 14,
    "title": {"anchor": "start", "color": "var(--ink)", "fontSize": 14, "offset": 14},
    "autosize": {"type": "fit-x", "contains": "padding"},
}
_PICTURE_WIDTH = 660  # pixels


def charts(decisions: pl.DataFrame, days: pl.DataFrame, coverage: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Describe the plots of the report's page: funnel, shares of the leading users, events by day, coverage.

    Args:
        decisions: Rows of `owner_decisions`, all of one run.
        days: Rows of `ownership.coverage.events_by_day`.
        coverage: Rows of the view `coverage`.

    Returns:
        Specifications for Vega-Lite, as wide as their place, by the id of that place: `funnel-plot`, and
        `shares-plot`, `days-plot` and `coverage-plot` where there is something to draw.
    """
    leaders = decisions.filter(pl.col("total_events") > 0)
    plots = {"funnel-plot": funnel_plot(funnel(decisions))}
    if leaders.height:
        threshold = decisions["threshold_percent"][0]
        plots["shares-plot"] = shares_plot(leaders, threshold_percent=threshold)
    if days.height:
        plots["days-plot"] = days_plot(days)
    if coverage.height > 1:
        plots["coverage-plot"] = coverage_plot(coverage)
    return {
        place: plot.properties(width="container").configure(**_LOOKS).to_dict()
        for place, plot in plots.items()
    }


def as_markdown(plot: Plot, title: str) -> str:
    """Draw a plot as a PNG picture of a few KB, in Markdown that needs no file beside it."""
    drawn = plot.properties(width=_PICTURE_WIDTH, title=title).configure(**{**_LOOKS, **_PICTURE}).to_json()
    png = vl_convert.vegalite_to_png(_VARIABLE.sub(lambda variable: _light_colours()[variable[1]], drawn))
    return f"![{title}](data:image/png;base64,{base64.b64encode(_packed(png)).decode()})"


def _packed(png: bytes) -> bytes:
    """The same picture in a tenth of the bytes: vl-convert packs in a hurry."""
    data, width = png.index(b"IDAT"), struct.unpack_from(">I", png, 16)[0]
    (length,) = struct.unpack_from(">I", png, data - 4)
    rows = np.frombuffer(bytearray(zlib.decompress(png[data + 4 : data + 4 + length])), np.uint8)
    rows = rows.reshape(-1, 4 * width + 1)
    kinds, pixels = rows[:, 0], rows[:, 1:].reshape(len(rows), width, 4)
    as_differences = kinds == 1  # from pixel to pixel: the pixels themselves pack better
    pixels[as_differences] = pixels[as_differences].cumsum(axis=1, dtype=np.uint8)
    kinds[as_differences] = 0
    chunk = b"IDAT" + zlib.compress(rows.tobytes(), 9)
    sizes = struct.pack(">I", len(chunk) - 4), struct.pack(">I", zlib.crc32(chunk))
    return png[: data - 4] + sizes[0] + chunk + sizes[1] + png[data + 8 + length :]


@cache
def _light_colours() -> dict[str, str]:
    light, *_ = Path(__file__).with_name("page.css").read_text(encoding="utf-8").split("}")
    return dict(re.findall(r"--(\w+): (#\w+);", light))


def funnel_plot(stages: pl.DataFrame) -> Plot:
    """How many hosts come through each stage, and what follows for those that come through all.

    Args:
        stages: Rows of `ownership.coverage.funnel` (stage, hosts).
    """
    words = stages["stage"].to_list()
    colours = [_colour(_BRANCH_COLOURS.get(stage, "blue")) for stage in words]
    base = _chart(stages.select("stage", "hosts")).encode(
        x=alt.X(
            "hosts:Q",
            axis=None,
            scale=alt.Scale(
                domainMax=max(*stages["hosts"], 1), range=[0, alt.ExprRef(f"width - {_ROOM_FOR_COUNT}")]
            ),
        ),
        y=alt.Y("stage:N", sort=words),
    )
    bars = base.mark_bar(height={"band": 0.74}).encode(
        color=alt.Color("stage:N", legend=None, scale=alt.Scale(domain=words, range=colours))
    )
    counts = base.mark_text(align="left", dx=5, color=_colour("ink"), fontSize=12).encode(
        text=alt.Text("hosts:Q", format=",")
    )
    return alt.layer(bars, counts).properties(height=27 * stages.height)


def shares_plot(leaders: pl.DataFrame, *, threshold_percent: int) -> Plot:
    """How strong the leading user of each host is, with the share that an owner must exceed.

    Args:
        leaders: As `ownership.coverage.shares_of_leaders` takes them.
        threshold_percent: The share to exceed where a host has several users.
    """
    steps = shares_of_leaders(leaders, threshold_percent=threshold_percent)
    drawn = steps.with_columns(
        lower_percent=pl.col("upper_percent") - SHARE_STEP_PERCENT,
        order=pl.col("strength").replace_strict(STRENGTHS, range(len(STRENGTHS))),
    ).with_columns(
        tip=pl.format(
            "{} hosts over {}%, up to {}%: {}", "hosts", "lower_percent", "upper_percent", "strength"
        )
    )
    bars = (
        _chart(drawn)
        .mark_bar(binSpacing=2)
        .encode(
            x=alt.X(
                "lower_percent:Q",
                bin="binned",
                scale=alt.Scale(domain=[0, 100]),
                title="leading user's share of the host's logons (%)",
                axis=alt.Axis(grid=False, values=list(range(0, 101, 10))),
            ),
            x2="upper_percent:Q",
            y=_counts(steps["hosts"], title="hosts"),
            order="order:Q",
            color=_legend("strength", _STRENGTH_COLOURS),
            tooltip="tip:N",
        )
    )
    threshold = _chart(pl.DataFrame({"percent": [threshold_percent]})).encode(x="percent:Q")
    line = threshold.mark_rule(color=_colour("ink"), strokeDash=[5, 4], strokeWidth=1.5)
    words = threshold.mark_text(color=_colour("ink"), y=-8, fontSize=12).encode(
        text=alt.value(f"more than {threshold_percent}%")
    )
    return alt.layer(bars, line, words).properties(height=230)


def days_plot(days: pl.DataFrame) -> Plot:
    """The logon events of each day, with the days that lack some marked.

    Args:
        days: Rows of `ownership.coverage.events_by_day` (day, events, state), at least one.
    """
    tooltip = (
        pl.when(state="ok")
        .then(pl.format("{} logon events", "events"))
        .otherwise(pl.format("{}: {} logon events", "state", pl.col("events").fill_null(0)))
    )
    some = days["day"].gather_every(-(-days.height // _MAX_DATES))
    dates = [alt.DateTime(year=day.year, month=day.month, date=day.day) for day in some]
    base = _chart(days.with_columns(tip=pl.format("{}, {}", pl.col("day").cast(pl.String), tooltip))).encode(
        x=alt.X(
            "day:O",
            timeUnit="yearmonthdate",
            axis=alt.Axis(format="%d %b", labelAngle=0, labelOverlap=True, labelSeparation=8, values=dates),
        ),
        tooltip="tip:N",
    )
    lacked = {state: colour for state, colour in _LACK_COLOURS.items() if state in days["state"]}
    lacking = (
        base.transform_filter("datum.state != 'ok'")
        .mark_bar(opacity=0.4, width={"band": 1})
        .encode(y=alt.value(0), y2=alt.value(_DAYS_HEIGHT), color=_legend("state", lacked))
    )
    band = 0.9 if days.height <= _MAX_APART else 1.2  # or light seams show between narrow bars
    bars = base.mark_bar(color=_colour("blue"), width={"band": band}).encode(y=_counts(days["events"]))
    return alt.layer(*([lacking] if lacked else []), bars).properties(height=_DAYS_HEIGHT)


def coverage_plot(coverage: pl.DataFrame) -> Plot:
    """The share of the host assets that have an owner, as each day's runs left it.

    Args:
        coverage: Rows of the view `coverage` (day, owned_after, host_assets, owned_after_percent).
    """
    drawn = coverage.select(
        "owned_after_percent",
        instant=pl.col("day").cast(pl.Datetime("ms")).dt.epoch("ms"),  # one instant, whatever the zone
        tip=pl.format(
            "{}: {} of {} host assets have an owner, {}%",
            pl.col("day").cast(pl.String),
            "owned_after",
            "host_assets",
            "owned_after_percent",
        ),
    )
    base = _chart(drawn).encode(
        x=alt.X(
            "instant:T",
            scale=alt.Scale(type="utc"),
            axis=alt.Axis(format="%d %b %Y", grid=False, labelOverlap=True, labelSeparation=8, tickCount=6),
        ),
        y=alt.Y(
            "owned_after_percent:Q",
            scale=alt.Scale(domain=[0, 100]),
            title="host assets with an owner (%)",
        ),
        tooltip="tip:N",
    )
    line = base.mark_line(interpolate="step-after", color=_colour("green"), strokeWidth=2)
    return alt.layer(line, base.mark_point(color=_colour("green"), filled=True, size=50)).properties(
        height=200
    )


def _chart(frame: pl.DataFrame) -> Any:
    """A plot to be filled in; Any, because type checkers lose their way in Altair's generated methods."""
    return alt.Chart(frame)


def _counts(counts: pl.Series, **options: Any) -> alt.Y:
    """An axis of whole numbers from 0 up, also where there is nothing to count."""
    scale = alt.Scale() if counts.sum() else alt.Scale(domain=[0, 1])
    whole = alt.Axis(format=",d", labelExpr="datum.value % 1 ? '' : datum.label")
    return alt.Y(f"{counts.name}:Q", axis=whole, scale=scale, **options)


def _legend(field: str, colours: Mapping[str, str]) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=[_colour(name) for name in colours.values()])
    return alt.Color(f"{field}:N", scale=scale)


def _colour(name: str) -> str:
    return f"var(--{name})"


@cache
def script() -> str:
    """The library that draws the plots (`vegaEmbed`), as a script that loads nothing."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{bundle}}})();"
