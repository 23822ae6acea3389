"""Windows logon events in winlogbeat's layout: the index mapping, when people work, one document an event.

Knows nothing of hosts, people or their outcomes: `sandbox.scenarios` says who logs on where and how often.
"""

import random
import zlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

DOMAIN = "corp.example"

_NAME = {"type": "keyword", "ignore_above": 1024}
_SEARCHABLE_NAME = _NAME | {"fields": {"text": {"type": "match_only_text"}}}


def _names(*fields: str) -> dict[str, Any]:
    return dict.fromkeys(fields, _NAME)


MAPPING: dict[str, Any] = {
    "mappings": {
        "date_detection": False,
        "dynamic_templates": [{"other_strings": {"match_mapping_type": "string", "mapping": _NAME}}],
        "properties": {
            "@timestamp": {"type": "date"},
            "agent": {"properties": _names("name", "type", "version")},
            "event": {"properties": _names("action", "category", "code", "kind", "module", "outcome")},
            "host": {"properties": _names("name")},
            "process": {"properties": {"executable": _SEARCHABLE_NAME, "name": _SEARCHABLE_NAME}},
            "source": {"properties": {"ip": {"type": "ip"}}},
            "user": {"properties": {"name": _SEARCHABLE_NAME, **_names("domain", "id")}},
            "winlog": {
                "properties": {
                    **_names("channel", "computer_name", "event_id", "record_id"),
                    "event_data": {"properties": _names("LogonType", "TargetDomainName", "TargetUserName")},
                    "logon": {"properties": _names("type")},
                }
            },
        },
    }
}
"""Body of the request that creates the index; names are keywords, as in winlogbeat's own template."""


class Kind(NamedTuple):
    """What a Windows security event is: its number, what happened, and the process that reported it."""

    code: str
    action: str
    outcome: str
    process: str | None
    logon_type: str


KINDS = {
    "logon": Kind("4624", "logged-in", "success", "svchost.exe", "Interactive"),
    "batch": Kind("4624", "logged-in", "success", "svchost.exe", "Batch"),
    "failed": Kind("4625", "logon-failed", "failure", "svchost.exe", "Interactive"),
    "explicit": Kind("4648", "logged-in-explicit", "success", "svchost.exe", "NewCredentials"),
    "desktop": Kind("4624", "logged-in", "success", "winlogon.exe", "Interactive"),
    "service": Kind("4624", "logged-in", "success", "services.exe", "Service"),
    "network": Kind("4624", "logged-in", "success", "-", "Network"),
    "logoff": Kind("4634", "logged-out", "success", None, "Interactive"),
}
"""The default query (rules 3.2) keeps `logon` and `batch` and drops the rest."""

_LOGON_TYPES = {"Interactive": "2", "Network": "3", "Batch": "4", "Service": "5", "NewCredentials": "9"}


class Logon(NamedTuple):
    """One event: when (UTC), what kind, on which machine (full name), and what the documents' fields hold.

    `agent` and `user` are written as they are; None leaves the field out, several users make an array.
    """

    at: datetime
    kind: str
    machine: str
    agent: str | None
    user: str | list[str] | None
    domain: str = "CORP"


@dataclass(frozen=True)
class Clock:
    """Draws the moments of events around a window of calendar days in a time zone (rules 4.1)."""

    first: date
    last: date
    zone: ZoneInfo
    rng: random.Random

    @property
    def opening(self) -> datetime:
        """The first instant of the window, in UTC."""
        return _midnight(self.first, self.zone)

    @property
    def closing(self) -> datetime:
        """The first instant after the window, in UTC."""
        return _midnight(self.last + timedelta(days=1), self.zone)

    def within(self) -> datetime:
        """Return a moment of a working day in the window."""
        return self._moment(self.first, self.last)

    def early(self) -> datetime:
        """Return a moment in the first half of the window."""
        return self._moment(self.first, self._middle)

    def late(self) -> datetime:
        """Return a moment in the second half of the window; in a window of one day, of that day."""
        return self._moment(min(self._middle + timedelta(days=1), self.last), self.last)

    def before(self) -> datetime:
        """Return a moment of the working week that ends as the window begins."""
        return self._moment(self.first - timedelta(days=7), self.first - timedelta(days=1))

    @property
    def _middle(self) -> date:
        return self.first + (self.last - self.first) // 2

    def _moment(self, first: date, last: date) -> datetime:
        days, weights = _working_days(first, last)
        day = self.rng.choices(days, cum_weights=weights)[0]
        hour = self.rng.triangular(7, 19, 9)
        return _midnight(day, self.zone) + timedelta(milliseconds=int(hour * 3_600_000))


@cache
def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return the first instant of a local day, in UTC; computed here: truth must not lean on rules."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


@cache
def _working_days(first: date, last: date) -> tuple[list[date], list[float]]:
    """Return the days from first to last, and cumulative weights: on weekends a fifth of the people work."""
    days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
    return days, list(accumulate(1.0 if day.weekday() < 5 else 0.2 for day in days))


def document(logon: Logon, record_id: int) -> dict[str, Any]:
    """Return one event as winlogbeat ships it (ECS fields beside `winlog`), without fields that it lacks."""
    kind = KINDS[logon.kind]
    users = [logon.user] if isinstance(logon.user, str) else logon.user or []
    number = zlib.crc32("".join(users).encode())
    address = f"10.{20 + number % 4}.{number // 4 % 250}.{1 + number // 1000 % 250}"
    body: dict[str, Any] = {
        "@timestamp": logon.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "agent": {"type": "winlogbeat", "version": "8.15.3"},
        "event": {
            "action": kind.action,
            "category": ["authentication"],
            "code": kind.code,
            "kind": "event",
            "module": "security",
            "outcome": kind.outcome,
        },
        "host": {"name": logon.machine},
        "source": {"ip": address},
        "winlog": {
            "channel": "Security",
            "computer_name": logon.machine,
            "event_id": kind.code,
            "record_id": str(record_id),
            "event_data": {
                "LogonType": _LOGON_TYPES[kind.logon_type],
                "TargetDomainName": logon.domain,
                "TargetUserName": users[0] if users else "-",
            },
            "logon": {"type": kind.logon_type},
        },
    }
    if logon.agent is not None:
        body["agent"]["name"] = logon.agent
    if logon.user is not None:
        sid = f"S-1-5-21-1085031214-725345543-1801674531-{1000 + number % 50_000}"
        body["user"] = {"name": logon.user, "domain": logon.domain, "id": sid}
    if kind.process is not None:
        path = kind.process if kind.process == "-" else rf"C:\Windows\System32\{kind.process}"
        body["process"] = {"name": kind.process, "executable": path}
    return body
