"""What is well with the search service and what to fix: connection, log-in, query and fields.

What is tried is what a run relies on, through the client that a run uses. Only searches are sent.
"""

from collections.abc import Iterator
from datetime import date
from typing import Protocol
from urllib.parse import quote

import polars as pl

from ownership.quality import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT, forwarders
from ownership.windows import Window, days_of
from resources.findings import Finding, attempt, not_tried, reached
from resources.settings import Instance

MAX_KINDS_SHOWN = 10


class Searched(Protocol):
    """What is asked of the client whose service is tried."""

    def totals(self, first: date, last: date) -> tuple[int, int, int]: ...  # noqa: D102
    def documents(self, first: date, last: date) -> int: ...  # noqa: D102
    def undated(self) -> int: ...  # noqa: D102
    def senders(self, day: date) -> tuple[int, pl.DataFrame]: ...  # noqa: D102
    def logon_types(self, first: date, last: date) -> tuple[int, dict[str, int]]: ...  # noqa: D102


def search_findings(instance: Instance, search: Searched, window: Window) -> Iterator[Finding]:
    """Try connection, log-in, query and fields over the look-back window."""
    fields = {"user_field": instance.user_field, "hostname_field": instance.hostname_field}
    tried = [*fields, *(["logon_type_field"] if instance.logon_type_field else [])]
    path = f"/{quote(instance.index, safe='*,-')}/_search"
    if not (
        yield from reached(
            "search service",
            "",
            instance.url,
            "POST",
            path,
            ignore_ssl=instance.ignore_ssl,
            ca_file=instance.ca_file,
        )
    ):
        yield from not_tried("the service was not reached", "search", *tried)
        return
    totals = yield from attempt("search", lambda: search.totals(window.first, window.last))
    if totals is None:
        yield from not_tried("the search failed", *tried)
        return
    yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
    matching, *lacking = totals
    if not matching:
        yield from _nothing_matches(instance, search, window)
        yield from not_tried("there is no logon event to look at", *tried)
        return
    yield Finding("ok", "query", f"matches {matching:,} logon events from {window.first} to {window.last}")
    for (setting, field), without in zip(fields.items(), lacking, strict=True):
        if without == matching:
            text = f"none of the logon events carries {field}; name the field that holds it in your documents"
            yield Finding("wrong", setting, text)
        else:
            text = f"{field} is in {matching - without:,} of {matching:,} logon events"
            many = 100 * without > LACKING_LIMIT_PERCENT * matching
            others = ", the others are not counted" if without else ""
            yield Finding("warning" if many else "ok", setting, text + others)
    if instance.logon_type_field:
        yield from _kinds_of_logon(instance, search, window, matching)
    if instance.hostname_field == "agent.name" and lacking[1] < matching:
        yield from _collectors(instance, search, window)


def _kinds_of_logon(instance: Instance, search: Searched, window: Window, matching: int) -> Iterator[Finding]:
    """Tell which kinds of logon there are, and weights of kinds that none of the events has."""
    field = instance.logon_type_field
    found = yield from attempt("logon_type_field", lambda: search.logon_types(window.first, window.last))
    if found is None:
        return
    carried, kinds = found
    if not carried:
        text = f"none of the logon events carries {field}; name the field that holds it in your documents"
        yield Finding("wrong", "logon_type_field", text)
        return
    most = ", ".join(f"{kind} ({events:,})" for kind, events in [*kinds.items()][:MAX_KINDS_SHOWN])
    others = ", the others count 1" if carried < matching else ""
    text = f"{field} is in {carried:,} of {matching:,} logon events{others}; most frequent: {most}"
    yield Finding("ok", "logon_type_field", text)
    if unknown := [kind for kind in instance.rules.logon_type_weights if kind not in kinds]:
        text = (
            f"no logon event has {' or '.join(unknown)} in {field}; write the values as the events have them"
        )
        yield Finding("warning", "rules.logon_type_weights", text)


def _collectors(instance: Instance, search: Searched, window: Window) -> Iterator[Finding]:
    """Tell names that send for several hosts, on the last day with events; a run looks at the same."""

    def senders() -> tuple[date, int, pl.DataFrame]:
        counted = ((day, search.totals(day, day)[0]) for day in reversed(days_of(window)))
        day = next(day for day, events in counted if events)
        return day, *search.senders(day)

    if (found := (yield from attempt("hostname_field", senders))) is None:
        return
    day, matching, rows = found
    collectors = forwarders(rows, exclude_hosts=instance.rules.exclude_hosts)
    if not collectors.is_empty():
        percent = 100 * int(collectors["events"].sum()) / max(matching, 1)
        number = collectors.height
        sending = "1 value of agent.name sends" if number == 1 else f"{number} values of agent.name send"
        text = (
            f"{sending} for several hosts, {percent:.0f}% of the events of {day}: set hostname_field to "
            "host.name, or add the collectors to rules.exclude_hosts"
        )
        yield Finding("wrong" if percent > FORWARDED_LIMIT_PERCENT else "warning", "hostname_field", text)


def _nothing_matches(instance: Instance, search: Searched, window: Window) -> Iterator[Finding]:
    """Tell documents without a time, and a missing index, from a query that matches nothing and empty days.

    The first two are wrong, though a run stops at documents without a time only: an index may be deleted
    when its events are stored (rules 3.4, 4.4).
    """
    if undated := (yield from attempt("time_field", search.undated)):
        text = (
            f"none of the {undated:,} documents that match the query carries {instance.time_field}; name the "
            "field that holds the time of the logon"
        )
        yield Finding("wrong", "time_field", text)
        return
    documents = yield from attempt("index", lambda: search.documents(window.first, window.last))
    if documents is None:
        return
    remedy = (
        f"{documents:,} documents are in those days, so check query"
        if documents
        else f"there is no document at all in those days, so check index ({instance.index}), "
        f"time_field ({instance.time_field}) and whether events arrive"
    )
    days = f"from {window.first} to {window.last}"
    yield Finding("warning", "query", f"matches nothing {days}, so no owner is found; {remedy}")
