"""Asks the search service: one query over one index pattern.

The only call is `POST {url}/{index}/_search` (rules 3.1), the same for Elasticsearch 7 to 9 and
OpenSearch 1 to 3: no product check, no cluster call.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec
from requests.auth import HTTPBasicAuth

from ownership.windows import day_start
from resources.errors import ProtocolError
from resources.http import Answer, Transport
from resources.search.responses import (
    DECODER,
    DOCUMENTS,
    READ,
    Bucket,
    Document,
    Found,
    find_faults,
    not_a_search_service,
    raise_refusal,
)
from resources.settings import Instance

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
        return {
            "params": {"allow_partial_search_results": "false", "filter_path": READ},
            "json": body,
            "auth": self._auth,
            "cookies": self._cookies,
            "secrets": (self._password, *self._cookies.values()),
            "personal": tuple(str(name) for name in after.values() if name is not None),
        }


def _path(index: str) -> str:
    return f"/{quote(index, safe='*,-')}/_search"
