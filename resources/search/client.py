"""The search service: logon events of a day, counted by host and user.

The only call is `POST {url}/{index}/_search` (rules 3.1), the same for Elasticsearch 7 to 9 and
OpenSearch 1 to 3: no product check, no cluster call. What the counts mean is decided in `ownership`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec
import polars as pl
from requests.auth import HTTPBasicAuth

from ownership.names import with_domain
from ownership.windows import day_start
from resources.errors import ConfigurationError, ProtocolError
from resources.http import Answer, Transport
from resources.search import diagnosis
from resources.search.answers import DECODER, READ, Bucket, Found, Pair, PairBucket, faults, texts
from resources.search.refusals import (
    MIN_PAGE,
    MixedTypesError,
    TextFieldError,
    TooManyBucketsError,
    not_a_search_service,
    raise_refusal,
)
from resources.search.source import DayOfLogons, EvidenceSource
from resources.settings import Instance

MAX_PAGE = 50_000  # pairs; every page collects again from the start, so large pages are cheap
MAX_SAMPLE = 5_000  # pairs; below the bucket limit of every cluster that nobody lowered it on
DAYS_AT_ONCE = 2
MAX_PAIRS_PER_EVENT = 10  # a document may name several users; more than that by far is a page that repeats

NO_NAME = ("", "-")
"""Texts that count as no name (rules 1.3)."""
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


class SearchClient(EvidenceSource):
    """The search service of one instance.

    Opening it resolves the secrets: ConfigurationError when one is not set, or `ca_file` cannot be read.
    """

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.instance = instance
        self._page_size = MAX_PAGE
        self.transport = search_transport(instance, sleep=sleep)
        self.path = _path(instance.index)
        query = instance.query
        dsl = query.lstrip().startswith("{")
        self.query = json.loads(query) if dsl else {"query_string": {"query": query}}
        self.fields = {"hostname": instance.hostname_field, "username": instance.user_field}
        asked = {"logon_type": instance.logon_type_field, "user_domain": instance.user_domain_field}
        self._further = {name: field for name, field in asked.items() if field}
        # A bucket for documents without a value as well would double the time of the first page.
        self._sources: list[dict[str, Any]] = [
            {name: {"terms": {"field": field}}} for name, field in self.fields.items()
        ]
        self._sources += [
            {name: {"terms": {"field": field, "missing_bucket": True}}}
            for name, field in self._further.items()
        ]
        user, host = ({"missing": {"field": self.fields[name]}} for name in ("username", "hostname"))
        without = {"username": {**user, "aggs": {"absent": host}}, "hostname": host}
        # With the latest time: a field without times is refused there, and by no query.
        latest = {"max": {"field": instance.time_field}}
        self._totals: dict[str, Any] = {**MATCHING, **without, "latest": latest}
        self.user_setting = f"user_field ({instance.user_field})"
        self.host_setting = f"hostname_field ({instance.hostname_field})"
        self._password = instance.password.resolve("password")
        self._auth = HTTPBasicAuth(instance.username.encode(), self._password.encode())
        self._cookies = {name: value.resolve(f"cookies.{name}") for name, value in instance.cookies.items()}
        self._session = self.transport.new_session()

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def probe(self) -> None:
        """Ask for no document at all: TransientError when the service does not answer within seconds."""
        nothing = {"size": 0, "track_total_hits": False, "query": {"match_none": {}}, "aggs": {}}
        self.transport.probe("POST", self.path, **self._arguments(nothing))

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given, several days in parallel.

        A ConfigurationError names the setting: an index that does not exist, a field that cannot be
        aggregated or that holds words of a text, a query that does not parse, a `time_field` that none of
        the documents has. Such documents lie on no day (rules 4.1), so no day is given as empty then.
        """
        with ThreadPoolExecutor(DAYS_AT_ONCE) as executor:
            fetched = executor.map(self._day, days)
            empty = []
            for day in fetched:
                empty.append(day)
                if day.matching:
                    break
            else:
                if days and (undated := self.count_without_time()):
                    raise ConfigurationError(
                        f"time_field: none of the {undated} documents that match the query carries the field "
                        f"{self.instance.time_field!r}; name the field that holds the time of the logon"
                    )
            yield from empty
            yield from fetched

    def totals(self, first: date, last: date) -> tuple[int, int, int]:
        """Count the documents from `first` to `last`: matching, without a user, without a host.

        A field that cannot be aggregated is refused here, too.
        """
        one_pair = {"pairs": {"composite": {"size": 1, "sources": self._sources}}}
        found = self.search([self.between(first, last)], self._totals | one_pair)
        if not found.matching:
            return 0, 0, 0
        blank = (self._count_blank(name, first, last) for name in ("username", "hostname"))
        lacking_user, lacking_host = (
            some + further for some, further in zip(found.lacking, blank, strict=False)
        )
        return found.matching, lacking_user, lacking_host

    def first_pairs(self, first: date, last: date) -> pl.DataFrame:
        """Return the first hosts and users from `first` to `last`, by name, as `DayOfLogons` has a day's."""
        composite = {"pairs": {"composite": {"size": MAX_SAMPLE, "sources": self._sources}}}
        pairs = self.search([self.between(first, last)], composite).aggregations.pairs
        return _with_domains(_with_both_names(self._rows(pairs.buckets if pairs else [])))

    def matching_by_day(self, days: Sequence[date]) -> dict[date, int]:
        """As `EvidenceSource` says: one request, whose buckets count as those of a day do."""
        if not days:
            return {}
        bounds = {str(day): self._bounds(day, day) for day in days}
        ranges = [{"key": day, "from": start, "to": end} for day, (start, end) in bounds.items()]
        by_day = {"field": self.instance.time_field, "format": "epoch_millis", "ranges": ranges}
        window = self.between(min(days), max(days))
        found = self.search([window], {"buckets": {"date_range": by_day}})
        counts = {bucket.key: bucket.doc_count for bucket in found.buckets}
        return {day: counts.get(str(day), 0) for day in days}

    def shards(self) -> int:
        """Count the shards of the indexes of the pattern: 0 where it matches no index."""
        return self.search([]).shards.get("total", 0)

    def count_with_field(self, field: str, first: date, last: date) -> int:
        """Count the matching documents from `first` to `last` that have a field."""
        return self.search([self.between(first, last), {"exists": {"field": field}}], MATCHING).matching

    def count_without_time(self) -> int:
        """Count the documents of all times that match the query if none of them has `time_field`, else 0."""
        has_time = {"exists": {"field": self.instance.time_field}}
        if self.search([has_time], count_documents=1).hits.total.value:
            return 0
        return self.search([], MATCHING).matching

    def newest(self, query: dict[str, Any]) -> dict[str, Any]:
        """Return `_index`, `fields` and `matched_queries` of the newest of the best hits; {} without hits."""
        sort = ["_score", {"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
        body = {"size": 1, "query": query, "sort": sort, "fields": ["*"], "_source": False, "aggs": {}}
        answer: Answer = self.transport.retrying()(self._post, self.path, body)
        try:
            hits = json.loads(answer.body)["hits"]["hits"]
        except (ValueError, LookupError, TypeError) as error:
            raise not_a_search_service(answer, self.instance) from error
        return hits[0] if hits else {}

    why_lacking = diagnosis.why_lacking
    why_nothing = diagnosis.why_nothing
    unmatched_parts = diagnosis.unmatched_parts
    top_senders = diagnosis.top_senders

    def _day(self, day: date) -> DayOfLogons:
        """Read the pages of a composite aggregation; the first also counts the day's documents.

        Only an administrator may read the cluster's bucket limit, so refused pages are halved.
        """
        fetched_at = datetime.now(UTC)
        after: Pair | None = None
        asked: set[str] = set()
        rows: list[pl.DataFrame] = []
        matching, absent = 0, (0, 0, 0)
        while True:
            size = self._page_size
            composite = {"size": size, "sources": self._sources}
            further = {"after": msgspec.to_builtins(after)} if after else {}
            aggregations = {"pairs": {"composite": composite | further}, **({} if after else self._totals)}
            try:
                page = self.search([self.between(day, day)], aggregations)
            except TooManyBucketsError:
                if size <= MIN_PAGE:
                    raise
                self._page_size = min(self._page_size, max(size // 2, MIN_PAGE))
                continue
            pairs = page.aggregations.pairs
            if pairs is None and after:
                raise ProtocolError(
                    f"The last index of {self.instance.index} at {self.instance.url} was deleted while "
                    f"{day} was counted; run again"
                )
            if not after:
                matching, absent = page.matching, page.lacking
            rows.append(self._rows(pairs.buckets if pairs else []))
            if pairs is None or len(pairs.buckets) < size or pairs.after_key is None:
                break
            after = pairs.after_key
            if str(after) in asked or len(asked) * size > MAX_PAIRS_PER_EVENT * matching:
                raise ProtocolError(
                    f"{self.transport.where} gives hosts and users of {day} without an end; result not used. "
                    "Check for a proxy or cache between this machine and the service"
                )
            asked.add(str(after))
        counts = pl.concat(rows)
        without_user, without_host, without_both = absent
        missing = matching - without_user - without_host + without_both - counts["events"].sum()
        if missing > 0 and after is None:  # what is counted while pages follow each other may be deleted
            raise ProtocolError(
                f"{self.transport.where} counted {matching} events of {day} and gave hosts and users of "
                f"{missing} too few; result not used. Check for a proxy between this machine and the service "
                "that shortens answers"
            )
        if counts.drop("events").is_duplicated().any():
            raise ProtocolError(
                f"{self.transport.where} gave duplicate pairs of host and user of {day}; result not used. "
                "Check for a proxy or cache between this machine and the service"
            )
        if missing < 0:  # documents with several values, or such as arrived since the first page
            diagnosis.require_whole_names(self, day, day)
        is_blank = {name: pl.col(f"document_{name}").is_in(NO_NAME) for name in self.fields}
        lacking = []
        for name, without, only_other in (
            ("username", without_user, without_host - without_both),
            ("hostname", without_host, without_user - without_both),
        ):
            blank = int(counts.filter(is_blank[name])["events"].sum())
            # Pairs do not show a name without the other one, and a document with several more than once.
            if only_other or (blank and missing < 0):
                blank = self._count_blank(name, day, day)
            lacking.append(min(without + blank, matching))
        return DayOfLogons(
            day, fetched_at, matching, *lacking, counts=_with_domains(_with_both_names(counts))
        )

    def _count_blank(self, name: str, first: date, last: date) -> int:
        """Count the documents whose user, or host, is empty or `-`; one with a name beside it has a name."""
        field = self.fields[name]
        values = {"values": {"value_count": {"field": field}}}
        terms = {"terms": {"field": field, "include": NO_NAME}, "aggs": values}
        buckets: list[Bucket] = []
        with suppress(ConfigurationError):  # a field of numbers refuses to be asked for texts, and has none
            buckets = self.search([self.between(first, last)], {"buckets": terms}).buckets
        documents = 0
        for bucket in buckets:
            beside = round((bucket.values.value if bucket.values else None) or 0) - bucket.doc_count
            documents += max(bucket.doc_count - max(beside, 0), 0)
        return documents

    def _rows(self, buckets: Sequence[PairBucket]) -> pl.DataFrame:
        """Turn buckets into rows like those of `DayOfLogons`, with names that are none."""
        columns = {
            "document_hostname": texts([bucket.key.hostname for bucket in buckets]),
            "document_username": texts([bucket.key.username for bucket in buckets]),
            "events": pl.Series([bucket.doc_count for bucket in buckets], dtype=pl.Int64),
        }
        for name in self._further:
            values = (getattr(bucket.key, name) for bucket in buckets)
            columns[f"document_{name}"] = texts([None if each is msgspec.UNSET else each for each in values])
        return pl.DataFrame(columns)

    def _bounds(self, first: date, last: date) -> tuple[int, int]:
        """Return where `first` begins and `last` has ended, in milliseconds since the epoch."""
        instants = (day_start(day, self.instance.scan.timezone) for day in (first, last + timedelta(days=1)))
        start, end = (round(instant.timestamp() * 1000) for instant in instants)
        return start, end

    def between(self, first: date, last: date) -> dict[str, Any]:
        """Return the query for documents from one day to another, both included."""
        start, end = self._bounds(first, last)
        return {"range": {self.instance.time_field: {"gte": start, "lt": end, "format": "epoch_millis"}}}

    def search(
        self,
        filters: list[dict[str, Any]],
        aggregations: Mapping[str, Any] | None = None,
        *,
        count_documents: bool | int = False,
    ) -> Found:
        """Aggregate the documents that match the query; `count_documents`: whether, or up to how many."""
        query = {"bool": {"filter": [*filters, self.query]}}
        try:
            return self.ask(query, aggregations, count_documents=count_documents)
        except TextFieldError as error:
            raise ConfigurationError(f"{error}{diagnosis.lacking_keyword(self, error.field)}") from error
        except MixedTypesError as error:
            raise ConfigurationError(diagnosis.mixed_types(self, query) or str(error)) from error

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
        path = _path(index) if index else self.path
        answer: Answer = self.transport.retrying()(self._post, path, body)
        try:
            found = DECODER.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise not_a_search_service(answer, self.instance) from error
        if reasons := faults(found, aggregations or {}):
            raise ProtocolError(
                f"{self.transport.where} answered incompletely ({', '.join(reasons)}); result not used. "
                "Repair the cluster, or a proxy in front of it, and run again"
            )
        return found

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


def _with_both_names(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of which neither name is empty or `-` (rules 1.3)."""
    return pairs.filter(~pl.any_horizontal(pl.col("document_hostname", "document_username").is_in(NO_NAME)))


def _with_domains(counts: pl.DataFrame) -> pl.DataFrame:
    """Spell user names with the domain of its own field, where there is one."""
    if "document_user_domain" not in counts.columns:
        return counts
    spelling = with_domain(pl.col("document_username"), pl.col("document_user_domain"))
    spelled = counts.with_columns(document_username=spelling).drop("document_user_domain")
    return spelled.group_by(pl.exclude("events"), maintain_order=True).agg(pl.sum("events"))
