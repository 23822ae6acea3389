import operator
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ownership.declaration import polars_schema
from ownership.rules import Rules
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.inventory.records import host_rows, user_rows
from sandbox.company import DEMO_RULES, generate
from sandbox.resolution import resolve
from tests.resources.samples import instance

pytestmark = pytest.mark.slow

FRIDAY = date(2025, 11, 21)
NOON = datetime(2025, 11, 21, 12, tzinfo=UTC)
COLUMNS = ["host_id", "hostname", "evidence", "match", "action", "resolved_owner"]


def values(field):
    return [value for value in (field if isinstance(field, list) else [field]) if value]


def instant(document):
    return datetime.fromisoformat(document["@timestamp"])


def window(days=30, timezone="UTC"):
    start = datetime.combine(FRIDAY - timedelta(days=days - 1), time(), ZoneInfo(timezone))
    end = datetime.combine(FRIDAY + timedelta(days=1), time(), ZoneInfo(timezone))
    return lambda document: start <= instant(document) < end


def default_query(document):
    event, process = document["event"], document.get("process", {})
    return (event["code"], event["outcome"], process.get("name")) == ("4624", "success", "svchost.exe")


def decided(company, documents, *, days=30, timezone="UTC"):
    """What the rules decide, from documents counted here: the columns of an expectation."""
    zone = ZoneInfo(timezone)
    counts = Counter(
        (instant(document).astimezone(zone).date(), document["agent"].get("name"), name)
        for document in documents
        for name in values(document.get("user", {}).get("name"))
    )
    rows = [(*key, events, None) for key, events in counts.items() if not {None, "", "-"} & set(key)]
    hosts, users = (
        rows.table([asset["id"] for asset in assets], assets).with_columns(listed_at=NOON)
        for rows, assets in ((host_rows(instance()), company.hosts), (user_rows(instance()), company.users))
    )
    decisions = resolve(
        pl.LazyFrame(rows, polars_schema(LogonCounts), orient="row"),
        hosts,
        users,
        rules=Rules(**DEMO_RULES),
        user_value_field="user_email",
        window=Window(FRIDAY - timedelta(days=days - 1), FRIDAY),
        decided_at=NOON,
        run_id="a-run",
    ).decisions
    return set(decisions.select(COLUMNS).rows())


def expected(company):
    return {operator.attrgetter(*COLUMNS)(row) for row in company.truth}


@pytest.mark.parametrize(
    ("seed", "days", "timezone"),
    [(7, 30, "America/Santiago"), (21, 90, "Europe/Berlin"), (3, 7, "Asia/Kolkata"), (4, 1, "UTC")],
)
def test_the_rules_decide_the_truth(seed, days, timezone):
    company = generate(seed, today=FRIDAY, days=days, timezone=timezone)
    documents = filter(window(days, timezone), filter(default_query, company.documents()))
    assert decided(company, documents, days=days, timezone=timezone) == expected(company)
