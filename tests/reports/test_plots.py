import io
import random
import subprocess
import sys
from datetime import date, timedelta

import polars as pl
import pytest
from PIL import Image

from ownership.coverage import BRANCHES
from reports import plots

MOST_BYTES = 30_000


def picture(png):
    return Image.open(io.BytesIO(png)).convert("RGB")


def colours(png):
    """Share of the picture that each colour fills."""
    image = picture(png)
    return {colour: count / (image.width * image.height) for count, colour in image.getcolors(1 << 24)}


def reddish(png):
    return sum(share for (red, _, blue), share in colours(png).items() if red > blue + 40)


def hosts(*rows):
    return pl.DataFrame(rows, schema={"events": pl.Int64, "total_events": pl.Int64}, orient="row")


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
NOISE = days(*((DRAW.randrange(10**6), DRAW.choice(["ok", "gap", "not fetched"])) for _ in range(3_000)))
PLOTS = {
    "funnel": lambda: plots.funnel_plot(stages(339, 313, 168, 25, 16, 6)),
    "empty funnel": lambda: plots.funnel_plot(stages(0, 0, 0, 0, 0, 0)),
    "large funnel": lambda: plots.funnel_plot(stages(12_345_678, 9_876_543, 0, 0, 0, 0)),
    "shares": lambda: plots.winning_shares_plot(
        hosts(*((DRAW.randint(1, 1000), 1000) for _ in range(5_000))), threshold_percent=63
    ),
    "no shares": lambda: plots.winning_shares_plot(hosts(), threshold_percent=99),
    "days": lambda: plots.events_by_day_plot(days((800, "ok"), (3, "gap"), (None, "not fetched"))),
    "one day without events": lambda: plots.events_by_day_plot(days((0, "ok"))),
    "thousands of noisy days": lambda: plots.events_by_day_plot(NOISE),
}


@pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS)
def test_a_plot_is_small_and_readable_on_any_page(draw):
    png = draw()
    assert len(plots.as_markdown(png, "a plot")) < MOST_BYTES
    assert (
        Image.open(io.BytesIO(png)).mode == "P"
    )  # no transparency: the page's colour does not shine through
    image = picture(png)
    corners = {image.getpixel((x, y)) for x in (0, image.width - 1) for y in (0, image.height - 1)}
    assert len(corners) == 1
    paper = corners.pop()
    assert min(paper) > 200
    ink = min(colours(png), key=sum)
    assert max(ink) < 80  # dark on light


def test_a_share_of_exactly_the_threshold_is_drawn_as_too_little():
    exactly, more = (
        plots.winning_shares_plot(hosts(row), threshold_percent=60) for row in ((6, 10), (601, 1000))
    )
    grey, blue = (0xA3, 0xA3, 0x9C), (0x2F, 0x6F, 0x9F)
    assert colours(exactly)[grey] > colours(more)[grey]
    assert colours(more)[blue] > colours(exactly)[blue]


def test_days_that_lack_events_are_marked():
    gap = plots.events_by_day_plot(days((800, "ok"), (9, "gap"), (800, "ok")))
    well = plots.events_by_day_plot(days((800, "ok"), (9, "ok"), (800, "ok")))
    assert reddish(gap) > 0.1
    assert reddish(well) == 0


def test_a_picture_is_markdown_without_a_file():
    assert plots.as_markdown(b"\x89PNG", "funnel") == "![funnel](data:image/png;base64,iVBORw==)"


def test_the_plotting_library_loads_with_the_first_plot_only():
    code = "import sys, reports.plots, pipelines.definitions; print('matplotlib' in sys.modules)"
    found = subprocess.run(  # noqa: S603  (our own program)
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"
