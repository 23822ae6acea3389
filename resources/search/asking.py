"""Asks the search service about one log, and reads its answers: whole (rules 3.3), or why they are refused.

The only call is `POST {url}/{index}/_search` (rules 3.1), the same for Elasticsearch 7 to 9 and
OpenSearch 1 to 3: no product check, no cluster call.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Annotated, Any, NoReturn, Self, TypeVar
from urllib.parse import quote

import msgspec
import polars as pl
from msgspec import Struct, field
from requests.auth import HTTPBasicAuth

from ownership.declaration import polars_schema
from ownership.tables import LogonCounts
from ownership.windows import day_start
from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError, ProtocolError
from resources.http import Answer, Transport
from resources.redaction import redact
from resources.settings import Instance


def values_at(source: Any, path: str) -> list[Any]:
    """Return the values at a dotted path, also inside lists; keys may contain dots themselves."""
    if isinstance(source, list):
        return [value for each in source for value in values_at(each, path)]
    if not path:
        return [] if source is None else [source]
    if not isinstance(source, dict):
        return []
    parts = path.split(".")
    ways = ((".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts) + 1))
    return [value for key, rest in ways if key in source for value in values_at(source[key], rest)]


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """Yield path and text of each value that is not empty; elements of a list have the list's path."""
    left = [("", value)]
    while left:  # a service may nest more deeply than Python calls
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{key}" if path else key, inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(path, element) for element in value]
        elif value not in (None, ""):
            yield path, str(value)


MAX_DOCUMENTS = 2**40  # in one count; sums still fit into 64 bits

READ = "timed_out,_shards.total,_shards.failed,_clusters,hits.hits,aggregations,error,status"
"""The members of an answer that the service sends."""

_INDEX = r"""^[^\x00-\x20\x7f-\x9f"*,/<>?\\|#]{1,255}$"""
"""A valid index name; any other could harm a terminal or an instance file."""
Name = str | int | float | bool  # a host or a user; a field may also hold numbers
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DOCUMENTS)]


class _Part(Struct, gc=False):
    """A part of an answer; garbage collection would take longer than parsing, so it is off."""


class Pair(_Part):
    """A host and a user."""

    hostname: Name
    username: Name
    # Unset if not asked for; None if the document has no value.
    logon_type: Name | msgspec.UnsetType | None = msgspec.UNSET
    user_domain: Name | msgspec.UnsetType | None = msgspec.UNSET


FURTHER = Pair.__struct_fields__[2:]
"""What is counted beside both names, where its setting (`logon_type_field` and so on) names a field."""
COUNTED_APART = tuple(name for name in FURTHER if f"document_{name}" in polars_schema(LogonCounts))
"""Those of them that are stored with the counts."""


class PairBucket(_Part):
    """The number of documents with a pair."""

    key: Pair
    doc_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DOCUMENTS)]  # no pair without documents


class _Pairs(_Part):  # one page of pairs
    buckets: list[PairBucket]
    after_key: Pair | None = None


class _Value(_Part):  # a computed number; None without documents
    value: float | None = None


class Document(_Part):
    """One document: where it lies, its fields, and which queries it matches."""

    index: Annotated[str, msgspec.Meta(pattern=_INDEX)] = field(name="_index")
    fields: dict[str, list[Any]] = field(default_factory=dict)
    matched_queries: list[str] = field(default_factory=list)


class _Hits(_Part):
    hits: list[Document]


class _Documents(_Part):  # some documents of a bucket, or of a whole answer
    hits: _Hits


class Bucket(_Part):
    """Documents with a common value, and what was aggregated for them."""

    doc_count: Count
    key: Name | None = None
    absent: "Bucket | None" = None
    dated: "Bucket | None" = None
    earliest: _Value | None = None
    latest: _Value | None = None
    sibling: "Bucket | None" = None
    names: "_Buckets | None" = None
    hosts: _Value | None = None
    others: _Value | None = None
    values: _Value | None = None
    documents: _Documents | None = None

    @property
    def lost(self) -> int:
        """The number of documents that belong to no day."""
        return self.doc_count - _count(self.dated)

    @property
    def lacking(self) -> int:
        """The number of documents without a value."""
        return _count(self.absent)


class _Buckets(_Part):  # the buckets of one aggregation
    buckets: list[Bucket]


class _Aggregations(_Part):  # the aggregations asked for; all None if the pattern matches no index
    pairs: _Pairs | None = None
    matching: Bucket | None = None
    latest: _Value | None = None
    hostname: Bucket | None = None
    username: Bucket | None = None
    buckets: _Buckets | None = None


class _Shards(_Part):
    total: int = 0
    failed: int = 0


class Found(_Part):
    """An answer to a search."""

    timed_out: bool
    shards: _Shards = field(name="_shards")
    clusters: dict[str, Any] = field(name="_clusters", default_factory=dict)
    aggregations: _Aggregations = field(default_factory=_Aggregations)

    @property
    def matching(self) -> int:
        """The number of matching documents; one with `_doc_count` counts that often, as in buckets."""
        return _count(self.aggregations.matching)

    @property
    def lacking(self) -> tuple[int, int, int]:
        """The numbers of documents without a user, without a host, and without both."""
        username, hostname = self.aggregations.username, self.aggregations.hostname
        return _count(username), _count(hostname), _count(username.absent if username else None)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets of the aggregation `buckets`."""
        return self.aggregations.buckets.buckets if self.aggregations.buckets else []


def _count(bucket: Bucket | None) -> int:
    return bucket.doc_count if bucket else 0


# At module level: msgspec (0.22) crashes when two threads register the same type.
DECODER = msgspec.json.Decoder(Found)
DOCUMENTS = msgspec.json.Decoder(_Documents)


def find_faults(found: Found, asked: Mapping[str, Any]) -> list[str]:
    """Return why an answer is incomplete (rules 3.3)."""
    counts = {f"clusters {state}": found.clusters.get(state) for state in ("skipped", "partial", "failed")}
    counts["shards failed"] = found.shards.failed
    reasons = [f"{count} {fault}" for fault, count in counts.items() if count]
    if found.timed_out:
        reasons.append("the search timed out")
    if found.shards.total:
        reasons += [f"no {name}" for name in asked if getattr(found.aggregations, name) is None]
    return reasons


def texts(names: Sequence[Name | None]) -> pl.Series:
    """Return names of any type as text."""
    return pl.Series(names, dtype=pl.String, strict=False)


MIN_PAGE = 100  # buckets of the smallest page
FAULT_OF_REQUEST = re.compile(
    r"(illegal_argument|class_cast|number_format|aggregation_execution|parse|parsing|query_shard)_exception\b"
)
_MISSING_SHARD = re.compile(r"\[\[([^\]]+)\]\[\d+\]")
_BLOCKED_INDEX = re.compile(r"index \[([^\]]+)\] blocked by: \[([^\]]+)\]")


class TooManyBucketsError(ProtocolError):
    """The page has more buckets than the cluster allows."""


@dataclass(eq=False)
class RefusedSearchError(ConfigurationError):
    """The service refuses a search; `why_refused` finds the wrong setting with further searches."""

    status: int
    kinds: Sequence[str]  # of the causes
    reason: str
    in_index: str
    where: str
    query: str

    def __post_init__(self) -> None:
        super().__init__(f"The search is refused by {self.where}{self.in_index}: {self.reason}")


def raise_refusal(answer: Answer, instance: Instance, transport: Transport, path: str) -> NoReturn:
    """Raise the error for an answer that refuses a search; TransientError only for what may be retried."""
    where = f"the search service at {instance.url}"
    # Their types decide, because services and versions give the same cause different statuses.
    causes = _causes(answer.body)
    kinds = causes["type"]
    reason = answer.sanitise("; ".join(dict.fromkeys(causes["reason"])), 500) or answer.excerpt
    indexes = answer.sanitise(", ".join(sorted(set(causes["index"]))))
    # Messages are stored, and the user that such an answer names may be a person.
    reason = redact(reason, (), (instance.username,) if answer.status in {401, 403} else ())
    if answer.status == 401:
        raise AuthenticationError(
            f"The log-in is refused by {where}; check username and password "
            f"({instance.password.how_to_change}): {reason}"
        )
    blocked = _BLOCKED_INDEX.search(reason)
    if blocked or "index_closed_exception" in kinds:
        which, why = blocked.groups() if blocked else (indexes, "closed")
        raise ProtocolError(
            f"The index {which} at {where} is blocked ({why}); have the block removed, or the index opened, "
            "or exclude it in the setting index, and run again"
        )
    if answer.status == 403:
        raise PermissionDeniedError(
            f"The user that `username` names may not search {instance.index} at {where}, or it does not "
            "exist; correct the setting index, or grant read and view_index_metadata on exactly that index "
            f"pattern ({reason})"
        )
    if "too_many_buckets_exception" in kinds or "too many buckets" in reason.lower():
        raise TooManyBucketsError(f"Even pages of {MIN_PAGE} buckets are refused by {where} ({reason})")
    if {"index_not_found_exception", "no_such_remote_cluster_exception"} & {*kinds}:
        raise ConfigurationError(
            f"index: {instance.index!r} names an index, or a remote cluster, that {where} does not have; "
            f"correct the name or use a pattern such as logs-* ({reason})"
        )
    if "no_shard_available_action_exception" in kinds or "missing shards" in reason:
        red = ", ".join(sorted(set(_MISSING_SHARD.findall(reason)))) or indexes or instance.index
        raise ProtocolError(
            f"The index {red} at {where} is red: a part of it is on no node; have the cluster repaired, or "
            f"exclude it from index, and run again ({reason})"
        )
    if not any(map(FAULT_OF_REQUEST.search, kinds)):
        status = 503 if "task_cancelled_exception" in kinds else answer.status
        body = reason.encode() if kinds else answer.body
        transport.raise_if_transient(replace(answer, status=status, body=body), path)
    if not kinds:
        raise not_a_search_service(answer, instance)
    in_index, query = f" in the index {indexes}" if indexes else "", answer.sanitise(instance.query)
    raise RefusedSearchError(answer.status, kinds, reason, in_index, where, query)


def not_a_search_service(answer: Answer, instance: Instance) -> ProtocolError:
    """Return the error for an answer that is not a search service's."""
    # Messages must not show the names of hosts and users in these.
    names = any(part in answer.body for part in (b'"aggregations"', b'"hits"'))
    return ProtocolError(
        f"{instance.url} does not answer as a search service; url must name the service itself, not "
        f"a dashboard or cache. It said, with HTTP status {answer.status}: "
        f"{'...' if names else answer.excerpt}"
    )


def _causes(body: bytes) -> dict[str, list[str]]:
    """Return the texts of an error answer by key, innermost first, each with its first line only."""
    found: dict[str, list[str]] = defaultdict(list)

    def keep(members: list[tuple[str, Any]]) -> None:
        for name, text in members:
            if isinstance(text, str) and text:
                found[name].append(text.splitlines()[0])

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=keep)
    return found


DAYS_AT_ONCE = 2
ANYTHING = msgspec.json.Decoder()
T = TypeVar("T")

MATCHING = {"matching": {"filter": {"match_all": {}}}}
"""Counts a document as often as its `_doc_count` says, as buckets do; `hits.total` counts it once."""


def search_transport(instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> Transport:
    """Return the transport to the search service; ConfigurationError: `ca_file` cannot be read."""
    return Transport(
        service="search service",
        section="",
        url=instance.url,
        ignore_ssl=instance.ignore_ssl,
        ca_file=instance.ca_file,
        connections=DAYS_AT_ONCE,
        read_timeout_seconds=300,
        sleep=sleep,
    )


class Asker:
    """Asks the search service about one log; ConfigurationError: a secret or `ca_file` cannot be used."""

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.instance = instance
        self.transport = search_transport(instance, sleep=sleep)
        self.path = _path(instance.index)
        query = instance.query
        dsl = query.lstrip().startswith("{")
        self.query = json.loads(query) if dsl else {"query_string": {"query": query}}
        self.fields = {"hostname": instance.hostname_field, "username": instance.user_field}
        self._password = instance.password.resolve("password")
        self._auth = HTTPBasicAuth(instance.username.encode(), self._password.encode())
        self._cookies = {name: value.resolve(f"cookies.{name}") for name, value in instance.cookies.items()}
        self._session = self.transport.new_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def probe(self) -> None:
        """Send a search without results; TransientError if the service does not answer within seconds."""
        nothing = {"size": 0, "track_total_hits": False, "query": {"match_none": {}}, "aggs": {}}
        self.transport.probe("POST", self.path, **self._arguments(nothing))

    def between(self, first: date, last: date) -> dict[str, Any]:
        """Return the query by which all counts select documents from one day to another, both included."""
        instants = (day_start(day, self.instance.scan.timezone) for day in (first, last + timedelta(days=1)))
        start, end = (round(instant.timestamp() * 1000) for instant in instants)
        return {"range": {self.instance.time_field: {"gte": start, "lt": end, "format": "epoch_millis"}}}

    def search(
        self, filters: Sequence[dict[str, Any]], aggregations: Mapping[str, Any] | None = None
    ) -> Found:
        """Aggregate the documents that match the query."""
        return self.ask({"bool": {"filter": [*filters, self.query]}}, aggregations)

    def ask(
        self,
        query: Mapping[str, Any],
        aggregations: Mapping[str, Any] | None = None,
        *,
        index: str | None = None,
    ) -> Found:
        """Aggregate the documents that match any query, in the index pattern or a part of it."""
        body = {"size": 0, "track_total_hits": False, "query": query, "aggs": aggregations or {}}
        found = self._decoded(DECODER, self._answer(body, _path(index) if index else self.path))
        if reasons := find_faults(found, aggregations or {}):
            raise ProtocolError(
                f"{self.transport.where} answered incompletely ({', '.join(reasons)}); result not used. "
                "Repair the cluster, or a proxy in front of it, and run again"
            )
        return found

    def ask_each_shard(
        self, query: Mapping[str, Any], aggregations: Mapping[str, Any]
    ) -> tuple[list[Bucket], Any]:
        """Return the buckets of the shards that accept a query, and the answer with the others' refusals."""
        body = {"size": 0, "track_total_hits": False, "query": query, "aggs": aggregations}
        arguments = self._arguments(body)
        arguments["params"] = {"allow_partial_search_results": "true"}
        answer = self.transport.send(self._session, "POST", self.path, **arguments)
        if answer.status != 200:
            with suppress(RefusedSearchError):  # all shards refuse the query
                raise_refusal(answer, self.instance, self.transport, self.path)
        buckets = self._decoded(DECODER, answer).buckets if answer.status == 200 else []
        return buckets, self._decoded(ANYTHING, answer)

    def newest(self, query: dict[str, Any]) -> Document | None:
        """Return the newest of the documents with the best score."""
        sort = ["_score", {"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
        body = {"size": 1, "query": query, "sort": sort, "fields": ["*"], "_source": False, "aggs": {}}
        hits = self._decoded(DOCUMENTS, self._answer(body, self.path)).hits.hits
        return hits[0] if hits else None

    def _decoded(self, decoder: msgspec.json.Decoder[T], answer: Answer) -> T:
        try:
            return decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_a_search_service(answer, self.instance) from error

    def _answer(self, body: dict[str, Any], path: str) -> Answer:
        def post() -> Answer:
            answer = self.transport.send(self._session, "POST", path, **self._arguments(body))
            if answer.status != 200:
                raise_refusal(answer, self.instance, self.transport, path)
            return answer

        return self.transport.retrying()(post)

    def _arguments(self, body: dict[str, Any]) -> dict[str, Any]:
        after = body["aggs"].get("pairs", {}).get("composite", {}).get("after", {})
        skips = {"pre_filter_shard_size": "1"} if after else {}  # indexes that cannot match
        return {
            "params": {"allow_partial_search_results": "false", "filter_path": READ, **skips},
            "json": body,
            "auth": self._auth,
            "cookies": self._cookies,
            "secrets": (self._password, *self._cookies.values()),
            "personal": tuple(str(name) for name in after.values() if name is not None),
        }


def _path(index: str) -> str:
    return f"/{quote(index, safe='*,-')}/_search"
