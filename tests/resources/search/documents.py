"""Logon events for tests of the search client, and what they hold, counted in plain Python."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest

DAY = date(2026, 3, 2)
NOON = "2026-03-02T12:00:00+00:00"
ZONES = [
    ("UTC", DAY),
    ("Europe/Berlin", date(2026, 3, 28)),  # 23 hours on the 29th
    ("America/Havana", date(2026, 10, 31)),  # midnight comes twice on the 1st
    ("America/Sao_Paulo", date(2018, 11, 3)),  # the 4th begins at one o'clock
    ("Pacific/Apia", date(2011, 12, 29)),  # there was no 30th
    ("Asia/Kathmandu", DAY),
]


def never(_):
    pytest.fail("nothing here is to be tried again")


def event(host, user, at=NOON, kind=None, sender=None):
    """A logon event; None leaves a field out. A sender forwards the event of the host."""
    document = {"@timestamp": at, "agent": {"name": sender or host}, "user": {"name": user}}
    document |= {"winlog": {"type": kind}} if kind is not None else {}
    document |= {"host": {"name": host}} if sender else {}
    return {field: value for field, value in document.items() if value != {"name": None}}


def random_documents(days, timezone):
    """Events around some days, many of them within a millisecond of a midnight."""
    rng = random.Random(1)  # noqa: S311  (test data, no secret)
    hosts = ["PC-1", "pc-1", "PC-2.corp.example", "FS03", ["FS03", "FS04"], "", "-", None]
    users = ["ann", "Ann", "CORP\\ann", "bob", "jörg", ["ann", "bob"], ["ann", "ann"], "", "-", None]
    edges = [*days, days[-1] + timedelta(days=1)]
    midnights = [
        datetime.combine(day, datetime.min.time(), ZoneInfo(timezone)).astimezone(UTC) for day in edges
    ]
    start = midnights[0] - timedelta(days=1)
    for _ in range(800):
        at = start + timedelta(milliseconds=rng.randrange((len(days) + 2) * 24 * 3_600_000))
        if rng.random() < 0.2:
            at = rng.choice(midnights) + timedelta(milliseconds=rng.choice([-1, 0, 1]))
        yield event(rng.choice(hosts), rng.choice(users), at.isoformat(timespec="milliseconds"))


def counted(documents, day, timezone):
    """Matching, lacking a user, lacking a host, and the pairs of a day, straight from the documents."""
    zone, blank = ZoneInfo(timezone), {"", "-"}

    def names(document, field):
        value = document.get(field, {}).get("name", [])
        return ({value} if isinstance(value, str) else set(value)) - blank

    of_day = [d for d in documents if datetime.fromisoformat(d["@timestamp"]).astimezone(zone).date() == day]
    pairs = Counter(
        pair for document in of_day for pair in product(names(document, "agent"), names(document, "user"))
    )
    lacking = (sum(not names(document, field) for document in of_day) for field in ("user", "agent"))
    return len(of_day), *lacking, sorted((*pair, events) for pair, events in pairs.items())


def found(day):
    """The same of a day that the client gave."""
    return day.matching, day.lacking_user, day.lacking_host, sorted(day.counts.rows())
