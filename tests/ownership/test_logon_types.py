"""Logons of one kind count for more than those of another (rules 1.7), and exact counts stay beside them."""

import polars as pl
import pytest

from ownership.declaration import InvalidTableError
from ownership.rules import MAX_EVENTS_A_DAY, Rules, evidence_of_host, first_that_holds
from ownership.tables import LogonDays
from resources.settings import MAX_LOOKBACK_DAYS
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, decide, host, hosts, table

LAST = WINDOW.last
INTERACTIVE, NETWORK = "2", "3"
LOGONS = counts(
    ("ws1", "ann", 3, LAST, INTERACTIVE),
    ("ws1", "ann", 3, LAST, NETWORK),
    ("ws1", "bob", 12, LAST, NETWORK),
    ("ws1", "bob", 2, LAST, None),
)


def test_what_is_lacking_is_told_in_logons_without_a_weight():
    def decided(logons):
        rules = Rules(logon_type_weights={INTERACTIVE: 10}, share_threshold_percent=75)
        return decide(logons, PEOPLE, hosts(host("h1", "ws1")), rules).row(0, named=True)

    lacking = decided(LOGONS)["events_needed"]
    for further, evidence in ((lacking - 1, "no_majority"), (lacking, "majority")):
        row = decided(pl.concat([LOGONS, counts(("ws1", "ann", further, LAST, "other"))]))
        assert (row["username"], row["evidence"]) == ("ann", evidence)


@pytest.mark.parametrize(("more", "evidence"), [(0, "no_majority"), (1, "majority")])
def test_shares_are_exact_where_days_hold_as_many_events_as_are_taken(more, evidence):
    """Rules 1.7: the longest window, the greatest weight."""
    ann = MAX_EVENTS_A_DAY * 6 // 10
    total = MAX_LOOKBACK_DAYS * MAX_EVENTS_A_DAY
    weights = {"weight": 1000 * (MAX_LOOKBACK_DAYS * ann + more), "total_weight": 1000 * total}
    one = {"hostname": "ws1", "collides": False, "primary_rank": 1, "problem": None, "excluded_by": None}
    frame = pl.DataFrame(one | {"total_events": [total], "user_count": 2, "active_days": 1} | weights)
    cases = evidence_of_host(Rules(logon_type_weights={INTERACTIVE: 1000}))
    assert frame.select(first_that_holds(cases.items())).item() == evidence


def test_a_day_with_more_events_is_refused():
    numbers = dict.fromkeys(("matching", "lacking_user", "lacking_host"), 0)
    day = numbers | {"day": LAST, "fetched_at": NOW, "settings_fingerprint": "x"}
    table(LogonDays, day | {"counted": MAX_EVENTS_A_DAY})
    with pytest.raises(InvalidTableError, match=r"counted is at most 10,000,000,000.*query"):
        table(LogonDays, day | {"counted": MAX_EVENTS_A_DAY + 1})
    with pytest.raises(InvalidTableError, match="events"):
        counts(("ws1", "ann", MAX_EVENTS_A_DAY + 1))
