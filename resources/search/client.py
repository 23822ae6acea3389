"""The search service: logon events of a day, counted by host and user.

The only call is `POST {url}/{index}/_search` (rules 3.1), the same for Elasticsearch 7 to 9 and
OpenSearch 1 to 3: no product check, no cluster call. What the counts mean is decided in `ownership`.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import msgspec
import polars as pl
from msgspec import Struct, field
from requests.auth import HTTPBasicAuth

from ownership.names import with_domain
from ownership.windows import day_start
from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError, ProtocolError
from resources.http import Answer, Transport
from resources.search.source import DayOfLogons, EvidenceSource
from resources.settings import Instance

MAX_PAGE = 50_000  # pairs; every page collects again from the start, so large pages are cheap
MIN_PAGE = 100
MAX_SAMPLE = 5_000  # pairs; below the bucket limit of every cluster that nobody lowered it on
DAYS_AT_ONCE = 2
MAX_SENDERS = 20
HOSTS_PER_SENDER = 10
MAX_PAIRS_PER_EVENT = 10  # a document may name several users; more than that by far is a page that repeats
MAX_DOCUMENTS = 2**40  # in one count; the sum of so many still fits into 64 bits

_READ = "timed_out,_shards.total,_shards.failed,_clusters,hits.total,hits.hits,aggregations,error,status"
"""What is read of an answer; the service leaves the rest out."""

_SENDERS = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}

Name = str | int | float | bool  # a host or a user; a field may also hold numbers
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DOCUMENTS)]


class _Part(Struct, gc=False):
    """A part of an answer. Excluded from garbage collection, which would take longer than parsing."""


class _Pair(_Part):
    hostname: Name
    username: Name
    # Only where they are asked for; None: no value.
    logon_type: Name | msgspec.UnsetType | None = msgspec.UNSET
    user_domain: Name | msgspec.UnsetType | None = msgspec.UNSET


class _PairBucket(_Part):
    key: _Pair
    doc_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DOCUMENTS)]  # no pair without documents


class _Pairs(_Part):
    buckets: list[_PairBucket]
    after_key: _Pair | None = None


class _Bucket(_Part):
    """Documents that have something in common, and of them what was asked for."""

    doc_count: Count
    key: Name | None = None
    absent: "_Bucket | None" = None
    names: "_Buckets | None" = None


class _Buckets(_Part):
    buckets: list[_Bucket]


class _Aggregations(_Part):
    """What was asked for of these; nothing where the pattern matches no index."""

    pairs: _Pairs | None = None
    hostname: _Bucket | None = None
    username: _Bucket | None = None
    senders: _Buckets | None = None
    days: _Buckets | None = None
    latest: dict[str, Any] | None = None


class _Total(_Part):
    value: Count = 0


class _Hits(_Part):
    total: _Total = field(default_factory=_Total)


class _Found(_Part):
    """An answer to a search."""

    timed_out: bool
    shards: dict[str, int] = field(name="_shards")
    clusters: dict[str, Any] = field(name="_clusters", default_factory=dict)
    hits: _Hits = field(default_factory=_Hits)
    aggregations: _Aggregations = field(default_factory=_Aggregations)


# Made while the module loads: msgspec (0.22) crashes when two threads make the same type known to it.
_DECODER = msgspec.json.Decoder(_Found)


class SearchClient(EvidenceSource):
    """The search service of one instance.

    Opening it resolves the secrets: ConfigurationError when one is not set, or `ca_file` cannot be read.
    """

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.instance = instance
        self._page_size = MAX_PAGE
        self.transport = Transport(
            service="search service",
            section="",
            url=instance.url,
            ignore_ssl=instance.ignore_ssl,
            ca_file=instance.ca_file,
            connections=DAYS_AT_ONCE,
            read_timeout_seconds=300,
            sleep=sleep,
        )
        self.path = f"/{quote(instance.index, safe='*,-')}/_search"
        query = instance.query
        dsl = query.lstrip().startswith("{")
        self._query = json.loads(query) if dsl else {"query_string": {"query": query}}
        fields = {"hostname": instance.hostname_field, "username": instance.user_field}
        self._sources: list[dict[str, Any]] = [
            {name: {"terms": {"field": field}}} for name, field in fields.items()
        ]
        asked = {"logon_type": instance.logon_type_field, "user_domain": instance.user_domain_field}
        self._further = {name: field for name, field in asked.items() if field}
        self._sources += [
            {name: {"terms": {"field": field, "missing_bucket": True}}}
            for name, field in self._further.items()
        ]
        # What `_totals` reads, and the latest time: a field without times is refused there, and by no query.
        self._carried: dict[str, Any] = {
            name: {"filter": _not_blank(field), "aggs": {"absent": {"missing": {"field": field}}}}
            for name, field in fields.items()
        } | {"latest": {"max": {"field": instance.time_field}}}
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
        aggregated, a query that does not parse, a `time_field` that none of the documents has. Such documents
        lie on no day (rules 4.1), so no day is given as empty then.
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
        aggregations = {**self._carried, "pairs": {"composite": {"size": 1, "sources": self._sources}}}
        return _totals(self._search([self._between(first, last)], aggregations))

    def first_pairs(self, first: date, last: date) -> pl.DataFrame:
        """Return the first hosts and users from `first` to `last`, by name, as `DayOfLogons` has a day's."""
        composite = {"pairs": {"composite": {"size": MAX_SAMPLE, "sources": self._sources}}}
        found = self._search([self._between(first, last)], composite, count_documents=False)
        pairs = found.aggregations.pairs
        return _with_domains(self._counts(pairs.buckets if pairs else []))

    def matching_by_day(self, days: Sequence[date]) -> dict[date, int]:
        """As `CountsDays` says: one request, whose buckets count as those of a day do."""
        if not days:
            return {}
        bounds = {str(day): self._bounds(day, day) for day in days}
        ranges = [{"key": day, "from": start, "to": end} for day, (start, end) in bounds.items()]
        by_day = {"field": self.instance.time_field, "format": "epoch_millis", "ranges": ranges}
        window = self._between(min(days), max(days))
        found = self._search([window], {"days": {"date_range": by_day}}, count_documents=False)
        counts = {bucket.key: bucket.doc_count for bucket in _buckets(found.aggregations.days)}
        return {day: counts.get(str(day), 0) for day in days}

    def shards(self) -> int:
        """Count the shards of the indexes of the pattern: 0 where it matches no index."""
        return self._search([]).shards.get("total", 0)

    def count_with_field(self, field: str, first: date, last: date) -> int:
        """Count the matching documents from `first` to `last` that have a field."""
        return self._search([self._between(first, last), {"exists": {"field": field}}]).hits.total.value

    def count_without_time(self) -> int:
        """Count the documents of all times that match the query if none of them has `time_field`, else 0."""
        has_time = {"exists": {"field": self.instance.time_field}}
        if self._search([has_time], count_documents=1).hits.total.value:
            return 0
        return self._search([]).hits.total.value

    def newest(self, query: dict[str, Any]) -> dict[str, Any]:
        """Return `_index`, `fields` and `matched_queries` of the newest of the best hits; {} without hits."""
        sort = ["_score", {"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
        body = {"size": 1, "query": query, "sort": sort, "fields": ["*"], "_source": False, "aggs": {}}
        answer: Answer = self.transport.retrying()(self._post, body)
        try:
            hits = json.loads(answer.body)["hits"]["hits"]
        except (ValueError, LookupError, TypeError) as error:
            raise self._not_a_search_service(answer) from error
        return hits[0] if hits else {}

    def top_senders(self, day: date) -> tuple[int, pl.DataFrame]:
        """As `ListsSenders` says, for `MAX_SENDERS` names; hosts are values of `host.name`."""
        by_name = {
            "terms": {"field": self.instance.hostname_field, "size": MAX_SENDERS, "order": {"hosts": "desc"}},
            "aggs": {
                "hosts": {"cardinality": {"field": "host.name", "precision_threshold": 100}},
                "names": {"terms": {"field": "host.name", "size": HOSTS_PER_SENDER}},
            },
        }
        found = self._search([self._between(day, day)], {"senders": by_name})
        buckets = _buckets(found.aggregations.senders)
        rows = [
            (one.key, one.doc_count, _texts([name.key for name in _buckets(one.names)])) for one in buckets
        ]
        return found.hits.total.value, pl.DataFrame(rows, _SENDERS, orient="row", strict=False)

    def _day(self, day: date) -> DayOfLogons:
        """Read the pages of a composite aggregation; the first also counts the day's documents.

        Only an administrator may read the cluster's bucket limit, so refused pages are halved.
        """
        fetched_at = datetime.now(UTC)
        after: _Pair | None = None
        asked: set[str] = set()
        rows: list[pl.DataFrame] = []
        totals = 0, 0, 0
        while True:
            size = self._page_size
            composite = {"size": size, "sources": self._sources}
            further = {"after": msgspec.to_builtins(after)} if after else {}
            aggregations = {"pairs": {"composite": composite | further}, **({} if after else self._carried)}
            try:
                page = self._search([self._between(day, day)], aggregations, count_documents=not after)
            except _TooManyBucketsError:
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
            totals = totals if after else _totals(page)
            rows.append(self._counts(pairs.buckets if pairs else []))
            if pairs is None or len(pairs.buckets) < size or pairs.after_key is None:
                break
            after = pairs.after_key
            if str(after) in asked or len(asked) * size > MAX_PAIRS_PER_EVENT * totals[0]:
                raise ProtocolError(
                    f"{self.transport.where} gives hosts and users of {day} without an end; result not used. "
                    "Check for a proxy or cache between this machine and the service"
                )
            asked.add(str(after))
        counts = pl.concat(rows)
        matching, lacking_user, lacking_host = totals
        missing = matching - lacking_user - lacking_host - counts["events"].sum()
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
        return DayOfLogons(day, fetched_at, *totals, counts=_with_domains(counts))

    def _counts(self, buckets: Sequence[_PairBucket]) -> pl.DataFrame:
        """Turn buckets into the rows of `DayOfLogons`; `-` and empty count as no name."""
        columns = {
            "document_hostname": _texts([bucket.key.hostname for bucket in buckets]),
            "document_username": _texts([bucket.key.username for bucket in buckets]),
            "events": pl.Series([bucket.doc_count for bucket in buckets], dtype=pl.Int64),
        }
        for name in self._further:
            values = (getattr(bucket.key, name) for bucket in buckets)
            columns[f"document_{name}"] = _texts([None if each is msgspec.UNSET else each for each in values])
        lacking = pl.col("document_hostname", "document_username").is_in(["", "-"])
        return pl.DataFrame(columns).filter(~pl.any_horizontal(lacking))

    def _bounds(self, first: date, last: date) -> tuple[int, int]:
        """Return where `first` begins and `last` has ended, in milliseconds since the epoch."""
        instants = (day_start(day, self.instance.scan.timezone) for day in (first, last + timedelta(days=1)))
        start, end = (round(instant.timestamp() * 1000) for instant in instants)
        return start, end

    def _between(self, first: date, last: date) -> dict[str, Any]:
        start, end = self._bounds(first, last)
        return {"range": {self.instance.time_field: {"gte": start, "lt": end, "format": "epoch_millis"}}}

    def _search(
        self,
        filters: list[dict[str, Any]],
        aggregations: Mapping[str, Any] | None = None,
        *,
        count_documents: bool | int = True,
    ) -> _Found:
        """Aggregate the matching documents; `count_documents`: whether to count them, or up to how many."""
        body = {
            "size": 0,
            "track_total_hits": count_documents,
            "query": {"bool": {"filter": [*filters, self._query]}},
            "aggs": aggregations or {},
        }
        answer: Answer = self.transport.retrying()(self._post, body)
        try:
            found = _DECODER.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._not_a_search_service(answer) from error
        if faults := _faults(found, aggregations or {}):
            raise ProtocolError(
                f"{self.transport.where} answered incompletely ({', '.join(faults)}); result not used. "
                "Repair the cluster, or a proxy in front of it, and run again"
            )
        return found

    def _post(self, body: dict[str, Any]) -> Answer:
        answer = self.transport.send(self._session, "POST", self.path, **self._arguments(body))
        if answer.status != 200:
            self._raise_refusal(answer)
        return answer

    def _arguments(self, body: dict[str, Any]) -> dict[str, Any]:
        after = body["aggs"].get("pairs", {}).get("composite", {}).get("after", {})
        return {
            "params": {"allow_partial_search_results": "false", "filter_path": _READ},
            "json": body,
            "auth": self._auth,
            "cookies": self._cookies,
            "secrets": (self._password, *self._cookies.values()),
            "personal": tuple(map(str, after.values())),
        }

    def _raise_refusal(self, answer: Answer) -> NoReturn:
        """Raise what an error answer means; the message names the setting to fix."""
        instance, where = self.instance, f"the search service at {self.instance.url}"
        causes = _causes(answer.body)
        kinds = causes["type"]
        reason = answer.sanitised("; ".join(dict.fromkeys(causes["reason"])), 500) or answer.excerpt
        indexes = answer.sanitised(", ".join(sorted(set(causes["index"]))))
        in_index = f" in the index {indexes}" if indexes else ""
        if answer.status == 401:
            raise AuthenticationError(
                f"The log-in is refused by {where}; check username and password ({reason})"
            )
        if answer.status == 403:
            raise PermissionDeniedError(
                f"{instance.username} may not search {instance.index} at {where}; grant read and "
                f"view_index_metadata on exactly that index pattern ({reason})"
            )
        if "too_many_buckets_exception" in kinds or "too many buckets" in reason.lower():
            raise _TooManyBucketsError(f"Even pages of {MIN_PAGE} buckets are refused by {where} ({reason})")
        if "index_not_found_exception" in kinds:
            raise ConfigurationError(
                f"index: {instance.index!r} names an index that {where} does not have; correct the name or "
                f"use a pattern such as logs-* ({reason})"
            )
        if "text fields" in reason.lower() or "fielddata" in reason.lower():
            for setting in ("hostname_field", "user_field", "logon_type_field", "user_domain_field"):
                if (field := getattr(instance, setting)) and f"[{field}]" in reason:
                    raise ConfigurationError(
                        f"{setting}: {field!r} is a text field{in_index}, which cannot be aggregated; name "
                        f"its keyword field, often {field + '.keyword'!r}, or leave that index out ({reason})"
                    )
        if any(map(_QUERY_ERRORS.search, kinds)):
            shown = answer.sanitised(instance.query)
            raise ConfigurationError(f"query: {shown!r} is refused by {where}: {reason}")
        self.transport.raise_if_transient(answer, self.path)
        if not kinds:
            raise self._not_a_search_service(answer)
        raise ConfigurationError(
            f"The search is refused by {where}{in_index} with HTTP status {answer.status}; check index, "
            f"query, time_field, hostname_field, user_field, user_domain_field and logon_type_field "
            f"({reason})"
        )

    def _not_a_search_service(self, answer: Answer) -> ProtocolError:
        # These hold names of hosts and users, which no message may show.
        names = any(part in answer.body for part in (b'"aggregations"', b'"hits"'))
        return ProtocolError(
            f"{self.instance.url} does not answer as a search service; url must name the service itself, no "
            f"dashboard or cache. It said, with HTTP status {answer.status}: "
            f"{'...' if names else answer.excerpt}"
        )


class _TooManyBucketsError(ProtocolError):
    """The page is larger than the cluster's bucket limit."""


_QUERY_ERRORS = re.compile("(^|_)(parse|parsing|query_shard|named_object_not_found)_exception$")


def _not_blank(field: str) -> dict[str, Any]:
    """Query for documents whose field is not empty or `-`, which count as lacking it (rules 1.3).

    Lenient, because a field of numbers can be neither and would refuse to be compared with them.
    """
    blank = [{"match": {field: {"query": text, "lenient": True}}} for text in ("", "-")]
    return {"bool": {"must_not": blank}}


def _totals(found: _Found) -> tuple[int, int, int]:
    """Documents of an answer: matching, without a user, without a host."""
    matching = found.hits.total.value
    lacking_user, lacking_host = (
        matching - (carried.doc_count - carried.absent.doc_count if carried and carried.absent else 0)
        for carried in (found.aggregations.username, found.aggregations.hostname)
    )
    return matching, lacking_user, lacking_host


def _faults(found: _Found, asked: Mapping[str, Any]) -> list[str]:
    """Return why an answer is incomplete (rules 3.3)."""
    counts = {f"clusters {state}": found.clusters.get(state) for state in ("skipped", "partial", "failed")}
    counts["shards failed"] = found.shards.get("failed")
    faults = [f"{count} {fault}" for fault, count in counts.items() if count]
    if found.timed_out:
        faults.append("the search timed out")
    if found.shards.get("total"):
        faults += [f"no {name}" for name in asked if getattr(found.aggregations, name) is None]
    return faults


def _with_domains(counts: pl.DataFrame) -> pl.DataFrame:
    """Spell user names with the domain of its own field, where there is one."""
    if "document_user_domain" not in counts.columns:
        return counts
    spelling = with_domain(pl.col("document_username"), pl.col("document_user_domain"))
    spelled = counts.with_columns(document_username=spelling).drop("document_user_domain")
    return spelled.group_by(pl.exclude("events"), maintain_order=True).agg(pl.sum("events"))


def _buckets(found: _Buckets | None) -> list[_Bucket]:
    return found.buckets if found else []


def _texts(names: list[Name | None]) -> pl.Series:
    return pl.Series(names, dtype=pl.String, strict=False)


def _causes(body: bytes) -> dict[str, list[str]]:
    """The texts of an error answer by their key, innermost first, without the grammar in further lines."""
    texts: dict[str, list[str]] = defaultdict(list)

    def keep(members: list[tuple[str, Any]]) -> None:
        for name, text in members:
            if isinstance(text, str) and text:
                texts[name].append(text.splitlines()[0])

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=keep)
    return texts
