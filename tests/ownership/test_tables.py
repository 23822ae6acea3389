import re
from datetime import date
from typing import Any

import polars as pl
import pytest

from ownership.declaration import (
    InvalidTableError,
    column_descriptions,
    columns_of,
    empty,
    personal_columns,
    polars_schema,
    validated,
)
from ownership.history import changed_decisions
from ownership.rules import MAX_EVENTS_A_DAY
from ownership.tables import TABLES, LogonCounts, LogonDays, OwnerDecisionsHistory
from tests.ownership import builders
from tests.ownership.builders import DAY, NOW, RUN, counts, host, hosts, resolution, table, user, users

MADE = resolution(
    counts(("ws1", "alice", 5), ("ws1", "bob", 2)),
    users(user("u1", email="alice@corp.example")),
    hosts(host("h1", "ws1")),
)
VALID: dict[str, pl.DataFrame] = {
    "logon_counts": counts(("ws1", "alice", 5)).collect(),
    "logon_days": table(LogonDays, builders.logon_day(DAY, 9, counted=7, lacking_user=1, lacking_host=1)),
    "inventory_hosts": hosts(host("h1", "ws1")),
    "inventory_users": users(user("u1", email="alice@corp.example")),
    "host_user_shares": MADE.shares,
    "username_matches": MADE.matches,
    "owner_decisions": MADE.decisions,
    "owner_decisions_history": changed_decisions(
        empty(OwnerDecisionsHistory), MADE.decisions, decided_at=NOW, run_id=RUN
    ),
}


def test_a_column_says_the_meaning_of_each_code_once():
    said = column_descriptions(TABLES["owner_decisions"])["action"]
    assert " already. conflict: the host has another owner, who stays. keep: " in said


def test_every_column_of_text_says_whether_it_holds_persons():
    texts = {
        f"{table}.{name}"
        for table, model in TABLES.items()
        for name, kind in polars_schema(model).items()
        if "String" in str(kind) and not columns_of(model)[name].codes
    }
    said = {f"{table}.{name}" for table, model in TABLES.items() for name in personal_columns(model)}
    assert texts == said


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("logon_counts", {"events": MAX_EVENTS_A_DAY + 1}, "events: less_than_or_equal_to(10000000000)"),
    ("logon_days", {"counted": MAX_EVENTS_A_DAY + 1}, "counted is at most 10,000,000,000"),
    ("logon_days", {"lacking_user": 10}, "lacking_user and lacking_host are at most matching"),
    ("inventory_hosts", {"host_id": ""}, "host_id: str_length(1, None)"),
    ("inventory_hosts", {"owner_ids": None}, "hostnames, owner_ids are null only where problem says why"),
    ("inventory_users", {"user_email": None}, "are null only where problem says why"),
    ("host_user_shares", {"events": 8}, "events is at most total_events"),
    ("host_user_shares", {"first_seen": date(2026, 4, 1)}, "first_seen is not after last_seen"),
    ("username_matches", {"user_id": None}, "user_id and matched_by come together"),
    ("username_matches", {"user_id": None, "matched_by": None, "decisive": True}, "without one is decisive"),
    ("owner_decisions", {"action": "overwrite"}, "action: isin("),
    ("owner_decisions", {"events": 8}, "events is at most total_events"),
    ("owner_decisions", {"match": None}, "match is set exactly when the evidence names somebody"),
    ("owner_decisions", {"resolved_owner": None}, "resolved_owner is set exactly when match is matched"),
    ("owner_decisions", {"problem": "x"}, "problem is set exactly when the evidence is unreadable_asset"),
    ("owner_decisions", {"evidence": "unreadable_asset"}, "problem is set exactly when the evidence is"),
    ("owner_decisions", {"evidence": "unreadable_asset", "problem": "x"}, "and the action is none then"),
    ("owner_decisions", {"existing_owner": "u9"}, "write has a host asset without an owner"),
    ("owner_decisions", {"host_id": None}, "write has a host asset without an owner"),
    ("owner_decisions_history", {"existing_owner": "u9"}, "write has a host asset without an owner"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "values", "rule"), BAD)
def test_a_bad_value_is_refused_with_its_row(table, values, rule):
    model, frame = TABLES[table], VALID[table].head(1)
    bad = frame.with_columns(pl.lit(value, frame.schema[name]).alias(name) for name, value in values.items())
    with pytest.raises(InvalidTableError) as refused:
        validated(model, bad)
    message = str(refused.value)
    assert message.startswith(f"{table} cannot be stored:\n")
    assert rule in message
    for name, value in values.items():
        shown = "…" if name == "existing_owner" else value
        assert f"{name}={shown!r}" in message or f"{name}={shown}" in message


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop("events"),
        lambda frame: frame.with_columns(extra=1),
        lambda frame: frame.cast({"events": pl.Int32}),
        lambda frame: frame.select(reversed(frame.columns)),
    ],
)
def test_columns_must_be_exactly_those_of_the_table(change):
    with pytest.raises(InvalidTableError, match=r"its columns are \{.*, not \{.day.: Date"):
        validated(LogonCounts, change(VALID["logon_counts"]))


def test_all_problems_are_reported_together_with_the_first_rows_and_long_values_cut():
    names = [None, *(f"user{number}" for number in range(1, 9))]
    rows = [
        {"day": DAY, "document_hostname": "h" * 500, "document_username": name, "events": 0} for name in names
    ]
    frame = pl.DataFrame(rows, schema=polars_schema(LogonCounts))
    with pytest.raises(InvalidTableError) as refused:
        validated(LogonCounts, frame)
    message = str(refused.value)
    assert "document_username: not_nullable, broken by 1 of 9 rows" in message
    assert "events: greater_than_or_equal_to(1), broken by 9 of 9 rows" in message
    assert len(re.findall("document_username=…,.* events=0", message)) == 4, "names nobody"
    assert "user" not in message.replace("document_username", "")
    assert "h" * 100 not in message
