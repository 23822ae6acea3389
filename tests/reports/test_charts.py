import base64
import re
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


def elements(chart, tag):
    """The elements of a drawn chart with this tag."""
    return ElementTree.fromstring(svg(chart)).iter(f"{SVG}{tag}")  # noqa: S314  (our own drawing)


def sizes(chart, colour, side):
    """How large the columns' parts of a colour are, in percent."""
    rects = (rect for group in elements(chart, "g") for rect in group.iter(f"{SVG}rect"))
    return [float(rect.get(side).removesuffix("%")) for rect in rects if rect.get("fill") == colour]


def test_a_picture_of_as_many_days_as_are_drawn_is_small_and_needs_no_style_sheet():
    markdown = as_markdown(days_chart(days(*[(123_456, "gap"), (999_999, "ok")] * (MAX_DAYS // 2))))
    assert len(markdown) < 60_000
    drawn = base64.b64decode(markdown.partition("base64,")[2][:-1]).decode()
    assert ElementTree.fromstring(drawn).tag == f"{SVG}svg"  # noqa: S314  (our own drawing)
    assert all(", #" in variable for variable in re.findall(r"var\(.*?\)", drawn))


def test_a_share_of_exactly_the_threshold_is_drawn_as_too_little():
    chart = shares_chart(hosts((6, 10), (601, 1000), (5, 5)), threshold_percent=60)
    assert list(chart.legend.values()) == list(STRENGTHS)
    for colour, label in zip(chart.legend, ("≤60", "≤65", "≤100"), strict=True):
        assert [column.label for column in chart.columns if dict(column.parts)[colour]] == [label]
        assert {*sizes(chart, colour, "height")} == {0, 100}, "each is one host"


def test_days_that_lack_events_are_marked():
    chart = days_chart(days((800, "ok"), (8, "gap"), (None, "not fetched")))
    ((blue, _),) = chart.columns[0].parts
    full, low, none = sizes(chart, blue, "height")
    assert full > 90 * low > none == 0
    assert [len(sizes(chart, colour, "width")) for colour in chart.legend] == [1, 1]
    assert not days_chart(days((0, "ok"))).legend


@pytest.mark.parametrize(("number", "ticks"), [(0, [0, 1]), (1, [0, 1]), (7, [0, 2, 4, 6, 8])])
def test_hosts_are_counted_in_whole_numbers_from_zero_up(number, ticks):
    chart = shares_chart(hosts(*[(7, 10)] * number), threshold_percent=60)
    found = [text.text for text in elements(chart, "text") if text.get("text-anchor") == "end"]
    assert found == [str(tick) for tick in ticks]
