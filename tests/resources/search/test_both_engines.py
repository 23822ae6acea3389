"""What differs between OpenSearch and Elasticsearch: types of fields, times, refusals."""

import json
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest

from ownership.windows import Window
from resources.errors import ConfigurationError, ProtocolError
from resources.search import logons as search
from resources.search.explaining import find_times, types_by_index
from resources.settings.query import correct_query
from tests.resources.search.documents import DAY, NOON, found

pytestmark = pytest.mark.slow  # its services are asked for by a parameter

KEYWORD, WORDS = {"type": "keyword"}, {"type": "text", "fielddata": True}
NOT_STORED = {"type": "date", "index": False, "doc_values": False}
AT_NOON = round(datetime.fromisoformat(NOON).timestamp() * 1000)


@pytest.fixture(params=["engine", "elasticsearch"])
def service(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def client(client):
    return partial(client, user_field="user", hostname_field="host")


@pytest.fixture
def load(load):
    """Loads documents of a host, and names as keywords, if they do not say otherwise."""
    names = {"user": KEYWORD, "host": KEYWORD}
    return lambda name, documents, /, **fields: load(
        name, [{"host": "PC"} | document for document in documents], **names | fields
    )


@pytest.mark.parametrize("kind", ["date", "date_nanos", "long", "double"])
def test_late_events_are_seen_and_days_counted_whatever_type_the_time_has(client, load, kind):
    def at(day):
        moment = datetime.fromisoformat(NOON) + timedelta(days=day)
        return moment.isoformat() if kind.startswith("date") else round(moment.timestamp() * 1000)

    days = [DAY, DAY + timedelta(days=1)]
    documents = [{"@timestamp": at(day), "user": "ann"} for day in (0, 0, 1, 7)]
    for late in range(2):
        load("", [*documents, *[documents[2]] * late], **{"@timestamp": {"type": kind}})
        with client() as logons:
            assert logons.matching_by_day(days) == {days[0]: 2, days[1]: 1 + late}
            assert [found(day)[0] for day in logons.logons(days)] == [2, 1 + late]
            assert find_times(logons).state == "ok"


def test_names_that_were_copied_into_a_keyword_are_counted_each_and_words_of_a_text_are_refused(client, load):
    copied = KEYWORD | {"copy_to": "user"}
    load("", [{"first": "dan", "second": "svc-miller"}], first=copied, second=copied)
    with client() as logons:
        (day,) = logons.logons([DAY])
    assert found(day)[3] == [("PC", "dan", 1), ("PC", "svc-miller", 1)]
    words = load("-words", [{"user": "svc-miller"}], user=WORDS)
    with client() as logons, pytest.raises(ConfigurationError) as raised:
        list(logons.logons([DAY]))
    assert str(raised.value).startswith(f"user_field: 'user' is text with fielddata in the index {words}: ")
    with client(query="first:*") as logons:  # nor is a text refused in which nothing is counted
        (day,) = logons.logons([DAY])
    assert found(day)[0] == 1


@pytest.mark.parametrize(
    ("types", "values"),
    [
        (("keyword", "long"), ("ann", 5)),
        (("long", "double"), (5, 5.5)),
        (("keyword", "boolean"), ("ann", True)),
        (("keyword", "ip"), ("ann", "10.0.0.1")),
    ],
)
def test_a_field_of_several_types_is_named_with_its_indexes_also_on_a_later_page(
    client, load, monkeypatch, types, values
):
    monkeypatch.setattr(search, "MAX_PAGE", 1)
    where = [
        load(f"-{kind}", [{"user": value}], user={"type": kind})
        for kind, value in zip(types, values, strict=True)
    ]
    with client() as logons:
        assert types_by_index(logons, "user") == {
            kind: [each] for kind, each in zip(types, where, strict=True)
        }
        with pytest.raises(ConfigurationError) as raised:
            list(logons.logons([DAY]))
    said = " and ".join(sorted(f"{kind} in {each}" for kind, each in zip(types, where, strict=True)))
    assert str(raised.value).startswith(f"user_field: 'user' is {said}, which cannot be counted together")


@pytest.mark.parametrize("named", ["user", "host", "kind"])
def test_pages_go_on_where_an_index_lacks_a_field_of_numbers(
    service, client, index, load, monkeypatch, named
):
    monkeypatch.setattr(search, "MAX_PAGE", 1)
    load("-of-numbers", [{"user": "ann", named: number} for number in (1, 2, 3)], **{named: {"type": "long"}})
    service.load(
        f"{index}-other",
        {"mappings": {"properties": {"@timestamp": {"type": "date"}}}},
        [{"@timestamp": NOON}],
    )
    with client(logon_type_field="kind" if named == "kind" else None) as logons:
        (day,) = logons.logons([DAY])
    assert (day.matching, day.lacking_user, day.counts.height) == (4, 1, 3)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"type": "keyword", "doc_values": False}, "Use doc values instead"),
        ({"type": "text"}, "is a text field in the index"),
        ({"type": "binary"}, "user_field"),
    ],
)
def test_a_field_that_cannot_be_counted_is_named(client, load, field, says):
    load("", [{"user": "YQ=="}], user=field)
    with client() as logons, pytest.raises(ConfigurationError) as raised:
        list(logons.logons([DAY]))
    assert str(raised.value).startswith("user_field: 'user' is ")
    assert says in str(raised.value)


def test_a_field_with_fields_inside_is_lacking_and_not_taken_for_a_text(client, load):
    """As where `user` became `user.name`: older indexes may still have the names in it, also several."""
    inside = load("-inside", [{"user": {"name": "ann"}}], user={"properties": {"name": KEYWORD}})
    with client() as logons:
        found_wrong = [one for one in logons.check(Window(DAY, DAY)) if one.state == "wrong"]
    assert [one.what for one in found_wrong] == ["user_field"]
    assert "none of the 1 logon events" in found_wrong[0].text
    load("-older", [{"user": ["ann", "bob"]}] * 2)
    with client() as logons:
        (day,) = logons.logons([DAY])
        assert f"in {inside} (1 of 1 documents)" in logons.why_lacking(DAY, DAY, user=True)
    assert found(day) == (3, 1, 0, [("PC", "ann", 2), ("PC", "bob", 2)])


def test_check_goes_on_after_a_text_with_fielddata(client, load):
    load("", [{"user": "svc-miller"}], user=WORDS)
    with client() as logons:
        findings = [*logons.check(Window(DAY, DAY))]
    assert ["is text with fielddata" in one.text for one in findings if one.state == "wrong"] == [True]


def test_an_object_as_one_field_is_named(engine, client, load, service):
    if service is not engine:
        pytest.skip("Elasticsearch has no flat_object")
    load("", [{"user": {"name": "ann"}}], user={"type": "flat_object"})
    with client() as logons, pytest.raises(ConfigurationError, match=r"^user_field: 'user' is refused"):
        list(logons.logons([DAY]))


@pytest.mark.parametrize(
    ("kind", "at", "says"),
    [
        ("long", AT_NOON // 1000, "has seconds instead of milliseconds"),
        ("long", AT_NOON * 1000, "has microseconds instead of milliseconds"),
        ("double", AT_NOON / 1000, "has seconds instead of milliseconds"),
        ("date", AT_NOON // 1000, "has seconds instead of milliseconds"),
        *(
            ("date", at, "has times before 1990 or after 2099")
            for at in ("0001-01-01", "1970-01-01", "2106-02-07")
        ),
    ],
)
def test_times_by_which_no_day_finds_a_document_are_named_with_their_index(client, load, kind, at, says):
    odd = load("-odd", [{"@timestamp": at, "user": "bob"}] * 3, **{"@timestamp": {"type": kind}})
    with client() as logons:
        with pytest.raises(ConfigurationError) as raised:
            list(logons.logons([DAY]))
        assert logons.why_nothing(DAY, DAY).what == "time_field"
    assert str(raised.value).startswith("time_field: @timestamp ")
    assert f"{says} in {odd} (3 of 3 documents)" in str(raised.value)
    load("-good", [{"user": "ann"}])
    with client() as logons:
        (day,) = logons.logons([DAY])
        times = find_times(logons)
    assert found(day)[0] == 1
    assert (times.state, odd in times.text, "-good" in times.text) == ("warning", True, False)


def test_a_date_that_no_range_finds_is_named(engine, client, load, service):
    """OpenSearch finds it by its doc values."""
    odd = load("", [{"user": "ann"}], **{"@timestamp": {"type": "date", "index": False}})
    with client() as logons:
        times = find_times(logons)
    assert times.state == ("ok" if service is engine else "wrong")
    assert service is engine or f"is not indexed in {odd}" in times.text
    load("", [{"user": "ann"}], **{"@timestamp": NOT_STORED})
    with client() as logons, pytest.raises(ConfigurationError, match=r"^time_field: '@timestamp' is refused"):
        list(logons.logons([DAY]))


@pytest.mark.parametrize(
    ("kind", "at"), [("integer", AT_NOON // 1000), ("short", 1), ("ip", "::1"), ("boolean", True)]
)
def test_a_time_of_a_type_without_milliseconds_is_not_told_as_a_fault_of_the_query(client, load, kind, at):
    load("", [{"@timestamp": at, "user": "ann"}], **{"@timestamp": {"type": kind}})
    for query, setting in (("user:ann", "time_field: '@timestamp'"), ("user:(ann", r"query: 'user:\(ann'")):
        with client(query=query) as logons, pytest.raises(ConfigurationError, match=f"^{setting} is refused"):
            list(logons.logons([DAY]))


READ = "index.blocks.read"


@pytest.mark.parametrize(
    ("block", "free", "says"),
    [
        (
            ("PUT", "_settings", {READ: True}),
            ("PUT", "_settings", {READ: False}),
            "FORBIDDEN/7/index read (api)",
        ),
        (("POST", "_close", None), ("POST", "_open", None), "closed"),
    ],
)
def test_a_block_is_named_with_its_index(service, client, load, block, free, says):
    blocked = load("", [{"user": "ann"}])
    alias = f"{blocked}-alias"  # with a closed index in it no search of the alias succeeds
    service.request("PUT", f"{blocked}/_alias/{alias}")
    service.request(block[0], f"{blocked}/{block[1]}", json=block[2])
    with client(index=alias) as logons, pytest.raises(ProtocolError) as raised:
        list(logons.logons([DAY]))
    assert f"The index {blocked} at " in str(raised.value)
    assert f"is blocked ({says}); have the block removed, or the index opened" in str(raised.value)
    service.request(free[0], f"{blocked}/{free[1]}", json=free[2])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("user:ann AND NOT ip:10.0.*", "[ip] which is of type [ip]"),
        ("code:46* OR user:ann", "[code] which is of type [long]"),
        ("code:/46.*/", "[code] which is of type [long]"),
        ("code:many", 'For input string: "many"'),
        ("ok:success", "boolean value [success]"),
        ("term:*nn", "'search.allow_expensive_queries' is set to false"),
        ("user:ann AND 10 AND nowhere:x AND code:>5", None),
        ({"prefix": {"user": "a"}}, None),
        ({"query_string": {"query": "ann", "fields": ["user"]}}, None),
    ],
)
def test_a_part_of_a_query_that_indexes_ignore_is_named(service, client, load, query, says):
    fields = {"ip": {"type": "ip"}, "code": {"type": "long"}, "ok": {"type": "boolean"}}
    odd = load("-odd", [{"user": "ann", "ip": "10.0.0.1", "code": 4624, "ok": True}], term=KEYWORD, **fields)
    load("-good", [{"user": "ann"}], **dict.fromkeys(fields, KEYWORD))
    expensive = {"transient": {"search.allow_expensive_queries": "*" not in str(query)[:6]}}
    service.request("PUT", "_cluster/settings", json=expensive)
    with client(query=query) as logons:
        found = [one for one in logons.check(Window(DAY, DAY)) if "cannot be searched for" in one.text]
    service.request("PUT", "_cluster/settings", json={"transient": {"search.allow_expensive_queries": None}})
    assert [(one.what, one.state, says in one.text, odd in one.text) for one in found] == [
        ("query", "warning", True, True)
    ] * (says is not None)


@pytest.mark.parametrize(
    "path",
    ["Computer", "computer_name", "ComputerName", "hostIdentifier", "body.computer", "log.syslog.hostname"],
)
def test_a_collector_is_seen_whatever_field_names_the_computer(client, load, path):
    def document(number):
        inside: Any = f"pc{number}.corp.example"
        for part in reversed(path.split(".")):
            inside = {part: inside}
        return {"user": "ann", "host": "wec01", "source": {"computer": f"10.0.0.{number}"}, **inside}

    load("", [document(number) for number in range(3)])
    with client() as logons:
        senders = logons.top_senders(DAY, DAY)
    assert senders is not None
    assert senders[0] == f"{path}.keyword"
    assert senders[1].rows() == [("wec01", 3, [f"pc{number}.corp.example" for number in range(3)])]


# The reader of queries: random queries over a small index, many in one request

INDEX = "logs-query-reader"
DOCUMENTS = {
    "".join(values): dict(zip("abc", (values[0], values[1], NAME), strict=True))
    for values in product("012", "012", "JPX")
    for NAME in [{"J": "John Smith", "P": "x/y/z", "X": "x!"}[values[2]]]
}
ALL = frozenset(DOCUMENTS)
BLANKS = [*[" "] * 40, "  ", "\t", "\n", "\u3000", "\u00a0"]
NEGATIONS = [*["NOT "] * 6, "not ", "Not ", "-", "!", "! ", "- ", "NOT\u00a0"]
OPERATORS = [*["AND", "OR"] * 2, "and", "or", "&&", "||", "", ""]


def having(field, *values):
    return frozenset(name for name, document in DOCUMENTS.items() if document[field] in values)


def clause(random):
    """Return a clause and the documents that a person means by it."""
    field, one, other = random.choice("ab"), random.choice("012"), random.choice("012")
    at_least = having(field, *"012"[int(one) :])
    return random.choice(
        [
            (f"{field}:{one}", having(field, one)),
            (f'{field} : "{one}"', having(field, one)),
            (f"{field}:/[{one}{other}]/", having(field, one, other)),
            *((f"{field}:({one}{word}{other})", having(field, one, other)) for word in (" OR ", " or ", " ")),
            *((f"{field}:({word}{one})", ALL - having(field, one)) for word in ("NOT ", "not ", "-")),
            *((f"{field}{bound}{one}", at_least) for bound in (":>=", ":>= ", " >= ", ">=")),
            (f'{field} >= "{one}"', at_least),
            (f"{field}:[{one} TO 2]^2", at_least),
            (f"{field} < {one}", ALL - at_least),
            (f'{field}:"{one} and {other}"', frozenset()),
            *(
                (f"c:{name}", having("c", "John Smith"))
                for name in ("John Smith", '"John Smith"', "John Sm*")
            ),
            ("c:x/y/z", having("c", "x/y/z")),
            ("c:x!y", frozenset()),
            ("*:*", ALL),
        ]
    )


def level(random, depth=0):
    """Return clauses beside each other, without brackets, and the documents that a person means by them."""
    text, alternatives = "", [ALL]
    operators = random.choice([OPERATORS, ["AND"], ["OR"]])
    for number in range(random.choice([1, 2, 2, 3, 3, 4])):
        if inner := depth < 3 and random.random() < 0.2:
            one, found = level(random, depth + 1)
        else:
            one, found = clause(random)
        if random.random() < 0.25:
            one, found = f"{random.choice(NEGATIONS)}{f'({one})' if inner else one}", ALL - found
        elif inner:
            one = f"({one})"
        operator = random.choice(operators) if number else ""
        text += f"{random.choice(BLANKS)}{operator}" + random.choice(BLANKS) * bool(operator) + one
        if operator.lower() in {"or", "||"}:
            alternatives.append(found)
        else:
            alternatives[-1] &= found
    return text, frozenset().union(*alternatives)


@pytest.fixture(params=["engine", "elasticsearch"])
def searched(request):
    """Return what each of some queries finds; None where the engine refuses it."""
    engine = request.getfixturevalue(request.param)
    properties = {field: {"type": "keyword"} for field in "abc"}
    engine.load(INDEX, {"mappings": {"properties": properties}}, [])
    lines = "".join(f'{{"index": {{"_id": "{n}"}}}}\n{json.dumps(d)}\n' for n, d in DOCUMENTS.items())
    engine.add(INDEX, lines)
    engine.request("POST", f"{INDEX}/_refresh")

    def found(queries):
        wanted = [{"size": len(ALL), "query": {"query_string": {"query": query}}} for query in queries]
        body = "".join(f"{{}}\n{json.dumps(each)}\n" for each in wanted)
        headers = {"Content-Type": "application/x-ndjson"}
        answers = engine.request("POST", f"{INDEX}/_msearch", data=body, headers=headers)["responses"]
        return [
            frozenset(hit["_id"] for hit in answer["hits"]["hits"]) if "hits" in answer else None
            for answer in answers
        ]

    return found


def test_a_query_that_passes_and_a_corrected_one_find_what_a_person_means(searched):
    random = Random(7)  # noqa: S311
    meant = dict(level(random) for _ in range(1000))
    assert sum(correct_query(query) is None for query in meant) > 50
    found = searched([correct_query(query) or query for query in meant])
    assert [query for query, some in zip(meant, found, strict=True) if some != meant[query]] == []
