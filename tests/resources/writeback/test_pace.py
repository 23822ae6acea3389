import pytest

from resources.writeback.writer import FASTER, GIVE_UP_SECONDS, MAX_WAIT_SECONDS, MIN_INTERVAL_SECONDS, Pace


class LaterError(Exception):
    """Somebody is to wait so many seconds."""


@pytest.fixture
def pace(clock):
    def later(seconds):
        raise LaterError(seconds)

    return Pace(clock=clock, sleep=later)


def held_back(pace):
    """How long somebody who comes now is to wait for another try; None: not at all."""
    try:
        pace.wait()
    except LaterError as later:
        return later.args[0]
    return None


def test_all_writers_wait_as_asked_after_a_refusal_also_those_whose_turn_was_near(pace, clock):
    first, second = pace.wait(), pace.wait()
    assert pace.refused(turn=first, retry_after=1)
    assert pace.refused(turn=second, retry_after=120), "of a burst, the longest counts"
    clock.now += 119.5
    assert held_back(pace) == 0.5
    clock.now += 0.5
    assert held_back(pace) is None
    assert held_back(pace) is not None, "the others come after it, one by one"


def test_refusals_of_one_moment_count_once(pace, clock):
    turns = [pace.wait() for _ in range(8)]
    clock.now += 1
    for turn in turns:
        pace.refused(turn=turn, retry_after=None)
    clock.now += 1
    assert held_back(pace) is None
    assert held_back(pace) == pytest.approx(MIN_INTERVAL_SECONDS)


def test_without_a_time_the_wait_grows_until_a_write_is_taken(pace, clock):
    waits = []
    for _ in range(8):
        pace.refused(turn=pace.wait(), retry_after=None)
        before = clock.now
        while (seconds := held_back(pace)) is not None:
            clock.now += seconds
        waits.append(round(clock.now - before))
        clock.now += MAX_WAIT_SECONDS  # whoever had this turn is done with it
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_each_accepted_write_lets_the_next_ones_follow_a_little_faster(pace, clock):
    for _ in range(9):
        clock.now += MAX_WAIT_SECONDS
        pace.refused(turn=pace.wait(), retry_after=None)
    clock.now += MAX_WAIT_SECONDS
    for _ in range(100):
        pace.taken()
    assert held_back(pace) is None
    assert held_back(pace) == pytest.approx(2**8 * MIN_INTERVAL_SECONDS * FASTER**100)


def test_a_service_that_takes_nothing_for_long_is_given_up(pace, clock):
    assert not pace.refused(turn=pace.wait(), retry_after=GIVE_UP_SECONDS)
    pace.taken()
    assert pace.refused(turn=clock.now, retry_after=1)
    clock.now += GIVE_UP_SECONDS
    assert not pace.refused(turn=clock.now, retry_after=1)
    pace.taken()
    assert pace.refused(turn=clock.now, retry_after=1)
