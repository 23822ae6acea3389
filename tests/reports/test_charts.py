import base64
import random
from datetime import date, timedelta
from xml.etree import ElementTree

import polars as pl
import pytest

from assets_defs.metadata import MAX_DAYS
from ownership.coverage import STRENGTHS
from reports.charts import as_markdown, days_chart, shares_chart, svg

SVG = "{http://www.w3.org/2000/svg}"


def hosts(*rows):
    counted = pl.DataFrame(rows, schema={"weight": pl.Int64, "total_weight": pl.Int64}, orient="row")
    return counted.with_columns(events="weight", total_events="total_weight")


def days(*rows):
    first = date(2026, 3, 1)
    return pl.DataFrame(
        [(first + timedelta(days=number), *row) for number, row in enumerate(rows)],
        schema={"day": pl.Date, "events": pl.Int64, "state": pl.String},
        orient="row",
    )


DRAW = random.Random(1)  # noqa: S311  (noise, not secrets)
NOISE = days(*((DRAW.randrange(10**6), DRAW.choice(["ok", "gap", "not fetched"])) for _ in range(MAX_DAYS)))
CHARTS = {
    "shares": lambda: shares_chart(
        hosts(*((DRAW.randint(1, 1000), 1000) for _ in range(5_000))), threshold_percent=63
    ),
    "one day without events": lambda: days_chart(days((0, "ok"))),
    "as many noisy days as are drawn": lambda: days_chart(NOISE),
}


def bars(drawn, colour):
    """The heights of a colour's bars in a drawing."""
    tree = ElementTree.fromstring(drawn)  # noqa: S314  (our own drawing)
    found = [one for group in tree.iter(f"{SVG}g") for one in group.iter(f"{SVG}rect")]
    return [float(one.attrib["height"]) for one in found if one.get("fill") == f"var(--{colour})"]


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_picture_is_small_and_needs_no_style_sheet(chart):
    markdown = as_markdown(chart())
    assert len(markdown) < 60_000
    drawn = base64.b64decode(markdown.partition("base64,")[2][:-1]).decode()
    assert ElementTree.fromstring(drawn).tag == f"{SVG}svg"  # noqa: S314  (our own drawing)
    assert "var(" not in drawn


def test_a_share_of_exactly_the_threshold_is_drawn_as_too_little():
    chart = shares_chart(hosts((6, 10), (601, 1000), (5, 5)), threshold_percent=60)
    weak, strong, alone = (
        [column.label for column in chart.columns if colour in dict(column.parts)] for colour in chart.legend
    )
    assert (weak, strong, alone) == (["≤60"], ["≤65"], ["≤100"])
    assert list(chart.legend.values()) == list(STRENGTHS)
    assert len({*bars(svg(chart), "green"), *bars(svg(chart), "grey")}) == 1, "each is one host"


def test_days_that_lack_events_are_marked():
    drawn = svg(days_chart(days((800, "ok"), (8, "gap"), (None, "not fetched"))))
    full, low, none = bars(drawn, "blue")
    assert full > 90 * low > none == 0
    assert len(bars(drawn, "orange")) == len(bars(drawn, "grey")) == 1
    assert bars(svg(days_chart(days((800, "ok")))), "orange") == []


@pytest.mark.parametrize(("number", "ticks"), [(0, [0, 1]), (1, [0, 1]), (7, [0, 2, 4, 6, 8])])
def test_hosts_are_counted_in_whole_numbers_from_zero_up(number, ticks):
    tree = ElementTree.fromstring(  # noqa: S314  (our own drawing)
        svg(shares_chart(hosts(*[(7, 10)] * number), threshold_percent=60))
    )
    found = [one.text for one in tree.iter(f"{SVG}text") if one.get("text-anchor") == "end"]
    assert found == [str(tick) for tick in ticks]
