"""What every story of the sandbox's company is written into: host assets, logons and their known outcome."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import count, cycle
from typing import Any, Literal

from sandbox.logons import DOMAIN, Clock, Logon
from sandbox.staff import DEPARTMENTS, Account, Match, Staff

Evidence = Literal[
    "no_hostname", "excluded_host", "hostname_collision", "no_logons",
    "too_few_events", "single_user", "majority", "no_majority",
]  # fmt: skip
Action = Literal["write", "agree", "conflict", "keep", "none", "no_host"]
Owned = Literal["by nobody", "by the same", "by another", "no asset"]
Moment = Callable[[], datetime]

_DECIDED = {"by nobody": "write", "by the same": "agree", "by another": "conflict", "no asset": "no_host"}
_UNDECIDED = {"by nobody": "none", "by another": "keep", "no asset": "no_host"}
ABSENT: Any = object()
"""Stands for a field that an asset does not have at all."""
_MACHINES = {
    "lt": ("Windows 11 Enterprise", "Latitude 7440"),
    "pc": ("Windows 10 Enterprise", "OptiPlex 7010"),
    "kiosk": ("Windows 10 IoT Enterprise", "Wyse 5070"),
    "srv": ("Windows Server 2022", "PowerEdge R650"),
}


@dataclass(frozen=True)
class Expectation:
    """What the rules must say of one host asset, or of one document hostname that no asset has.

    `hostname` is normalised and short (None for an asset without a name), `host_id` is None without an asset,
    `match` is None where the evidence names nobody, `resolved_owner` is the id of a user asset. `scenario` is
    the reason, `whose` the owner in truth.
    """

    hostname: str | None
    host_id: str | None
    evidence: Evidence
    match: Match | None
    action: Action
    resolved_owner: str | None
    scenario: str
    whose: str | None


class Draft:
    """Collects host assets, their logons and their outcomes while the scenarios are drawn up."""

    def __init__(self, staff: Staff, clock: Clock, rng: random.Random) -> None:
        self.hosts: list[dict[str, Any]] = []
        self.logons: list[Logon] = []
        self.truth: list[Expectation] = []
        self.staff = staff
        self.clock = clock
        self.rng = rng
        self.machines: dict[str, str] = {}
        self._people = {
            "regular": cycle(staff.regular),
            "unknown": cycle(staff.unknown),
            "ambiguous": cycle(staff.ambiguous),
        }
        self._numbers = count(1001)
        self._empty_owners = cycle((None, ABSENT, "", []))

    def person(self, kind: str = "regular") -> Account:
        """Return the next account of a kind; everybody has had a turn before anybody has a second."""
        return next(self._people[kind])

    def others(self, number: int, *, than: Iterable[Account]) -> list[Account]:
        """Return some people with user assets, none of them among `than`."""
        taken = set(than)
        return self.rng.sample([account for account in self.staff.regular if account not in taken], number)

    def hostname(self, machine: str) -> str:
        """Return a new short host name, in lower case."""
        return f"{machine}-{next(self._numbers)}"

    def expect(
        self,
        scenario: str,
        hostname: str | None,
        evidence: Evidence,
        *,
        primary: Account | None = None,
        owned: Owned = "by nobody",
        owner: Any = None,
        field: Any = None,
        whose: str | None = None,
    ) -> None:
        """Records an outcome and, unless there is none, the host asset that it is about.

        `primary` is the primary user, who counts where the evidence names somebody. `owner` and `field` are
        what the asset's owner and hostname fields hold: by default what fits `owned`, and the host name.
        `whose` is the owner in truth, where it is not the primary user.
        """
        if evidence not in {"single_user", "majority"}:
            primary = None
        match = primary.match if primary else None
        resolved = primary.user_id if primary else None
        action: Any = (_DECIDED if resolved else _UNDECIDED)[owned]
        host_id = None
        if owned != "no asset":
            host_id = f"host-{len(self.hosts) + 1:04}"
            names = hostname.upper() if field is None and hostname else field
            self.hosts.append(self._asset(host_id, names, hostname, owner or self._owner(owned, resolved)))
        self.truth.append(
            Expectation(hostname, host_id, evidence, match, action, resolved, scenario, whose or resolved)
        )

    def log(
        self,
        agent: str | None,
        user: str | list[str] | None,
        events: int = 1,
        *,
        when: Moment | None = None,
        kind: str = "logon",
        machine: str | None = None,
        domain: str = "CORP",
    ) -> None:
        """Adds events; `agent` and `user` are spelled as the documents shall spell them."""
        machine = machine or self.seen(agent or "-")
        moment = when or self.clock.within
        self.logons.extend(Logon(moment(), kind, machine, agent, user, domain) for _ in range(events))

    def seen(self, agent: str) -> str:
        """Notes a machine that reports events; returns its full name."""
        name = agent.strip().lower()
        return self.machines.setdefault(agent, name if "." in name else f"{name}.{DOMAIN}")

    def spelled(self, account: Account) -> str:
        """Return an account as a machine's documents spell it: mostly plain, sometimes in another form."""
        return self.rng.choices(spellings(account), (8, 1, 1, 1, 1))[0]

    def _owner(self, owned: Owned, resolved: str | None) -> Any:
        if owned == "by nobody":
            return next(self._empty_owners)
        strangers = [account.user_id for account in self.staff.regular if account.user_id != resolved]
        owner, second = self.rng.sample(strangers, 2)
        if owned == "by the same":
            owner = resolved
        return self.rng.choices((owner, [owner], [second, owner]), (4, 1, 1))[0]

    def _asset(self, host_id: str, names: Any, hostname: str | None, owner: Any) -> dict[str, Any]:
        system, model = _MACHINES.get((hostname or "pc").split("-")[0], _MACHINES["srv"])
        number = len(self.hosts)
        fields = {
            "search_agent_name": names,
            "asset_owner": owner,
            "department": self.rng.choice((None, "", "Unassigned", *DEPARTMENTS)),
            "criticality": self.rng.choice((None, "", "low", "medium", "high")),
            "os": system,
            "model": model,
            "ip": f"10.{20 + number % 4}.{number // 250}.{1 + number % 250}",
        }
        return {"id": host_id} | {name: value for name, value in fields.items() if value is not ABSENT}


def spellings(account: Account) -> tuple[str, str, str, str, str]:
    """Return the forms in which Windows and its log shippers write one account (rules 1.3)."""
    name = account.name
    return name, name.upper(), name.title(), rf"CORP\{name}", f"{name}@{DOMAIN}"
