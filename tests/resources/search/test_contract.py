"""The search client on the real engine, as the reader who has nothing but the two privileges."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError
from resources.search import client as search
from resources.search.client import SearchClient
from sandbox.logons import MAPPING
from tests.resources.samples import instance
from tests.resources.search.documents import DAY, NOON, ZONES, counted, event, found, random_documents


def never(_):
    pytest.fail("nothing here is to be tried again")


@pytest.fixture
def index(request):
    """An index name of the test's own."""
    return "logs-search-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


@pytest.fixture
def client(engine, tmp_path, index):
    (tmp_path / "password").write_text(engine.reader.password)
    reader = {"username": engine.reader.username, "password": {"file": str(tmp_path / "password")}}
    settings = {"url": engine.url, "index": index, "ca_file": engine.ca_file, "query": "*", **reader}

    def open_client(**changes) -> SearchClient:
        return SearchClient(instance(**{**settings, **changes}), sleep=never)

    return open_client


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
    for pattern in (f"{{}}-{year},{{}}-b", "{}-*,-{}-c", of_this_year):
        with client(index=pattern.format(index, index)) as logons:
            (day,) = logons.logons([DAY])
        assert found(day)[3] == [("PC", "ann", 1), ("PC", "bob", 1)]


def test_an_empty_index_and_a_pattern_without_index_give_empty_days(engine, client, index):
    engine.load(index, MAPPING, [])
    for pattern in (index, f"{index}-none-*"):
        with client(index=pattern) as logons:
            (day,) = logons.logons([DAY])
            assert found(day) == (0, 0, 0, [])
            assert (*logons.totals(DAY, DAY), logons.count_without_time()) == (0, 0, 0, 0)
            matching, senders = logons.top_senders(DAY)
            assert (matching, senders.height) == (0, 0)


@pytest.mark.parametrize(("timezone", "first"), ZONES)
@pytest.mark.parametrize("kind", ["date", "date_nanos"])
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
