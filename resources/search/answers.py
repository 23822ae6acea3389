"""What is read of an answer to a search, and whether it is complete (rules 3.3)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import polars as pl
from msgspec import Struct, field

MAX_DOCUMENTS = 2**40  # in one count; the sum of so many still fits into 64 bits

READ = "timed_out,_shards.total,_shards.failed,_clusters,hits.total,hits.hits,aggregations,error,status"
"""What is read; the service leaves the rest out."""

_INDEX = r"""^[^\x00-\x20\x7f-\x9f"*,/<>?\\|#]{1,255}$"""
"""The name of an index as services allow it; another one would act on a terminal or in an instance file."""
Name = str | int | float | bool  # a host or a user; a field may also hold numbers
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DOCUMENTS)]


class _Part(Struct, gc=False):
    """A part of an answer. Excluded from garbage collection, which would take longer than parsing."""


class Pair(_Part):
    """Host and user of some documents."""

    hostname: Name
    username: Name
    # Only where they are asked for; None: no value.
    logon_type: Name | msgspec.UnsetType | None = msgspec.UNSET
    user_domain: Name | msgspec.UnsetType | None = msgspec.UNSET


class PairBucket(_Part):
    """How many documents have a pair."""

    key: Pair
    doc_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DOCUMENTS)]  # no pair without documents


class Pairs(_Part):
    """One page of pairs."""

    buckets: list[PairBucket]
    after_key: Pair | None = None


class Value(_Part):
    """A number that was computed; None: of no documents."""

    value: float | None = None


class Document(_Part):
    """One document: the values of its fields."""

    fields: dict[str, list[Any]] = field(default_factory=dict)


class _Documents(_Part):
    hits: list[Document] = field(default_factory=list)


class Documents(_Part):
    """Some of a bucket's documents."""

    hits: _Documents


class Bucket(_Part):
    """Documents that have something in common, and of them what was asked for."""

    doc_count: Count
    key: Name | None = None
    absent: "Bucket | None" = None
    dated: "Bucket | None" = None
    earliest: Value | None = None
    latest: Value | None = None
    sibling: "Bucket | None" = None
    names: "Buckets | None" = None
    hosts: Value | None = None
    others: Value | None = None
    values: Value | None = None
    documents: Documents | None = None

    @property
    def lost(self) -> int:
        """Documents of an index that no range of days finds."""
        return self.doc_count - _count(self.dated)


class Buckets(_Part):
    """The buckets of one aggregation."""

    buckets: list[Bucket]


class Aggregations(_Part):
    """What was asked for of these; nothing where the pattern matches no index."""

    pairs: Pairs | None = None
    matching: Bucket | None = None
    latest: Value | None = None
    hostname: Bucket | None = None
    username: Bucket | None = None
    buckets: Buckets | None = None


class _Total(_Part):
    value: Count = 0


class _Hits(_Part):
    total: _Total = field(default_factory=_Total)


class _Shards(_Part):
    total: int = 0
    failed: int = 0


class Found(_Part):
    """An answer to a search."""

    timed_out: bool
    shards: _Shards = field(name="_shards")
    clusters: dict[str, Any] = field(name="_clusters", default_factory=dict)
    hits: _Hits = field(default_factory=_Hits)
    aggregations: Aggregations = field(default_factory=Aggregations)

    @property
    def matching(self) -> int:
        """The documents that match, counted as in buckets: one with `_doc_count` counts that often."""
        return _count(self.aggregations.matching)

    @property
    def lacking(self) -> tuple[int, int, int]:
        """The documents without a value for the user, without one for the host, and without both."""
        username, hostname = self.aggregations.username, self.aggregations.hostname
        return _count(username), _count(hostname), _count(username.absent if username else None)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets of the aggregation `buckets`."""
        return self.aggregations.buckets.buckets if self.aggregations.buckets else []


def _count(bucket: Bucket | None) -> int:
    return bucket.doc_count if bucket else 0


class Newest(Document, kw_only=True):
    """The newest document of the best hits: where it lies, its fields, and which queries it matches."""

    index: Annotated[str, msgspec.Meta(pattern=_INDEX)] = field(name="_index")
    matched_queries: list[str] = field(default_factory=list)


class _NewestHits(_Part):
    hits: list[Newest]


class FoundNewest(_Part):
    """An answer to a search for the newest document."""

    hits: _NewestHits


# Made while the module loads: msgspec (0.22) crashes when two threads make the same type known to it.
DECODER = msgspec.json.Decoder(Found)
NEWEST = msgspec.json.Decoder(FoundNewest)


def faults(found: Found, asked: Mapping[str, Any]) -> list[str]:
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
    """Return names as text, whatever type their field has."""
    return pl.Series(names, dtype=pl.String, strict=False)
