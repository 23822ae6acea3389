"""What is decided for each host, and why.

The counts come from `evidence`, the candidates from `matching`; nothing is written here.
"""

from dataclasses import dataclass
from datetime import date
from typing import Literal


@dataclass(frozen=True)
class Window:
    """The look-back window: calendar days in the instance's time zone, both ends included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True)
class Rules:
    """The settings that a decision depends on (readings §6)."""

    share_threshold_percent: int = 60
    hostname_match: Literal["exact", "short"] = "exact"
    exclude_users: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    min_events: int = 1
