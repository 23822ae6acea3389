"""Why the search service counts too little, too much or the wrong names: questions that explain a result.

All are searches with the client's own rights (rules 3.1), and none changes what is counted.
"""

import re
from collections import defaultdict
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl

from resources.dotted import values_at
from resources.errors import AssetOwnersError, ConfigurationError, PermissionDeniedError
from resources.search.answers import Bucket, Name, texts
from resources.search.refusals import FIELDS
from resources.search.source import Senders
from resources.settings.query import clauses

if TYPE_CHECKING:
    from resources.search.client import SearchClient

MAX_SENDERS = 20
HOSTS_PER_SENDER = 10
MAX_INDEXES = 100
MAX_INDEXES_NAMED = 5
MAX_NAMES_LOOKED_AT = 200
DOCUMENTS_PER_NAME = 3

COMPUTER_FIELDS = (
    "winlog.computer_name",
    "host.name",
    "host.hostname",
    "agent.name",
    "agent.hostname",
    "data.win.system.computer",
    "winlogbeat_winlog_computer_name",
    "Hostname",
)
"""Fields that name the computer of an event, by the way of shipping; `.keyword` may follow."""

_COMMAS = re.compile(r"\s*,\s*(?![^<]*>)")  # date mathematics may hold some
_SENDERS = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}


def why_lacking(search: "SearchClient", first: date, last: date, *, user: bool) -> str:
    """Return which indexes hold the documents that lack the user, or the host, as part of a sentence."""
    field = search.fields["username" if user else "hostname"]
    indexes = _by_index(search, field, [search.between(first, last), search.query])
    if not any(_lacking(index) for index in indexes):
        return ""
    if all(_lacking(index) == index.doc_count for index in indexes):
        return (
            f"no document of {search.instance.index} shows it: it is misspelt, or field-level security of "
            "the role hides it"
        )
    return (
        f"it is missing, or has another type, in {_index_names(indexes, _sibling_of(field))}. All indexes of "
        f"{search.instance.index} need the field: name one that they have, or narrow index to those that "
        "have it"
    )


def lacking_keyword(search: "SearchClient", field: str) -> str:
    """Return which indexes lack the keyword field of a text field, as the end of a sentence."""
    keyword = f"{field}.keyword"
    indexes: list[Bucket] = []
    with suppress(AssetOwnersError):
        indexes = _by_index(search, keyword, [search.query])
    if not indexes:
        return ""
    if not any(_lacking(index) for index in indexes):
        return f". They all have {keyword!r}"
    return f". {keyword!r} is missing in {_index_names(indexes, None)}"


def _by_index(search: "SearchClient", field: str, filters: list[dict[str, Any]]) -> list[Bucket]:
    """Count the documents of each index that lack a field, and of these those that have its sibling."""
    missing = {"missing": {"field": field}}
    has_sibling = {"filter": {"exists": {"field": _sibling_of(field)}}}
    by_index = {
        "terms": {"field": "_index", "size": MAX_INDEXES, "order": {"absent": "desc"}},
        "aggs": {"absent": missing | {"aggs": {"sibling": has_sibling}}},
    }
    return search.ask({"bool": {"filter": filters}}, {"buckets": by_index}).buckets


def _sibling_of(field: str) -> str:
    return field.removesuffix(".keyword") if field.endswith(".keyword") else f"{field}.keyword"


def _lacking(index: Bucket) -> int:
    return index.absent.doc_count if index.absent else 0


def _index_names(indexes: list[Bucket], sibling: str | None) -> str:
    """Name the indexes whose documents lack a field, those with most such documents first."""
    some = [index for index in indexes if _lacking(index)]
    named = []
    for index in some[:MAX_INDEXES_NAMED]:
        has_sibling = sibling and index.absent and index.absent.sibling and index.absent.sibling.doc_count
        which = f", which have {sibling}" if has_sibling else ""
        named.append(f"{index.key} ({_lacking(index):,} of {index.doc_count:,} documents{which})")
    further = len(some) - MAX_INDEXES_NAMED
    return ", ".join(named) + (f" and {further} further indexes" if further > 0 else "")


def mixed_types(search: "SearchClient", query: dict[str, Any]) -> str:
    """Return which field has values of two types, and in which indexes; "" where that cannot be told."""
    with suppress(AssetOwnersError):
        for setting in FIELDS:
            if not (field := getattr(search.instance, setting)):
                continue
            value = {"names": {"terms": {"field": field, "size": 1}}}
            by_index = {"terms": {"field": "_index", "size": MAX_INDEXES}, "aggs": value}
            indexes: dict[str, list[str]] = defaultdict(list)
            for index in search.ask(query, {"buckets": by_index}).buckets:
                for name in _names_of(index):
                    indexes["text" if isinstance(name, str) else "numbers"].append(str(index.key))
            if len(indexes) > 1:
                where = " and ".join(f"{kind} in {_some(names)}" for kind, names in indexes.items())
                return (
                    f"{setting}: {field!r} holds {where}, which cannot be counted together; narrow index to "
                    "those of one type, or index the others again with the same type"
                )
    return ""


def _names_of(bucket: Bucket) -> list[Name | None]:
    return [name.key for name in bucket.names.buckets] if bucket.names else []


def _some(names: list[str]) -> str:
    return ", ".join(sorted(names)[:MAX_INDEXES_NAMED]) + (", …" if len(names) > MAX_INDEXES_NAMED else "")


def require_whole_names(search: "SearchClient", first: date, last: date) -> None:
    """Fail if documents are counted by the words of a text: `svc-miller` under `svc` and under `miller`.

    Looks at some documents that are counted under several names. A document that was sent with as many names
    is right (rules 1.1).
    """
    for name, setting in (("username", "user_field"), ("hostname", "hostname_field")):
        field = search.fields[name]
        documents = {
            "size": DOCUMENTS_PER_NAME,
            "_source": [field, field.rpartition(".")[0] or field],
            "docvalue_fields": [field],
        }
        by_name = {
            "terms": {"field": field, "size": MAX_NAMES_LOOKED_AT, "order": {"values": "desc"}},
            "aggs": {"values": {"value_count": {"field": field}}, "documents": {"top_hits": documents}},
        }
        buckets: list[Bucket] = []
        with suppress(ConfigurationError):  # a type of field whose values cannot be shown
            buckets = search.search([search.between(first, last)], {"buckets": by_name}).buckets
        for document in (one for bucket in buckets if bucket.documents for one in bucket.documents.hits.hits):
            sent = values_at(document.source, field) or values_at(document.source, field.rpartition(".")[0])
            if sent and len(document.fields.get(field, ())) > len(sent):
                raise ConfigurationError(
                    f"{setting}: {field!r} is text with fielddata in the index {document.index}: documents "
                    "are counted once for each word of a name, so parts of names stand for users and hosts; "
                    "name a keyword field that all indexes have"
                )


def sampled_names(search: "SearchClient", first: date, last: date) -> dict[str, list[str]]:
    """Return the most frequent users and hosts by the setting that names their field."""

    def most_frequent(field: str) -> list[str]:
        terms = {"terms": {"field": field, "size": MAX_NAMES_LOOKED_AT}}
        found = search.search([search.between(first, last)], {"buckets": terms})
        return [str(bucket.key) for bucket in found.buckets]

    settings = {"user_field": "username", "hostname_field": "hostname"}
    return {setting: most_frequent(search.fields[name]) for setting, name in settings.items()}


def why_nothing(search: "SearchClient", first: date, last: date) -> str:
    """Return how many documents each clause of the query matches by itself, as a sentence."""
    named = clauses(search.instance.query)
    filters = [{"match_all": {}}, *named.values()]
    between = {"bool": {"filter": [search.between(first, last)]}}
    counted = search.ask(between, {"buckets": {"filters": {"filters": filters}}}).buckets
    total, *each = (bucket.doc_count for bucket in counted) if counted else (0,)
    if not total:
        return f"{search.instance.index} holds no documents from {first} to {last}"
    whole = f"Of {total:,} documents of {search.instance.index} from {first} to {last} the query matches none"
    matches = "; ".join(
        f"{clause} by itself matches {count:,}" for clause, count in zip(named, each, strict=True)
    )
    return f"{whole}: {matches}" if matches else whole


def unmatched_parts(search: "SearchClient") -> list[str]:
    """Return the parts of an index pattern with several, or with a remote cluster, that match no index."""
    parts = [part for part in _COMMAS.split(search.instance.index) if not part.startswith("-")]
    unmatched = []
    for part in parts if len(parts) > 1 or ":" in parts[0] else ():
        shards = None
        with suppress(ConfigurationError, PermissionDeniedError):
            shards = search.ask({"match_all": {}}, index=part).shards.get("total")
        unmatched += [] if shards else [part]
    return unmatched


def top_senders(search: "SearchClient", first: date, last: date) -> Senders | None:
    """Return the names that send for most hosts, by the field that tells most computers apart.

    A field with fewer names than `hostname_field` names the sender itself, or a group of hosts. None: the
    documents have no other field that names a computer.
    """
    between, own = search.between(first, last), search.fields["hostname"]
    others = [
        field
        for name in COMPUTER_FIELDS
        if name != own.removesuffix(".keyword")
        for field in (name, f"{name}.keyword")
    ]
    exist = [
        {"bool": {"filter": [{"exists": {"field": field}} for field in (own, other)]}} for other in others
    ]
    counted = search.search([between], {"buckets": {"filters": {"filters": exist}}}).buckets
    carried = [field for field, bucket in zip(others, counted, strict=False) if bucket.doc_count]
    if not carried:
        return None
    finest, most = None, 0.0
    for field in carried:
        distinct = {
            name: {"cardinality": {"field": by, "precision_threshold": 40_000}}
            for name, by in (("hosts", own), ("others", field))
        }
        has_field = {"filters": {"filters": [{"exists": {"field": field}}]}, "aggs": distinct}
        with suppress(ConfigurationError):  # a text field
            for bucket in search.search([between], {"buckets": has_field}).buckets:
                hosts, names = (one.value or 0 if one else 0 for one in (bucket.hosts, bucket.others))
                if names > max(hosts, most):
                    finest, most = field, names
    if finest is None:
        return Senders(carried[0], 0, pl.DataFrame(schema=_SENDERS))
    by_name = {
        "terms": {"field": own, "size": MAX_SENDERS, "order": {"hosts": "desc"}},
        "aggs": {
            "hosts": {"cardinality": {"field": finest, "precision_threshold": 100}},
            "names": {"terms": {"field": finest, "size": HOSTS_PER_SENDER}},
        },
    }
    found = search.search([between], {"buckets": by_name, "matching": {"filter": {"match_all": {}}}})
    rows = [(bucket.key, bucket.doc_count, texts(_names_of(bucket))) for bucket in found.buckets]
    return Senders(finest, found.matching, pl.DataFrame(rows, _SENDERS, orient="row", strict=False))
