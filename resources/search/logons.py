"""Counts the logon events of a log by day, host and user. `ownership` decides what the counts mean."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import polars as pl

from ownership import data_checks
from ownership.names import NO_NAME, with_domain
from ownership.windows import Window
from resources.errors import ConfigurationError, ProtocolError, TransientError
from resources.findings import Finding, attempt, attempt_all, check_connection
from resources.search import explaining
from resources.search.asking import (
    DAYS_AT_ONCE,
    FURTHER,
    MATCHING,
    MIN_PAGE,
    Asker,
    Bucket,
    Found,
    Pair,
    PairBucket,
    RefusedSearchError,
    TooManyBucketsError,
    texts,
)
from resources.search.source import DayOfLogons, EvidenceSource, check_fields, check_names, check_parts
from resources.settings import Instance

MAX_PAGE = 50_000  # pairs; every page collects again from the start, so large pages are cheap
MAX_SAMPLE = 5_000  # pairs; below the default bucket limit of every cluster
MAX_PAIRS_PER_EVENT = 10  # a document may name several users; more means that pages repeat


class SearchClient(Asker, EvidenceSource):
    """One query over one index pattern of a search service."""

    user_setting, host_setting = "user_field", "hostname_field"

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(instance, sleep=sleep)
        self.user_field, self.host_field = instance.user_field, instance.hostname_field
        self._page_size = MAX_PAGE
        asked = {name: getattr(instance, f"{name}_field") for name in FURTHER}
        self._further = {name: field for name, field in asked.items() if field}
        # A bucket for documents without a value as well would double the time of the first page.
        self._sources: list[dict[str, Any]] = [
            {name: {"terms": {"field": field, "missing_bucket": name in self._further}}}
            for name, field in (self.fields | self._further).items()
        ]
        user, host = ({"missing": {"field": self.fields[name]}} for name in ("username", "hostname"))
        self._named = [{"exists": {"field": name}} for name in self.fields.values()]
        without = {"username": {**user, "aggs": {"absent": host}}, "hostname": host}
        # With the latest time, because only an aggregation refuses a field without times.
        latest = {"max": {"field": instance.time_field}}
        self._totals: dict[str, Any] = {**MATCHING, **without, "latest": latest}

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given, several days in parallel.

        A ConfigurationError names the setting: an index that does not exist, a field that cannot be
        aggregated or that is a text, a query that does not parse, a `time_field` by which no day
        finds any document: an empty day would then hide documents that belong to no day (rules 4.1).
        """
        fetched = self.transport.in_parallel(self._day, days, waiting=DAYS_AT_ONCE)
        empty = []
        for day in fetched:
            empty.append(day)
            if day.matching:
                break
        else:
            if days and (times := explaining.find_times(self)).state == "wrong":
                raise ConfigurationError(f"{times.what}: {times.text}")
        yield from empty
        yield from fetched

    def totals(self, first: date, last: date) -> tuple[int, int, int]:
        """Count the documents from `first` to `last`: matching, without a user, without a host."""
        one_pair = {"pairs": {"composite": {"size": 1, "sources": self._sources}}}
        found = self._count([self.between(first, last)], self._totals | one_pair)
        if not found.matching:
            return 0, 0, 0
        blank = (self._count_blank(name, first, last) for name in ("username", "hostname"))
        user, host = (some + further for some, further in zip(found.lacking, blank, strict=False))
        return found.matching, user, host

    def first_pairs(self, first: date, last: date) -> pl.DataFrame:
        """Return the first pairs of host and user from `first` to `last`, as `DayOfLogons.counts`."""
        composite = {"pairs": {"composite": {"size": MAX_SAMPLE, "sources": self._sources}}}
        pairs = self._count([self.between(first, last)], composite).aggregations.pairs
        return _named_pairs(self._rows(pairs.buckets if pairs else []))

    def matching_by_day(self, days: Sequence[date]) -> Mapping[date, int]:
        """Count the matching documents of each day in one request, with the same filters as its pairs."""
        if not days:
            return {}
        by_day = {"filters": {"filters": [self.between(day, day) for day in days]}}
        window = self.between(min(days), max(days))
        found = self._count([window], {"buckets": by_day})
        return dict.fromkeys(days, 0) | {
            day: bucket.doc_count for day, bucket in zip(days, found.buckets, strict=False)
        }

    why_lacking = explaining.why_lacking
    why_nothing = explaining.why_nothing
    unmatched_parts = explaining.unmatched_parts
    top_senders = explaining.top_senders

    def check(self, window: Window) -> Iterator[Finding]:
        """Check connection, log-in, query and fields; sends searches only."""
        instance, days = self.instance, (window.first, window.last)
        if not (yield from check_connection(self.transport, "POST", self.path)):
            return
        totals = yield from attempt("search", lambda: self.totals(*days))
        if totals is None:
            return
        yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
        nothing = None if totals[0] else (yield from attempt("query", lambda: self.why_nothing(*days)))
        if not nothing or nothing.what != "index":  # which already covers all parts
            yield from attempt_all("index", lambda: [check_parts(self)])
        yield from attempt_all("query", lambda: explaining.find_ignored(self, *days))
        if not totals[0]:
            yield from [nothing] if nothing else []
            return
        events = f"{totals[0]:,} logon events from {window.first} to {window.last}"
        yield Finding("ok", "query", f"matches {events}")
        yield from attempt_all("time_field", lambda: [explaining.find_times(self)])
        columns = ("matching", "lacking_user", "lacking_host")
        total = pl.DataFrame({"day": window.last, **dict(zip(columns, totals, strict=True))})
        yield from attempt_all("search", lambda: check_fields(self, total, window))
        if kind := instance.logon_type_field:
            carrying = self._count([self.between(*days), {"exists": {"field": kind}}], MATCHING).matching
            text = f"{kind} is in {carrying:,} of {events}"
            yield Finding("ok" if carrying else "wrong", "logon_type_field", text)
        yield from attempt_all("search", lambda: explaining.require_whole_names(self, *days) or ())
        pairs = yield from attempt("search", lambda: self.first_pairs(*days))
        if pairs is not None:
            masked = data_checks.masked_days(pairs.lazy().with_columns(day=window.last))
            yield from (one for one in check_names(self, masked, 1) if one.state != "ok")

    def _count(self, filters: Sequence[dict[str, Any]], aggregations: Mapping[str, Any]) -> Found:
        try:
            return self.search(filters, aggregations)
        except RefusedSearchError as error:
            raise ConfigurationError(explaining.why_refused(self, error)) from error

    def _day(self, day: date) -> DayOfLogons:
        """Read the pages of a composite aggregation; the first also counts the day's documents."""
        fetched_at = datetime.now(UTC)
        after: Pair | None = None
        asked: set[str] = set()
        rows: list[pl.DataFrame] = []
        matching, absent = 0, (0, 0, 0)
        while True:
            size = self._page_size
            composite = {"size": size, "sources": self._sources}
            further = {"after": msgspec.to_builtins(after)} if after else {}
            # In indexes without a field OpenSearch takes only text to go on after, and they have no pairs.
            filters = [self.between(day, day), *(self._named if after else ())]
            aggregations = {"pairs": {"composite": composite | further}, **({} if after else self._totals)}
            try:
                page = self._count(filters, aggregations)
            except (TooManyBucketsError, TransientError) as error:
                is_too_large = isinstance(error, TooManyBucketsError) or "Data too large" in str(error)
                if size <= MIN_PAGE or not is_too_large:
                    raise
                # Only an administrator may read the cluster's limits of buckets and memory.
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
                raise self._distorted(f"keeps returning the same page for {day}")
            asked.add(str(after))
        counts = pl.concat(rows)
        without_user, without_host, without_both = absent
        missing = matching - without_user - without_host + without_both - counts["events"].sum()
        if missing > 0 and after is None:  # documents may be deleted between two pages
            fault = f"counted {matching} events of {day}, and {missing} of them are on no page"
            raise self._distorted(fault, " that shortens answers")
        if counts.drop("events").is_duplicated().any():
            raise self._distorted(f"returned pairs of host and user twice for {day}")
        if missing < 0:  # documents with several values, or new ones since the first page
            explaining.require_whole_names(self, day, day)
        is_blank = {name: pl.col(f"document_{name}").is_in(NO_NAME) for name in self.fields}
        lacking = []
        for name, without, only_other in (
            ("username", without_user, without_host - without_both),
            ("hostname", without_host, without_user - without_both),
        ):
            blank = int(counts.filter(is_blank[name])["events"].sum())
            # Pairs lack documents with one name only, and have documents with several names repeatedly.
            if only_other or (blank and missing < 0):
                blank = self._count_blank(name, day, day)
            lacking.append(min(without + blank, matching))
        return DayOfLogons(day, fetched_at, matching, *lacking, counts=_named_pairs(counts))

    def _distorted(self, fault: str, cause: str = "") -> ProtocolError:
        advice = f"Check for a proxy or cache between this machine and the service{cause}"
        return ProtocolError(f"{self.transport.where} {fault}; result not used. {advice}")

    def _count_blank(self, name: str, first: date, last: date) -> int:
        """Count the documents whose only user, or host, is empty or `-`."""
        field = self.fields[name]
        values = {"values": {"value_count": {"field": field}}}
        terms = {"terms": {"field": field, "include": NO_NAME}, "aggs": values}
        buckets: list[Bucket] = []
        with suppress(ConfigurationError):  # a field of numbers refuses texts, and has none
            buckets = self.search([self.between(first, last)], {"buckets": terms}).buckets
        documents = 0
        for bucket in buckets:
            beside = round((bucket.values.value if bucket.values else None) or 0) - bucket.doc_count
            documents += max(bucket.doc_count - max(beside, 0), 0)
        return documents

    def _rows(self, buckets: Sequence[PairBucket]) -> pl.DataFrame:
        """Return buckets as rows like those of `DayOfLogons.counts`, still with empty names and `-`."""
        columns = {
            "document_hostname": texts([bucket.key.hostname for bucket in buckets]),
            "document_username": texts([bucket.key.username for bucket in buckets]),
            "events": pl.Series([bucket.doc_count for bucket in buckets], dtype=pl.Int64),
        }
        for name in self._further:
            values = (getattr(bucket.key, name) for bucket in buckets)
            columns[f"document_{name}"] = texts([None if each is msgspec.UNSET else each for each in values])
        return pl.DataFrame(columns)


def _named_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with both names (rules 1.3), the user's with its domain if that has its own field."""
    has_no_name = pl.any_horizontal(pl.col("document_hostname", "document_username").is_in(NO_NAME))
    named = pairs.filter(~has_no_name)
    if "document_user_domain" not in named.columns:
        return named
    spelling = with_domain(pl.col("document_username"), pl.col("document_user_domain"))
    spelled = named.with_columns(document_username=spelling).drop("document_user_domain")
    return spelled.group_by(pl.exclude("events"), maintain_order=True).agg(pl.sum("events"))
