import pytest

from assets_defs.progress import Progress


class Watch:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def lines():
    return []


def test_a_long_step_tells_how_far_how_fast_and_how_long_still(watch, lines):
    progress = Progress(lines.append, "Hosts written", clock=watch)
    for second in range(1, 26):
        watch.now += 1
        progress(second * 50, 2_000)
    assert lines == [
        "Hosts written: 500 of 2,000 (25%), 50.0 a second, about 30 s left",
        "Hosts written: 1,000 of 2,000 (50%), 50.0 a second, about 20 s left",
    ]


def test_a_short_step_tells_nothing(watch, lines):
    progress = Progress(lines.append, "Days fetched", clock=watch)
    watch.now += 9.9
    progress(30, 30)
    assert lines == []


@pytest.mark.parametrize(
    ("total", "left"), [(60, "10 s"), (600, "9 min"), (3_650, "60 min"), (86_450, "24.0 h")]
)
def test_the_time_left_is_told_in_its_own_unit(watch, lines, total, left):
    progress = Progress(lines.append, "Days fetched", clock=watch)
    watch.now += 50
    progress(50, total)
    assert lines[0].endswith(f"about {left} left")


def test_nothing_done_yet_is_no_rate(watch, lines):
    progress = Progress(lines.append, "Rows listed", clock=watch)
    watch.now += 60
    progress(0, 100)
    assert lines == []
