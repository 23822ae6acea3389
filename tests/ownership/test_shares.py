from datetime import date, timedelta

import pytest

from ownership.rules import Rules
from tests.ownership.builders import counts, shares_of


@pytest.mark.parametrize("kinds", [{}, {"evidence_metric": "days", "logon_type_weights": {"2": 10}}])
def test_active_days_are_exact_in_windows_of_any_length(kinds):
    first = date(2025, 1, 1)
    one, other = range(0, 400, 3), range(0, 400, 5)
    logons = counts(
        *(("WS1", "alice", 1, first + timedelta(days=number), "2") for number in one),
        *(("ws1", "Alice", 1, first + timedelta(days=number), "3") for number in other),
    )
    alice = shares_of(logons, Rules(**kinds)).row(0, named=True)
    days = len({*one, *other})
    assert alice["active_days"] == days
    assert alice["weight"] == (days + 9 * len(one) if kinds else len(one) + len(other))


def test_spellings_are_kept_and_those_of_a_host_also_of_excluded_users():
    logons = counts(
        ("dc1.a", "CORP\\Alice", 1),
        ("dc1.a", "alice@corp.example", 2),
        ("dc1.a", "ALICE", 3),
        ("DC1.b", "svc", 3),
    )
    (row,) = shares_of(logons, Rules(hostname_match="short", exclude_users=("svc",))).rows(named=True)
    assert row["username_spellings"] == ["ALICE", "CORP\\Alice", "alice@corp.example"]
    assert row["hostname_spellings"] == ["DC1.b", "dc1.a"]
