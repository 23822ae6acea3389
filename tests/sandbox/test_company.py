import operator
from collections import Counter
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from ownership.rules import Rules
from ownership.windows import Window
from resources.inventory.records import host_rows, user_rows
from sandbox.company import DEMO_RULES, generate
from tests.ownership.builders import NOW, counts, resolution
from tests.resources.samples import instance

pytestmark = pytest.mark.slow

FRIDAY = date(2025, 11, 21)
COLUMNS = ["host_id", "hostname", "evidence", "match", "action", "resolved_owner"]


def decided(company, window, zone):
    """What the rules decide, from the logons that the default query keeps: the columns of an expectation."""
    counted = Counter(
        (logon.agent, user, logon.at.astimezone(zone).date())
        for logon in company.logons
        if logon.kind in {"logon", "batch"}
        for user in (logon.user if isinstance(logon.user, list) else [logon.user])
    )
    logons = [
        (agent, user, events, day)
        for (agent, user, day), events in counted.items()
        if window.first <= day <= window.last and not {None, "", "-"} & {agent, user}
    ]
    hosts, users = (
        rows.table([asset["id"] for asset in assets], assets).with_columns(listed_at=NOW)
        for rows, assets in ((host_rows(instance()), company.hosts), (user_rows(instance()), company.users))
    )
    made = resolution(counts(*logons), users, hosts, Rules(**DEMO_RULES), window=window)
    return set(made.decisions.select(COLUMNS).rows())


@pytest.mark.parametrize(
    ("seed", "days", "timezone"),
    [(7, 30, "America/Santiago"), (21, 90, "Europe/Berlin"), (3, 7, "Asia/Kolkata"), (4, 1, "UTC")],
)
def test_the_rules_decide_the_truth(seed, days, timezone):
    company = generate(seed, today=FRIDAY, days=days, timezone=timezone)
    window = Window(FRIDAY - timedelta(days=days - 1), FRIDAY)
    expected = {operator.attrgetter(*COLUMNS)(row) for row in company.truth}
    assert decided(company, window, ZoneInfo(timezone)) == expected
