"""Plots for the report's page: specifications for Vega-Lite, which draws them in the browser.

They hold numbers, days and words of our own, and no name that somebody else chose.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from ownership.coverage import BRANCHES, SHARE_STEP_PERCENT, STRENGTHS, funnel, shares_of_leaders

# Colours are variables of the page's style sheet, so that plots follow its light and dark theme.
_BRANCH_COLOURS = dict(zip(BRANCHES.values(), ("green", "green", "orange", "grey"), strict=True))
_STRENGTH_COLOURS = dict(zip(STRENGTHS, ("grey", "blue", "green"), strict=True))
_ROOM_FOR_COUNT = 60  # pixels
_DAYS_HEIGHT = 200  # pixels
_LACK_COLOURS = {"gap": "orange", "not fetched": "grey"}
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


def charts(decisions: pl.DataFrame, days: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Describe the plots: funnel, shares of the leading users, events by day.

    Args:
        decisions: Rows of `owner_decisions`, all of one run.
        days: Rows of `ownership.coverage.events_by_day`.

    Returns:
        Specifications for Vega-Lite, as wide as their place, by the id of that place: `funnel-plot`, and
        `shares-plot` and `days-plot` where there is something to draw.
    """
    leaders = decisions.filter(pl.col("total_events") > 0)
    plots = {"funnel-plot": _funnel_plot(funnel(decisions))}
    if leaders.height:
        threshold = decisions["threshold_percent"][0]
        steps = shares_of_leaders(leaders, threshold_percent=threshold)
        plots["shares-plot"] = _shares_plot(steps, threshold_percent=threshold)
    if days.height:
        plots["days-plot"] = _days_plot(days)
    return {
        place: plot.properties(width="container").configure(**_LOOKS).to_dict()
        for place, plot in plots.items()
    }


def _funnel_plot(stages: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
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


def _shares_plot(steps: pl.DataFrame, *, threshold_percent: int) -> alt.LayerChart | alt.FacetChart:
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
                title="leading user's share of the logons (%)",
                axis=alt.Axis(grid=False, values=list(range(0, 101, 10))),
            ),
            x2="upper_percent:Q",
            y=alt.Y("hosts:Q", title="hosts"),
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


def _days_plot(days: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    told = (
        pl.when(state="ok")
        .then(pl.format("{} logon events", "events"))
        .otherwise(pl.format("{}: {} logon events", "state", pl.col("events").fill_null(0)))
    )
    base = _chart(days.with_columns(tip=pl.format("{}, {}", pl.col("day").cast(pl.String), told))).encode(
        x=alt.X(
            "day:O",
            timeUnit="yearmonthdate",
            axis=alt.Axis(format="%d %b", labelAngle=0, labelOverlap=True, labelSeparation=8),
        ),
        tooltip="tip:N",
    )
    lacking = (
        base.transform_filter("datum.state != 'ok'")
        .mark_bar(opacity=0.4, width={"band": 1})
        .encode(y=alt.value(0), y2=alt.value(_DAYS_HEIGHT), color=_legend("state", _LACK_COLOURS))
    )
    bars = base.mark_bar(color=_colour("blue"), width={"band": 0.9}).encode(y="events:Q")
    return alt.layer(lacking, bars).properties(height=_DAYS_HEIGHT)


def _chart(frame: pl.DataFrame) -> Any:
    """A plot to be filled in; Any, because type checkers lose their way in Altair's generated methods."""
    return alt.Chart(frame)


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
