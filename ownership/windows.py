"""Days and look-back windows (rules 4.1 to 4.3): calendar days in the instance's time zone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import polars as pl


@dataclass(frozen=True)
class Window:
    """The look-back window: calendar days in the instance's time zone, both ends included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.last - self.first).days + 1


def day_start(day: date, timezone: str) -> datetime:
    """Return the first instant of a calendar day, in UTC, also where clocks skip midnight.

    A day ends where the next one starts, so it lasts 23 or 25 hours when clocks change.
    """
    return datetime.combine(day, time(), ZoneInfo(timezone)).astimezone(UTC)


def look_back_window(last: date, lookback_days: int, first_day: date) -> Window:
    """Return the `lookback_days` calendar days that end with `last`, clipped at `first_day`."""
    if last < first_day:
        raise ValueError(
            f"{last} is before scan.first_day ({first_day}); name a later day or set an earlier first_day"
        )
    return Window(max(window_before(last, lookback_days).first, first_day), last)


def window_before(last: date, days: int) -> Window:
    """Return the window of this many days that ends with a day."""
    return Window(last - timedelta(days=days - 1), last)


def days_of(window: Window) -> list[date]:
    """Return the days of a window, oldest first."""
    return [window.first + timedelta(days=number) for number in range(window.days)]


def is_settled(day: date, fetched_at: datetime, now: datetime, *, timezone: str, late_days: int) -> bool:
    """Whether a day was fetched `late_days` or more after its end: nothing late arrives any more.

    A day that was fetched in the future is not settled: the clock was wrong.
    """
    return day_start(day + timedelta(days=1 + late_days), timezone) <= fetched_at <= now


def gaps(days: pl.DataFrame, *, timezone: str) -> list[date]:
    """Return days, over when fetched, with no events or under a tenth of the median, if any have some."""
    ends = [day_start(day + timedelta(days=1), timezone) for day in days["day"]]
    over = days.filter(pl.col("fetched_at") >= pl.Series(ends, dtype=pl.Datetime("us", "UTC")))
    few = (pl.col("counted") == 0) | (10 * pl.col("counted") < pl.col("counted").median())
    return over.filter(few & (pl.col("counted").sum() > 0)).sort("day")["day"].to_list()


def days_to_fetch(
    days: Sequence[date],
    fetched: pl.DataFrame,
    stored: pl.DataFrame,
    *,
    now: datetime,
    fingerprint: str,
    timezone: str,
    late_days: int,
) -> list[date]:
    """Return those of the days that were never fetched, or with other settings, or are not settled or torn.

    `stored` has day and events, the sum of its rows of logon_counts.
    """
    columns = ("day", "fetched_at", "settings_fingerprint")
    settled = {
        day
        for day, fetched_at, settings in fetched.select(columns).iter_rows()
        if settings == fingerprint
        and is_settled(day, fetched_at, now, timezone=timezone, late_days=late_days)
    }
    whole = settled - torn_days(fetched, stored)
    return [day for day in days if day not in whole]


def days_that_grew(stored: pl.DataFrame, matching: Mapping[date, int]) -> set[date]:
    """Return the days of which a source now holds more matching documents than were stored.

    `stored` has day and matching. A day of which fewer are left has lost its index, and keeps its counts.
    """
    return {
        day for day, before in stored.select("day", "matching").iter_rows() if matching.get(day, 0) > before
    }


def torn_days(fetched: pl.DataFrame, stored: pl.DataFrame) -> set[date]:
    """Return the days whose stored counts are missing, or do not add up to what was counted."""
    sums = fetched.join(stored, on="day", how="left")
    return set(sums.filter(pl.col("events").fill_null(0) != pl.col("counted"))["day"])
