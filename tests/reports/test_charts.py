import base64
import random
import re
import struct
import subprocess
import sys
import zlib
from collections import Counter
from datetime import date, timedelta
from itertools import chain

import polars as pl
import pytest
import vl_convert

from assets_defs.metadata import MAX_DAYS
from ownership.coverage import BRANCHES
from reports import charts

MAX_BYTES = 30_000


def pixels(markdown):
    """Rows of (red, green, blue, opacity); of rows packed in other ways than ours the test knows nothing."""
    png = base64.b64decode(markdown.partition("base64,")[2])
    width, height, *_, interlaced = struct.unpack_from(">IIBBBBB", png, 16)
    at = png.index(b"IDAT")
    packed = png[at + 4 : at + 4 + struct.unpack_from(">I", png, at - 4)[0]]
    assert struct.unpack_from(">I", png, at + 4 + len(packed)) == (zlib.crc32(b"IDAT" + packed),)
    rows = zlib.decompress(packed)
    stride = 4 * width + 1
    assert (len(rows), interlaced, {*rows[::stride]}) == (height * stride, 0, {0})
    return [
        [*zip(*[iter(rows[start + 1 : start + stride])] * 4, strict=True)]
        for start in range(0, len(rows), stride)
    ]


def colours(plot):
    """Share of the picture that each colour fills."""
    rows = pixels(charts.as_markdown(plot, "a plot"))
    counts = Counter(chain.from_iterable(rows))
    return {colour[:3]: count / counts.total() for colour, count in counts.items()}


def reddish(plot):
    return sum(share for (red, _, blue), share in colours(plot).items() if red > blue + 40)


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


def stages(*counts):
    return pl.DataFrame({"stage": ["known", "with logons", *BRANCHES.values()], "hosts": counts})


DRAW = random.Random(1)  # noqa: S311  (noise, not secrets)
NOISE = days(*((DRAW.randrange(10**6), DRAW.choice(["ok", "gap", "not fetched"])) for _ in range(MAX_DAYS)))
PLOTS = {
    "funnel": lambda: charts.funnel_plot(stages(339, 313, 168, 25, 16, 6)),
    "empty funnel": lambda: charts.funnel_plot(stages(0, 0, 0, 0, 0, 0)),
    "large funnel": lambda: charts.funnel_plot(stages(12_345_678, 9_876_543, 0, 0, 0, 0)),
    "shares": lambda: charts.shares_plot(
        hosts(*((DRAW.randint(1, 1000), 1000) for _ in range(5_000))), threshold_percent=63
    ),
    "no shares": lambda: charts.shares_plot(hosts(), threshold_percent=99),
    "days": lambda: charts.days_plot(days((800, "ok"), (3, "gap"), (None, "not fetched"))),
    "one day without events": lambda: charts.days_plot(days((0, "ok"))),
    "as many noisy days as are drawn": lambda: charts.days_plot(NOISE),
}


@pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS)
def test_a_plot_is_small_and_readable_on_any_page(draw):
    markdown = charts.as_markdown(draw(), "a plot")
    assert len(markdown) < MAX_BYTES
    rows = pixels(markdown)
    [paper] = {rows[y][x] for y in (0, -1) for x in (0, -1)}
    assert min(paper) > 200, "light"
    assert {opacity for row in rows for *_, opacity in row} == {255}, (
        "the page's colour does not shine through"
    )
    ink = min(chain.from_iterable(rows), key=sum)
    assert max(ink[:3]) < 80, "dark on light"


def test_a_share_of_exactly_the_threshold_is_drawn_as_too_little():
    exactly, more = (charts.shares_plot(hosts(row), threshold_percent=60) for row in ((6, 10), (601, 1000)))
    grey, blue = (0xA3, 0xA3, 0x9C), (0x2F, 0x6F, 0x9F)
    too_little, enough = colours(exactly), colours(more)
    assert too_little[grey] > enough[grey]
    assert enough[blue] > too_little[blue]


def test_days_that_lack_events_are_marked():
    gap = charts.days_plot(days((800, "ok"), (9, "gap"), (800, "ok")))
    well = charts.days_plot(days((800, "ok"), (9, "ok"), (800, "ok")))
    assert reddish(gap) > 0.1
    assert reddish(well) == 0


@pytest.mark.parametrize("hosts_drawn", [0, 1, 2, 7])
def test_hosts_are_counted_in_whole_numbers_from_zero_up(hosts_drawn):
    plot = charts.shares_plot(hosts(*[(7, 10)] * hosts_drawn), threshold_percent=60)
    drawn = vl_convert.vegalite_to_svg(plot.to_dict())
    said = re.findall(r">([\d.]*)</text>", drawn.partition('aria-label="Y-axis')[2])
    assert [text for text in said if text] == [str(number) for number in range(max(hosts_drawn, 1) + 1)]


def test_the_plotting_library_loads_with_the_first_plot_only():
    code = "import sys, pipelines.definitions; print('altair' in sys.modules)"
    found = subprocess.run(  # noqa: S603  (our own program)
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
