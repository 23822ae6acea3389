"""A believable company for the sandbox: host and user assets, logon documents, and the outcome of every host.

Everything follows from a seed and the day it is asked for. The hosts' stories are in `sandbox.scenarios`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from resources.settings.models import recommended
from sandbox.draft import Draft, Expectation
from sandbox.logons import MAPPING, Clock, Logon, document
from sandbox.scenarios import tell
from sandbox.staff import hire

__all__ = ["DEMO_RULES", "MAPPING", "RECOMMENDED", "Company", "Expectation", "generate"]

DEMO_RULES: dict[str, Any] = {
    "share_threshold_percent": 60,
    "hostname_match": "short",
    "exclude_users": [
        *("*$", "system", "local service", "network service", "anonymous logon"),
        *("dwm-*", "umfd-*", "svc_*", "adm-*"),
    ],
    "exclude_hosts": ["kiosk-*"],
    "min_events": 3,
}
"""The `rules` section of the demo's instance file; the truth of a company holds under these."""
RECOMMENDED = {name: value for name, value in recommended()["rules"].items() if name != "min_stable_days"}
"""The recommended rules, of those that one run decides by."""


@dataclass(frozen=True)
class Company:
    """Assets as the inventory service lists them, and what the rules must make of them and the documents.

    `hosts` and `users` are assets with their `id` and fields (rules 5.6), `truth` has one row for each
    host asset and one for each document hostname that no asset has, `logons` are the events of the documents.
    """

    hosts: list[dict[str, Any]]
    users: list[dict[str, Any]]
    truth: list[Expectation]
    logons: list[Logon] = field(repr=False)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the events as documents for an index with `MAPPING`, oldest first; the same at each call."""
        for number, logon in enumerate(self.logons, start=1):
            yield document(logon, number)


def generate(seed: int = 7, *, today: date, days: int = 30, timezone: str = "UTC") -> Company:
    """Return the company whose truth holds for the `days` days that end with `today`, in the time zone.

    Hosts are matched by `agent.name` and `search_agent_name`, the defaults. Some events lie outside.
    """
    rng = random.Random(seed)  # noqa: S311  # a demo has to come out the same each time, and hides nothing
    staff = hire(rng)
    clock = Clock(today - timedelta(days=days - 1), today, ZoneInfo(timezone), rng)
    draft = Draft(staff, clock, rng)
    tell(draft)
    return Company(draft.hosts, staff.users, draft.truth, sorted(draft.logons, key=lambda logon: logon.at))
