"""What a run needs from logs: an `EvidenceSource` is one log, `Logs` are all of an instance."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Self, TypeVar

import polars as pl

from ownership.windows import Window
from resources.errors import AssetOwnersError, call_each
from resources.findings import Finding, check_call
from resources.settings import Instance

T = TypeVar("T")


@dataclass(frozen=True)
class DayOfLogons:
    """The logons of one day in a log.

    `counts`: document_hostname, document_username, events; one row a pair, events >= 1. With a
    `logon_type_field` also document_logon_type (null if the document has none), and a row for each type. With
    a `user_domain_field` the domain stands before the user name (`ownership.names.with_domain`). A document
    with several users, or types, counts once for each. The totals count documents: `matching` the query,
    `lacking_user` and `lacking_host` of these; empty and `-` count as lacking (rules 1.3).
    """

    day: date
    fetched_at: datetime
    matching: int
    lacking_user: int
    lacking_host: int
    counts: pl.DataFrame


@dataclass(frozen=True)
class Senders:
    """The host names that stand for most computers, by another `field` of the documents.

    `names`: document_hostname, events, host_names (some of the computers).
    """

    field: str
    names: pl.DataFrame


class EvidenceSource(ABC):
    """Counts the logon events of a log by day, host and user, such as one query over one index pattern.

    To write another one:

    1. Implement `logons`.
    2. Raise the errors of `resources.errors`, with messages that name the source's own settings:
       ConfigurationError for what a setting can fix, TransientError for what may be retried.
    3. Set, for messages, the settings that name the users and hosts of logons, and their values.
    4. Where it makes sense, implement `probe`, `__exit__` to close connections, `matching_by_day`, what
       explains a result (`why_lacking`, `why_nothing`, `unmatched_parts` and `top_senders`), and for
       `asset-owners check` `first_pairs` and `check`.

    `tests/resources/search/test_adapters.py` tries any source.
    """

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
        return {}

    def why_lacking(self, first: date, last: date, *, user: bool) -> str:  # noqa: ARG002
        """Return which logons have no user, or no host, as part of a sentence; "" if unknown."""
        return ""

    def why_nothing(self, first: date, last: date) -> Finding:
        """Return why there are no logons from one day to another."""
        return Finding("warning", "logons", f"none from {first} to {last}, so no owner is found")

    def unmatched_parts(self) -> list[str]:
        """Return the parts of the source that hold no logons, such as an index that does not exist."""
        return []

    def top_senders(self, first: date, last: date) -> Senders | None:  # noqa: ARG002
        """Return the host names that stand for most computers on these days; None: the source cannot tell."""
        return None

    def first_pairs(self, first: date, last: date) -> pl.DataFrame | None:  # noqa: ARG002
        """Return some pairs of host and user as in `DayOfLogons.counts`; None: the source cannot tell."""
        return None

    def check(self, window: Window) -> Iterator[Finding]:  # noqa: ARG002
        """Check what a run relies on over its look-back window; by default that the source answers."""
        yield from check_call("connection", self.probe, "answers")


OpenSource = Callable[[Instance], AbstractContextManager[EvidenceSource]]
"""Opens the source of an instance with one log."""


class Logs:
    """The open logs of an instance, by name; each is asked and judged by itself."""

    def __init__(self, instance: Instance, open_source: OpenSource) -> None:
        self._open = ExitStack()
        with self._open:  # closes the open ones if another one cannot be opened
            self.by_name = {
                name: self._open.enter_context(open_source(one)) for name, one in instance.sources.items()
            }
            self._open = self._open.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

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

    def find(self, look: Callable[[str, EvidenceSource], Iterable[Finding]]) -> Iterator[Finding]:
        """Yield the findings of each log, with its name."""
        for name, log in self.by_name.items():
            with self._name_errors(name):
                for finding in look(name, log):
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


def extraction_fingerprint(instance: Instance, *, by_kind: bool = True) -> str:
    """Return a fingerprint of the settings by which a day of a log is counted (rules 4.3).

    `by_kind`: whether types of logon are counted apart, if the instance names their field.
    """
    settings = (
        instance.url,
        instance.index,
        instance.query,
        instance.user_field,
        instance.hostname_field,
        instance.time_field,
        instance.scan.timezone,
        # Unset ones are omitted, so that days fetched by earlier versions stay valid.
        *([instance.logon_type_field] if instance.logon_type_field and by_kind else []),
        *(["domain", instance.user_domain_field] if instance.user_domain_field else []),
    )
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def extraction_fingerprints(instance: Instance, *, by_kind: bool = True) -> dict[str, str]:
    """Return the fingerprint of each of the instance's logs, by name."""
    return {name: extraction_fingerprint(one, by_kind=by_kind) for name, one in instance.sources.items()}


def counted_as(instance: Instance) -> str:
    """Return how the instance's logons are counted, as `audit_sample` keeps it (rules 9.8)."""
    return " ".join(sorted(extraction_fingerprints(instance).values()))
