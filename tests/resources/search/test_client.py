"""The search client against documents in memory, and answers that a healthy engine never gives."""

import copy
import itertools
import json
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    ConfigurationError,
    PermissionDeniedError,
    ProtocolError,
    TransientError,
)
from resources.http import MAX_TRIES
from resources.search import logons as search
from resources.search.logons import SearchClient
from resources.search.source import Logs
from tests.resources.http_stub import Reply, Stub
from tests.resources.samples import instance
from tests.resources.search.documents import DAY, ZONES, counted, event, found, never, random_documents


@pytest.fixture
def client(search_service):
    """Opens a client on documents; the service is left on it to inspect."""

    def open_client(documents, **changes):
        search_service.documents = documents
        settings = instance(url=search_service.url, **{"query": "*", **changes})
        opened: Any = SearchClient(settings, sleep=never)
        opened.service = search_service
        return opened

    return open_client


@pytest.mark.parametrize(("timezone", "first"), ZONES)
def test_counts_are_those_of_the_documents(client, timezone, first):
    days = [first + timedelta(days=number) for number in range(3)]
    documents = list(random_documents(days, timezone))
    with client(documents, scan={"timezone": timezone}) as logons:
        given = list(logons.logons(days))
        totals = logons.totals(days[0], days[-1])
        asked = len(logons.service.requests)
        by_day = logons.matching_by_day([days[2], days[0]])
        (growth,) = logons.service.requests[asked:]
        of_days = [json.loads(one.body)["query"]["bool"]["filter"][0] for one in logons.service.requests]
        buckets = json.loads(growth.body)["aggs"]["buckets"]
        assert all(one in of_days for one in buckets["filters"]["filters"]), "asked for as the counts are"
    expected = [counted(documents, day, timezone) for day in days]
    assert [day.day for day in given] == days
    assert [found(day) for day in given] == expected
    assert by_day == {days[2]: expected[2][0], days[0]: expected[0][0]}
    assert totals == tuple(sum(day[number] for day in expected) for number in range(3))
    assert totals[0] > 200


def test_a_probe_asks_the_service_once_and_for_no_document(client):
    with client([event("PC", "ann")]) as logons:
        logons.probe()
    (asked,) = logons.service.requests
    assert json.loads(asked.body)["query"] == {"match_none": {}}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_kinds_of_logon_are_counted_apart_and_documents_without_one_too(client, monkeypatch, size):
    monkeypatch.setattr(search, "MAX_PAGE", size)  # the kind, or none, is where a next page begins
    documents = [event("PC", "ann", kind="Interactive")] * 3 + [event("PC", "ann")] * 2
    documents += [event("PC", "ann", kind=["Interactive", "Unlock"]), event("FS", ["ann", "bob"])]
    with client(documents, logon_type_field="winlog.type") as logons:
        (day,) = logons.logons([DAY])
        has_kind = {"exists": {"field": "winlog.type"}}
        assert logons.search([logons.between(DAY, DAY), has_kind], search.MATCHING).matching == 4
    assert {(*names, kind): events for *names, events, kind in day.counts.iter_rows()} == {
        ("FS", "ann", None): 1, ("FS", "bob", None): 1,
        ("PC", "ann", "Interactive"): 4, ("PC", "ann", "Unlock"): 1, ("PC", "ann", None): 2,
    }  # fmt: skip
    assert (day.matching, day.lacking_user, day.lacking_host) == (7, 0, 0)


@pytest.mark.parametrize(("size", "pages"), [(1, 13), (4, 4), (6, 3), (11, 2), (12, 2), (13, 1)])
def test_pages_follow_each_other_without_gap_or_repetition(client, monkeypatch, size, pages):
    monkeypatch.setattr(search, "MAX_PAGE", size)
    with client([event(f"PC-{host}", f"u-{user}") for host in range(4) for user in range(3)] * 2) as logons:
        (day,) = logons.logons([DAY])
    assert found(day)[3] == [(f"PC-{host}", f"u-{user}", 2) for host in range(4) for user in range(3)]
    assert (day.matching, len(logons.service.requests)) == (24, pages)


def test_senders_are_listed_with_the_hosts_they_send_for(client):
    documents = [event("ws1", "ann", sender="ws1")] * 3
    documents += [event(f"pc{number}", "ann", sender="x") for number in range(12)]
    documents += [event("ws2", "ann", "2026-03-03T12:00:00+00:00", sender="ws2"), event("ws3", "bob")]
    with client(documents) as logons:
        field, senders = logons.top_senders(DAY, DAY)
    assert field == "host.name"
    assert senders.select("document_hostname", "events").rows() == [("x", 12), ("ws1", 3), ("ws3", 1)]
    assert [len(names) for names in senders["host_names"]] == [10, 1, 0]


def test_nothing_but_searches_of_the_index_is_asked_for_with_credentials_and_cookies(client, monkeypatch):
    monkeypatch.setenv("ROUTE", "blue")
    with client([event("PC", "ann")], cookies={"route": {"env": "ROUTE"}}) as logons:
        list(logons.logons([DAY]))
        logons.totals(DAY, DAY)
        requests = logons.service.requests
    assert {(one.method, one.path) for one in requests} == {("POST", "/logs-*/_search")}
    asked = {key for one in requests for key in json.loads(one.body)}
    assert asked == {"size", "track_total_hits", "query", "aggs"}
    assert all(one.query["allow_partial_search_results"] == "false" for one in requests)
    assert all(one.cookies == {"route": "blue"} for one in requests)
    assert {one.headers["Authorization"] for one in requests} == {
        "Basic b3duZXItc2VhcmNoOnBhc3Mgd8O2cmQ="  # in UTF-8
    }


# Answers a healthy engine never gives

SHARDS = {"total": 2, "successful": 2, "skipped": 0, "failed": 0}
CLUSTERS = {"total": 2, "successful": 2, "skipped": 0, "running": 0, "partial": 0, "failed": 0, "details": {}}
TOTALS = {
    "matching": {"doc_count": 4},
    "username": {"doc_count": 1, "absent": {"doc_count": 1}},
    "hostname": {"doc_count": 1},
    "latest": {"value": 1.77e12},
}


def bucket(user, count=3, host="PC"):
    return {"key": {"hostname": host, "username": user}, "doc_count": count}


def pairs(*users, after=None):
    """A page of pairs; three of four documents have each user, the fourth no name at all."""
    buckets = [bucket(user) for user in users]
    end = {"after_key": {"hostname": "PC", "username": after}} if after else {}
    return TOTALS | {"pairs": {"buckets": buckets, **end}}


PAGE: Any = {
    "timed_out": False,
    "_shards": SHARDS,
    "hits": {"max_score": None, "hits": []},
    "aggregations": pairs("ann", after="ann"),
}


def error(kind, reason, status):
    """An error answer as Elasticsearch and OpenSearch write them: a type outside, its causes inside."""
    causes = [{"type": kind, "reason": reason}]
    shards = [{"shard": 0, "index": "logs-1", "node": "n", "reason": causes[0]}] if status < 500 else []
    outside = {"type": "search_phase_execution_exception", "reason": "all shards failed" if shards else ""}
    inside = {"root_cause": causes, "failed_shards": shards, "caused_by": causes[0]}
    return answered({"error": outside | inside, "status": status}, status)


def answered(body, status=200):
    return Reply(json.dumps(body).encode(), status)


class Script(Stub):
    """A search service that gives the replies in this order, the last one for ever."""

    def __init__(self, *replies):
        left = [reply if isinstance(reply, Reply) else answered(reply) for reply in replies]
        super().__init__(lambda _: left.pop(0) if len(left) > 1 else left[0])
        self.naps = []

    def logons(self):
        with self, SearchClient(instance(url=self.url), sleep=self.naps.append) as client:
            return list(client.logons([DAY]))

    def fails(self, kind):
        with pytest.raises(kind) as raised:
            self.logons()
        assert not any(name in str(raised.value) for name in ("PC", '"ann"'))
        return str(raised.value)


def test_answers_of_all_supported_versions_are_read():
    """7 says no more; from 8 on `_clusters` may come along; a page without buckets has no after_key."""
    for last in (PAGE, PAGE | {"_clusters": CLUSTERS}, PAGE | {"num_reduce_phases": 2}):
        (day,) = Script(last).logons()
        assert found(day) == (4, 1, 1, [("PC", "ann", 3)])
        kinds = {"document_hostname": pl.String, "document_username": pl.String, "events": pl.Int64}
        assert day.counts.schema == kinds
    blank = {"pairs": {"buckets": [bucket("", 3, "-")]}}
    (day,) = Script(PAGE | {"aggregations": TOTALS | blank}).logons()
    assert found(day) == (4, 4, 4, [])
    numbers = {"pairs": {"buckets": [bucket(7, 2, 7.5), bucket(2**64, 1, 2**53 + 1)]}}
    (day,) = Script(PAGE | {"aggregations": TOTALS | numbers}).logons()
    assert found(day)[3] == [("7.5", "7", 2), (str(2**53 + 1), str(2**64), 1)]


PAIR, MATCHING = ("aggregations", "pairs", "buckets", 0), ("aggregations", "matching")


@pytest.mark.parametrize(
    ("place", "name", "fault"),
    [
        *((PAIR, "doc_count", number) for number in (0, -1, 2**63, 10**400, 1.5, "3")),
        *((MATCHING, "doc_count", number) for number in (-1, 2**63, 5.5)),
        (("aggregations", "username"), "doc_count", -1),
        (("_shards",), "failed", 1),
        ((), "timed_out", True),
        ((), "_clusters", CLUSTERS | {"successful": 1, "skipped": 1}),
        ((), "_clusters", CLUSTERS | {"successful": 0, "partial": 2}),
        ((), "_clusters", CLUSTERS | {"failed": 1}),
        ((), "aggregations", {}),
        (("aggregations", "pairs"), "buckets", []),
    ],
)
def test_an_incomplete_answer_or_an_impossible_count_is_not_evidence(place, name, fault):
    page = part = copy.deepcopy(PAGE)
    for key in place:
        part = part[key]
    part[name] = fault
    script = Script(page)
    assert ("result not used" in script.fails(ProtocolError)) == (name != "doc_count")
    assert script.naps == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html><title>Dashboards</title></html>"),
        Reply(b"<html>Not Found</html>", 404),
        Reply(b'{"statusCode":400,"error":"Bad Request","message":"kbn-xsrf header is missing"}', 400),
        Reply(b""),
        Reply(b"[]"),
        Reply(b"{}"),
        Reply(b"\xff\xfe{"),
        Reply(b'{"took":' + b"[" * 100_000),
        Reply(b'{"error":' + b"[" * 100_000, 400),
        Reply(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}", 400),
    ],
)
def test_what_is_not_a_search_service_is_named_with_what_it_said(reply):
    script = Script(reply)
    message = script.fails(ProtocolError)
    assert f"{script.url} does not answer as a search service; url" in message
    assert reply.body[:20].decode(errors="replace") in message
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "pages",
    [
        [(["ann", "bob"], "bob"), (["ann", "bob"], "bob")],
        [(["ann", "bob"], "bob"), (["cyd", "dan"], "dan"), (["eve", "fay"], "bob")],
        [(["ann", "bob"], "k1"), (["ann", "bob"], "k2"), ([], None)],
        [(["ann", "bob"], "bob"), (["bob"], "bob")],
        [(["ann", "ann"], "ann"), ([], None)],
    ],
    ids=["standing", "circling", "repeated under new keys", "overlap", "one page"],
)
def test_pages_that_do_not_move_on_are_not_evidence(monkeypatch, pages):
    monkeypatch.setattr(search, "MAX_PAGE", 2)
    replies = [PAGE | {"aggregations": pairs(*users, after=after)} for users, after in pages]
    script = Script(*replies)
    assert "result not used" in script.fails(ProtocolError)
    assert len(script.requests) <= 1 + len(pages)


def test_pages_without_an_end_are_given_up(monkeypatch):
    monkeypatch.setattr(search, "MAX_PAGE", 2)
    users = (f"u-{number}" for number in itertools.count())
    script = Script(PAGE)
    script.answer = lambda _: answered(
        PAGE | {"aggregations": pairs(next(users), next(users), after=next(users))}
    )
    assert "result not used" in script.fails(ProtocolError)
    assert len(script.requests) <= 4 * search.MAX_PAIRS_PER_EVENT


def test_an_index_that_vanishes_between_two_pages_is_named(monkeypatch):
    monkeypatch.setattr(search, "MAX_PAGE", 1)
    gone = PAGE | {"_shards": {"total": 0, "failed": 0}, "aggregations": {}}
    assert "run again" in Script(PAGE, gone).fails(ProtocolError)


@pytest.mark.parametrize("status", [503, 400])  # Elasticsearch 7 and OpenSearch; Elasticsearch 8 and 9
def test_pages_shrink_to_the_bucket_limit_and_one_that_fits_none_is_refused(status):
    too_many = error("too_many_buckets_exception", "Trying to create too many buckets.", status)
    script = Script(too_many, too_many, PAGE)
    (day,) = script.logons()
    sizes = [json.loads(one.body)["aggs"]["pairs"]["composite"]["size"] for one in script.requests]
    assert (day.matching, sizes, script.naps) == (4, [50_000, 25_000, 12_500], [])
    assert str(search.MIN_PAGE) in Script(too_many).fails(ProtocolError)


def test_pages_shrink_where_the_memory_of_the_service_stays_too_small_for_them():
    reason = "[request] Data too large, data for [<reused_arrays>] would be [1/1b]"
    too_large = error("circuit_breaking_exception", reason, 429)
    script = Script(*[too_large] * MAX_TRIES, PAGE)
    (day,) = script.logons()
    sizes = [json.loads(one.body)["aggs"]["pairs"]["composite"]["size"] for one in script.requests]
    assert (day.matching, sizes) == (4, [50_000] * MAX_TRIES + [25_000])
    assert "Data too large" in Script(too_large).fails(TransientError)


def test_a_busy_service_and_a_broken_answer_are_asked_again():
    busy = Reply(b'{"error":{"type":"circuit_breaking_exception"}}', 429, {"Retry-After": "7"})
    broken = Reply(headers={"Content-Length": "1000"}, write=lambda out: out.write(b'{"timed_out":fal'))
    cancelled = error("task_cancelled_exception", "parent task was cancelled", 400)
    script = Script(busy, broken, cancelled, PAGE)
    (day,) = script.logons()
    assert (day.matching, len(script.naps), int(script.naps[0])) == (4, 3, 7)


TWO_TYPES = "Failed, because the field existed as two different types in two different indices"
MISSING = "Search rejected due to missing shards [[logs-7][0], [logs-7][1]]. Consider using `x` setting"
FIELDDATA = "Fielddata is disabled on [user.name] in [logs-1]. Please use a keyword field instead."


@pytest.mark.parametrize(
    ("cause", "status", "kind", "says"),
    [
        (
            ("security_exception", "unauthorized"),
            401,
            AuthenticationError,
            "SEARCH_PASSWORD; a service has to be restarted",
        ),
        (("security_exception", "unauthorized"), 403, PermissionDeniedError, "view_index_metadata"),
        (("security_exception", "no [owner-search]"), 403, PermissionDeniedError, "no [***]"),
        (("index_not_found_exception", "no such index [logs]"), 404, ConfigurationError, "index: 'logs-*'"),
        (("illegal_argument_exception", FIELDDATA), 400, ConfigurationError, "user_field: 'user.name' is"),
        (("illegal_argument_exception", "no sorting"), 400, ConfigurationError, "in the index logs-1"),
        (("parsing_exception", "unknown query [x]"), 400, ConfigurationError, "query: "),
        (("index_closed_exception", "closed"), 400, ProtocolError, "The index logs-1 at"),
        (("class_cast_exception", "class java.lang.Long cannot"), 500, ConfigurationError, "user_field"),
        (("aggregation_execution_exception", TWO_TYPES), 500, ConfigurationError, "user_field"),
        (("search_phase_execution_exception", MISSING), 503, ProtocolError, "The index logs-7 at"),
        (("no_shard_available_action_exception", "none"), 503, ProtocolError, "is red"),
        (("illegal_argument_exception", "Field [x] is odd"), 500, ConfigurationError, "Field [x] is odd"),
        (("no_such_remote_cluster_exception", "no such: [b]"), 404, ConfigurationError, "remote cluster"),
    ],
)
def test_errors_become_settings_to_mend(cause, status, kind, says):
    script = Script(error(*cause, status))
    message = script.fails(kind)
    assert says in message
    assert '{"' not in message
    assert "owner-search" not in message, "messages are stored, and the user may be a person"
    assert len(script.requests) <= 3, "what explains it is asked as well"
    assert script.naps == []


BREAKER = {"index": "logs", "reason": {"type": "circuit_breaking_exception", "reason": "Too large"}}
RUNTIME = "Can only use such queries on text fields - not on [x] which is a runtime field of type [keyword]"


@pytest.mark.parametrize(
    "reply",
    [
        error("circuit_breaking_exception", "Too large", 429),
        Reply(b"Too many requests", 429),
        answered({"timed_out": False, "_shards": {"total": 2, "failed": 1, "failures": [BREAKER]}}),
    ],
    ids=["JSON", "proxy", "partial"],
)
def test_parts_of_names_are_not_users_where_the_type_of_their_field_is_known_late(client, reply):
    of_text = {"buckets": {"buckets": [{"key": "logs", "doc_count": 1}]}}
    with client([event("PC", ["svc", "miller"])]) as logons:
        logons.transport.sleep, answer = lambda _: None, logons.service.answer
        for replies, refused in (
            ([reply, answered(PAGE | {"aggregations": of_text})], "text with fielddata in the index logs"),
            ([reply], "Too |did not give the type"),
            ([reply, error("illegal_argument_exception", RUNTIME, 400)], None),
            ([error("illegal_argument_exception", "No such queries", 400)], None),
        ):
            of_type = Script(*replies).answer
            logons.service.answer = lambda request, of_type=of_type: (
                of_type(request) if b"match_phrase" in request.body else answer(request)
            )
            with pytest.raises(AssetOwnersError, match=refused) if refused else nullcontext():
                assert found(next(logons.logons([DAY])))[0] == 1


def test_an_empty_day_is_dated_before_it_was_fetched():
    """A later date could settle a day that was not over when its emptiness was seen."""
    script = Script({"timed_out": False, "_shards": {"total": 0}})
    answer, answered = script.answer, []
    script.answer = lambda request: answered.append(datetime.now(UTC)) or answer(request)
    (day,) = script.logons()
    assert (day.day, day.matching) == (date(2026, 3, 2), 0)
    assert day.fetched_at <= answered[0]


# Several queries of one instance, with fields of their own

LOGS = [
    {"query": "kind:windows"},
    {"preset": "linux", "query": "kind:linux", "hostname_field": "host.name", "logon_type_field": "tty"},
]


@pytest.fixture
def opened(search_service):
    """Opens the two logs on documents: Windows' as they are, and Linux' with other fields."""

    def opened(windows=(), linux=(), logs=LOGS):
        search_service.documents = [event(*pair) | {"kind": "windows"} for pair in windows]
        search_service.documents += [
            event(None, user) | {"kind": "linux", "tty": "ssh", "host": {"name": host}}
            for host, user in linux
        ]
        given = instance(url=search_service.url, logs=logs)
        found: Any = Logs(given, lambda one: SearchClient(one, sleep=lambda _: None))
        found.service = search_service
        return found

    return opened


def test_each_log_is_counted_by_itself_with_its_own_fields(opened):
    windows = [("box", "ann"), ("box", "ann"), ("pc", "bob"), ("pc", None)]
    with opened(windows, [("box", "ann"), ("web", "-")]) as logs:
        logs.probe()
        ((day, of_linux),) = (counted.values() for counted in logs.logons([DAY]))
        grown = logs.ask_each(lambda log: log.matching_by_day([DAY]))
    assert found(day) == (4, 1, 0, [("box", "ann", 2), ("pc", "bob", 1)])
    assert found(of_linux) == (2, 1, 0, [("box", "ann", 1, "ssh")])
    assert grown == {"logs-*": {DAY: 4}, "linux": {DAY: 2}}


def test_an_error_names_the_log_and_where_there_is_one_log_only_not(opened):
    def fail(log):
        raise ConfigurationError(f"index: {log.instance.index}")

    for logs, says in (
        (LOGS[:1], "index: logs-*"),
        (LOGS, "logs.0 (logs-*): index: logs-*; logs.1 (linux): index: f"),
    ):
        with opened(logs=logs) as opened_logs, pytest.raises(ConfigurationError) as raised:
            opened_logs.ask_each(fail)
        assert str(raised.value).startswith(says)


def test_a_refusal_names_its_log_before_many_days_of_another_are_counted(opened):
    odd = error("parsing_exception", "odd", 400)
    with opened([("pc", "ann")]) as logs:
        service, answer = logs.service, logs.service.answer
        service.answer = lambda request: odd if b"kind:linux" in request.body else answer(request)
        for ask in (
            lambda: list(logs.logons([DAY + timedelta(days=number) for number in range(30)])),
            lambda: logs.ask("linux", lambda log: log.top_senders(DAY, DAY)),
        ):
            with pytest.raises(ConfigurationError, match=r"^logs\.1 \(linux\): .*odd"):
                ask()
        assert (
            sum(b"kind:windows" in request.body for request in service.requests)
            <= 2 * search.DAYS_AT_ONCE + 1
        )
