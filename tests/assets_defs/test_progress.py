from assets_defs.run import Progress
from tests.resources.clock import Clock


def lines(*steps):
    """What is logged of steps: seconds, what is done by then, and of how many."""
    clock, logged = Clock(100.0), []
    progress = Progress(logged.append, "Hosts written", clock=clock)
    for seconds, done, total in steps:
        clock.sleep(seconds)
        progress(done, total)
    return logged


def test_a_long_step_tells_how_far_how_fast_and_how_long_still():
    assert lines(*((1, second * 50, 2_000) for second in range(1, 26))) == [
        "Hosts written: 500 of 2,000 (25%), 50.0 a second, about 0:00:30 left",
        "Hosts written: 1,000 of 2,000 (50%), 50.0 a second, about 0:00:20 left",
    ]


def test_a_short_step_and_one_that_has_done_nothing_yet_tell_nothing():
    assert lines((9.9, 30, 30)) == lines((60, 0, 100)) == []
