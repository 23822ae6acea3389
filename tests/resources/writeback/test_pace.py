"""The pace is tried against services that take so many writes in so much time, by a clock that is turned."""

import heapq
import itertools

import pytest

from resources.writeback.pace import GIVE_UP_SECONDS, MAX_WAIT_SECONDS, Pace

WRITERS = 8
LOOK_SECONDS, ANSWER_SECONDS = 0.02, 0.02


class LaterError(Exception):
    """Somebody is to wait so many seconds."""


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        raise LaterError(seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pace(clock):
    return Pace(clock=clock, sleep=clock.sleep)


def held_back(pace):
    """How long somebody who comes now is to wait for another try; None: not at all."""
    try:
        pace.wait()
    except LaterError as later:
        return later.args[0]
    return None


class Service:
    """Takes `limit` writes in each window of so many seconds."""

    def __init__(self, limit, *, seconds, sliding):
        self._limit, self._seconds, self._sliding = limit, seconds, sliding
        self._taken = []
        self.refused = 0

    def takes(self, now):
        begin = now - self._seconds if self._sliding else now // self._seconds * self._seconds
        taken = sum(at >= begin for at in self._taken[-self._limit :]) < self._limit
        if taken:
            self._taken.append(now)
        else:
            self.refused += 1
        return taken


def seconds_to_write(hosts, service, pace, clock, *, retry_after):
    """Let the writers write so many hosts: each looks, sends, and hears the answer."""
    began, numbers = clock.now, itertools.count()
    left = iter(range(hosts))
    events = []

    def at(seconds, act, *arguments):
        heapq.heappush(events, (clock.now + seconds, next(numbers), act, arguments))

    def begin():
        if next(left, None) is not None:
            take_turn()

    def take_turn():
        try:
            at(LOOK_SECONDS, send, pace.wait())
        except LaterError as later:
            at(later.args[0], take_turn)

    def send(turn):
        at(ANSWER_SECONDS, hear, turn, service.takes(clock.now))

    def hear(turn, taken):
        if taken:
            pace.taken()
            begin()
        else:
            assert pace.refused(turn=turn, retry_after=retry_after)
            take_turn()

    for _ in range(WRITERS):
        begin()
    while events:
        clock.now, _, act, arguments = heapq.heappop(events)
        act(*arguments)
    return clock.now - began


@pytest.mark.parametrize("sliding", [False, True], ids=["fixed", "sliding"])
@pytest.mark.parametrize("retry_after", [None, 1.0])
@pytest.mark.parametrize(
    ("limit", "seconds", "hosts"), [(20, 1, 200), (20, 1, 2000), (100, 1, 2000), (1, 1, 60), (60, 60, 200)]
)
def test_a_limit_is_used_to_more_than_half_and_few_writes_are_refused(
    pace, clock, limit, seconds, hosts, retry_after, sliding
):
    service = Service(limit, seconds=seconds, sliding=sliding)
    took = seconds_to_write(hosts, service, pace, clock, retry_after=retry_after)
    ideal = hosts / limit * seconds
    assert took <= 2 * ideal
    assert service.refused <= hosts / 3


def test_nobody_waits_before_the_first_refusal(pace):
    assert [held_back(pace) for _ in range(100)] == [None] * 100


def test_all_writers_wait_after_a_refusal_also_those_whose_turn_was_near(pace, clock):
    turn = pace.wait()
    assert pace.refused(turn=turn, retry_after=7)
    clock.now += 6.5
    assert held_back(pace) == 0.5
    clock.now += 0.5
    assert held_back(pace) is None
    assert held_back(pace) is not None, "the others come after it, one by one"


def test_refusals_of_one_moment_count_once(pace, clock):
    turns = [pace.wait() for _ in range(WRITERS)]
    clock.now += 1
    for turn in turns:
        pace.refused(turn=turn, retry_after=None)
    clock.now += 1
    assert [held_back(pace), held_back(pace)] == [None, 1.0], "one a second, not slower"


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


def test_a_long_wait_is_kept_as_asked(pace, clock):
    first, second = pace.wait(), pace.wait()
    assert pace.refused(turn=first, retry_after=1)
    assert pace.refused(turn=second, retry_after=120), "of a burst, the longest counts"
    clock.now += 119
    assert held_back(pace) is not None
    clock.now += 1
    assert held_back(pace) is None


def test_a_wait_of_more_than_a_run_may_take_is_not_begun(pace):
    assert not pace.refused(turn=pace.wait(), retry_after=GIVE_UP_SECONDS)


def test_a_service_that_takes_nothing_for_long_is_given_up(pace, clock):
    assert pace.refused(turn=pace.wait(), retry_after=1)
    clock.now += GIVE_UP_SECONDS
    assert not pace.refused(turn=clock.now, retry_after=1)
    pace.taken()
    assert pace.refused(turn=clock.now, retry_after=1)


def test_a_stopped_pace_gives_no_turn_to_those_who_wait():
    clock = Clock()
    pace = Pace(clock=clock, sleep=lambda _: pace.stop())
    pace.refused(turn=pace.wait() or 0.0, retry_after=60)
    assert pace.wait() is None
