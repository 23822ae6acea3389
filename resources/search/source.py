"""What a run needs of a source of logons: `EvidenceSource`, which every source inherits."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol, Self, runtime_checkable

import polars as pl

from resources.settings import Instance


@dataclass(frozen=True)
class DayOfLogons:
    """What the source holds for one day.

    `counts`: document_hostname, document_username, events; one row a pair, events >= 1. Where the instance
    has a `logon_type_field`, also document_logon_type (null: the document has none), and a row for each kind
    of a pair's logons. A domain that has a field of its own (`user_domain_field`) stands before the user name
    (`ownership.names.with_domain`). A document with several users, or kinds, counts once for each. The totals
    count documents: `matching` the query, of them `lacking_user` and `lacking_host`; empty and `-` count as
    lacking (rules 1.3).
    """

    day: date
    fetched_at: datetime
    matching: int
    lacking_user: int
    lacking_host: int
    counts: pl.DataFrame


class EvidenceSource(ABC):
    """A service that counts logon events by day, host and user.

    An author of another one does four things:

    1. Implement `logons`.
    2. Raise the errors of `resources.errors`, with messages that name the source's own settings:
       ConfigurationError for what a setting can mend, TransientError for what may be retried.
    3. Set `user_setting` and `host_setting`: what says where users and hosts of logons are, for messages.
    4. Where it makes sense, implement `probe`, `__exit__` to close connections, and what `CountsDays` has.

    `tests/resources/search/test_adapters.py` tries any source.
    """

    user_setting: str = "the users of the logons"
    host_setting: str = "the hosts of the logons"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is open; by default nothing."""
        return

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""
        return

    @abstractmethod
    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given, also of a day that has none.

        Days are calendar days in `scan.timezone`.
        """


@runtime_checkable
class CountsDays(Protocol):
    """A source that can tell in one request how much it holds: events that arrive late are noticed then."""

    def matching_by_day(self, days: Sequence[date]) -> dict[date, int]:
        """Count the matching documents of each day, as in `DayOfLogons.matching`; 0 where there is none."""


@runtime_checkable
class ListsSenders(Protocol):
    """A source that also knows who sent the events, as Elastic's agents do."""

    def top_senders(self, day: date) -> tuple[int, pl.DataFrame]:
        """Count the matching documents of a day, and list the names that sent for most hosts.

        The list holds document_hostname, events, host_names (some of the hosts).
        """


def extraction_fingerprint(instance: Instance, *, by_kind: bool = True) -> str:
    """Changes exactly when the same day could be counted differently (rules 4.3).

    `by_kind`: whether kinds of logon are counted apart, where the instance names their field.
    """
    if instance.logs:
        each = [extraction_fingerprint(one, by_kind=by_kind) for one in instance.sources]
        return hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16]
    settings = (
        instance.url,
        instance.index,
        instance.query,
        instance.user_field,
        instance.hostname_field,
        instance.time_field,
        instance.scan.timezone,
        # Days that were fetched before there was this setting stay good where it is off.
        *([instance.logon_type_field] if instance.logon_type_field and by_kind else []),
        *(["domain", instance.user_domain_field] if instance.user_domain_field else []),
    )
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
