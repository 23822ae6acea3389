"""What a run needs of an inventory: `Inventory`, which every adapter of one inherits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

import polars as pl

Values = Mapping[str, str | None]
"""What a host holds or is to hold: owner, department, criticality; None = nothing, or not sent."""


class Inventory(ABC):
    """A service that lists hosts and users, and takes owners.

    An author of another one does four things:

    1. Implement `hosts`, `users` and `write`, and `host` where the service can read a single asset; where it
       cannot, set `reads_single_hosts` to False. Threads share an inventory.
    2. Raise the errors of `resources.errors`, with messages that name the settings to mend: TransientError
       where nobody can tell whether a write was done, NotFoundError for a host that does not exist,
       AuthenticationError where no further call would go better.
    3. Set the attributes that messages use, and `takes`.
    4. Where it makes sense, implement `probe`, and `__exit__` to close connections.

    `tests/resources/inventory/test_adapters.py` tries any inventory.

    Attributes:
        where: The service and its address, to begin a message with.
        reads_single_hosts: Whether `host` may be called; otherwise `hosts` is asked in its place.
        takes: What a write may set, of owner, department and criticality.
        how_read: The settings that say how a host is read, for messages.
        how_written: The settings that say how a host is written, for messages.
        account: The account that writes, by which the service may sign a change.
    """

    where: str = "The inventory"
    reads_single_hosts: bool = True
    takes: Collection[str] = ("owner",)
    how_read: str = "the settings of the inventory"
    how_written: str = "the settings of the inventory"
    account: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is open; by default nothing."""
        return

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""
        return

    @abstractmethod
    def hosts(self) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`, whole or not at all."""

    @abstractmethod
    def users(self) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`, whole or not at all."""

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at.

        `others` may be added: JSON of [field, text] for each value that a write must not change (rules 7.4).
        """
        raise NotImplementedError(f"{type(self).__name__} reads no single host: {host_id}")

    def listed_hosts(self) -> dict[str, Mapping[str, Any]]:
        """List the hosts as `host` gives them, by id."""
        return {row["host_id"]: row for row in self.hosts().iter_rows(named=True)}

    @abstractmethod
    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set those values of a host that are named, in one request that is sent once; an empty one clears.

        `right_before` is called when the request is about to go out; what it raises keeps it from being sent.
        """
