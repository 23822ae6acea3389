from ownership.rules import Rules
from tests.ownership.builders import counts, shares_of


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
