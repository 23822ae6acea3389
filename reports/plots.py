"""Plots for the UI: PNG pictures of a few KB, on a background of their own, for light and dark pages alike.

matplotlib is loaded when a plot is made: it costs half a second that starting the program need not pay. Its
object interface is used, never pyplot, which keeps figures in a global state.
"""

import base64
import io
from typing import TYPE_CHECKING

import polars as pl

from ownership.coverage import BRANCHES, SHARE_STEP_PERCENT, STRENGTHS, shares_of_leaders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DAYS = 400
"""Days in one plot: more would be narrower than a dot of the screen."""

_PAPER, _INK, _GRID = "#f5f5f2", "#2b2b2b", "#d9d9d4"
_BLUE, _GREEN, _ORANGE, _GREY = "#2f6f9f", "#3f8f5f", "#d0743c", "#a3a39c"
_BRANCH_COLOURS = dict(zip(BRANCHES.values(), (_GREEN, _GREEN, _ORANGE, _GREY), strict=True))
_MOST_DATES = 10
_MARGIN_INCHES = 0.1


def as_markdown(png: bytes, alt: str) -> str:
    """A picture as Markdown that needs no file beside it."""
    return f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})"


def funnel_plot(funnel: pl.DataFrame) -> bytes:
    """Draw how many hosts come through each stage, and what follows for those that come through all.

    Args:
        funnel: Rows of `ownership.coverage.funnel` (stage, hosts).

    Returns:
        A PNG picture.
    """
    figure, axes = _paper(height_inches=0.36 * funnel.height + 0.5)
    stages, hosts = funnel["stage"].to_list(), funnel["hosts"].to_list()
    colours = [_BRANCH_COLOURS.get(stage, _BLUE) for stage in stages]
    bars = axes.barh(range(len(stages)), hosts, color=colours, height=0.72)
    axes.set_yticks(range(len(stages)), stages)
    axes.bar_label(bars, labels=[f"{count:,}" for count in hosts], padding=4, color=_INK)
    axes.set_xlim(0, 1.1 * max(*hosts, 1))
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_title("Hosts from evidence to owner", loc="left")
    return _png(figure)


def winning_shares_plot(leaders: pl.DataFrame, *, threshold_percent: int) -> bytes:
    """Draw how strong the leading user of each host is, with the share that an owner must exceed.

    Args:
        leaders: As `ownership.coverage.shares_of_leaders` takes them.
        threshold_percent: The share to exceed where a host has several users.

    Returns:
        A PNG picture.
    """
    steps = shares_of_leaders(leaders, threshold_percent=threshold_percent)
    figure, axes = _paper(height_inches=3.1)
    uppers = range(SHARE_STEP_PERCENT, 101, SHARE_STEP_PERCENT)
    bottom = [0] * len(uppers)
    for strength, colour in zip(STRENGTHS, (_GREY, _BLUE, _GREEN), strict=True):
        counts = dict(steps.filter(strength=strength).select("upper_percent", "hosts").iter_rows())
        heights = [counts.get(upper, 0) for upper in uppers]
        axes.bar(
            uppers,
            heights,
            bottom=bottom,
            width=-0.9 * SHARE_STEP_PERCENT,
            align="edge",
            color=colour,
            label=strength,
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.axvline(threshold_percent, color=_INK, linestyle="--", linewidth=1.2)
    axes.text(
        threshold_percent,
        1.01,
        f"more than {threshold_percent}%",
        ha="center",
        transform=axes.get_xaxis_transform(),
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.05 * max(*bottom, 1))
    axes.set_xlabel("leading user's share of the host's logon events (%)")
    axes.set_title("Hosts by winning share", loc="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return _png(figure)


def events_by_day_plot(days: pl.DataFrame) -> bytes:
    """Draw the logon events of each day, and mark the days that lack some.

    Args:
        days: Rows of `ownership.coverage.events_by_day` (day, events, state), at least one; of more than
            `MOST_DAYS` the last ones are drawn.

    Returns:
        A PNG picture.
    """
    days = days.tail(MOST_DAYS)
    figure, axes = _paper(height_inches=2.8)
    axes.stairs(days["events"].fill_null(0).to_numpy(), fill=True, color=_BLUE)
    for state, colour in (("gap", _ORANGE), ("not fetched", _GREY)):
        marked = days.with_row_index("start").filter(state=state)["start"].to_list()
        if marked:
            axes.broken_barh(
                [(start, 1) for start in marked],
                (0, 1),
                transform=axes.get_xaxis_transform(),
                color=colour,
                alpha=0.5,
                linewidth=0,
                label=f"{state} ({len(marked)})",
            )
    every = -(-days.height // _MOST_DATES)
    dates = days["day"].gather_every(every).to_list()
    axes.set_xticks([number * every + 0.5 for number in range(len(dates))], [f"{day:%d %b}" for day in dates])
    axes.set_xlim(0, days.height)
    axes.set_ylim(0, 1.05 * max(days["events"].drop_nulls().to_list(), default=0) or 1)
    axes.set_title(f"Logon events by day, {days['day'][0]} to {days['day'][-1]}", loc="left")
    if (days["state"] != "ok").any():
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return _png(figure)


def _paper(*, height_inches: float) -> "tuple[Figure, Axes]":
    """An empty plot in our colours."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    margin = ConstrainedLayoutEngine(h_pad=_MARGIN_INCHES, w_pad=_MARGIN_INCHES)
    figure = Figure(figsize=(7.2, height_inches), dpi=110, facecolor=_PAPER, layout=margin)
    axes = figure.subplots()
    axes.set_facecolor(_PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(_GRID)
    axes.tick_params(colors=_INK, length=0)
    axes.tick_params(axis="x", pad=7)  # or the first word touches the zero of the other axis
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    return figure, axes


def _png(figure: "Figure") -> bytes:
    """The figure in at most 64 colours: half the size, and no eye sees the difference."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    size = canvas.get_width_height()
    picture = Image.frombuffer("RGBA", size, canvas.buffer_rgba()).convert("RGB").quantize(64)
    content = io.BytesIO()
    picture.save(content, format="png", optimize=True)
    return content.getvalue()
