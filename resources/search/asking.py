"""How the search service is asked: one query over one index pattern, and what a refusal of it says.

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
    NEWEST,
    READ,
    Bucket,
    Found,
    Newest,
    faults,
    not_a_search_service,
    raise_refusal,
)
from resources.settings import Instance

DAYS_AT_ONCE = 2
T = TypeVar("T")

MATCHING = {"matching": {"filter": {"match_all": {}}}}
"""Counts documents as buckets do, where `hits.total` counts one with `_doc_count` once."""


def search_transport(instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> Transport:
    """Return what reaches the search service, without secrets; ConfigurationError: no readable `ca_file`."""
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
    """Asks the search service with the query, index and fields of one log.

    Opening it resolves the secrets: ConfigurationError when one is not set, or `ca_file` cannot be read.
    """

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
        """Ask for no document at all: TransientError when the service does not answer within seconds."""
        nothing = {"size": 0, "track_total_hits": False, "query": {"match_none": {}}, "aggs": {}}
        self.transport.probe("POST", self.path, **self._arguments(nothing))

    def between(self, first: date, last: date) -> dict[str, Any]:
        """Return the query for documents from one day to another, both included.

        A day is asked for in this way only, so that all counts of it are of the same documents.
        """
        instants = (day_start(day, self.instance.scan.timezone) for day in (first, last + timedelta(days=1)))
        start, end = (round(instant.timestamp() * 1000) for instant in instants)
        return {"range": {self.instance.time_field: {"gte": start, "lt": end, "format": "epoch_millis"}}}

    def search(
        self,
        filters: Sequence[dict[str, Any]],
        aggregations: Mapping[str, Any] | None = None,
        *,
        count_documents: bool | int = False,
    ) -> Found:
        """Aggregate the documents that match the query; `count_documents`: whether, or up to how many."""
        query = {"bool": {"filter": [*filters, self.query]}}
        return self.ask(query, aggregations, count_documents=count_documents)

    def ask(
        self,
        query: Mapping[str, Any],
        aggregations: Mapping[str, Any] | None = None,
        *,
        index: str | None = None,
        count_documents: bool | int = False,
    ) -> Found:
        """Aggregate any documents of the index pattern, or of a part of it."""
        body = {"size": 0, "track_total_hits": count_documents, "query": query, "aggs": aggregations or {}}
        found = self._decoded(DECODER, self._answer(body, _path(index) if index else self.path))
        if reasons := faults(found, aggregations or {}):
            raise ProtocolError(
                f"{self.transport.where} answered incompletely ({', '.join(reasons)}); result not used. "
                "Repair the cluster, or a proxy in front of it, and run again"
            )
        return found

    def ask_each_shard(
        self, query: Mapping[str, Any], aggregations: Mapping[str, Any]
    ) -> tuple[list[Bucket], Any]:
        """Return the buckets of shards that take a query, and the answer, which says why others refuse it."""
        body = {"size": 0, "track_total_hits": False, "query": query, "aggs": aggregations}
        arguments = self._arguments(body)
        arguments["params"] = {"allow_partial_search_results": "true"}
        answer = self.transport.send(self._session, "POST", self.path, **arguments)
        buckets = self._decoded(DECODER, answer).buckets if answer.status == 200 else []
        return buckets, self._json(answer)

    def newest(self, query: dict[str, Any]) -> Newest | None:
        """Return the newest of the best hits."""
        sort = ["_score", {"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
        body = {"size": 1, "query": query, "sort": sort, "fields": ["*"], "_source": False, "aggs": {}}
        hits = self._decoded(NEWEST, self._answer(body, self.path)).hits.hits
        return hits[0] if hits else None

    def _decoded(self, decoder: msgspec.json.Decoder[T], answer: Answer) -> T:
        try:
            return decoder.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_a_search_service(answer, self.instance) from error

    def _json(self, answer: Answer) -> Any:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise not_a_search_service(answer, self.instance) from error

    def _answer(self, body: dict[str, Any], path: str) -> Answer:
        answer: Answer = self.transport.retrying()(self._post, path, body)
        return answer

    def _post(self, path: str, body: dict[str, Any]) -> Answer:
        answer = self.transport.send(self._session, "POST", path, **self._arguments(body))
        if answer.status != 200:
            raise_refusal(answer, self.instance, self.transport, path)
        return answer

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
