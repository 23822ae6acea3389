"""The calls of a run to logs, and checks of what decisions rely on in them.

An `EvidenceSource` is one log, `Logs` are all of an instance.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain, combinations
from typing import Self, TypeVar

import polars as pl

from ownership import data_checks
from ownership.data_checks import FORWARDED_LIMIT_PERCENT, LACKING_LIMIT_PERCENT
from ownership.windows import Window, days_of
from resources.errors import AssetOwnersError, call_each
from resources.findings import Finding, attempt_all, check_call
from resources.search.asking import COUNTED_APART, FURTHER
from resources.settings import Instance

T = TypeVar("T")


@dataclass(frozen=True)
class DayOfLogons:
    """The logons of one day in a log.

    `counts`: document_hostname, document_username, events; one row a pair, events >= 1. Of `COUNTED_APART`
    also what the instance names a field for, such as document_logon_type (null if the document has none), and
    a row for each value. With a `user_domain_field` the domain stands before the user name
    (`ownership.names.with_domain`). A document with several values counts once for each. The totals count
    documents: `matching` the query, `lacking_user` and `lacking_host` of these; empty and `-` count as
    lacking (rules 1.3).
    """

    day: date
    fetched_at: datetime
    matching: int
    lacking_user: int
    lacking_host: int
    counts: pl.DataFrame


class EvidenceSource(ABC):
    """Counts the logon events of a log by day, host and user, such as one query over one index pattern.

    Another one, such as docs/recipes/exports.py, implements `logons`, and of the rest what makes sense. It
    raises the errors of `resources.errors` with messages that name its own settings: ConfigurationError for
    what a setting can fix, TransientError for what may be retried. `test_adapters.py` tries any source.
    """

    # For messages, the settings that name the users and hosts of logons, and their values.
    user_setting: str = "the users of the logons"
    host_setting: str = "the hosts of the logons"
    user_field: str = "it"
    host_field: str = "it"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  (optional)
        """Close connections."""

    def probe(self) -> None:  # noqa: B027  (optional)
        """Raise TransientError if the service does not answer within seconds."""

    @abstractmethod
    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day in `scan.timezone`, in the order given, empty ones included."""

    def matching_by_day(self, days: Sequence[date]) -> Mapping[date, int]:  # noqa: ARG002
        """Count the matching documents of each day in one request, to notice events that arrive late.

        Omitted days have not grown; the default omits all, because the source cannot tell.
        """
        return {}  # a day that is omitted has not grown, as far as the source can tell

    def why_lacking(self, first: date, last: date, *, user: bool) -> str:  # noqa: ARG002
        """Return which logons have no user, or no host, as part of a sentence; "" if unknown."""
        return ""

    def why_nothing(self, first: date, last: date) -> Finding:
        """Return why there are no logons from one day to another."""
        return Finding("warning", "logons", f"none from {first} to {last}, so no owner is found")

    def unmatched_parts(self) -> list[str]:
        """Return the parts of the source that hold no logons, such as an index that does not exist."""
        return []

    def top_senders(self, first: date, last: date) -> tuple[str, pl.DataFrame] | None:  # noqa: ARG002
        """Return which host names stand for most computers, by which other field; None: it cannot tell.

        Rows of document_hostname, events and host_names, which are some of the computers.
        """
        return None

    def first_pairs(self, first: date, last: date) -> pl.DataFrame | None:  # noqa: ARG002
        """Return some pairs of host and user as in `DayOfLogons.counts`; None: the source cannot tell."""
        return None

    def check(self, window: Window) -> Iterator[Finding]:  # noqa: ARG002
        """Check what a run relies on over its look-back window; by default that the source answers."""
        yield from check_call("connection", self.probe, "answers")


OpenSource = Callable[[Instance], AbstractContextManager[EvidenceSource]]
"""Opens the source of an instance with one log."""


class Logs(ExitStack):
    """The open logs of an instance, by name; each is asked and judged by itself."""

    def __init__(self, instance: Instance, open_source: OpenSource) -> None:
        super().__init__()
        with ExitStack() as opened:  # closes the open ones if another one cannot be opened
            self.by_name = {
                name: opened.enter_context(open_source(one)) for name, one in instance.sources.items()
            }
            self.push(opened.pop_all())

    def probe(self) -> None:
        """Raise TransientError if a service does not answer within seconds."""
        self.ask_each(lambda log: log.probe())

    def logons(self, days: Sequence[date]) -> Iterator[dict[str, DayOfLogons]]:
        """Count the logon events of each day, in the order given, in each log, by name."""
        each = {name: self._logons(name, days) for name in self.by_name}
        for _ in days:
            yield call_each(each, lambda name: next(each[name]))
        for logons in each.values():
            next(logons, None)  # a source may fail at the end

    def _logons(self, name: str, days: Sequence[date]) -> Iterator[DayOfLogons]:
        with self._name_errors(name):
            yield from self.by_name[name].logons(days)

    def find(self, check: Callable[[str, EvidenceSource], Iterable[Finding]]) -> Iterator[Finding]:
        """Yield the findings of each log, with its name."""
        for name, log in self.by_name.items():
            with self._name_errors(name):
                for finding in check(name, log):
                    yield replace(finding, what=f"{self.prefix(name)}{finding.what}")

    def ask_each(self, ask: Callable[[EvidenceSource], T]) -> dict[str, T]:
        """Return the answer of each log, by name; an error names its log."""
        return call_each(self.by_name, lambda name: self.ask(name, ask))

    def ask(self, name: str, ask: Callable[[EvidenceSource], T]) -> T:
        """Return the answer of one log; an error names it."""
        with self._name_errors(name):
            return ask(self.by_name[name])

    def prefix(self, name: str) -> str:
        """Return the start of a message about a log; "" if there is only one."""
        return f"logs.{[*self.by_name].index(name)} ({name}): " if len(self.by_name) > 1 else ""

    @contextmanager
    def _name_errors(self, name: str) -> Generator[None]:
        try:
            yield
        except AssetOwnersError as error:
            error.args = (f"{self.prefix(name)}{error}",)
            raise


def extraction_fingerprint(instance: Instance) -> str:
    """Return a fingerprint of the settings by which a day of a log is counted (rules 4.3)."""
    words = {"logon_type": [], "user_domain": ["domain"]}  # as stored days have them
    further = {name: getattr(instance, f"{name}_field") for name in FURTHER}
    settings = (
        instance.url,
        instance.index,
        instance.query,
        instance.user_field,
        instance.hostname_field,
        instance.time_field,
        instance.scan.timezone,
        # Unset ones are omitted, so that days fetched by earlier versions stay valid.
        *(text for name, field in further.items() if field for text in (*words.get(name, [name]), field)),
    )
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def fingerprints_as_exact(instance: Instance) -> set[str]:
    """Return those of the same counts of a log, with all, some or none of `COUNTED_APART` (rules 4.4)."""
    fields = [f"{name}_field" for name in COUNTED_APART]
    unset = chain.from_iterable(combinations(fields, number) for number in range(len(fields) + 1))
    return {extraction_fingerprint(instance.model_copy(update=dict.fromkeys(some))) for some in unset}


def extraction_fingerprints(instance: Instance) -> dict[str, str]:
    """Return the fingerprint of each of the instance's logs, by name."""
    return {name: extraction_fingerprint(one) for name, one in instance.sources.items()}


def counted_as(instance: Instance) -> str:
    """Return how the instance's logons are counted, as `audit_sample` keeps it (rules 9.8)."""
    return " ".join(sorted(extraction_fingerprints(instance).values()))


def check_parts(log: EvidenceSource) -> Finding:
    """Check that each part of an index pattern matches an index."""
    parts = log.unmatched_parts()
    if not parts:
        return Finding("ok", "index", "each part matches an index")
    return Finding(
        "warning",
        "index",
        f"{', '.join(parts)} matches no index, so it is not counted; correct index, or wait for events",
        rows=pl.DataFrame({"part": parts}),
    )


def check_fields(log: EvidenceSource, days: pl.DataFrame, window: Window) -> Iterator[Finding]:
    """Check that documents have user and host: `wrong` if most lack one, a warning over 10% of a day's.

    `days` has day, matching, lacking_user and lacking_host.
    """
    for user, setting, field in (
        (True, log.user_setting, log.user_field),
        (False, log.host_setting, log.host_field),
    ):
        name = "lacking_user" if user else "lacking_host"
        matching, lacking = (int(days[column].sum()) for column in ("matching", name))
        events = f"{matching:,} logon events from {window.first} to {window.last}"
        numbers = {name: lacking}
        if not lacking:
            yield Finding("ok", setting, f"all {events} have {field}", numbers=numbers)
            continue
        rows = data_checks.days_lacking_field(days, name)
        wrong, none = data_checks.most_lack(days, name), lacking == matching
        text = f"none of the {events} has {field}"
        if not none:
            text = f"{lacking:,} of the {events} lack {field} (missing, empty or -) and are not counted"
        if wrong:
            text += ", so nothing is decided"
        elif rows.height:
            text += f"; on {rows.height} of {days.height} days more than {LACKING_LIMIT_PERCENT}%"
        if wrong or rows.height:
            why = log.why_lacking(window.first, window.last, user=user)
            text += f": {why}" if why else "; name a field that all have"
        state = "wrong" if wrong else "warning" if rows.height else "ok"
        yield Finding(state, setting, text, rows=rows, numbers=numbers)


def check_names(log: EvidenceSource, masked: pl.DataFrame, days: int) -> Iterator[Finding]:
    """Check that on no day most names are hidden, by a role's field masking or by a pipeline.

    `masked` are rows of `data_checks.masked_days`.
    """
    for setting, name in ((log.user_setting, "username"), (log.host_setting, "hostname")):
        found = masked.drop_nulls(name)
        if found.is_empty():
            yield Finding("ok", setting, "its names are readable")
            continue
        first, last = found["day"][0], found["day"][-1]
        yield Finding(
            "wrong",
            setting,
            f"most of its names are {found[name][0]} on {found.height} of {days} days: field masking of the "
            "role hides the names, or a pipeline did. Have the role show them, or name another field, and "
            f"then materialize logon_counts from {first} to {last}",
        )


def check_senders(
    logs: Logs, first: date, last: date, *, matching: Mapping[str, int], exclude_hosts: Sequence[str]
) -> Iterator[Finding]:
    """Check that no host name is a collector's, which sends for several hosts; `wrong` for most events.

    `matching` has the events of each log on these days.
    """
    events = max(sum(matching.values()), 1)
    found = logs.ask_each(lambda log: log.top_senders(first, last))
    senders = {name: one for name, one in found.items() if one}
    collectors = {
        name: data_checks.forwarders(names, exclude_hosts=exclude_hosts)
        for name, (_, names) in senders.items()
    }
    sent = sum(int(rows["events"].sum()) for rows in collectors.values())
    wrong = 100 * sent > FORWARDED_LIMIT_PERCENT * events
    for name in logs.by_name:
        what = f"{logs.prefix(name)}{logs.by_name[name].host_setting}"
        if name not in senders:
            text = "no other field of the events names a computer, so collectors cannot be found"
            yield Finding("ok", what, text)
        elif collectors[name].is_empty():
            yield Finding("ok", what, "each name sends the events of one host only")
        else:
            rows = collectors[name]
            percent = 100 * int(rows["events"].sum()) / events
            send = "1 collector sends" if rows.height == 1 else f"{rows.height} collectors send"
            days = f"of {last}" if first == last else f"from {first} to {last}"
            yield Finding(
                "wrong" if wrong else "warning",
                what,
                f"{send} events for several hosts, {percent:.0f}% of all events {days}: set hostname_field "
                f"to {senders[name][0]}, or add the collectors to rules.exclude_hosts",
                rows=rows,
                numbers={"forwarded_percent": round(percent, 1)},
            )


def check_logs(logs: Logs, window: Window, *, exclude_hosts: Sequence[str]) -> Iterator[Finding]:
    """Check all that a run relies on, and collectors if nothing else is wrong."""
    states = []
    for finding in logs.find(lambda _, log: log.check(window)):
        states.append(finding.state)
        yield finding
    if "wrong" in states:
        return

    def find_senders() -> Iterator[Finding]:
        by_day = logs.ask_each(lambda log: log.matching_by_day(days_of(window)))
        matching = {name: sum(days.values()) for name, days in by_day.items()}
        return check_senders(logs, window.first, window.last, matching=matching, exclude_hosts=exclude_hosts)

    yield from (finding for finding in attempt_all("search", find_senders) if finding.state != "ok")
