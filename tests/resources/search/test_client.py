import copy
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import count, product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from resources.errors import (
    AuthenticationError,
    ConfigurationError,
    PermissionDeniedError,
    ProtocolError,
    TransientError,
)
from resources.http import Transport
from resources.search import client as search
from resources.search.client import SearchClient
from sandbox.logons import MAPPING
from tests.resources.http_stub import Reply, Stub
from tests.resources.samples import instance

ROOT = Path(__file__).parents[3]
DAY = date(2026, 3, 2)
NOON = "2026-03-02T12:00:00Z"
ALL = {"query": "*"}


def event(host, user, at=NOON) -> dict[str, Any]:
    """A logon event; None leaves a field out."""
    fields = {"agent": ("name", host), "user": ("name", user)}
    return {"@timestamp": at} | {
        field: {key: value} for field, (key, value) in fields.items() if value is not None
    }


def never(_):
    pytest.fail("nothing here is to be tried again")


def rows(day):
    return sorted(day.counts.rows())


@pytest.fixture
def index(request):
    """An index name of the test's own."""
    return "logs-search-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


@pytest.fixture(scope="module")
def secret(engine, tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "password"
    path.write_text(engine.reader.password)
    return {"file": str(path)}


@pytest.fixture
def client(engine, secret, index):
    """Opens a client on the real engine, as the reader who has nothing but the two privileges."""

    def open_client(**changes) -> SearchClient:
        reader = {"username": engine.reader.username, "password": secret, "ca_file": engine.ca_file}
        settings = {"url": engine.url, "index": index, **reader, **ALL, **changes}
        return SearchClient(instance(**settings), sleep=never)

    return open_client


@pytest.fixture
def sent(monkeypatch):
    """Every request that leaves, as (method, path, body)."""
    requests = []
    send = Transport.send

    def record(self, session, method, path, **arguments):
        requests.append((method, path, arguments["json"]))
        return send(self, session, method, path, **arguments)

    monkeypatch.setattr(Transport, "send", record)
    return requests


@contextmanager
def bucket_limit(engine, limit):
    def put(value):
        engine.request("PUT", "_cluster/settings", json={"transient": {"search.max_buckets": value}})

    put(limit)
    try:
        yield
    finally:
        put(None)


# Counts, held against plain Python


def values(document, field) -> set[str]:
    value = document.get(field, {}).get("name", [])
    return {value} if isinstance(value, str) else set(value)


def counted(documents, day, timezone):
    """Matching, lacking a user, lacking a host, and the pairs of a day, straight from the documents."""
    zone = ZoneInfo(timezone)
    of_day = [d for d in documents if datetime.fromisoformat(d["@timestamp"]).astimezone(zone).date() == day]
    blank = {"", "-"}
    pairs = Counter(
        pair
        for document in of_day
        for pair in product(values(document, "agent") - blank, values(document, "user") - blank)
    )
    lacking = (sum(not values(d, field) - blank for d in of_day) for field in ("user", "agent"))
    return len(of_day), *lacking, sorted((*pair, count) for pair, count in pairs.items())


def random_documents(days, timezone, seed=1) -> Iterator[dict[str, Any]]:
    """Events around some days, many of them within a millisecond of a midnight."""
    rng = random.Random(seed)  # noqa: S311  (test data, no secret)
    hosts = ["PC-1", "pc-1", "PC-2.corp.example", "FS03", ["FS03", "FS04"], "", "-", None]
    users = ["ann", "Ann", "CORP\\ann", "bob", "jörg", ["ann", "bob"], ["ann", "ann"], "", "-", None]
    hours = (days[-1] - days[0]).days * 24 + 72
    start = datetime.combine(days[0] - timedelta(days=1), datetime.min.time(), ZoneInfo(timezone))
    midnights = [
        datetime.combine(day, datetime.min.time(), ZoneInfo(timezone)).astimezone(UTC)
        for day in [*days, days[-1] + timedelta(days=1)]
    ]
    for _ in range(800):
        at = start.astimezone(UTC) + timedelta(milliseconds=rng.randrange(hours * 3_600_000))
        if rng.random() < 0.2:
            at = rng.choice(midnights) + timedelta(milliseconds=rng.choice([-1, 0, 1]))
        yield event(rng.choice(hosts), rng.choice(users), at.isoformat(timespec="milliseconds"))


@pytest.mark.parametrize(
    ("timezone", "first"),
    [
        ("UTC", DAY),
        ("Europe/Berlin", date(2026, 3, 28)),  # 23 hours on the 29th
        ("America/Havana", date(2026, 10, 31)),  # midnight comes twice on the 1st
        ("America/Sao_Paulo", date(2018, 11, 3)),  # the 4th begins at one o'clock
        ("Pacific/Apia", date(2011, 12, 29)),  # there was no 30th
        ("Asia/Kathmandu", DAY),
    ],
)
def test_counts_are_those_of_the_documents(engine, client, index, timezone, first):
    days = [first + timedelta(days=number) for number in range(3)]
    documents = list(random_documents(days, timezone))
    engine.load(index, MAPPING, documents)
    with client(scan={"timezone": timezone}) as logons:
        found = list(logons.logons(days))
        totals = logons.totals(days[0], days[-1])
    assert [day.day for day in found] == days
    expected = [counted(documents, day, timezone) for day in days]
    for day, (matching, lacking_user, lacking_host, pairs) in zip(found, expected, strict=True):
        assert (day.matching, day.lacking_user, day.lacking_host) == (matching, lacking_user, lacking_host)
        assert rows(day) == pairs
    assert totals == tuple(sum(day[number] for day in expected) for number in range(3))
    assert sum(day.matching for day in found) > 200


def test_a_document_with_several_users_counts_once_for_each(engine, client, index):
    documents = [event("PC", ["ann", "bob", "-"]), event("PC", ["ann", "ann"]), event(["PC", "FS"], "ann")]
    engine.load(index, MAPPING, documents)
    with client() as logons:
        (day,) = logons.logons([DAY])
    assert day.matching == 3
    assert rows(day) == [("FS", "ann", 1), ("PC", "ann", 3), ("PC", "bob", 1)]


def kind(value, host="PC", user="ann"):
    """A logon event of a kind; None leaves the field out."""
    return event(host, user) | ({} if value is None else {"winlog": {"logon": {"type": value}}})


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_kinds_of_logon_are_counted_apart_and_documents_without_one_too(
    engine, client, index, monkeypatch, size
):
    monkeypatch.setattr(search, "MAX_PAGE", size)  # the kind, or none, is where a next page begins
    documents = [kind("Interactive")] * 3 + [kind("Network"), kind(None), kind(None), kind("Unlock", "FS")]
    documents += [kind(["Interactive", "Unlock"]), kind(None, "FS", ["ann", "bob"]), kind("", "FS")]
    engine.load(index, MAPPING, documents)
    with client(logon_type_field="winlog.logon.type") as logons:
        (day,) = logons.logons([DAY])
        kinds = logons.logon_types(DAY, DAY)
    found = {(*names, kind): events for *names, events, kind in day.counts.iter_rows()}
    assert found == {
        ("FS", "ann", ""): 1, ("FS", "ann", "Unlock"): 1, ("FS", "ann", None): 1, ("FS", "bob", None): 1,
        ("PC", "ann", "Interactive"): 4, ("PC", "ann", "Network"): 1, ("PC", "ann", "Unlock"): 1,
        ("PC", "ann", None): 2,
    }  # fmt: skip
    assert (day.matching, day.lacking_user, day.lacking_host, day.counts.height) == (10, 0, 0, len(found))
    assert kinds == (7, {"Interactive": 4, "Unlock": 2, "": 1, "Network": 1})


def test_a_kind_that_no_document_tells_leaves_the_counts_as_they_are(engine, client, index):
    engine.load(index, MAPPING, [event("PC", "ann")] * 2)
    for field in ("nowhere", "winlog.logon.type", "winlog"):
        with client(logon_type_field=field) as logons:
            (day,) = logons.logons([DAY])
            assert logons.logon_types(DAY, DAY) == (0, {})
        assert day.counts.rows() == [("PC", "ann", 2, None)]


def test_odd_names_come_back_as_they_are(engine, client, index, monkeypatch):
    monkeypatch.setattr(search, "MAX_PAGE", 4)  # odd names are where a next page begins, too
    odd = [
        "a\"b'c",
        "a\0b",
        "line\nbreak",
        "\u202eevil",
        "*",
        "a?b*",
        "[x]",
        "CORP\\ann",
        "é",
        "e\u0301",
        "😀",
    ]
    odd += [".", " ", " padded ", "null", "{}", "a" * 1024, "ü" * 1024, "\u2028", "tab\tbed", "%41", "${x}"]
    too_long = "x" * 10_000  # over ignore_above: the index does not hold it
    documents = [event(name, name) for name in odd] + [event("PC", too_long), event(too_long, "ann")]
    engine.load(index, MAPPING, documents)
    with client() as logons:
        (day,) = logons.logons([DAY])
    assert rows(day) == sorted((name, name, 1) for name in odd)
    assert (day.matching, day.lacking_user, day.lacking_host) == (len(odd) + 2, 1, 1)


def test_fields_of_other_types_are_counted_as_text(engine, client, index, monkeypatch):
    monkeypatch.setattr(search, "MAX_PAGE", 1)  # each value is where a next page begins
    given = {
        "long": {5: "5", -7: "-7"},
        "unsigned_long": {2**64 - 1: "18446744073709551615", 7: "7"},
        "double": {1.5: "1.5", 2.25: "2.25"},
        "boolean": {True: "true", False: "false"},
        "ip": {"10.0.0.1": "10.0.0.1", "::1": "::1"},
        "date": {"2026-01-01": "1767225600000", "2026-01-02": "1767312000000"},
        "wildcard": {"ann": "ann", "bob": "bob"},
    }
    mapping = {"user": {"type": "keyword"}, "name": {"properties": {kind: {"type": kind} for kind in given}}}
    documents = [
        {"@timestamp": NOON, "user": "ann", "name": {kind: value}}
        for kind, values_of_kind in given.items()
        for value in values_of_kind
    ]
    engine.load(index, {"mappings": {"properties": mapping}}, documents)
    for kind, texts in given.items():
        with client(user_field="user", hostname_field=f"name.{kind}") as logons:
            (day,) = logons.logons([DAY])
        assert rows(day) == [(text, "ann", 1) for text in sorted(texts.values())]
        assert (day.matching, day.lacking_host) == (len(documents), len(documents) - len(texts))


@pytest.mark.parametrize("field", ["nowhere", "user", "user.domain"])
def test_a_field_that_no_document_carries_is_lacking_in_each(engine, client, index, field):
    """No such field, a field that only holds others, a field of the mapping without values."""
    engine.load(index, MAPPING, [event("PC", "ann"), event("PC", "bob")])
    with client(user_field=field) as logons:
        (day,) = logons.logons([DAY])
        assert logons.totals(DAY, DAY) == (2, 2, 0)
    assert (day.matching, day.lacking_user, day.lacking_host, rows(day)) == (2, 2, 0, [])


def test_a_field_name_may_hold_any_characters(engine, client, index):
    documents = [{"@timestamp": NOON, "the host:*": "PC", 'user "n"': name} for name in ("ann", "bob")]
    engine.load(index, MAPPING, documents)
    with client(hostname_field="the host:*", user_field='user "n"') as logons:
        (day,) = logons.logons([DAY])
    assert (rows(day), day.lacking_user, day.lacking_host) == ([("PC", "ann", 1), ("PC", "bob", 1)], 0, 0)


# What is searched


@pytest.mark.parametrize(
    "query",
    [
        "event.code:4624 AND NOT user.name:bob",
        '{"bool": {"filter": {"term": {"event.code": "4624"}}, "must_not": {"term": {"user.name": "bob"}}}}',
        {"bool": {"must": [{"term": {"event.code": 4624}}, {"terms": {"user.name": ["ann"]}}]}},
    ],
)
def test_a_query_is_lucene_syntax_or_query_dsl(engine, client, index, query):
    documents = [event("PC", "ann"), event("PC", "bob"), event("FS", "ann")]
    codes = ["4624", "4624", "4625"]
    engine.load(
        index,
        MAPPING,
        [document | {"event": {"code": code}} for document, code in zip(documents, codes, strict=True)],
    )
    with client(query=query) as logons:
        (day,) = logons.logons([DAY])
    assert (day.matching, rows(day)) == (1, [("PC", "ann", 1)])


@pytest.mark.parametrize(
    ("suffix", "pattern"),
    [
        ("-a", "{}-a,{}-b"),
        ("-a", "{}-*,-{}-c"),
        ("-2026", "<{}-{{now/y{{yyyy|UTC}}}}>,{}-b"),  # date mathematics
    ],
)
def test_an_index_may_be_any_expression_the_service_knows(engine, client, index, suffix, pattern):
    if "now" in pattern:
        suffix = f"-{datetime.now(UTC).year}"
    for name, user in ((suffix, "ann"), ("-b", "bob"), ("-c", "eve")):
        engine.load(index + name, MAPPING, [event("PC", user)])
    with client(index=pattern.format(index, index)) as logons:
        (day,) = logons.logons([DAY])
    assert rows(day) == [("PC", "ann", 1), ("PC", "bob", 1)]


def test_an_empty_index_and_a_pattern_without_index_give_empty_days(engine, client, index):
    engine.load(index, MAPPING, [])
    for pattern in (index, f"{index}-none-*"):
        with client(index=pattern) as logons:
            (day,) = logons.logons([DAY])
            assert (day.matching, day.lacking_user, day.lacking_host, rows(day)) == (0, 0, 0, [])
            assert logons.totals(DAY, DAY) == (0, 0, 0)


@pytest.mark.parametrize(
    ("time_field", "undated"),
    [("@timestamp", 0), ("event.created", 3), ("event.sometimes", 0)],
)
def test_documents_that_lie_on_no_day_are_counted_when_none_lies_on_one(
    engine, client, index, time_field, undated
):
    documents = [event("PC", "ann"), event("PC", "bob"), event("FS", "ann"), event("FS", "eve")]
    documents[0] |= {"event": {"sometimes": NOON}}
    engine.load(index, MAPPING, documents)
    with client(time_field=time_field, query="NOT user.name:eve") as logons:
        assert logons.undated() == undated
    with client(index=f"{index}-none-*", time_field=time_field) as logons:
        assert logons.undated() == 0


def forwarded(agent, host, at=NOON):
    return event(agent, "alice", at) | {"host": {"name": host}}


def test_senders_are_told_with_the_hosts_they_send_for(engine, client, index):
    documents = [forwarded("ws1", "ws1")] * 3 + [forwarded("collector", f"pc{n}") for n in range(12)]
    engine.load(
        index, MAPPING, [*documents, forwarded("ws2", "ws2", "2026-03-03T12:00:00Z"), event("ws3", "bob")]
    )
    with client() as search_client:
        matching, senders = search_client.senders(DAY)
    assert matching == 16
    assert senders.select("document_hostname", "events").rows() == [("collector", 12), ("ws1", 3), ("ws3", 1)]
    assert [len(names) for names in senders["host_names"]] == [10, 1, 0]
    assert senders["host_names"][1].to_list() == ["ws1"]


def test_a_day_or_a_pattern_without_documents_has_no_senders(engine, client, index):
    engine.load(index, MAPPING, [])
    for pattern in (index, f"{index}-none-*"):
        with client(index=pattern) as search_client:
            matching, senders = search_client.senders(DAY)
        assert matching == 0
        assert senders.is_empty()


def test_nothing_but_searches_of_the_index_is_asked_for(engine, client, index, sent):
    engine.load(index, MAPPING, [event("PC", "ann")])
    with client() as logons:
        list(logons.logons([DAY]))
        logons.totals(DAY, DAY)
    assert {(method, path) for method, path, _ in sent} == {("POST", f"/{index}/_search")}
    assert {key for *_, body in sent for key in body} == {"size", "track_total_hits", "query", "aggs"}


# Pages, days, requests


@pytest.mark.parametrize(("size", "pages"), [(1, 13), (4, 4), (6, 3), (11, 2), (12, 2), (13, 1)])
def test_pages_follow_each_other_without_gap_or_repetition(
    engine, client, index, sent, monkeypatch, size, pages
):
    monkeypatch.setattr(search, "MAX_PAGE", size)
    documents = [event(f"PC-{host}", f"user-{user}") for host in range(4) for user in range(3)] * 2
    engine.load(index, MAPPING, documents)
    with client() as logons:
        (day,) = logons.logons([DAY])
    assert rows(day) == [(f"PC-{host}", f"user-{user}", 2) for host in range(4) for user in range(3)]
    assert (day.matching, len(sent)) == (24, 1 + pages)


def test_pages_and_survey_adapt_to_the_clusters_bucket_limit(engine, client, index, sent):
    days = [DAY - timedelta(days=number) for number in range(1_000)]
    engine.load(index, MAPPING, [event(f"PC-{number:03}", "ann") for number in range(400)])
    with bucket_limit(engine, 150), client() as logons:
        found = list(logons.logons(days))
        learnt = len(sent)
        again = list(logons.logons([DAY]))
    assert rows(found[0]) == rows(again[0]) == [(f"PC-{number:03}", "ann", 1) for number in range(400)]
    assert not any(day.matching for day in found[1:])
    assert len(sent) - learnt == 1 + 5  # the size found is kept: four pages of 100, and an empty one


def test_a_bucket_limit_that_no_page_fits_is_told(engine, client, index):
    engine.load(index, MAPPING, [event("PC", "ann"), event("PC", "bob")])
    with (
        bucket_limit(engine, 50),
        client() as logons,
        pytest.raises(ProtocolError, match=r"pages of 100 buckets are refused.*max_buckets"),
    ):
        list(logons.logons([DAY]))


def test_a_sparse_range_of_3000_days_costs_few_requests(engine, client, index, sent):
    days = [DAY - timedelta(days=number) for number in reversed(range(3_000))]
    busy = [days[0], days[999], days[1000], days[2_500], days[-1]]
    engine.load(index, MAPPING, [event("PC", "ann", f"{day}T12:00:00Z") for day in busy])
    with client() as logons:
        found = list(logons.logons(days))
    assert [day.day for day in found] == days
    assert [day.day for day in found if day.matching] == busy
    assert len(sent) == 3 + len(busy)


def test_days_come_in_the_order_asked_for(engine, client, index):
    days = [DAY, DAY - timedelta(days=40), DAY + timedelta(days=3)]
    engine.load(index, MAPPING, [event("PC", "ann", f"{day}T12:00:00Z") for day in days[1:]])
    with client() as logons:
        assert [(day.day, day.matching) for day in logons.logons(days)] == list(
            zip(days, [0, 1, 1], strict=True)
        )
        assert list(logons.logons([])) == []


# What the operator has to mend


@pytest.fixture(scope="module")
def plain(engine):
    """An index of one event; its names are keywords with text fields below."""
    words = {kind: {"type": kind} for kind in ("text", "match_only_text")}
    name = {"properties": {"name": {"type": "keyword", "fields": words}}}
    properties = {"agent": name, "user": name, "place": {"type": "geo_point"}, "port": {"type": "long"}}
    engine.load(
        "logs-search-plain", {"mappings": {"properties": properties}}, [event("PC", "ann") | {"port": 1}]
    )
    return "logs-search-plain"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("event.code:(4624", "Cannot parse"),
        ('{"nope": {}}', "unknown query"),
        ('{"query": {"match_all": {}}}', "unknown query"),
        ('{"bool": []}', "malformed"),
        ('{"term": {"port": "many"}}', "many"),
    ],
)
def test_a_query_the_service_does_not_understand_is_named(plain, client, query, reason):
    with client(index=plain, query=query) as logons, pytest.raises(ConfigurationError) as raised:
        list(logons.logons([DAY]))
    message = str(raised.value)
    assert message.startswith(f"query: {query!r} is refused")
    assert reason in message
    assert "\n" not in message


def test_a_named_index_that_does_not_exist_is_named(client, index):
    with client() as logons, pytest.raises(ConfigurationError, match=rf"^index: '{index}' names an index"):
        list(logons.logons([DAY]))


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("user_field", "user.name.text"),
        ("user_field", "user.name.match_only_text"),
        ("hostname_field", "agent.name.text"),
        ("logon_type_field", "agent.name.text"),
    ],
)
def test_a_text_field_is_named_with_its_remedy(plain, client, setting, field):
    with client(index=plain, **{setting: field}) as logons:
        for call in (lambda: list(logons.logons([DAY])), lambda: logons.totals(DAY, DAY)):
            with pytest.raises(ConfigurationError, match=rf"^{setting}: '{field}' is a text field.*keyword"):
                call()


def test_a_field_that_is_text_in_one_index_only_is_named(engine, client, index):
    engine.load(f"{index}-1", MAPPING, [event("PC", "ann")])
    engine.load(f"{index}-2", {"mappings": {"properties": {}}}, [event("PC", "bob")])  # guessed: text
    told = rf"_field: '.* is a text field in the index {index}-2, .* leave that one out of index"
    with client(index=f"{index}-*") as logons, pytest.raises(ConfigurationError, match=told):
        list(logons.logons([DAY]))


@pytest.mark.parametrize(
    "change", [{"time_field": "user.name"}, {"user_field": "place"}, {"logon_type_field": "place"}]
)
def test_a_field_of_an_unusable_type_is_a_setting_to_mend(plain, client, change):
    with (
        client(index=plain, **change) as logons,
        pytest.raises(ConfigurationError, match=rf"check .*{next(iter(change))}"),
    ):
        list(logons.logons([DAY]))


def test_a_wrong_password_names_the_settings_and_is_not_shown(client, tmp_path):
    (tmp_path / "password").write_text("hunter2")
    with (
        client(password={"file": str(tmp_path / "password")}) as logons,
        pytest.raises(AuthenticationError, match="username and password") as raised,
    ):
        list(logons.logons([DAY]))
    assert "hunter2" not in str(raised.value)


def test_an_index_the_user_may_not_read_is_named_with_the_privileges(client):
    with (
        client(index="secrets") as logons,
        pytest.raises(PermissionDeniedError, match=r"may not search secrets.*read and view_index_metadata"),
    ):
        list(logons.logons([DAY]))


def test_a_certificate_of_an_unknown_authority_names_ca_file(client):
    with client(ca_file=None) as logons, pytest.raises(AuthenticationError, match="Set ca_file"):
        list(logons.logons([DAY]))


# Answers a healthy engine never gives

SHARDS = {"total": 2, "successful": 2, "skipped": 0, "failed": 0}
CLUSTERS = {"total": 2, "successful": 2, "skipped": 0, "running": 0, "partial": 0, "failed": 0, "details": {}}
SURVEY = {
    "took": 1,
    "timed_out": False,
    "_shards": SHARDS,
    "hits": {"max_score": None, "hits": []},
    "aggregations": {
        "days": {
            "buckets": [{"key": "2026-03-02", "from": 1.7724096e12, "to": 1.772496e12, "doc_count": 4}],
        }
    },
}
CARRIED = {
    "hostname": {"doc_count": 4, "absent": {"doc_count": 0}},
    "username": {"doc_count": 4, "absent": {"doc_count": 1}},
}
PAGE = {
    "took": 2,
    "timed_out": False,
    "_shards": SHARDS,
    "hits": {"total": {"value": 4, "relation": "eq"}, "max_score": None, "hits": []},
    "aggregations": CARRIED
    | {
        "pairs": {
            "after_key": {"hostname": "PC", "username": "ann"},
            "buckets": [{"key": {"hostname": "PC", "username": "ann"}, "doc_count": 3}],
        },
    },
}


def error(kind, reason, status, **root):
    """An error answer as Elasticsearch and OpenSearch write them: a type outside, its causes inside."""
    causes = [{"type": kind, "reason": reason, **root}]
    shards = [{"shard": 0, "index": "logs-1", "node": "n", "reason": causes[0]}]
    body = {
        "error": {
            "root_cause": causes,
            "type": "search_phase_execution_exception",
            "reason": "all shards failed" if status < 500 else "",
            "phase": "query",
            "grouped": True,
            "failed_shards": shards if status < 500 else [],
            "caused_by": causes[0],
        },
        "status": status,
    }
    return Reply(json.dumps(body).encode(), status)


def good(body):
    return Reply(json.dumps(body).encode())


class Service(Stub):
    """A search service that gives the replies in this order, the last one for ever."""

    def __init__(self, *replies):
        left = list(replies)
        super().__init__(lambda _: left.pop(0) if len(left) > 1 else left[0])
        self.naps = []

    def client(self, **changes):
        return SearchClient(instance(url=self.url, **changes), sleep=self.naps.append)


def both_days_at_once():
    """A search service that answers for two days at the same moment, again and again."""
    survey: dict[str, Any] = copy.deepcopy(SURVEY)
    buckets = survey["aggregations"]["days"]["buckets"]
    buckets.append(buckets[0] | {"key": "2026-03-03"})
    both_there = threading.Barrier(2, timeout=10)

    def answer(_):
        if len(stub.requests) % 3 == 1:
            return good(survey)
        both_there.wait()
        return good(PAGE)

    return (stub := Stub(answer))


FIRST_ANSWERS = """
import importlib, sys
from datetime import date
from resources.search import client
from tests.resources.samples import instance

sys.setswitchinterval(1e-6)
for _ in range(20):
    importlib.reload(client)  # its types of answers are new ones, as in a new process
    with client.SearchClient(instance(url=sys.argv[1])) as logons:
        assert [day.matching for day in logons.logons([date(2026, 3, 2), date(2026, 3, 3)])] == [4, 4]
"""


@pytest.fixture
def password(monkeypatch):
    monkeypatch.setenv("SEARCH_PASSWORD", "pass wörd")


@pytest.mark.usefixtures("password")
class TestAnswers:
    def test_answers_of_all_supported_versions_are_read(self):
        """7 says no more; from 8 on `_clusters` may come along; a page without buckets has no after_key."""
        for last in (PAGE, PAGE | {"_clusters": CLUSTERS}, PAGE | {"num_reduce_phases": 2}):
            with Service(good(SURVEY), good(last)) as service, service.client() as logons:
                (day,) = logons.logons([DAY])
            assert (day.matching, day.lacking_user, day.lacking_host) == (4, 1, 0)
            assert rows(day) == [("PC", "ann", 3)]
            assert day.counts.schema == {
                "document_hostname": pl.String,
                "document_username": pl.String,
                "events": pl.Int64,
            }
        without_pairs = PAGE | {"aggregations": CARRIED | {"pairs": {"buckets": []}}}
        with Service(good(without_pairs)) as service, service.client() as logons:
            assert logons.totals(DAY, DAY) == (4, 1, 0)

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ({"_shards": SHARDS | {"successful": 1, "failed": 1}}, "1 shards failed"),
            ({"timed_out": True}, "the search timed out"),
            ({"_clusters": CLUSTERS | {"successful": 1, "skipped": 1}}, "1 clusters skipped"),
            ({"_clusters": CLUSTERS | {"successful": 0, "partial": 2}}, "2 clusters partial"),
            ({"_clusters": CLUSTERS | {"failed": 1}}, "1 clusters failed"),
        ],
    )
    @pytest.mark.parametrize("place", ["survey", "page"])
    def test_an_incomplete_answer_is_no_evidence(self, fault, reason, place):
        replies = [good(SURVEY | fault)] if place == "survey" else [good(SURVEY), good(PAGE | fault)]
        with (
            Service(*replies) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match=rf"answered incompletely \({reason}\)"),
        ):
            list(logons.logons([DAY]))
        assert service.naps == []

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(b"<html><title>Dashboards</title></html>"),
            Reply(b"<html>Not Found</html>", 404),
            Reply(b'{"statusCode":400,"error":"Bad Request","message":"kbn-xsrf header is missing"}', 400),
            Reply(b'{"error":"no handler found for uri [/logs-*/_search] and method [POST]"}', 400),
            Reply(b""),
            Reply(b"null"),
            Reply(b"[]"),
            Reply(b"{}"),
            Reply(b'{"status":true,"message":null,"data":{}}'),
            Reply(b"\xff\xfe{"),
            Reply(b'{"took":' + b"[" * 100_000),
            Reply(b'{"error":' + b"[" * 100_000, 400),
            Reply(b'{"took":' + b"[" * 900 + b"]" * 900 + b"}"),
            Reply(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}", 400),
        ],
    )
    def test_what_is_no_search_service_is_told_with_what_it_said(self, reply):
        with (
            Service(reply) as service,
            service.client() as logons,
            pytest.raises(
                ProtocolError, match=rf"{service.url} does not answer as a search service; url"
            ) as raised,
        ):
            list(logons.logons([DAY]))
        assert reply.body[:20].decode(errors="replace") in str(raised.value)
        assert len(service.requests) == 1

    @pytest.mark.parametrize(
        ("place", "count", "told"),
        [
            ("pairs", 0, "Expected `int` >= 1 "),
            ("pairs", -1, "Expected `int` >= 1 "),
            ("pairs", 2**63, "Expected `int` <= "),
            ("pairs", 10**400, "Expected `int` <= "),
            ("pairs", 1.5, "got `float`"),
            ("pairs", "3", "got `str`"),
            ("hostname", -1, "Expected `int` >= 0 "),
            ("username", 2**63, "Expected `int` <= "),
            ("total", 2**64, "Expected `int` <= "),
        ],
    )
    def test_a_count_that_cannot_be_is_told_without_names(self, place, count, told):
        page: Any = copy.deepcopy(PAGE)
        if place == "total":
            page["hits"]["total"]["value"] = count
        else:
            part = page["aggregations"][place]
            (part["buckets"][0] if place == "pairs" else part)["doc_count"] = count
        with (
            Service(good(SURVEY), good(page)) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match="gave a response that is no search result") as raised,
        ):
            list(logons.logons([DAY]))
        assert told in str(raised.value)
        assert not any(name in str(raised.value) for name in ("PC", '"ann"'))

    @pytest.mark.parametrize(
        ("count", "matching", "told"),
        [
            (5, 4, "counted 4 documents of 2026-03-02, 1 of them without a user and 0 without a host, but"),
            (3, 5, "with 3 of them, the most frequent one with 3, which is no evidence"),
        ],
        ids=["a pair of more documents than there are", "pairs that leave documents out"],
    )
    def test_counts_that_contradict_each_other_are_no_evidence(self, count, matching, told):
        page: Any = copy.deepcopy(PAGE)
        page["hits"]["total"]["value"] = matching
        page["aggregations"]["hostname"]["doc_count"] = matching
        page["aggregations"]["username"]["doc_count"] = matching
        page["aggregations"]["pairs"]["buckets"][0]["doc_count"] = count
        with (
            Service(good(SURVEY), good(page)) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match=told),
        ):
            list(logons.logons([DAY]))

    def test_pages_without_end_are_no_evidence(self, monkeypatch):
        monkeypatch.setattr(search, "MAX_PAGE", 1_500)
        pages = count()

        def answer(_):
            if (number := next(pages)) == 0:
                return good(SURVEY)
            page: Any = copy.deepcopy(PAGE)
            pairs = [{"hostname": f"pc-{number}", "username": f"u-{user}"} for user in range(1_500)]
            page["aggregations"]["pairs"] = {
                "after_key": pairs[-1],
                "buckets": [{"key": pair, "doc_count": 1} for pair in pairs],
            }
            return good(page)

        with (
            Stub(answer) as service,
            SearchClient(instance(url=service.url)) as logons,
            pytest.raises(ProtocolError, match="without end: 4500 so far, of 4 documents"),
        ):
            list(logons.logons([DAY]))

    @pytest.mark.parametrize("replies", [[SURVEY], [SURVEY, PAGE]], ids=["survey", "page"])
    def test_an_answer_without_aggregations_is_no_evidence_unless_there_is_no_index(self, replies):
        *before, last = replies
        bare = {name: part for name, part in last.items() if name != "aggregations"}
        with (
            Service(*map(good, before), good(bare)) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match=r"searched 2 shards and answered without what was to be"),
        ):
            list(logons.logons([DAY]))

    @pytest.mark.parametrize(
        "body",
        [
            json.dumps(PAGE)[:-10],
            json.dumps(PAGE | {"timed_out": "no"}),
            json.dumps(PAGE)[:-1] + ', "more": ' + "[" * 100_000,
            json.dumps({"aggregations": PAGE["aggregations"]}),
        ],
        ids=["cut", "odd", "deep", "bare"],
    )
    def test_what_is_nearly_a_search_service_is_told_without_names(self, body):
        with (
            Service(good(SURVEY), Reply(body.encode())) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match="gave a response that is no search result") as raised,
        ):
            list(logons.logons([DAY]))
        assert not any(name in str(raised.value) for name in ("PC", '"ann"'))

    def test_days_that_were_not_asked_for_are_none(self):
        days = [{"key": key, "doc_count": 1} for key in ("2026-03-01", "someday", 7)]
        with (
            Service(good(SURVEY | {"aggregations": {"days": {"buckets": days}}})) as service,
            service.client() as logons,
        ):
            (day,) = logons.logons([DAY])
        assert day.matching == 0

    @pytest.mark.parametrize(
        "pages",
        [
            [(["ann", "bob"], "bob"), (["ann", "bob"], "bob")],
            [(["ann", "bob"], "bob"), (["cyd", "dan"], "bob")],
            [(["ann", "bob"], "bob"), (["cyd", "dan"], "dan"), (["ann", "bob"], "bob")],
            [(["ann", "bob"], "k1"), (["ann", "bob"], "k2")],
            [(["ann", "bob"], "bob"), (["bob"], "bob")],
            [(["ann", "bob"], "bob"), (["bob", "cyd"], "cyd"), ([], None)],
            [(["ann", "ann"], "ann"), ([], None)],
        ],
        ids=["repeated", "standing", "circling", "repeated under new keys", "overlap", "middle", "one page"],
    )
    def test_pages_that_do_not_move_on_are_no_evidence(self, monkeypatch, pages):
        monkeypatch.setattr(search, "MAX_PAGE", 2)

        def page(users, after):
            buckets = [{"key": {"hostname": "PC", "username": user}, "doc_count": 1} for user in users]
            end = {"after_key": {"hostname": "PC", "username": after}} if after else {}
            pairs = {"buckets": buckets, **end}
            return good(PAGE | {"aggregations": CARRIED | {"pairs": pairs}})

        with (
            Service(good(SURVEY), *(page(*one) for one in pages)) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match="gave pairs of host and user of 2026-03-02 twice") as raised,
        ):
            list(logons.logons([DAY]))
        assert len(service.requests) <= 1 + len(pages)
        assert not any(name in str(raised.value) for name in ("PC", '"ann"'))

    @pytest.mark.parametrize(
        ("kind", "reason", "status"),
        [
            (
                "too_many_buckets_exception",
                "Trying to create too many buckets. Must be less than or equal to: [10000] but was [10001].",
                503,  # Elasticsearch 7, OpenSearch
            ),
            (
                "too_many_buckets_exception",
                "Trying to create too many buckets. Must be less than or equal to: [65536] but was [65537].",
                400,  # Elasticsearch 8 and 9
            ),
        ],
    )
    def test_the_bucket_limit_is_recognized_whatever_the_status(self, kind, reason, status):
        replies = [good(SURVEY), error(kind, reason, status), good(PAGE)]
        with Service(*replies) as service, service.client() as logons:
            (day,) = logons.logons([DAY])
        assert day.matching == 4
        assert (len(service.requests), service.naps) == (3, [])

    def test_a_busy_service_is_asked_again_when_it_said(self):
        busy = Reply(b'{"error":{"type":"circuit_breaking_exception"}}', 429, {"Retry-After": "7"})
        with Service(busy, good(SURVEY), busy, good(PAGE)) as service, service.client() as logons:
            (day,) = logons.logons([DAY])
        assert day.matching == 4
        assert [int(nap) for nap in service.naps] == [7, 7]

    def test_a_broken_answer_is_asked_for_again(self):
        broken = Reply(headers={"Content-Length": "1000"}, write=lambda out: out.write(b'{"timed_out":fal'))
        with Service(broken, good(SURVEY), broken, good(PAGE)) as service, service.client() as logons:
            (day,) = logons.logons([DAY])
        assert (day.matching, len(service.naps)) == (4, 2)

    def test_a_service_that_stays_down_is_told_after_bounded_tries(self):
        with (
            Service(Reply(b"<html>no upstream</html>", 503)) as service,
            service.client() as logons,
            pytest.raises(TransientError, match="HTTP status 503: <html>no upstream"),
        ):
            list(logons.logons([DAY]))
        assert len(service.requests) == 5

    @pytest.mark.parametrize(
        ("reply", "kind", "says"),
        [
            (Reply(b"Unauthorized", 401), AuthenticationError, "check username and password"),
            (
                error("security_exception", "action is unauthorized", 403),
                PermissionDeniedError,
                "may not search",
            ),
            (
                error("index_not_found_exception", "no such index [logs]", 404, index="logs"),
                ConfigurationError,
                "index: 'logs-*' names an index",
            ),
            (
                error(
                    "illegal_argument_exception",
                    "Fielddata is disabled on [user.name] in [logs-1]. Text fields are not optimised for "
                    "operations that require per-document field data like aggregations and sorting, so these "
                    "operations are disabled by default. Please use a keyword field instead.",
                    400,
                ),
                ConfigurationError,
                "user_field: 'user.name' is a text field in the index logs-1, which",
            ),
            (
                error(
                    "illegal_argument_exception",
                    "match_only_text fields do not support sorting and aggregations",
                    400,
                ),
                ConfigurationError,
                "in the index logs-1; check index, query, time_field, hostname_field and user_field",
            ),
            (error("parsing_exception", "unknown query [x]", 400), ConfigurationError, "query: "),
            (error("index_closed_exception", "closed", 400), ConfigurationError, "check index, query"),
        ],
    )
    def test_errors_of_elasticsearch_become_settings_to_mend(self, reply, kind, says):
        with Service(reply) as service, service.client() as logons, pytest.raises(kind) as raised:
            list(logons.logons([DAY]))
        assert says in str(raised.value)
        assert (len(service.requests), service.naps) == (1, [])

    def test_an_index_that_vanishes_after_the_survey_is_told(self):
        nothing = {"total": 0, "failed": 0}
        gone = {name: value for name, value in PAGE.items() if name != "aggregations"} | {"_shards": nothing}
        with (
            Service(good(SURVEY), good(gone)) as service,
            service.client() as logons,
            pytest.raises(ProtocolError, match="was deleted while 2026-03-02 was counted"),
        ):
            list(logons.logons([DAY]))

    def test_credentials_and_cookies_are_sent_with_each_request(self, monkeypatch):
        monkeypatch.setenv("ROUTE", "blue")
        cookies = {"route": {"env": "ROUTE"}}
        with Service(good(SURVEY), good(PAGE)) as service, service.client(cookies=cookies) as logons:
            list(logons.logons([DAY]))
        assert [request.cookies for request in service.requests] == [{"route": "blue"}] * 2
        assert {request.headers["Authorization"] for request in service.requests} == {
            "Basic b3duZXItc2VhcmNoOnBhc3Mgd8O2cmQ="  # in UTF-8
        }

    def test_partial_results_are_refused_beforehand(self):
        with Service(good(SURVEY), good(PAGE)) as service, service.client() as logons:
            list(logons.logons([DAY]))
        assert {request.query["allow_partial_search_results"] for request in service.requests} == {"false"}

    def test_an_unset_secret_is_told_at_the_opening(self):
        with pytest.raises(ConfigurationError, match=r"^cookies\.route: .*ROUTE is not set"):
            SearchClient(instance(cookies={"route": {"env": "ROUTE"}}))

    def test_two_days_are_on_their_way_at_once_and_never_more(self):
        days = [DAY + timedelta(days=number) for number in range(8)]
        survey = json.loads(json.dumps(SURVEY))
        bucket = survey["aggregations"]["days"]["buckets"][0]
        survey["aggregations"]["days"]["buckets"] = [bucket | {"key": day.isoformat()} for day in days]
        both_there = threading.Barrier(2, timeout=10)
        counting, asked, most = threading.Lock(), 0, 0

        surveyed = threading.Event()

        def answer(_):
            nonlocal asked, most
            if not surveyed.is_set():
                surveyed.set()
                return good(survey)
            with counting:
                asked += 1
                most = max(most, asked)
            both_there.wait()
            time.sleep(0.02)
            with counting:
                asked -= 1
            return good(PAGE)

        with Stub(answer) as stub, SearchClient(instance(url=stub.url), sleep=never) as logons:
            assert [day.day for day in logons.logons(days)] == days
        assert most == 2

    def test_a_process_survives_when_its_first_answers_come_at_once(self):
        """The types of answers were made known to msgspec by two threads at once: a crash of the process."""
        with both_days_at_once() as stub:
            process = subprocess.run(  # noqa: S603 (ours)
                [sys.executable, "-c", FIRST_ANSWERS, stub.url], cwd=ROOT, timeout=120, check=False
            )
        assert process.returncode == 0

    def test_an_empty_day_is_dated_before_it_was_looked_at(self):
        """A later date could settle a day that was not over when its emptiness was seen."""
        answered = []

        def answer(_):
            answered.append(datetime.now(UTC))
            return good(SURVEY | {"aggregations": {"days": {"buckets": []}}})

        with Stub(answer) as stub, SearchClient(instance(url=stub.url), sleep=never) as logons:
            (day,) = logons.logons([DAY])
        assert day.matching == 0
        assert day.fetched_at <= answered[0]
