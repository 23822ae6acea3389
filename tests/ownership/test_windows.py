from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ownership import windows
from ownership.declaration import polars_schema
from ownership.tables import LogonDays
from ownership.windows import day_start
from tests.ownership.builders import DAY

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "timezone",
    ["Europe/Berlin", "America/Havana", "America/Sao_Paulo", "America/St_Johns", "Asia/Beirut", "Asia/Gaza"],
)
def test_a_day_begins_with_its_first_instant_also_where_midnight_is_skipped_or_comes_twice(timezone):
    zone = ZoneInfo(timezone)
    for number in range(20 * 365):
        day = date(2005, 1, 1) + timedelta(days=number)
        start = day_start(day, timezone)
        assert start.tzinfo == UTC
        assert start.astimezone(zone).date() == day
        assert (start - timedelta(microseconds=1)).astimezone(zone).date() == day - timedelta(days=1)


@pytest.mark.parametrize(
    ("last", "lookback_days", "first_day", "expected"),
    [
        ("2026-03-30", 30, "2020-01-01", ("2026-03-01", 30)),
        ("2026-03-30", 1, "2020-01-01", ("2026-03-30", 1)),
        ("2026-03-30", 30, "2026-03-20", ("2026-03-20", 11)),
        ("2024-03-01", 2, "2020-01-01", ("2024-02-29", 2)),
    ],
)
def test_a_window_ends_with_its_last_day_and_is_clipped(last, lookback_days, first_day, expected):
    last = date.fromisoformat(last)
    window = windows.look_back_window(last, lookback_days, date.fromisoformat(first_day))
    assert (window.first.isoformat(), window.days) == expected
    first, *_ = days = windows.days_of(window)
    assert (first, days[-1], len(days)) == (window.first, last, window.days)


@pytest.mark.parametrize(
    ("day", "fetched_at", "late_days", "settled"),
    [
        ("2026-03-02", "2026-03-05T22:59:59.999", 3, False),
        ("2026-03-02", "2026-03-05T23:00", 3, True),
        ("2026-03-02", "2026-03-02T23:00", 0, True),
        # Late days are calendar days, too: the 29th has 23 hours in Berlin.
        ("2026-03-28", "2026-03-29T21:59", 1, False),
        ("2026-03-28", "2026-03-29T22:00", 1, True),
        # The first of May is now: the clock was wrong.
        ("2026-03-02", "2026-05-01T00:00", 2, True),
        ("2026-03-02", "2026-05-01T00:00:01", 2, False),
    ],
)
def test_a_day_is_settled_when_fetched_long_enough_after_its_end(day, fetched_at, late_days, settled):
    day, at = date.fromisoformat(day), datetime.fromisoformat(f"{fetched_at}+00:00")
    fetched = pl.DataFrame({"day": [day], "fetched_at": [at]})
    of_days = windows.are_settled(fetched, NOW, timezone="Europe/Berlin", late_days=late_days)
    assert of_days.to_list() == [settled]


def logon_days(*rows):
    """Rows of (days after DAY, counted, hours from the day's end to its fetching, fingerprint)."""
    schema: dict[str, Any] = {
        name: polars_schema(LogonDays)[name] for name in ("day", "counted", "fetched_at")
    }
    filled = [
        (
            DAY + timedelta(days=number),
            counted,
            day_start(DAY + timedelta(days=number + 1), "Europe/Berlin") + timedelta(hours=hours),
            fingerprint,
            *(log or ["logs"]),
        )
        for number, counted, hours, fingerprint, *log in rows
    ]
    named = schema | {"settings_fingerprint": pl.String, "log": pl.String}
    return pl.DataFrame(filled, named, orient="row")


def test_days_to_fetch_are_those_missing_outdated_torn_or_not_settled():
    fetched = logon_days(
        (0, 5, 48, "now"),
        (1, 5, 47, "now"),  # not settled
        (2, 5, 48, "before"),  # fetched with other settings
        (3, 0, 48, "now"),  # an empty day is settled as well
        (5, 5, 48, "now"),  # its counts are missing
        (6, 5, 48, "now"),  # its counts are too few
        (7, 5, 48, "now"),  # its counts are too many
        (9, 5, 48, "now"),  # not asked for
    )
    sums = {0: 5, 1: 5, 2: 5, 6: 4, 7: 6}
    stored = pl.DataFrame(
        {"day": [DAY + timedelta(days=number) for number in sums], "events": list(sums.values())}
    ).with_columns(log=pl.lit("logs"))
    settings: Any = {"now": NOW, "fingerprints": ["now"], "timezone": "Europe/Berlin", "late_days": 2}
    days = [DAY + timedelta(days=number) for number in (7, 6, 5, 4, 3, 2, 1, 0)]
    wanted = windows.days_to_fetch(days, fetched, stored, **settings)
    assert wanted == [DAY + timedelta(days=number) for number in (7, 6, 5, 4, 2, 1)]
    assert windows.days_to_fetch(days, fetched.clear(), stored.clear(), **settings) == days


def test_days_that_grew_are_those_of_which_the_source_holds_more_than_was_stored():
    stored = pl.DataFrame(
        {"day": [DAY + timedelta(days=number) for number in range(4)], "matching": [5, 5, 5, 0]}
    )
    now = {DAY: 5, DAY + timedelta(days=1): 6, DAY + timedelta(days=2): 4, DAY + timedelta(days=3): 1}
    assert windows.days_that_grew(stored, now) == {DAY + timedelta(days=1), DAY + timedelta(days=3)}
    assert windows.days_that_grew(stored, {DAY + timedelta(days=9): 7}) == set()


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ([(100, 1), (100, 1), (9, 1), (100, 1)], [2]),
        ([(100, 1), (100, 1), (10, 1), (100, 1)], []),
        ([(100, 1), (0, 1), (100, 1), (0, 1)], [1, 3]),
        ([(0, 1), (0, 1), (0, 1), (7, 1)], [0, 1, 2]),
        ([(0, 1), (0, 1)], []),
        ([(100, 1), (0, 1), (0, -1)], [1]),  # not over when it was fetched
        ([], []),
    ],
)
def test_gaps_are_days_with_next_to_nothing_among_others_with_events(counted, found):
    days = logon_days(*((number, events, hours, "now") for number, (events, hours) in enumerate(counted)))
    assert windows.gap_days(days, timezone="Europe/Berlin") == [
        DAY + timedelta(days=number) for number in found
    ]
