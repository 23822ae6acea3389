"""Findings about the search service: connection, log-in, query and fields.

Tries what a run relies on, through the client that a run uses. Only searches are sent.
"""

from collections.abc import Iterator
from functools import partial

from ownership.quality import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT, forwarders
from ownership.windows import Window, days_of
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
        if many:
            where = yield from attempt(
                setting, partial(search.lacking_by_index, setting, window.first, window.last)
            )
            others += f"; it is missing in {', '.join(where)}" if where else ""
        # A run refuses what is left when most lack it (rules 3.4).
        grave = "wrong" if needed and 2 * without > matching else "warning"
        yield Finding(grave if many else "ok", setting, text + others)
    yield from _collectors(search, window)


def _collectors(search: SearchClient, window: Window) -> Iterator[Finding]:
    """Look on the last day with events for names that stand for several hosts, as a run's check does."""
    counted = yield from attempt("hostname_field", lambda: search.matching_by_day([*days_of(window)]))
    day = max((day for day, matching in (counted or {}).items() if matching), default=None)
    if day is None:
        return
    found = yield from attempt("hostname_field", lambda: search.top_senders(day))
    if found is None:
        return
    matching, senders = found
    collecting = forwarders(senders, exclude_hosts=search.instance.rules.exclude_hosts)
    if collecting.height:
        percent = 100 * int(collecting["events"].sum()) / max(matching, 1)
        yield Finding(
            "wrong" if percent > FORWARDED_LIMIT_PERCENT else "warning",
            "hostname_field",
            f"{search.instance.hostname_field} names {collecting.height} collectors, which send "
            f"{percent:.0f}% of the events of {day} for several hosts; name the field of the "
            "computer itself, such as winlog.computer_name, or list the collectors in rules.exclude_hosts",
        )


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
