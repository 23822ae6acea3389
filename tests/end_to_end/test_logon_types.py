"""Kinds of logon through the real engine: switched on in a home that has counted without them."""

import json
from datetime import timedelta

import polars as pl
import pytest

from sandbox.company import MAPPING
from sandbox.logons import Logon, document
from tests.end_to_end.stand import TODAY, at_noon

BY_KIND = {"logon_type_field": "winlog.event_data.LogonType"}
WEIGHTS = {"rules": {"logon_type_weights": {2: 10, 7: 10}}}
LOGONS = [
    *[("pc-1", "ann", "2", 1)] * 2,
    *[("pc-1", "ann", "7", 1)],
    *[("pc-1", "bob", "3", 1)] * 9,
    *[("pc-1", "bob", None, 2)] * 3,
    *[("pc-2", "cyd", ["2", "7"], 1)],
]
"""Host, user, kind, days ago; the last document has two kinds."""


@pytest.fixture
def index(stand):
    documents = []
    for number, (host, user, kind, age) in enumerate(LOGONS):
        logon = Logon(at_noon(TODAY - timedelta(days=age)), "logon", host, host, user)
        documents.append(document(logon, number))
        data = documents[-1]["winlog"]["event_data"]
        del data["LogonType"]
        data |= {} if kind is None else {"LogonType": kind}
    stand.engine.load("logs-kinds", MAPPING, documents)
    hosts = [{"id": f"h-{name}", "search_agent_name": name} for name in ("pc-1", "pc-2")]
    stand.begin(hosts, [{"id": name, "user_email": f"{name}@corp.example"} for name in ("ann", "bob", "cyd")])
    return {"index": "logs-kinds"}


def decided(stand, changes, *columns):
    ran = stand.run(changes)
    assert ran.status == 0, ran.stderr
    frame = stand.tables.of_run("owner_decisions", ran.report["run_id"]).filter(hostname="pc-1")
    return frame.select("action", "username", "events", "total_events", *columns).row(0), ran


def test_weights_by_kind_of_logon_name_another_owner_beside_the_same_counts(stand, index):
    plain, ran = decided(stand, index)
    assert plain == ("write", "bob", 12, 15)
    assert "Logons: 4 of 4 days fetched" in ran.stderr

    by_kind, ran = decided(stand, index | BY_KIND, "weight", "active_days")
    assert by_kind == ("agree", "bob", 12, 15, 12, 2)
    assert "Logons: 4 of 4 days fetched" in ran.stderr, "what was stored does not tell kinds apart"

    weighed, ran = decided(stand, index | BY_KIND | WEIGHTS, "weight", "total_weight", "active_days")
    assert weighed == ("conflict", "ann", 3, 15, 30, 42, 1)
    assert "Logons: 3 of 4 days fetched" in ran.stderr, "one of them is settled"
    query = (
        "SELECT document_hostname, document_username, document_logon_type, sum(events)::INT AS events "
        "FROM logon_counts GROUP BY ALL ORDER BY ALL"
    )
    file = stand.instance_file(index | BY_KIND | WEIGHTS)
    answer = stand.call("sql", "--instance", file, "--format", "json", query)
    assert [tuple(row.values()) for row in json.loads(answer.stdout)] == [
        ("pc-1", "ann", "2", 2), ("pc-1", "ann", "7", 1), ("pc-1", "bob", "3", 9), ("pc-1", "bob", None, 3),
        ("pc-2", "cyd", "2", 1), ("pc-2", "cyd", "7", 1),
    ]  # fmt: skip
    explained = stand.call("explain", "--instance", file, "pc-1")
    assert "ann has 3 of 15 logon events, weighed by kind of logon (71.4%), over 60%." in explained.stdout
    assert "Weights by kind of logon: 2: 10, 7: 10; all others 1." in explained.stdout


def test_days_that_an_older_version_stored_are_read_and_not_fetched_anew(stand, index):
    assert stand.run(index).status == 0
    for file in (stand.tables.disk / "logon_counts").glob("*.parquet"):
        pl.read_parquet(file).drop("document_logon_type").write_parquet(file)
    plain, ran = decided(stand, index, "weight")
    assert plain == ("agree", "bob", 12, 15, 12)
    assert "Logons: 3 of 4 days fetched" in ran.stderr, "one of them is settled"
    answer = stand.call(
        "sql", "--instance", stand.instance_file(index), "SELECT count(document_logon_type) FROM logon_counts"
    )
    assert answer.exit_code == 0, answer.output


def test_a_field_that_no_event_has_stops_the_run_before_it_decides(stand, index):
    ran = stand.run(index | WEIGHTS | {"logon_type_field": "winlog.kind"})
    assert ran.status == 1
    assert "logon_type_field: none of the 16 counted events from " in ran.report["error"]
    assert "carries the field 'winlog.kind'; name the field that does, or take" in ran.report["error"]
    assert stand.written() == {}
