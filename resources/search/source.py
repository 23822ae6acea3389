"""Where logons come from, as runs need it: `EvidenceSource` is all that they know of such a service."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

import polars as pl

from ownership.windows import Window, days_of
from resources.findings import Finding
from resources.settings import Instance

SENDERS = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}


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


class EvidenceSource(Protocol):
    """A service that counts logon events by day, host and user; one that inherits needs `logons` alone.

    Every call may raise the errors of `resources.errors`; their messages name the settings to fix.
    """

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""
        return

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Count the logon events of each day, in the order given."""

    def totals(self, first: date, last: date) -> tuple[int, int, int]:
        """Count the documents from `first` to `last`: matching, without a user, without a host."""
        found = [*self.logons(days_of(Window(first, last)))]
        lacking = sum(day.lacking_user for day in found), sum(day.lacking_host for day in found)
        return sum(day.matching for day in found), *lacking

    def undated(self) -> int:
        """Count the matching documents of all times when none of them says when it happened; else 0."""
        return 0

    def senders(self, day: date) -> tuple[int, pl.DataFrame]:
        """Count the matching documents of a day, and list the names that sent for most hosts.

        The list holds document_hostname, events, host_names (a list of some of the hosts).
        """
        (found,) = self.logons([day])
        return found.matching, pl.DataFrame(schema=SENDERS)

    def findings(self, window: Window) -> Iterator[Finding]:  # noqa: ARG002
        """Try the service over the window, and say what works and what to fix."""
        return iter(())


def extraction_fingerprint(instance: Instance, *, by_kind: bool = True) -> str:
    """Changes exactly when the same day could be counted differently (rules 4.3).

    `by_kind`: whether kinds of logon are counted apart, where the instance names their field.
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
