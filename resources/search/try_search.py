"""Findings about the search service: connection, log-in, query and fields.

Tries what a run relies on, through the client that a run uses. Only searches are sent.
"""

import re
from collections.abc import Iterator

from ownership import quality
from ownership.quality import LACKING_LIMIT_PERCENT
from ownership.windows import Window
from resources.findings import Finding, attempt, reached
from resources.search.client import SearchClient
from resources.search.diagnosis import require_whole_names, sampled_names, top_senders
from resources.search.source import MASKED_LIMIT, MASKED_NAME, MASKED_NAMES


def search_findings(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Try connection, log-in, query and fields over the look-back window."""
    instance = search.instance
    if not (yield from reached(search.transport, "POST", search.path)):
        return
    days = window.first, window.last
    totals = yield from attempt("search", lambda: search.totals(*days))
    if totals is None:
        return
    yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
    matching, *lacking = totals
    if not matching:
        yield from _nothing_matches(search, window)
        return
    yield Finding("ok", "query", f"matches {matching:,} logon events from {window.first} to {window.last}")
    for part in (yield from attempt("index", search.unmatched_parts)) or ():
        yield Finding("warning", "index", f"its part {part} matches no index, so nothing of it is counted")
    fields = {"user_field": instance.user_field, "hostname_field": instance.hostname_field}
    if kind := instance.logon_type_field:
        fields["logon_type_field"] = kind
        lacking.append(matching - search.count_with_field(kind, window.first, window.last))
    for (setting, field), without in zip(fields.items(), lacking, strict=True):
        needed = setting != "logon_type_field"
        text = f"{field} is in {matching - without:,} of {matching:,} logon events"
        if without == matching:
            text = f"none of the logon events carries {field}; name the field that holds it in your documents"
        elif without and needed:
            text += ", the others are not counted"
        wrong = without == matching or (needed and 2 * without > matching)
        many = needed and 100 * without > LACKING_LIMIT_PERCENT * matching
        if many:
            user = setting == "user_field"
            why = yield from attempt(setting, lambda user=user: search.why_lacking(*days, user=user))
            text += f"; {why}" if why else ""
        yield Finding("wrong" if wrong else "warning" if many else "ok", setting, text)
    yield from attempt("search", lambda: require_whole_names(search, *days))
    yield from _masked(search, window)
    yield from _collectors(search, window)


def _masked(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Find names that are digests, as the role's field masking makes them."""
    names = yield from attempt("user_field", lambda: sampled_names(search, window.first, window.last))
    for setting, some in (names or {}).items():
        if sum(bool(re.match(MASKED_NAME, name)) for name in some) > MASKED_LIMIT * len(some):
            yield Finding("wrong", setting, MASKED_NAMES)


def _collectors(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Find names that stand for several hosts, as a run's blocking check does for one day."""
    senders = yield from attempt("hostname_field", lambda: top_senders(search, window.first, window.last))
    if senders is None:
        return
    forwarders = quality.forwarders(senders.names, exclude_hosts=search.instance.rules.exclude_hosts)
    if not forwarders.is_empty():
        wrong = senders.forwarded_percent(forwarders) > quality.FORWARDED_LIMIT_PERCENT
        when = f"from {window.first} to {window.last}"
        yield Finding("wrong" if wrong else "warning", "hostname_field", senders.describe(forwarders, when))


def _nothing_matches(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Find out why nothing matches: no time in the documents, no index, or the query and the days.

    The first two are wrong, though a run stops at documents without a time only: an index may be deleted
    when its events are stored (rules 3.4, 4.4).
    """
    instance = search.instance
    if undated := (yield from attempt("time_field", search.count_without_time)):
        text = f"none of the {undated:,} documents that match has {instance.time_field}; name another field"
        yield Finding("wrong", "time_field", text)
        return
    shards = yield from attempt("index", search.shards)
    if shards:
        why = yield from attempt("query", lambda: search.why_nothing(window.first, window.last))
        yield Finding("warning", "query", f"matches nothing, so no owner is found. {why or ''}".strip())
        for part in (yield from attempt("index", search.unmatched_parts)) or ():
            yield Finding("warning", "index", f"its part {part} matches no index")
    elif shards == 0:
        text = f"{instance.index!r} matches no index that {instance.username} may read; correct the name"
        yield Finding("wrong", "index", f"{text}, or wait for the first events")
