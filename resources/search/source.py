"""Where logons come from, as runs need it: days of counted logons, and what is known of the source itself.

`EvidenceSource` is all that the rest of the program knows of such a service; `SearchClient` is the one there
is. Another source is another adapter, with its settings.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

import polars as pl

from ownership.windows import Window
from resources.findings import Finding
from resources.settings import Instance


@dataclass(frozen=True)
class DayOfLogons:
    """What the source holds for one day.

    `counts`: document_hostname, document_username, events; one row a pair, events >= 1. Where the instance
    has a `logon_type_field`, also document_logon_type (null: the document has none), and a row for each kind
    of a pair's logons. A document with several users, or kinds, counts once for each. The totals count
    documents: `matching` the query, of them `lacking_user` and `lacking_host`; empty and `-` count as lacking
    (rules 1.3).
    """

    day: date
    fetched_at: datetime
    matching: int
    lacking_user: int
    lacking_host: int
    counts: pl.DataFrame


def extraction_fingerprint(instance: Instance, *, by_kind: bool = True) -> str:
    """Changes exactly when the same day could be counted differently (rules 4.3).

    Args:
        instance: Its settings.
        by_kind: Whether kinds of logon are told apart, where the instance names their field.
    """
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
    )
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


class EvidenceSource(Protocol):
    """A service that counts logon events by day, host and user.

    Every call may raise the errors of `resources.errors`; their messages name the settings to fix.
    """

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given."""
        ...

    def totals(self, first: date, last: date) -> tuple[int, int, int]:
        """Count the documents from `first` to `last`: matching, without a user, without a host."""
        ...

    def undated(self) -> int:
        """Count the matching documents of all times when none of them says when it happened; else 0."""
        ...

    def senders(self, day: date) -> tuple[int, pl.DataFrame]:
        """Tell under which names the events of several hosts came on one day, as from a forwarder.

        Returns:
            The number of matching documents; and document_hostname, events, host_names (list).
        """
        ...

    def findings(self, window: Window) -> Iterator[Finding]:
        """Try the service over the window, and tell what works and what to fix."""
        ...
