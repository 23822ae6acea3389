"""The search service as a run and `asset-owners check` see it: one log of an instance."""

import time
from collections.abc import Callable, Iterator

from ownership import data_checks
from ownership.windows import Window
from resources.findings import Finding, attempt, attempt_all, check_connection
from resources.search import explaining
from resources.search.logons import LogonCounter
from resources.search.properties import check_fields, check_names, check_parts, days_of_totals
from resources.search.source import EvidenceSource
from resources.settings import Instance


class SearchClient(LogonCounter, EvidenceSource):
    """One query over one index pattern of a search service."""

    user_setting, host_setting = "user_field", "hostname_field"

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(instance, sleep=sleep)
        self.user_field, self.host_field = instance.user_field, instance.hostname_field

    why_lacking = explaining.why_lacking
    why_nothing = explaining.why_nothing
    unmatched_parts = explaining.unmatched_parts
    top_senders = explaining.top_senders

    def check(self, window: Window) -> Iterator[Finding]:
        """Try connection, log-in, query and fields, by searches alone."""
        instance, days = self.instance, (window.first, window.last)
        if not (yield from check_connection(self.transport, "POST", self.path)):
            return
        totals = yield from attempt("search", lambda: self.totals(*days))
        if totals is None:
            return
        yield Finding("ok", "search", f"{instance.username} may search {instance.index}")
        nothing = None if totals[0] else (yield from attempt("query", lambda: self.why_nothing(*days)))
        if not nothing or nothing.what != "index":  # which says it of all parts
            yield from attempt_all("index", lambda: [check_parts(self)])
        if not totals[0]:
            yield from [nothing] if nothing else []
            return
        events = f"{totals[0]:,} logon events from {window.first} to {window.last}"
        yield Finding("ok", "query", f"matches {events}")
        yield from attempt_all("time_field", lambda: [explaining.find_times(self)])
        yield from attempt_all("search", lambda: check_fields(self, days_of_totals(window, totals), window))
        if kind := instance.logon_type_field:
            carrying = self.count_with_field(kind, *days)
            text = f"{kind} is in {carrying:,} of {events}"
            yield Finding("ok" if carrying else "wrong", "logon_type_field", text)
        yield from attempt_all("search", lambda: explaining.require_whole_names(self, *days) or ())
        pairs = yield from attempt("search", lambda: self.first_pairs(*days))
        if pairs is not None:
            masked = data_checks.masked_days(pairs.lazy().with_columns(day=window.last))
            yield from (one for one in check_names(self, masked, 1) if one.state != "ok")
