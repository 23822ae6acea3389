"""The search service: logon events of a day, counted by host and user.

The only call is `POST {url}/{index}/_search` (rules 3.1), the same for Elasticsearch 7 to 9 and
OpenSearch 1 to 3: no product check, no cluster call. What the counts mean is decided in `ownership`.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from threading import BoundedSemaphore
from typing import Annotated, Any, Generic, Self, TypeVar
from urllib.parse import quote

import msgspec
import polars as pl
from msgspec import Struct, field
from requests.auth import HTTPBasicAuth

from ownership.windows import Window, day_start
from resources.errors import (
    AuthenticationError,
    ConfigurationError,
    PermissionDeniedError,
    ProtocolError,
)
from resources.findings import Finding
from resources.http import Answer, Transport, retrying
from resources.search.findings import search_findings
from resources.search.source import DayOfLogons
from resources.settings import Instance, Secret

MAX_PAGE = 50_000  # pairs; every page collects again from the start, so large pages are cheap
MIN_PAGE = 100
DAYS_AT_ONCE = 2
DAYS_PER_SURVEY = 1_000
MAX_SENDERS = 20
MAX_KINDS = 1_000
MAX_PAIRS_PER_DOCUMENT = 1_000  # of host and user, where the fields of a document hold many
HOSTS_PER_SENDER = 10

CHECK_PROXIES = "check for a proxy or cache between this machine and the service"
"""What to do about an answer that no search service gives."""

_READ = "timed_out,_shards.total,_shards.failed,_clusters,hits.total,aggregations,error,status"
"""What is read of an answer; the service leaves the rest out."""

Name = str | int | float | bool  # a host or a user; a field may also hold numbers
MAX_DOCUMENTS = 2**40  # in one count; the sum of so many still fits into 64 bits
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DOCUMENTS)]


class _Part(Struct, gc=False):
    """A part of an answer; in no cycle, and to look for cycles among thousands costs more than to parse."""


class _Count(_Part):
    doc_count: Count


class _Carried(_Count):
    absent: _Count


class _Pair(_Part):
    hostname: Name
    username: Name
    logon_type: Name | msgspec.UnsetType | None = msgspec.UNSET  # only where it is asked for; None: no value


class _PairBucket(_Part):
    key: _Pair
    doc_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DOCUMENTS)]  # what nobody has is no evidence


class _Pairs(_Part):
    buckets: list[_PairBucket]
    after_key: _Pair | None = None


class _Page(_Part):
    pairs: _Pairs


class _FirstPage(_Page):
    hostname: _Carried
    username: _Carried


class _NameBucket(_Count):
    key: Name


class _Names(_Part):
    buckets: list[_NameBucket]


class _Kinds(_Part):
    names: _Names


class _Survey(_Part):
    days: _Names


class _SenderBucket(_NameBucket):
    names: _Names


class _SenderBuckets(_Part):
    buckets: list[_SenderBucket]


class _Senders(_Part):
    senders: _SenderBuckets


class _Total(_Part):
    value: Count


class _Hits(_Part):
    total: _Total = field(default_factory=lambda: _Total(0))


class _Shards(_Part):
    failed: int
    total: int = 0


class _Clusters(_Part):
    skipped: int = 0
    partial: int = 0
    failed: int = 0


A_co = TypeVar("A_co", covariant=True)


class _Found(_Part, Generic[A_co]):
    """An answer to a search; its aggregations are missing where the pattern matches no index."""

    timed_out: bool
    shards: _Shards = field(name="_shards")
    clusters: _Clusters = field(name="_clusters", default_factory=_Clusters)
    hits: _Hits = field(default_factory=_Hits)
    aggregations: A_co | None = None


# Made while the module loads, in one thread: the first answers of a run arrive in two at once, and msgspec
# (0.22) crashes the process when both of them make the same type known to it.
_DOCUMENTS = msgspec.json.Decoder(_Found[_Part])
_SURVEY = msgspec.json.Decoder(_Found[_Survey])
_FIRST_PAGE = msgspec.json.Decoder(_Found[_FirstPage])
_FURTHER_PAGE = msgspec.json.Decoder(_Found[_Page])
_SENDERS = msgspec.json.Decoder(_Found[_Senders])
_KINDS = msgspec.json.Decoder(_Found[_Kinds])


class SearchClient:
    """The search service of one instance, a context manager. Opening it resolves the secrets.

    Raises:
        ConfigurationError: a secret is not set or no cookie can hold it, or `ca_file` cannot be read.
    """

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._instance = instance
        self._sleep = sleep
        self._page_size = MAX_PAGE
        self._transport = Transport(
            service="search service",
            section="",
            url=instance.url,
            ignore_ssl=instance.ignore_ssl,
            ca_file=instance.ca_file,
            connections=DAYS_AT_ONCE,
            read_timeout_seconds=300,
        )
        self._password = instance.password.resolve("password")
        self._auth = HTTPBasicAuth(instance.username.encode(), self._password.encode())
        self._cookies = {name: _cookie(name, value) for name, value in instance.cookies.items()}
        self._session = self._transport.new_session()
        self._asking = BoundedSemaphore(DAYS_AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def findings(self, window: Window) -> Iterator[Finding]:
        """Try the service, query and fields over the window, and tell what works and what to fix."""
        return search_findings(self._instance, self, window)

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given, several days at once.

        A survey first finds the days that hold events, so that a sparse range costs requests in
        proportion to its data. Days are calendar days in the instance's time zone (rules 4.1).

        Raises:
            ConfigurationError: a named index that does not exist, a field that cannot be aggregated, or a
                query that does not parse; the message names the setting.
            AuthenticationError: the service refuses user or password, or its certificate is not trusted.
            PermissionDeniedError: the user may not read the index.
            TransientError: the service failed again and again.
            ProtocolError: the answer is incomplete, or not a search service's.
        """
        surveyed_at = datetime.now(UTC)
        surveys = [days[start : start + DAYS_PER_SURVEY] for start in range(0, len(days), DAYS_PER_SURVEY)]
        with_events = {day for survey in surveys for day in self._days_with_events(survey)}
        executor = ThreadPoolExecutor(DAYS_AT_ONCE + 1)  # while one reads what it got, the others ask
        try:
            yield from executor.map(
                lambda day: self._day(day) if day in with_events else _empty_day(day, surveyed_at), days
            )
        finally:
            executor.shutdown(cancel_futures=True)

    def totals(self, first: date, last: date) -> tuple[int, int, int]:
        """Count the documents from `first` to `last`: matching, without a user, without a host.

        Raises what `logons` raises: a field that cannot be aggregated is refused here, too.
        """
        aggregations = {**self._carried(), "pairs": {"composite": {"size": 1, "sources": self._sources()}}}
        return _totals(
            self._search([self._between(first, last)], aggregations, _FIRST_PAGE, count_documents=True)
        )

    def documents(self, first: date, last: date) -> int:
        """Count all documents from `first` to `last`, matching or not.

        Raises what `logons` raises, and ConfigurationError where the pattern matches no index.
        """
        on_days = [self._between(first, last)]
        result = self._search(on_days, {}, _DOCUMENTS, count_documents=True, query={"match_all": {}})
        if not result.shards.total:
            raise ConfigurationError(
                f"index: {self._instance.index!r} matches no index that {self._instance.username} may read "
                f"at {self._instance.url}; correct the name, or wait for the first events"
            )
        return result.hits.total.value

    def undated(self) -> int:
        """Count the documents of all times that match the query when none of them has `time_field`; else 0.

        They lie on no day, so that each day looks empty. Raises what `logons` raises.
        """
        has_time = {"exists": {"field": self._instance.time_field}}
        if self._search([has_time], {}, _DOCUMENTS, count_documents=1).hits.total.value:
            return 0
        return self._search([], {}, _DOCUMENTS, count_documents=True).hits.total.value

    def senders(self, day: date) -> tuple[int, pl.DataFrame]:
        """Tell under which names the events of several hosts came on one day, as from a forwarder.

        Raises what `logons` raises.

        Returns:
            The number of matching documents; and document_hostname, events, host_names (values of
            `host.name`, at most `HOSTS_PER_SENDER`) of the `MAX_SENDERS` names with most of them.
        """
        by_name = {
            "terms": {
                "field": self._instance.hostname_field,
                "size": MAX_SENDERS,
                "order": {"hosts": "desc"},
            },
            "aggs": {
                "hosts": {"cardinality": {"field": "host.name", "precision_threshold": 100}},
                "names": {"terms": {"field": "host.name", "size": HOSTS_PER_SENDER}},
            },
        }
        on_day = [self._between(day, day)]
        result = self._search(on_day, {"senders": by_name}, _SENDERS, count_documents=True)
        buckets = result.aggregations.senders.buckets if result.aggregations else []
        rows = pl.DataFrame(
            {
                "document_hostname": _texts([bucket.key for bucket in buckets]),
                "events": pl.Series([bucket.doc_count for bucket in buckets], dtype=pl.Int64),
                "host_names": pl.Series(
                    [_texts([name.key for name in bucket.names.buckets]) for bucket in buckets],
                    dtype=pl.List(pl.String),
                ),
            }
        )
        return result.hits.total.value, rows

    def logon_types(self, first: date, last: date) -> tuple[int, dict[str, int]]:
        """Count the documents from `first` to `last` that tell their kind of logon, and those of each kind.

        Raises what `logons` raises.

        Returns:
            The number of documents; and of each of the `MAX_KINDS` most frequent kinds.
        """
        field = self._instance.logon_type_field
        kinds = {"names": {"terms": {"field": field, "size": MAX_KINDS}}}
        filters = [self._between(first, last), {"exists": {"field": field}}]
        result = self._search(filters, kinds, _KINDS, count_documents=True)
        buckets = result.aggregations.names.buckets if result.aggregations else []
        names = _texts([bucket.key for bucket in buckets])
        return result.hits.total.value, dict(
            zip(names, (bucket.doc_count for bucket in buckets), strict=True)
        )

    def _fields(self) -> dict[str, str]:
        return {"hostname": self._instance.hostname_field, "username": self._instance.user_field}

    def _sources(self) -> list[dict[str, Any]]:
        sources: list[dict[str, Any]] = [
            {name: {"terms": {"field": field}}} for name, field in self._fields().items()
        ]
        if field := self._instance.logon_type_field:
            sources.append({"logon_type": {"terms": {"field": field, "missing_bucket": True}}})
        return sources

    def _carried(self) -> dict[str, Any]:
        """Aggregations that count the documents with a host and those with a user; `_totals` reads them."""
        return {
            name: {"filter": _not_blank(field), "aggs": {"absent": {"missing": {"field": field}}}}
            for name, field in self._fields().items()
        }

    def _days_with_events(self, days: Sequence[date]) -> list[date]:
        """Return the days with at least one matching document, from one request where the cluster lets us."""
        ranges = []
        for day in days:
            first, next_first = self._bounds(day, day)
            ranges.append({"key": day.isoformat(), "from": first, "to": next_first})
        by_day = {"field": self._instance.time_field, "format": "epoch_millis", "ranges": ranges}
        try:
            result = self._search(
                [self._between(min(days), max(days))],
                {"days": {"date_range": by_day}},
                _SURVEY,
                count_documents=False,
            )
        except _TooManyBucketsError:
            if len(days) <= MIN_PAGE:
                raise
            half = len(days) // 2
            return [*self._days_with_events(days[:half]), *self._days_with_events(days[half:])]
        buckets = result.aggregations.days.buckets if result.aggregations else []
        with_events = {bucket.key for bucket in buckets if bucket.doc_count}
        return [day for day in days if day.isoformat() in with_events]

    def _day(self, day: date) -> DayOfLogons:
        fetched_at = datetime.now(UTC)
        pages = list(self._pages(day))
        by_kind = self._instance.logon_type_field is not None
        rows = pl.concat(
            _counts(page.aggregations.pairs.buckets, by_kind=by_kind) for page in pages if page.aggregations
        )
        if rows.drop("events").is_duplicated().any():
            raise self._pages_repeat(day)
        found = DayOfLogons(day, fetched_at, *_totals(pages[0]), counts=rows)
        self._require_all_counted(found, pages)
        return found

    def _require_all_counted(self, found: DayOfLogons, pages: Sequence[_Found[_Page]]) -> None:
        """Raise ProtocolError where the counts cannot be those of the documents (rules 3.3).

        A pair counts a document once at most, and a document with host and user counts once at least. Pages
        after the first are later answers, perhaps of another copy that lacks what came last.
        """
        first = pages[0].aggregations
        most = max((bucket.doc_count for bucket in first.pairs.buckets), default=0) if first else 0
        counted = found.counts["events"].sum()
        least = found.matching - found.lacking_user - found.lacking_host
        if len(pages) > 1:
            least -= found.matching // 100
        if most > found.matching or counted < least:
            raise ProtocolError(
                f"The search service at {self._instance.url} counted {found.matching} documents of "
                f"{found.day}, {found.lacking_user} of them without a user and {found.lacking_host} without "
                f"a host, but gave pairs of host and user with {counted} of them, the most frequent one with "
                f"{most}, which is no evidence; {CHECK_PROXIES}"
            )

    def _pages(self, day: date) -> Iterator[_Found[_Page]]:
        """Yield the answers of a composite aggregation; the first also counts the day's documents.

        The cluster's bucket limit is a setting that only an administrator may read, so the page size
        starts high and halves whenever the cluster refuses it.
        """
        after: _Pair | None = None
        ends: set[tuple[Name, ...]] = set()
        matching = given = 0
        while True:
            size = self._page_size
            pairs: dict[str, Any] = {"size": size, "sources": self._sources()}
            if after:
                pairs["after"] = msgspec.to_builtins(after)
            aggregations = {"pairs": {"composite": pairs}, **({} if after else self._carried())}
            try:
                decoder = _FURTHER_PAGE if after else _FIRST_PAGE
                page = self._search(
                    [self._between(day, day)], aggregations, decoder, count_documents=not after
                )
            except _TooManyBucketsError:
                if size <= MIN_PAGE:
                    raise
                self._page_size = min(self._page_size, max(size // 2, MIN_PAGE))
                continue
            if page.aggregations is None:
                raise ProtocolError(
                    f"The last index of {self._instance.index} at {self._instance.url} was deleted while "
                    f"{day} was counted; run again"
                )
            yield page
            matching = matching or page.hits.total.value
            after, buckets = page.aggregations.pairs.after_key, page.aggregations.pairs.buckets
            if not after or len(buckets) < size:
                return
            given += len(buckets)
            if given > matching * MAX_PAIRS_PER_DOCUMENT:
                raise ProtocolError(
                    f"The search service at {self._instance.url} gives pairs of host and user of {day} "
                    f"without end: {given} so far, of {matching} documents; {CHECK_PROXIES}"
                )
            ended = {msgspec.structs.astuple(end) for end in (after, buckets[-1].key)}
            if ended & ends:
                raise self._pages_repeat(day)
            ends |= ended

    def _pages_repeat(self, day: date) -> ProtocolError:
        return ProtocolError(
            f"The search service at {self._instance.url} gave pairs of host and user of {day} twice, which "
            f"is no evidence; {CHECK_PROXIES}"
        )

    def _bounds(self, first: date, last: date) -> tuple[int, int]:
        """First instant of `first` and of the day after `last`, in milliseconds since 1970."""
        instants = (day_start(day, self._instance.scan.timezone) for day in (first, last + timedelta(days=1)))
        start, end = (round(instant.timestamp() * 1000) for instant in instants)
        return start, end

    def _between(self, first: date, last: date) -> dict[str, Any]:
        """Query for the documents from `first` to `last`."""
        start, end = self._bounds(first, last)
        return {"range": {self._instance.time_field: {"gte": start, "lt": end, "format": "epoch_millis"}}}

    def _search(
        self,
        filters: list[dict[str, Any]],
        aggregations: dict[str, Any],
        decoder: msgspec.json.Decoder[_Found[A_co]],
        *,
        count_documents: bool | int,
        query: dict[str, Any] | None = None,
    ) -> _Found[A_co]:
        """Aggregate the matching documents.

        Args:
            filters: queries that the documents match beside the instance's.
            aggregations: what to aggregate.
            decoder: of the answer.
            count_documents: whether to count the documents, or up to how many.
            query: what takes the place of the instance's query.
        """
        body = {
            "size": 0,
            "track_total_hits": count_documents,
            "query": {"bool": {"filter": [*filters, query or self._query()]}},
            "aggs": aggregations,
        }
        answer: Answer = retrying(self._sleep)(self._post, body)
        try:
            result = decoder.decode(answer.body)
        except msgspec.ValidationError as error:
            raise self._not_a_search_service(answer, str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._not_a_search_service(answer) from error
        self._raise_if_incomplete(result)
        if aggregations and result.aggregations is None and result.shards.total:
            raise ProtocolError(
                f"The search service at {self._instance.url} searched {result.shards.total} shards and "
                "answered without what was to be counted (aggregations), which is no evidence; "
                f"{CHECK_PROXIES}"
            )
        return result

    def _query(self) -> dict[str, Any]:
        query = self._instance.query
        if query.lstrip().startswith("{"):
            return json.loads(query)
        return {"query_string": {"query": query}}

    def _post(self, body: dict[str, Any]) -> Answer:
        path = f"/{quote(self._instance.index, safe='*,-')}/_search"
        with self._asking:
            answer = self._transport.send(
                self._session,
                "POST",
                path,
                params={
                    "allow_partial_search_results": "false",
                    "filter_path": _READ,
                },
                json=body,
                auth=self._auth,
                cookies=self._cookies,
                secrets=(self._password, *self._cookies.values()),
            )
        if answer.status != 200:
            self._raise_error(answer, path)
        return answer

    def _raise_error(self, answer: Answer, path: str) -> None:
        """Turn an error answer into the error whose message names the setting to fix."""
        where = f"the search service at {self._instance.url}"
        kinds, reasons, indexes = _causes(answer.body)
        reason = answer.sanitised("; ".join(dict.fromkeys(reasons)), 500) or answer.excerpt
        in_index = f" in the index {answer.sanitised(', '.join(sorted(indexes)))}" if indexes else ""
        if answer.status == 401:
            raise AuthenticationError(
                f"The log-in is refused by {where}; check username and password ({reason})"
            )
        if answer.status == 403:
            raise PermissionDeniedError(
                f"{self._instance.username} may not search {self._instance.index} at {where}; grant read "
                f"and view_index_metadata on exactly that index pattern ({reason})"
            )
        if "too_many_buckets_exception" in kinds or "too many buckets" in reason.lower():
            raise _TooManyBucketsError(f"Even pages of {MIN_PAGE} buckets are refused by {where} ({reason})")
        if "index_not_found_exception" in kinds:
            raise ConfigurationError(
                f"index: {self._instance.index!r} names an index that {where} does not have; correct the "
                f"name or use a pattern such as logs-* ({reason})"
            )
        if "text fields" in reason.lower() or "fielddata" in reason.lower():
            fields = {
                "hostname_field": self._instance.hostname_field,
                "user_field": self._instance.user_field,
                "logon_type_field": self._instance.logon_type_field,
            }
            for setting, field in fields.items():
                if field and f"[{field}]" in reason:
                    raise ConfigurationError(
                        f"{setting}: {field!r} is a text field{in_index}, which cannot be aggregated; name "
                        f"its keyword field, often {field + '.keyword'!r}; where other indexes have it as "
                        f"keyword, leave that one out of index ({reason})"
                    )
        if kinds & _QUERY_ERRORS:
            shown = answer.sanitised(self._instance.query)
            raise ConfigurationError(f"query: {shown!r} is refused by {where}: {reason}")
        self._transport.raise_if_transient(answer, path)
        if not kinds:
            raise self._not_a_search_service(answer)
        if answer.status == 400:
            kinds_too = ", and logon_type_field" if self._instance.logon_type_field else ""
            raise ConfigurationError(
                f"The search is refused by {where}{in_index}; check index, query, time_field, hostname_field "
                f"and user_field{kinds_too} ({reason})"
            )
        raise ProtocolError(f"HTTP status {answer.status} for {path} from {where}: {reason}")

    def _raise_if_incomplete(self, result: _Found[Any]) -> None:
        """Raise ProtocolError for an answer that is not the whole truth (rules 3.3)."""
        clusters = msgspec.structs.asdict(result.clusters)
        faults = [f"{count} clusters {state}" for state, count in clusters.items() if count]
        if result.shards.failed:
            faults.append(f"{result.shards.failed} shards failed")
        if result.timed_out:
            faults.append("the search timed out")
        if faults:
            raise ProtocolError(
                f"The search service at {self._instance.url} answered incompletely ({', '.join(faults)}), "
                "which is no evidence; repair the cluster and run again"
            )

    def _not_a_search_service(self, answer: Answer, wrong: str = "") -> ProtocolError:
        """What an answer means that is none to a search; `wrong` is the place where it is none."""
        if b'"aggregations"' in answer.body:  # what it said are names of hosts and users
            return ProtocolError(
                f"The search service at {self._instance.url} gave a response that is no search result "
                f"({wrong or 'its JSON cannot be read'}); {CHECK_PROXIES}"
            )
        return ProtocolError(
            f"{self._instance.url} does not answer as a search service; url must be the search service "
            f"itself, not its dashboard. It said, with HTTP status {answer.status}: {answer.excerpt}"
        )


def _cookie(name: str, value: Secret) -> str:
    """A cookie's value, which has to fit into a header."""
    text = value.resolve(f"cookies.{name}")
    if not text.isascii() or not text.isprintable() or ";" in text:
        raise ConfigurationError(
            f"cookies.{name}: holds what no cookie can (a line break, a semicolon, letters outside ASCII); "
            "copy only the cookie's value"
        )
    return text


class _TooManyBucketsError(ProtocolError):
    """The page is larger than the cluster's bucket limit."""


_QUERY_ERRORS = frozenset(
    {
        "parse_exception",
        "parsing_exception",
        "query_shard_exception",
        "x_content_parse_exception",
        "named_object_not_found_exception",
        "json_parse_exception",
    }
)


def _not_blank(field: str) -> dict[str, Any]:
    """Query for documents whose field is not empty or `-`, which count as lacking it (rules 1.3).

    Lenient, because a field of numbers can be neither and would refuse to be compared with them.
    """
    blank = [{"match": {field: {"query": text, "lenient": True}}} for text in ("", "-")]
    return {"bool": {"must_not": blank}}


def _empty_day(day: date, looked_at: datetime) -> DayOfLogons:
    return DayOfLogons(day, looked_at, 0, 0, 0, _counts([], by_kind=False))


def _totals(result: _Found[Any]) -> tuple[int, int, int]:
    """Documents of an answer: matching, without a user, without a host."""
    matching, page = result.hits.total.value, result.aggregations
    if not isinstance(page, _FirstPage):  # the pattern matches no index
        return matching, matching, matching
    with_user, with_host = (
        carried.doc_count - carried.absent.doc_count for carried in (page.username, page.hostname)
    )
    return matching, matching - with_user, matching - with_host


def _counts(buckets: Sequence[_PairBucket], *, by_kind: bool) -> pl.DataFrame:
    """Turn buckets into rows: document_hostname, document_username, events; by kind document_logon_type."""
    columns = {
        "document_hostname": _texts([bucket.key.hostname for bucket in buckets]),
        "document_username": _texts([bucket.key.username for bucket in buckets]),
        "events": pl.Series([bucket.doc_count for bucket in buckets], dtype=pl.Int64),
    }
    if by_kind:
        kinds = (bucket.key.logon_type for bucket in buckets)
        columns["document_logon_type"] = _texts([None if kind is msgspec.UNSET else kind for kind in kinds])
    rows = pl.DataFrame(columns)
    lacking = pl.col("document_hostname", "document_username").is_in(["", "-"])
    return rows.filter(~pl.any_horizontal(lacking))


def _texts(names: list[Name | None]) -> pl.Series:
    return pl.Series(names, dtype=pl.String, strict=False)


def _causes(body: bytes) -> tuple[set[str], list[str], set[str]]:
    """Collect error types, first lines of reasons, and indexes of an error answer, outermost first."""
    kinds: set[str] = set()
    reasons: list[str] = []
    indexes: set[str] = set()
    try:
        left = [json.loads(body)]
    except (ValueError, RecursionError):
        return kinds, reasons, indexes
    while left:
        part = left.pop()
        if isinstance(part, dict):
            texts = {name: text for name, text in part.items() if isinstance(text, str) and text}
            kinds.update(texts[name] for name in ["type"] if name in texts)
            # Further lines are the grammar of the query parser.
            reasons += [texts[name].splitlines()[0] for name in ["reason"] if name in texts]
            indexes.update(texts[name] for name in ["index"] if name in texts)
            left += reversed(part.values())
        elif isinstance(part, list):
            left += reversed(part)
    return kinds, reasons, indexes
