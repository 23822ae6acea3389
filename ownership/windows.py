"""Days and look-back windows (rules 4.1 to 4.3): calendar days in the instance's time zone."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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


def are_settled(fetched: pl.DataFrame, now: datetime, *, timezone: str, late_days: int) -> pl.Series:
    """Whether each row of `logon_days` was fetched `late_days` or more after its day's end.

    Nothing late arrives of such a day any more. One that was fetched in the future is not settled: the clock
    was wrong.
    """
    ends = [day_start(day + timedelta(days=1 + late_days), timezone) for day in fetched["day"]]
    return fetched["fetched_at"].is_between(pl.Series(ends, dtype=pl.Datetime("us", "UTC")), now)


def gaps(days: pl.DataFrame, *, timezone: str) -> pl.DataFrame:
    """Return the finished days of each log with no events, or under a tenth of the log's median day.

    `days` are rows of `logon_days`, as are those returned, by day. A log without any events has no gaps.
    """
    over = days.filter(are_settled(days, datetime.max.replace(tzinfo=UTC), timezone=timezone, late_days=0))
    counted = pl.col("counted")
    few = (counted == 0) | (10 * counted < counted.median().over("log"))
    return over.filter(few & (counted.sum().over("log") > 0)).sort("day", "log")


def gap_days(days: pl.DataFrame, *, timezone: str) -> list[date]:
    """Return the days that are gaps of any log, oldest first."""
    return gaps(days, timezone=timezone)["day"].unique().sort().to_list()


def days_to_fetch(
    days: Sequence[date],
    fetched: pl.DataFrame,
    stored: pl.DataFrame,
    *,
    now: datetime,
    fingerprints: Collection[str],
    timezone: str,
    late_days: int,
) -> list[date]:
    """Return the days of which a log was never fetched, or with other settings, or is not settled, or torn.

    `fetched` are rows of `logon_days`; `stored` has day, log and events, the sum of its rows of logon_counts.
    The instance's logs are known by their `fingerprints`; a day that holds others as well is fetched again.
    """
    settled = fetched.filter(are_settled(fetched, now, timezone=timezone, late_days=late_days))
    whole = whole_days(settled, stored, fingerprints=fingerprints)
    return [day for day in days if day not in whole]


def whole_days(fetched: pl.DataFrame, stored: pl.DataFrame, *, fingerprints: Collection[str]) -> set[date]:
    """Return the days that hold just these logs, fetched with these settings, and whose counts add up."""
    of_day = fetched.group_by("day").agg("settings_fingerprint").iter_rows()
    whole = {day for day, logs in of_day if Counter(logs) == Counter(fingerprints)}
    return whole - set(torn_days(fetched, stored)["day"])


def days_that_grew(stored: pl.DataFrame, matching: Mapping[date, int]) -> set[date]:
    """Return the days of which a source now holds more matching documents than were stored.

    `stored` has day and matching. A day of which fewer are left has lost its index, and keeps its counts.
    """
    return {
        day for day, before in stored.select("day", "matching").iter_rows() if matching.get(day, 0) > before
    }


def torn_days(fetched: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `logon_days` whose stored counts are missing, or do not add up to `counted`."""
    sums = fetched.join(stored, on=("day", "log"), how="left")
    return sums.filter(pl.col("events").fill_null(0) != pl.col("counted"))


def keep_greater(stored: pl.DataFrame, fetched: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return rows of `logon_counts` of a log and a day with the greater count of each pair (rules 4.4).

    The index has lost the others: the number of pairs of which it holds fewer events than were stored.
    """
    pair = [name for name in fetched.columns if name != "events"]
    before = stored.select(*pair, stored="events")
    both = fetched.join(before, on=pair, how="full", coalesce=True, nulls_equal=True)
    fewer = both.filter(pl.col("stored") > pl.col("events").fill_null(0)).height
    greater = both.with_columns(events=pl.max_horizontal("events", "stored"))
    return greater.select(fetched.columns).sort(pair), fewer
