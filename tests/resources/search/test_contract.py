"""The search client on the real engine, as the reader who has nothing but the two privileges."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError, ProtocolError
from resources.search import logons as search
from resources.search.explaining import find_times
from sandbox.logons import MAPPING
from tests.resources.search.documents import DAY, NOON, ZONES, counted, event, found, random_documents


def test_fields_of_other_types_are_counted_as_text(engine, client, index, monkeypatch):
    monkeypatch.setattr(search, "MAX_PAGE", 1)  # each value is where a next page begins
    given = {
        "long": {5: "5", -7: "-7"},
        "unsigned_long": {2**64 - 1: "18446744073709551615", 7: "7"},
        "double": {1.5: "1.5", 2.25: "2.25"},
        "boolean": {True: "true", False: "false"},
        "ip": {"10.0.0.1": "10.0.0.1", "::1": "::1"},
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
        lacking = len(documents) - len(texts)
        pairs = [(text, "ann", 1) for text in sorted(texts.values())]
        assert found(day) == (len(documents), 0, lacking, pairs)


@pytest.mark.parametrize("field", ["nowhere", "user", "user.domain"])
def test_a_field_that_no_document_carries_is_lacking_in_each(engine, client, index, field):
    """No such field, a field that only holds others, a field of the mapping without values."""
    engine.load(index, MAPPING, [event("PC", "ann"), event("PC", "bob")])
    with client(user_field=field) as logons:
        (day,) = logons.logons([DAY])
        assert logons.totals(DAY, DAY) == (2, 2, 0)
    assert found(day) == (2, 2, 0, [])


@pytest.mark.parametrize(
    "query",
    [
        "event.code:4624 AND NOT user.name:bob",
        '{"bool": {"filter": {"term": {"event.code": "4624"}}, "must_not": {"term": {"user.name": "bob"}}}}',
        {"bool": {"must": [{"term": {"event.code": 4624}}, {"terms": {"user.name": ["ann"]}}]}},
    ],
)
def test_a_query_is_lucene_syntax_or_query_dsl(engine, client, index, query):
    events = {"4624": ["ann", "bob"], "4625": ["ann"]}
    documents = [event("PC", user) | {"event": {"code": code}} for code in events for user in events[code]]
    engine.load(index, MAPPING, documents)
    with client(query=query) as logons:
        (day,) = logons.logons([DAY])
    assert found(day) == (1, 0, 0, [("PC", "ann", 1)])


def test_an_index_may_be_any_expression_the_service_knows(engine, client, index):
    year = datetime.now(UTC).year
    for name, user in ((f"-{year}", "ann"), ("-b", "bob"), ("-c", "eve")):
        engine.load(index + name, MAPPING, [event("PC", user)])
    of_this_year = "<{}-{{now/y{{yyyy|UTC}}}}>,{}-b"  # date mathematics
    for pattern in (f"{{}}-{year},{{}}-b", "{}-*,-{}-c", " {}-*, -{}-c*\n", of_this_year):
        with client(index=pattern.format(index, index)) as logons:
            (day,) = logons.logons([DAY])
        assert found(day)[3] == [("PC", "ann", 1), ("PC", "bob", 1)]


def test_an_empty_index_and_a_pattern_without_index_give_empty_days(engine, client, index):
    engine.load(index, MAPPING, [])
    for pattern in (index, f"{index}-none-*"):
        with client(index=pattern) as logons:
            (day,) = logons.logons([DAY])
            assert found(day) == (0, 0, 0, [])
            assert logons.totals(DAY, DAY) == (0, 0, 0)
            assert find_times(logons).state == "ok"
            assert logons.top_senders(DAY, DAY) is None


KEYWORD = {"type": "keyword"}


def test_counts_and_totals_are_asked_for_in_one_way(client, load):
    """Fields that cannot be searched, documents that stand for several, a name beside `-`."""
    documents = [
        {"user": "ann", "host": "PC", "_doc_count": 5},
        {"user": "-", "host": "PC"},
        {"user": "", "host": ["PC", "FS"], "_doc_count": 2},
        {"user": ["-", "bob"], "host": "PC"},
        {"host": "PC"},
        {"user": "eve"},
    ]
    unsearchable = KEYWORD | {"index": False}
    load("", documents, user=unsearchable, host=unsearchable)
    with client(user_field="user", hostname_field="host") as logons:
        (day,) = logons.logons([DAY])
        assert logons.totals(DAY, DAY) == (11, 4, 1)
    assert found(day) == (11, 4, 1, [("PC", "ann", 5), ("PC", "bob", 1)])


def test_a_red_index_is_named_and_not_asked_for_again(engine, client, index, load):
    load("-a", [{"user": "ann", "host": "PC"}], user=KEYWORD, host=KEYWORD)
    with client(index=f"{index}-*", user_field="user", hostname_field="host") as logons:
        red = {"index.routing.allocation.include._name": "nobody", "index.number_of_replicas": 0}
        engine.request("PUT", f"{index}-red?wait_for_active_shards=0", json={"settings": red})
        with pytest.raises(ProtocolError, match=f"The index {index}-red at .* is red"):
            list(logons.logons([DAY]))
    engine.request("DELETE", f"{index}-red")


def test_the_indexes_whose_documents_lack_a_field_are_named(client, load):
    old = {"user": {"type": "text", "fields": {"keyword": KEYWORD}}, "host": KEYWORD}
    load("-1", [{"user": "ann", "host": "PC"}], **old)
    index = load("-2", [{"user": "ann", "host": "PC"}] * 2 + [{"host": "PC"}], user=KEYWORD, host=KEYWORD)
    with client(user_field="user.keyword", hostname_field="host") as logons:
        assert logons.totals(DAY, DAY) == (4, 3, 0)
        why = logons.why_lacking(DAY, DAY, user=True)
        assert f"in {index} (3 of 3 documents, which have user). All" in why
        assert logons.why_lacking(DAY, DAY, user=False) == ""
    with client(user_field="nowhere", hostname_field="host") as logons:
        assert "field-level security of the role hides" in logons.why_lacking(DAY, DAY, user=True)


def test_each_clause_of_a_query_that_matches_nothing_is_counted(client, load):
    load("", [{"code": "4624", "name": "x"}] * 3, code=KEYWORD, name=KEYWORD)
    for query in ("code:4624 AND NOT name:x", {"bool": {"filter": {"term": {"code": "4624"}}, "must_not": [
        {"term": {"name": "x"}}]}}):  # fmt: skip
        with client(query=query) as logons:
            why = logons.why_nothing(DAY, DAY).text
        assert re.search(
            r"found\. Of 3 documents of .* none: .*4624.* matches 3; .*x.* by itself matches 0$", why
        )
    with client(query="code:4625") as logons:
        assert logons.why_nothing(DAY, DAY).text.endswith("the query matches none")
        assert "has no documents from" in logons.why_nothing(DAY.replace(day=9), DAY.replace(day=9)).text


def test_parts_of_an_index_pattern_that_match_nothing_are_listed(client, index, load):
    load("-a", [])
    some = {f"{index}-a": [], f"{index}-b*": [], f"unknown:{index}*": [f"unknown:{index}*"]}
    some |= {f"{index}-a,unknown:-{index}-test*": []}
    some |= {f"{index}-a,{index}-b*,-{index}-c*, other:x-*": [f"{index}-b*", "other:x-*"]}
    for pattern, unmatched in some.items():
        with client(index=pattern) as logons:
            assert logons.unmatched_parts() == unmatched


@pytest.mark.parametrize(
    ("kind", "timezone", "first"), [*(("date", *zone) for zone in ZONES), ("date_nanos", *ZONES[1])]
)
def test_days_are_counted_in_one_request_as_each_day_is(engine, client, index, kind, timezone, first):
    days = [first + timedelta(days=number) for number in range(3)]
    rolled_up = [event("PC", "ann", f"{days[0]}T12:00:00Z") | {"_doc_count": 5}]
    documents = [*random_documents(days, timezone), *rolled_up]
    engine.load(index, {"mappings": {"properties": {"@timestamp": {"type": kind}}}}, documents)
    fields = {"user_field": "user.name.keyword", "hostname_field": "agent.name.keyword"}
    with client(scan={"timezone": timezone}, **fields) as logons:
        by_day = logons.matching_by_day(days)
    expected = {day: counted(documents, day, timezone)[0] for day in days}
    expected[days[0]] += 4
    assert by_day == expected


@pytest.fixture(scope="module")
def plain(engine):
    """An index of one event; its names are keywords with text fields below. Another one has only text."""
    words = {kind: {"type": kind} for kind in ("text", "match_only_text")}
    name = {"properties": {"name": {"type": "keyword", "fields": words}}}
    properties = {"agent": name, "user": name, "place": {"type": "geo_point"}, "port": {"type": "long"}}
    documents = [event("PC", "ann") | {"port": 1}]
    engine.load("logs-search-plain", {"mappings": {"properties": properties}}, documents)
    engine.load("logs-search-plain-text", {"mappings": {"properties": {}}}, documents)
    return "logs-search-plain"


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"query": "event.code:(4624"}, ConfigurationError, "query: "),
        ({"query": '{"nope": {}}'}, ConfigurationError, "query: "),
        ({"query": '{"query": {"match_all": {}}}'}, ConfigurationError, "query: "),
        ({"query": '{"bool": []}'}, ConfigurationError, "query: "),
        ({"query": '{"term": {"port": "many"}}'}, ConfigurationError, "query: "),
        ({"index": "logs-search-none"}, ConfigurationError, "index: "),
        ({"index": "secrets"}, PermissionDeniedError, "view_index_metadata"),
        ({"username": "nobody"}, AuthenticationError, "username and password"),
        ({"ca_file": None}, AuthenticationError, "ca_file"),
        ({"user_field": "user.name.text"}, ConfigurationError, "user_field: "),
        ({"user_field": "user.name.match_only_text"}, ConfigurationError, "user_field: "),
        ({"hostname_field": "agent.name.text"}, ConfigurationError, "hostname_field: "),
        ({"logon_type_field": "agent.name.text"}, ConfigurationError, "logon_type_field: "),
        ({"index": "logs-search-plain*"}, ConfigurationError, "index logs-search-plain-text"),
        ({"index": "logs-search-plain*"}, ConfigurationError, "missing in logs-search-plain (1 of 1 doc"),
        ({"time_field": "user.name"}, ConfigurationError, "time_field"),
        ({"user_field": "place"}, ConfigurationError, "user_field"),
        ({"logon_type_field": "place"}, ConfigurationError, "logon_type_field"),
    ],
)
def test_what_the_service_refuses_names_the_setting(plain, client, change, kind, says):
    with client(**{"index": plain, **change}) as logons, pytest.raises(kind) as raised:
        list(logons.logons([DAY]))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
