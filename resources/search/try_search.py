"""Findings about the search service: connection, log-in, query and fields.

Tries what a run relies on, through the client that a run uses. Only searches are sent.
"""

from collections.abc import Iterator

from ownership.quality import LACKING_LIMIT_PERCENT
from ownership.windows import Window
from resources.findings import Finding, attempt, reached
from resources.search.client import SearchClient


def search_findings(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Try connection, log-in, query and fields over the look-back window."""
    instance = search.instance
    if not (yield from reached(search.transport, "POST", search.path)):
        return
    totals = yield from attempt("search", lambda: search.totals(window.first, window.last))
    if totals is None:
        return
    yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
    matching, *lacking = totals
    if not matching:
        yield from _nothing_matches(search, window)
        return
    yield Finding("ok", "query", f"matches {matching:,} logon events from {window.first} to {window.last}")
    fields = {"user_field": instance.user_field, "hostname_field": instance.hostname_field}
    if kind := instance.logon_type_field:
        fields["logon_type_field"] = kind
        lacking.append(matching - search.count_with_field(kind, window.first, window.last))
    for (setting, field), without in zip(fields.items(), lacking, strict=True):
        if without == matching:
            text = f"none of the logon events carries {field}; name the field that holds it in your documents"
            yield Finding("wrong", setting, text)
            continue
        text = f"{field} is in {matching - without:,} of {matching:,} logon events"
        needed = setting != "logon_type_field"
        many = needed and 100 * without > LACKING_LIMIT_PERCENT * matching
        others = ", the others are not counted" if without and needed else ""
        yield Finding("warning" if many else "ok", setting, text + others)


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
        text = (
            f"matches nothing from {window.first} to {window.last}, so no owner is found; check query, index"
        )
        yield Finding("warning", "query", f"{text} ({instance.index}) and whether events arrive")
    elif shards == 0:
        text = f"{instance.index!r} matches no index that {instance.username} may read; correct the name"
        yield Finding("wrong", "index", f"{text}, or wait for the first events")
