"""The window of a run of the command line, and the days of it that are looked at."""

import os
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from assets_defs.evidence import days_to_cover
from assets_defs.run import RANGE_START, WINDOW_TAG
from ownership.tables import LogonCounts, LogonDays
from ownership.windows import Window, days_of
from pipelines.cli.run import chosen_window
from pipelines.schedules import scan_schedule
from resources.errors import ConfigurationError
from resources.search.source import extraction_fingerprint
from resources.settings import Instance
from resources.store.tables import Tables
from tests.ownership.builders import table

BERLIN = ZoneInfo("Europe/Berlin")


def instance(**scan):
    secret = {"env": "UNUSED"}
    platform = {"url": "https://inventory", "email": "a@b", "password": secret, "tenant_id": "t"}
    return Instance.model_validate(
        {
            "name": "Small",
            "url": "https://search",
            "username": "reader",
            "password": secret,
            "sensor": "s",
            "platform": platform,
            "scan": {"timezone": "Europe/Berlin", **scan},
        }
    )


@pytest.mark.parametrize(
    ("as_of", "lookback_days", "first", "last"),
    [
        ("2025-06-30", None, date(2025, 6, 1), date(2025, 6, 30)),
        ("2025-06-30", 1, date(2025, 6, 30), date(2025, 6, 30)),
        ("2025-03-31", 3, date(2025, 3, 29), date(2025, 3, 31)),
        ("2020-01-03", 30, date(2020, 1, 1), date(2020, 1, 3)),
        ("2025-06-30T23:59:59", 1, date(2025, 6, 30), date(2025, 6, 30)),
        ("2025-06-30T22:30:00Z", 1, date(2025, 7, 1), date(2025, 7, 1)),
        ("2025-06-30T22:30:00-04:00", 1, date(2025, 7, 1), date(2025, 7, 1)),
        ("2025-07-01T00:30:00+06:00", 1, date(2025, 6, 30), date(2025, 6, 30)),
    ],
)
def test_the_window_ends_with_the_day_named_in_the_time_zone_of_the_instance(
    as_of, lookback_days, first, last
):
    window = chosen_window(instance(), as_of, lookback_days)
    assert (window.first, window.last) == (first, last)


def test_without_a_day_the_window_ends_today_where_the_instance_is():
    before = datetime.now(BERLIN).date()
    window = chosen_window(instance(lookback_days=7), None, None)
    assert before <= window.last <= datetime.now(BERLIN).date()
    assert window.days == 7


@pytest.mark.parametrize(
    ("as_of", "words"),
    [
        ("9999-01-01", "--as-of: 9999-01-01 is in the future; name a day up to"),
        ((datetime.now(BERLIN) + timedelta(days=2)).date().isoformat(), "is in the future"),
        ("2019-12-31", "2019-12-31 is before scan.first_day (2020-01-01)"),
        ("31.12.2025", "--as-of: '31.12.2025' is no day; write it as 2026-01-31"),
    ],
)
def test_a_day_that_cannot_be_looked_at_is_refused(as_of, words):
    with pytest.raises(ConfigurationError) as caught:
        chosen_window(instance(), as_of, None)
    assert words in str(caught.value)


MIDNIGHT = {"lookback_days": 30, "schedule": "0 0 * * *"}
JUNE = Window(date(2025, 6, 1), date(2025, 6, 30))


@pytest.mark.parametrize(
    ("missing", "fetched_at", "query", "first"),
    [
        ((), datetime(2025, 6, 30, 5, tzinfo=UTC), None, 28),  # 27 June ended three days before
        ((), datetime(2025, 7, 30, tzinfo=UTC), None, 30),  # all are settled
        ((12, 29), datetime(2025, 7, 30, tzinfo=UTC), None, 12),
        ((), datetime(2025, 7, 30, tzinfo=UTC), "event.code: 4624", 1),
        ((), datetime(2225, 7, 30, tzinfo=UTC), None, 1),  # of a clock that was wrong
    ],
)
def test_a_run_looks_at_days_from_the_first_one_that_is_not_settled(
    tmp_path, missing, fetched_at, query, first
):
    tables = Tables(tmp_path, "small")
    assert days_to_cover(instance(), tables, JUNE) == JUNE
    tables.prepare()
    counted = {"matching": 1, "counted": 1, "lacking_user": 0, "lacking_host": 0}
    pair = {"document_hostname": "pc", "document_username": "ann", "events": 1}
    for day in days_of(JUNE):
        row = {
            "day": day,
            "fetched_at": fetched_at,
            "settings_fingerprint": extraction_fingerprint(instance()),
        }
        if day.day not in missing:
            tables.write_day(table(LogonDays, counted | row), table(LogonCounts, {"day": day, **pair}))
    now = instance().model_copy(update={"query": query} if query else {})
    assert days_to_cover(now, tables, JUNE) == Window(date(2025, 6, first), JUNE.last)

    schedule = scan_schedule(now.model_copy(update={"scan": now.scan.model_copy(update=MIDNIGHT)}), tables)
    tick = dg.build_schedule_context(scheduled_execution_time=datetime(2025, 6, 30, 12, tzinfo=UTC))
    (request,) = schedule.evaluate_tick(tick).run_requests or []
    assert request.tags[RANGE_START] == f"2025-06-{first:02}", "the schedule leaves out the same days"
    assert request.tags[WINDOW_TAG] == "2025-06-01/2025-06-30"

    (tables.folder / "logon_counts" / "2025-06-02.parquet").unlink()
    torn = Window(date(2025, 6, min(first, 2)), JUNE.last)
    assert days_to_cover(now, tables, JUNE) == torn, "a day whose counts are gone is looked at again"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [["run"], ["check"], ["explain", "pc-1"]], ids=" ".join)
def test_an_instance_file_that_never_ends_is_refused(call, tmp_path, command):
    os.mkfifo(tmp_path / "pipe.yaml")
    status, out, told = call(command[0], "--instance", tmp_path / "pipe.yaml", *command[1:])
    assert (status, out) == (2, "")
    assert f"{tmp_path / 'pipe.yaml'}: the file cannot be read: it is no regular file" in told
