"""Logons of one kind count for more than those of another (rules 1.7), and exact counts stay beside them."""

from datetime import timedelta

import polars as pl
import pytest

from ownership.declaration import InvalidTableError
from ownership.rules import MAX_EVENTS_A_DAY, Rules, evidence_of_host, first_that_holds
from ownership.tables import LogonDays
from resources.settings import MAX_LOOKBACK_DAYS
from tests.ownership.builders import NOW, PEOPLE, WINDOW, counts, decide, host, hosts, table

LAST, BEFORE = WINDOW.last, WINDOW.last - timedelta(days=14)
INTERACTIVE, NETWORK = "2", "3"
WEIGHTS = {INTERACTIVE: 10}
ONE_HOST = hosts(host("h1", "ws1"))
LOGONS = counts(
    ("ws1", "ann", 3, LAST, INTERACTIVE),
    ("ws1", "ann", 2, LAST, NETWORK),
    ("ws1", "ann", 1, BEFORE, NETWORK),
    ("ws1", "bob", 12, LAST, NETWORK),
    ("ws1", "bob", 2, BEFORE, None),
)


def decided(logons=LOGONS, assets=ONE_HOST, **rules):
    (row,) = decide(logons, PEOPLE, assets, Rules(**rules)).to_dicts()
    return row


@pytest.mark.parametrize("names", [("ws1", "WS1"), ("old", "new")], ids=["two spellings", "two names"])
def test_a_day_counts_once_with_its_greatest_weight_under_all_names(names):
    one, other = names
    logons = counts(
        (one, "ann", 1, LAST, INTERACTIVE), (other, "ann", 4, LAST, NETWORK), (one, "bob", 1, LAST, NETWORK)
    )
    assets = hosts(host("h1", *dict.fromkeys(name.lower() for name in names)))
    row = decided(logons, assets, evidence_metric="days", logon_type_weights=WEIGHTS)
    assert (row["username"], row["weight"], row["active_days"], row["total_weight"]) == ("ann", 10, 1, 11)


def test_what_is_lacking_is_told_in_logons_without_a_weight():
    row = decided(logon_type_weights=WEIGHTS, share_threshold_percent=75)
    lacking = row["events_needed"]
    for further, evidence in ((lacking - 1, "no_majority"), (lacking, "majority")):
        more = counts(("ws1", "ann", further, LAST, "other"))
        row = decided(pl.concat([LOGONS, more]), logon_type_weights=WEIGHTS, share_threshold_percent=75)
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
