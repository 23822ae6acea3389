"""What a run needs of a source of logons: `EvidenceSource`, which every source inherits."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Self

import polars as pl

from resources.settings import Instance

MASKED_NAME = "^([0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})$"
"""What a name becomes where the role masks the field, or a pipeline puts a digest in its place."""
MASKED_LIMIT = 0.5
"""Share of names above which they are not those of people and machines."""


MASKED_NAMES = (
    "most of its names are digests (40 to 128 hexadecimal digits): field masking of the role hides the "
    "names, or a pipeline did; have the role show them, or name another field"
)
"""What masked names are, as part of a sentence that begins with the setting of their field."""


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


@dataclass(frozen=True)
class Senders:
    """The host names of documents, and for which computers each stands, by another `field` of the documents.

    `names`: document_hostname, events, host_names (some of the computers), for those with most computers.
    `matching` is the number of documents.
    """

    field: str
    matching: int
    names: pl.DataFrame

    def forwarded_percent(self, forwarders: pl.DataFrame) -> float:
        """Return how many of the documents some of the names have sent."""
        return 100 * int(forwarders["events"].sum()) / max(self.matching, 1)

    def describe(self, forwarders: pl.DataFrame, when: str) -> str:
        """Say how much collectors sent, and what to do about it."""
        collectors = "1 collector sends" if forwarders.height == 1 else f"{forwarders.height} collectors send"
        return (
            f"{collectors} events for several hosts, {self.forwarded_percent(forwarders):.0f}% of the events "
            f"{when}: set hostname_field to {self.field}, or add the collectors to rules.exclude_hosts"
        )


class EvidenceSource(ABC):
    """A service that counts logon events by day, host and user.

    An author of another one does four things:

    1. Implement `logons`.
    2. Raise the errors of `resources.errors`, with messages that name the source's own settings:
       ConfigurationError for what a setting can mend, TransientError for what may be retried.
    3. Set `user_setting` and `host_setting`: what says where users and hosts of logons are, for messages.
    4. Where it makes sense, implement `probe`, `__exit__` to close connections, `matching_by_day`, and what
       explains a result: `why_lacking`, `why_nothing`, `unmatched_parts` and `top_senders`.

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

    def matching_by_day(self, days: Sequence[date]) -> Mapping[date, int]:  # noqa: ARG002
        """Count the matching documents of each day in one request: so events that arrive late are noticed.

        As in `DayOfLogons.matching`; a day that is not there did not grow. By default the source cannot tell.
        """
        return {}

    def why_lacking(self, first: date, last: date, *, user: bool) -> str:  # noqa: ARG002
        """Return where logons have no user, or no host, as part of a sentence; "" if that is not known."""
        return ""

    def why_nothing(self, first: date, last: date) -> str:  # noqa: ARG002
        """Return why there are no logons from one day to another; "" if that is not known."""
        return ""

    def unmatched_parts(self) -> list[str]:
        """Return the parts of what is searched that hold nothing, such as an index that does not exist."""
        return []

    def top_senders(self, first: date, last: date) -> Senders | None:  # noqa: ARG002
        """Return the host names that stand for most computers on these days; None: the source cannot tell."""
        return None


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
