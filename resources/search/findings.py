"""What is well with the search service and what to fix: connection, log-in, query and fields.

What is tried is what a run relies on, through the client that a run uses. Only searches are sent.
"""

from collections.abc import Iterator
from datetime import date
from typing import Protocol
from urllib.parse import quote

from ownership.windows import Window
from resources.findings import Finding, attempt, not_tried, reached
from resources.settings import Instance


class Searched(Protocol):
    """What is asked of the client whose service is tried."""

    def totals(self, first: date, last: date) -> tuple[int, int, int]: ...  # noqa: D102
    def documents(self, first: date, last: date) -> int: ...  # noqa: D102
    def undated(self) -> int: ...  # noqa: D102


def search_findings(instance: Instance, search: Searched, window: Window) -> Iterator[Finding]:
    """Try connection, log-in, query and fields over the look-back window."""
    fields = {"user_field": instance.user_field, "hostname_field": instance.hostname_field}
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
        yield from not_tried("the service was not reached", "search", *fields)
        return
    totals = yield from attempt("search", lambda: search.totals(window.first, window.last))
    if totals is None:
        yield from not_tried("the search failed", *fields)
        return
    yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
    matching, *lacking = totals
    if not matching:
        yield from _nothing_matches(instance, search, window)
        yield from not_tried("there is no logon event to look at", *fields)
        return
    yield Finding("ok", "query", f"matches {matching:,} logon events from {window.first} to {window.last}")
    for (setting, field), without in zip(fields.items(), lacking, strict=True):
        if without == matching:
            text = f"none of the logon events carries {field}; name the field that holds it in your documents"
            yield Finding("wrong", setting, text)
        else:
            text = f"{field} is in {matching - without:,} of {matching:,} logon events"
            yield Finding("ok", setting, text + (", the others are not counted" if without else ""))


def _nothing_matches(instance: Instance, search: Searched, window: Window) -> Iterator[Finding]:
    """Tell documents without a time from a query that matches nothing and from days without documents.

    The first stops a run, the others do not (rules 3.4).
    """
    if undated := (yield from attempt("time_field", search.undated)):
        text = (
            f"none of the {undated:,} documents that match the query carries {instance.time_field}; name the "
            "field that holds the time of the logon"
        )
        yield Finding("wrong", "time_field", text)
        return
    documents = yield from attempt("query", lambda: search.documents(window.first, window.last))
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
