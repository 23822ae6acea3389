"""Several queries of one instance (`logs`), whose logons count together."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from typing import TypeVar

import polars as pl

from resources.errors import AssetOwnersError, ConfigurationError
from resources.search.client import SearchClient
from resources.search.source import DayOfLogons, EvidenceSource, Senders
from resources.settings import Instance

T = TypeVar("T")
_TOTALS = ("matching", "lacking_user", "lacking_host")


class SeveralLogs(EvidenceSource):
    """A search client for each of an instance's `logs`; errors name the one that they are about.

    A document that two of the queries match counts twice.
    """

    user_setting, host_setting = "logs (user_field of each)", "logs (hostname_field of each)"

    def __init__(self, instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lookback = timedelta(days=instance.scan.lookback_days - 1)
        self.clients: dict[str, SearchClient] = {}
        """The clients by what messages call them, such as `logs[1] (linux)`."""
        self._open = ExitStack()
        for number, (logs, one) in enumerate(zip(instance.logs, instance.sources, strict=True)):
            name = f"logs[{number}]" + (f" ({logs.preset})" if logs.preset else "")
            with _name_in_errors(name):
                self.clients[name] = self._open.enter_context(SearchClient(one, sleep=sleep))

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def probe(self) -> None:
        """Raise TransientError when the service does not answer within seconds."""
        self._ask_each(lambda client: client.probe())

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        """Add up the logon events of each day; the same host and user in two of the logs are one pair.

        A ConfigurationError names one of the logs of which no document in the look-back window has a field.
        """
        seen = dict.fromkeys(self.clients, (0, 0))
        each = [self._logons(name, days) for name in self.clients]
        for parts in zip(*each, strict=True):
            for name, part in zip(self.clients, parts, strict=True):
                matching, counted = seen[name]
                seen[name] = matching + part.matching, counted + part.counts.height
            yield _sum_of_parts(parts)
        for name, (matching, counted) in seen.items():
            if matching and not counted:
                self._require_fields(name, max(days))

    def _logons(self, name: str, days: Sequence[date]) -> Iterator[DayOfLogons]:
        with _name_in_errors(name):
            yield from self.clients[name].logons(days)

    def _require_fields(self, name: str, last: date) -> None:
        """Refuse logs of which no document carries one of the two fields (rules 3.4)."""
        client, first = self.clients[name], last - self._lookback
        with _name_in_errors(name):
            matching, *lacking = client.totals(first, last)
            for setting, without in zip((client.user_setting, client.host_setting), lacking, strict=True):
                if without == matching:
                    raise ConfigurationError(
                        f"{setting}: none of the {matching} logon events from {first} to {last} has it; name "
                        "the field that does"
                    )

    def matching_by_day(self, days: Sequence[date]) -> dict[date, int]:
        """As `EvidenceSource` says, of all logs together."""
        counted = self._ask_each(lambda client: client.matching_by_day(days)).values()
        return {day: sum(matching[day] for matching in counted) for day in days}

    def why_lacking(self, first: date, last: date, *, user: bool) -> str:
        """As `EvidenceSource` says, of each of the logs."""
        return _joined_texts(self._ask_each(lambda client: client.why_lacking(first, last, user=user)))

    def why_nothing(self, first: date, last: date) -> str:
        """As `EvidenceSource` says, of each of the logs."""
        return _joined_texts(self._ask_each(lambda client: client.why_nothing(first, last)))

    def unmatched_parts(self) -> list[str]:
        """As `EvidenceSource` says, of all logs."""
        parts = self._ask_each(lambda client: client.unmatched_parts()).values()
        return sorted({part for some in parts for part in some})

    def top_senders(self, first: date, last: date) -> Senders | None:
        """As `EvidenceSource` says, of all logs together."""
        found = [*filter(None, self._ask_each(lambda client: client.top_senders(first, last)).values())]
        if not found:
            return None
        names = pl.concat(one.names for one in found)
        return Senders(found[0].field, sum(one.matching for one in found), names)

    def _ask_each(self, ask: Callable[[SearchClient], T]) -> dict[str, T]:
        """Return what each of the logs answers, by name."""
        answers = {}
        for name, client in self.clients.items():
            with _name_in_errors(name):
                answers[name] = ask(client)
        return answers


def _joined_texts(texts: dict[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in texts.items() if text)


def _sum_of_parts(parts: Sequence[DayOfLogons]) -> DayOfLogons:
    counts = pl.concat([part.counts for part in parts], how="diagonal")
    pairs = counts.group_by(pl.exclude("events"), maintain_order=True).agg(pl.sum("events"))
    totals = {name: sum(getattr(part, name) for part in parts) for name in _TOTALS}
    first_fetched = min(parts, key=lambda part: part.fetched_at)
    return replace(first_fetched, **totals, counts=pairs.select(counts.columns))


@contextmanager
def _name_in_errors(name: str) -> Generator[None]:
    """Name in each error which of the logs it is about."""
    try:
        yield
    except AssetOwnersError as error:
        error.args = (f"{name}: {error}",)
        raise
