"""Explains why the search service counts too little, too much or the wrong names.

Sends searches with the log's own rights (rules 3.1); none changes what is counted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import Any

import polars as pl

from ownership.names import printable, some_of
from resources.errors import AssetOwnersError, ConfigurationError, PermissionDeniedError, TransientError
from resources.findings import Finding
from resources.search.asking import FAULT_OF_REQUEST, FURTHER, Asker, Bucket, RefusedSearchError, texts
from resources.settings import Instance
from resources.settings.models import Preset, presets
from resources.settings.query import clauses

MAX_SENDERS = 20
HOSTS_PER_SENDER = 10
MAX_INDEXES = 100
DOCUMENTS_PER_HOST = 2
SAMPLED_HOSTS = 50
TEXT = "text"

FIELDS = ("hostname_field", "user_field", *(f"{name}_field" for name in FURTHER))
"""Settings that name a field to group by."""

_COMPUTER_FIELD = re.compile(
    r"(?i)(^|[._-])(host|computer|machine)(_?name|_?identifier)?(\.keyword)?$"
    r"|(^|[._-])(agent|host|beat|computer)\.(host)?name(\.keyword)?$"
)
"""Fields that name the computer of an event, in any way of shipping."""
_OF_ANOTHER_COMPUTER = re.compile(
    r"(?i)(^|[._-])(source|src|dest|destination|dst|client|server|remote|target|related|observer|event_?data)[._-]"
)
"""Fields that name another computer, such as the one that a logon came from."""

_COMMAS = re.compile(r",(?![^<]*>)")  # except inside date mathematics
_TYPE = re.compile(r"which is (?:a runtime field )?of type \[(\w+)\]")
_QUERY_ERRORS = re.compile("(^|_)(parse|parsing|query_shard|named_object_not_found)_exception$")
_SENDERS = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}
_UNITS = {"seconds": 1_000, "microseconds": 1 / 1_000, "nanoseconds": 1 / 1_000_000}
"""Milliseconds in each unit."""
_SOME_TIME = date(1990, 1, 1), date(2100, 1, 1)  # the first and last day that a logon can plausibly have


def why_refused(log: Asker, error: RefusedSearchError) -> str:
    """Return why a search was refused, starting with the setting to fix."""
    instance = log.instance
    refused = f"is refused by {error.where}{error.in_index}"
    with suppress(AssetOwnersError):
        for setting, field in _fields_of(instance, *FIELDS).items():
            # Services and versions word the refusal of a type differently.
            types = types_by_index(log, field)
            if TEXT in types:
                return (
                    f"{setting}: {field!r} is a text field in the index {some_of(types[TEXT])}, which cannot "
                    f"be aggregated; name a keyword field that all indexes of {instance.index} have, often "
                    f"{field + '.keyword'!r}, or exclude from index those that lack it ({error.reason})"
                    f"{_describe_missing_keyword(log, field)}"
                )
            if len(types) > 1:
                where = " and ".join(f"{kind} in {some_of(indexes)}" for kind, indexes in types.items())
                return (
                    f"{setting}: {field!r} is {where}, which cannot be counted together; narrow index to "
                    f"those of one type, or index the others again with the same type ({error.reason})"
                )
    named = {
        setting: field
        for setting, field in _fields_of(instance, *FIELDS, "time_field").items()
        if f"[{field}]" in error.reason
    }
    if named:
        return f"{', '.join(named)}: {next(iter(named.values()))!r} {refused}: {error.reason}"
    if "query_shard_exception" in error.kinds:  # without days only the query can be refused
        with suppress(AssetOwnersError):
            log.ask(log.query)
            return f"time_field: {instance.time_field!r} {refused}: {error.reason}"
    if any(map(_QUERY_ERRORS.search, error.kinds)):
        return f"query: {error.query!r} {refused}: {error.reason}"
    return (
        f"The search {refused} with HTTP status {error.status}; check index, query, time_field and "
        f"{', '.join(FIELDS)} ({error.reason})"
    )


def _fields_of(instance: Instance, *settings: str) -> dict[str, str]:
    fields = {setting: getattr(instance, setting) for setting in settings}
    return {setting: field for setting, field in fields.items() if field}


def types_by_index(log: Asker, field: str, filters: Sequence[dict[str, Any]] = ()) -> dict[str, list[str]]:
    """Return the indexes of each type of a field that the filtered documents have; all texts are `text`.

    With filters only what is counted: neither a text without fielddata nor an object, which `exists` finds.
    """
    # Every type but text refuses the query, and the refusal names the type.
    only_text = {"match_phrase_prefix": {field: "x"}}
    has_field = [*filters, {"exists": {"field": field}}]
    query = {"bool": {"filter": has_field, "should": [only_text], "minimum_should_match": 0}}
    absent = {"absent": {"missing": {"field": field}}} if filters else {}
    indexes = {"buckets": {"terms": {"field": "_index", "size": MAX_INDEXES}, "aggs": absent}}
    of_text, answer = log.ask_each_shard(query, indexes)
    types: dict[str, set[str]] = defaultdict(set)
    for index, refusal in _refusals(answer):
        if found := _TYPE.search(refusal):
            types[found[1]].add(index)
        elif not FAULT_OF_REQUEST.search(refusal):
            raise TransientError(f"{log.transport.where} did not give the type of {field!r} in {index}")
    for index in of_text:
        if index.lacking < index.doc_count:
            types[TEXT].add(str(index.key))
    return {kind: sorted(types[kind]) for kind in sorted(types)}


def _refusals(answer: Any) -> Iterator[tuple[str, str]]:
    if isinstance(answer, dict):
        if isinstance(answer.get("index"), str) and "reason" in answer:
            yield answer["index"], str(answer)
        answer = list(answer.values())
    for each in answer if isinstance(answer, list) else ():
        yield from _refusals(each)


def require_whole_names(log: Asker, first: date, last: date) -> None:
    """Fail if names are counted word by word: `svc-miller` under `svc` and under `miller`."""
    for setting, field in _fields_of(log.instance, "user_field", "hostname_field").items():
        # A keyword field may hold several values (rules 1.1), copied ones included.
        filters = [log.between(first, last), log.query]
        if indexes := log.transport.retrying()(types_by_index, log, field, filters).get(TEXT):
            raise ConfigurationError(
                f"{setting}: {field!r} is text with fielddata in the index {some_of(indexes)}: documents are "
                "counted once for each word of a name, so parts of names count as users and hosts; name a "
                "keyword field that all indexes have"
            )


def why_lacking(log: Asker, first: date, last: date, *, user: bool) -> str:
    """Return which indexes hold the documents that lack the user, or the host, as part of a sentence."""
    field = log.fields["username" if user else "hostname"]
    indexes = _by_index(log, field, [log.between(first, last), log.query])
    if not any(index.lacking for index in indexes):
        return ""
    if all(index.lacking == index.doc_count for index in indexes):
        return (
            f"no document in {log.instance.index} has it: it is misspelt or inside a nested field, or "
            "field-level security of the role hides it"
        )
    return (
        f"it is missing, or has another type, in {_name_indexes(indexes, _sibling_of(field))}. All indexes "
        f"of {log.instance.index} need the field: name one that they have, or narrow index to those that "
        "have it"
    )


def _describe_missing_keyword(log: Asker, field: str) -> str:
    """Return which indexes lack the keyword field of a text field, as the end of a sentence."""
    keyword = f"{field}.keyword"
    indexes: list[Bucket] = []
    with suppress(AssetOwnersError):
        indexes = _by_index(log, keyword, [log.query])
    if not indexes:
        return ""
    if not any(index.lacking for index in indexes):
        return f". They all have {keyword!r}"
    return f". {keyword!r} is missing in {_name_indexes(indexes, None)}"


def _by_index(log: Asker, field: str, filters: list[dict[str, Any]]) -> list[Bucket]:
    """Count the documents of each index that lack a field, and how many of them have its sibling."""
    missing = {"missing": {"field": field}}
    has_sibling = {"filter": {"exists": {"field": _sibling_of(field)}}}
    by_index = {
        "terms": {"field": "_index", "size": MAX_INDEXES, "order": {"absent": "desc"}},
        "aggs": {"absent": missing | {"aggs": {"sibling": has_sibling}}},
    }
    return log.ask({"bool": {"filter": filters}}, {"buckets": by_index}).buckets


def _sibling_of(field: str) -> str:
    return field.removesuffix(".keyword") if field.endswith(".keyword") else f"{field}.keyword"


def _name_indexes(indexes: list[Bucket], sibling: str | None) -> str:
    named = []
    for index in (one for one in indexes if one.lacking):
        has_sibling = sibling and index.absent and index.absent.sibling and index.absent.sibling.doc_count
        which = f", which have {sibling}" if has_sibling else ""
        named.append(f"{index.key} ({index.lacking:,} of {index.doc_count:,} documents{which})")
    return some_of(named)


def why_nothing(log: Asker, first: date, last: date) -> Finding:
    """Return why nothing matches: the times of the documents, no index, or the query and the days."""
    instance = log.instance
    # A run fails only if no day has any document: an index may be deleted once its events are stored.
    if (times := find_times(log)).state == "wrong":
        return times
    if not log.search([]).shards.total:
        text = f"{instance.index!r} matches no index that {instance.username} may read; correct the name"
        return Finding("wrong", "index", f"{text}, or wait for the first events")
    counted = _count_clauses(log, first, last)
    return Finding("warning", "query", f"matches nothing, so no owner is found. {counted}")


def find_ignored(log: Asker, first: date, last: date) -> Iterator[Finding]:
    """Yield a warning if indexes ignore a part of the query that a field's type or their cluster forbids."""
    if (asked := log.query.get("query_string")) and "fields" not in asked:
        # Engines keep quiet about such a part only where they may search all fields.
        strict = {"query_string": {**asked, "default_field": log.fields["username"]}}
        try:
            log.ask({"bool": {"filter": [log.between(first, last), strict]}})
        except RefusedSearchError as error:
            text = f"a part of it cannot be searched for{error.in_index}: {error.reason}. There it matches "
            text += "nothing, with NOT all; correct that part, or exclude from index what has no logons"
            yield Finding("warning", "query", text)


def find_times(log: Asker) -> Finding:
    """Check in each index whether the documents that match the query have a usable `time_field`."""
    field = log.instance.time_field
    of_time = {
        "earliest": {"min": {"field": field}},
        "latest": {"max": {"field": field}},
        "absent": {"missing": {"field": field}},
        "dated": {"filter": log.between(*_SOME_TIME)},
    }
    by_index = {"terms": {"field": "_index", "size": MAX_INDEXES}, "aggs": of_time}
    indexes = log.search([], {"buckets": by_index}).buckets
    faults = [f"{fault} in {index.key} ({index.lost:,} of {index.doc_count:,} documents)"
              for index in indexes if index.lost and (fault := _describe_time_fault(index))]  # fmt: skip
    if not faults:
        return Finding("ok", "time_field", f"{field} is in all documents that match the query")
    none = all(index.lost == index.doc_count for index in indexes)
    some = some_of(faults, joint="; ")
    text = f"{field} {some}, so runs do not count these documents; name a field with dates or milliseconds"
    return Finding("wrong" if none else "warning", "time_field", text)


def _describe_time_fault(index: Bucket) -> str:
    """Return why some documents of an index belong to no day."""
    start, end = (datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000 for day in _SOME_TIME)
    times = [time.value for time in (index.earliest, index.latest) if time and time.value is not None]
    if not times:
        return "is in no document"
    strange = [time for time in times if not start <= time < end]
    if not strange:
        return "is not in all" if index.lacking else "is not indexed"
    unit = next((unit for unit, factor in _UNITS.items() if start <= strange[0] * factor < end), None)
    return f"has {unit} instead of milliseconds" if unit else "has times before 1990 or after 2099"


def _count_clauses(log: Asker, first: date, last: date) -> str:
    """Return how many documents each clause of the query matches by itself, as a sentence."""
    named = clauses(log.instance.query)
    filters = [{"match_all": {}}, *named.values()]
    between = {"bool": {"filter": [log.between(first, last)]}}
    counted = log.ask(between, {"buckets": {"filters": {"filters": filters}}}).buckets
    total, *each = (bucket.doc_count for bucket in counted) if counted else (0,)
    if not total:
        return f"{log.instance.index} has no documents from {first} to {last}"
    whole = f"Of {total:,} documents of {log.instance.index} from {first} to {last} the query matches none"
    matches = "; ".join(
        f"{clause} by itself matches {count:,}" for clause, count in zip(named, each, strict=True)
    )
    return f"{whole}: {matches}" if matches else whole


def unmatched_parts(log: Asker) -> list[str]:
    """Return the parts of an index pattern with several, or with a remote cluster, that match no index."""
    parts = [part for part in _COMMAS.split(log.instance.index) if part.rpartition(":")[2][:1] != "-"]
    unmatched = []
    for part in parts if len(parts) > 1 or ":" in parts[0] else ():
        shards = None
        with suppress(ConfigurationError, PermissionDeniedError):
            shards = log.ask({"match_all": {}}, index=part).shards.total
        unmatched += [] if shards else [part]
    return unmatched


def top_senders(log: Asker, first: date, last: date) -> tuple[str, pl.DataFrame] | None:
    """Return the names that send for most hosts, by the field that tells most computers apart.

    A field with fewer names than `hostname_field` names the sender itself, or a group of hosts. None: the
    documents have no other field that names a computer.
    """
    between, own = log.between(first, last), log.fields["hostname"]
    carried = _find_computer_fields(log, between)
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
            for bucket in log.search([between], {"buckets": has_field}).buckets:
                hosts, names = (one.value or 0 if one else 0 for one in (bucket.hosts, bucket.others))
                if names > max(hosts, most):
                    finest, most = field, names
    if finest is None:
        return carried[0], pl.DataFrame(schema=_SENDERS)
    by_name = {
        "terms": {"field": own, "size": MAX_SENDERS, "order": {"hosts": "desc"}},
        "aggs": {
            "hosts": {"cardinality": {"field": finest, "precision_threshold": 100}},
            "names": {"terms": {"field": finest, "size": HOSTS_PER_SENDER}},
        },
    }
    buckets = log.search([between], {"buckets": by_name}).buckets
    names = ([name.key for name in bucket.names.buckets] if bucket.names else [] for bucket in buckets)
    rows = [(bucket.key, bucket.doc_count, texts(some)) for bucket, some in zip(buckets, names, strict=True)]
    return finest, pl.DataFrame(rows, _SENDERS, orient="row", strict=False)


def _find_computer_fields(log: Asker, between: dict[str, Any]) -> list[str]:
    """Return the fields beside `hostname_field` that name computers, as some documents have them."""
    own = log.fields["hostname"]
    some = {"top_hits": {"size": DOCUMENTS_PER_HOST, "_source": False, "fields": ["*"]}}
    by_host = {"terms": {"field": own, "size": SAMPLED_HOSTS}, "aggs": {"documents": some}}
    buckets = log.search([between], {"buckets": by_host}).buckets
    documents = (one for bucket in buckets if bucket.documents for one in bucket.documents.hits.hits)
    fields = {field for document in documents for field in document.fields}
    texts_of_keywords = {field.removesuffix(".keyword") for field in fields if field.endswith(".keyword")}
    return sorted(
        field
        for field in fields - texts_of_keywords - {own}
        if _COMPUTER_FIELD.search(field) and not _OF_ANOTHER_COMPUTER.search(field)
    )


_EVENT_CODE = re.compile(r"([\w.]+):4624")
_USER = re.compile(r"(?i)(user|account|logon|login)([._]?name)?(\.keyword)?$|\.acct$")
_HOST = re.compile(
    r"(?i)(host|computer|agent|workstation|machine|device|fqdn)([._]?(dns_?)?name)?(\.keyword)?$"
)
_TIME = re.compile(r"\d{4}[-/.]\d\d[-/.]\d\d|1\d{9}(\d{3})?$")
_LOGON = re.compile(r"(?i)[\w.@]+:((user[-_]?)?log(ged)?[-_]?[io]n|4624)")
_LIKELY = {
    "query_string": {"query": "*:* user:* username:* user_name:* login:* action:log*n", "lenient": True}
}
"""Matches any document; those that may be logons score best."""
MAX_FORM = 20
NAME_THE_INDEX = "name the index"
"""What to do where no logon is found."""
_DATA_STREAM = re.compile(r"^\.ds-(.+?)(?:-\d{4}\.\d\d\.\d\d)?-\d{6}$")
_OF_YEAR = r"(?:[kc]?w(?:eek)?\d\d?|q[1-4]|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"
_DATE_OR_NUMBER = re.compile(
    rf"(?:(?<=[-_.])|(?=20\d\d[-_.]?(?:0\d|1[0-2]|{_OF_YEAR})))"
    rf"(?:(?:\d{{4}}[-_.]?{_OF_YEAR}|{_OF_YEAR}[-_.]?\d{{4}}|\d+(?:t\d+)?)(?:[-_.]|$))+$"
)
"""What differs from one index to the next: a date, a version, a number; `win10` and `win2019` are names."""


@dataclass(frozen=True)
class Proposal:
    """The preset or `own` settings that fit the newest logon, and its index pattern."""

    preset: str
    index: str
    own: Mapping[str, str] = dataclass_field(default_factory=dict)
    fields: str = ""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings for the instance file."""
        return self.own or {**presets()[self.preset].settings, "index": self.index}

    @property
    def title(self) -> str:
        """The way of shipping, in words."""
        return presets()[self.preset].title if self.preset else f"no known way of shipping; {self.fields}"


def propose(client: Asker, *, own_fields: bool = False) -> Proposal:
    """Return the preset, or with `own_fields` the fields, of the newest logon; ConfigurationError: none."""
    known = presets()
    # One search tries each preset's query; `_fits` compares the fields of the document that it finds.
    tried: list[dict[str, Any]] = [
        {"constant_score": {"filter": {"query_string": {"query": one.settings["query"]}}, "_name": name}}
        for name, one in known.items()
    ]
    codes = sorted({code for one in known.values() for code in _EVENT_CODE.findall(one.settings["query"])})
    any_logon = {"multi_match": {"query": "4624", "fields": codes, "lenient": True}}
    tried.append({"constant_score": {"filter": any_logon, "boost": 0.5}})
    where, option = client.instance, "" if own_fields else " with --index"
    try:
        found = client.newest({"dis_max": {"queries": tried}}) or client.newest(_LIKELY)
    except PermissionDeniedError as error:
        raise PermissionDeniedError(f"{error}; name the indexes that it may read{option}") from error
    if not found:
        ways = option and f"{option}, or the way of shipping with --logs ({', '.join(known)})"
        none = f"No logon event of a known way of shipping is in {some_of(_COMMAS.split(where.index))}"
        raise ConfigurationError(f"{none} at {where.url}; {NAME_THE_INDEX}{ways}")
    index, fields = _DATA_STREAM.sub(r"\1", found.index), found.fields
    fitting = [name for name in found.matched_queries if name in known and _fits(known[name], fields)]
    sender, machine = (
        str(next(iter(fields.get(field, ())), "")).lower().partition(".")[0]
        for field in ("agent.name", "winlog.computer_name")
    )
    # Documents of a collector differ from those of each machine in these names only.
    fitting = [name for name in fitting if (name == "windows-forwarding") <= (sender != machine)]
    fitting.sort(key=lambda name: (name != "windows-forwarding", not _holds(known[name], index)))
    if not fitting:
        own = _propose_fields(index, fields)
        if own_fields:
            return own
        raise ConfigurationError(
            f"The newest logon in {index} at {where.url} fits no known way of shipping. Its {own.fields}. "
            f"Name another index with --index, or write a file with --logs and the nearest way "
            f"({', '.join(known)}), and set query, user_field and hostname_field in it"
        )
    preset = known[fitting[0]]
    pattern = preset.settings["index"] if _holds(preset, index) else _DATE_OR_NUMBER.sub("*", index)
    return Proposal(fitting[0], pattern)


def _propose_fields(index: str, fields: Mapping[str, list[object]]) -> Proposal:
    """Propose fields of a document, and list others with the shape of their values; all if one is missing."""
    # A text with a keyword below it is split into words; longer names are not a service's.
    first = {
        name: str(values[0])
        for name, values in fields.items()
        if values and len(name) <= 100 and name.isprintable() and f"{name}.keyword" not in fields
    }
    forms = {name: f"{name} ({_form(value)})" for name, value in sorted(first.items())}
    own, words = {"index": _DATE_OR_NUMBER.sub("*", index)}, []
    for kind, setting, fits in (
        ("user", "user_field", _USER.search),
        ("host", "hostname_field", _HOST.search),
        ("time", "time_field", lambda name: _TIME.match(first[name])),
    ):
        names = sorted(filter(fits, first), key=lambda name: (name != "@timestamp", len(name), name))[:10]
        own |= {setting: names[0]} if names else {}
        words.append(f"the {kind}: {', '.join(forms.pop(name, name) for name in names) or 'none'}")
    if len(own) <= len(words):
        words.append(f"others: {some_of([*forms.values()], 10) or 'none'}")
    logons = (f"{name}:{value}" for name, value in first.items())
    own["query"] = next(filter(_LOGON.fullmatch, logons), "*")
    fields_found = f"fields, with values (letters shown as a, digits as 9), that may hold {'; '.join(words)}"
    return Proposal("", own["index"], own, fields_found)


def _form(value: str) -> str:
    """Return the shape of a value: `a` for each letter, `9` for each digit."""
    signs = ("9" if sign.isdecimal() else "a" if sign.isalpha() else sign for sign in value[:MAX_FORM])
    return printable("".join(signs)) + "…" * (len(value) > MAX_FORM)


def _fits(preset: Preset, fields: dict[str, list[object]]) -> bool:
    """Return whether a document has all fields of a preset, none as a text with a keyword below it."""
    named = [field for setting, field in preset.settings.items() if setting.endswith("_field")]
    return all(field in fields and f"{field}.keyword" not in fields for field in named)


def _holds(preset: Preset, index: str) -> bool:
    return any(fnmatchcase(index, pattern) for pattern in preset.settings["index"].split(","))
