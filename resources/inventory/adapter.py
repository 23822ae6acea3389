"""`Inventory`, the base class of every adapter: the calls of a run to an inventory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

import polars as pl

Values = Mapping[str, str | None]
"""Values of a host: owner, department, criticality; None: empty, or not sent."""


class Inventory(ABC):
    """A service that lists hosts and users, and stores owners.

    Another one, such as docs/recipes/cmdb.py, implements `hosts`, `users` and `write`, and `host` if the
    service can read a single asset; threads share it. It raises the errors of `resources.errors` with
    messages that name the settings to fix: TransientError if a write may have been done or not, NotFoundError
    for a host that does not exist, AuthenticationError if further calls would fail, too. `test_adapters.py`
    tries any inventory.
    """

    where: str = "The inventory"  # the service and its address, as the start of a message
    reads_single_hosts: bool = True  # whether `host` may be called; otherwise hosts are listed instead
    takes: Collection[str] = ("owner",)  # what a write may set, of owner, department and criticality
    how_read: str = "the settings of the inventory"  # the settings for reading a host, for messages
    how_written: str = "the settings of the inventory"  # the settings for writing a host, for messages
    account: str = ""  # the account that writes; the service may record it in the host

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027  (optional)
        """Close connections."""

    def probe(self) -> None:  # noqa: B027  (optional)
        """Raise TransientError if the service does not answer within seconds."""

    @abstractmethod
    def hosts(self) -> pl.DataFrame:
        """List all host assets as rows of `inventory_hosts`, or fail."""

    @abstractmethod
    def users(self) -> pl.DataFrame:
        """List all user assets as rows of `inventory_users`, or fail."""

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at.

        `others` may be added: JSON of [field, text] for each value that a write must not change (rules 7.4).
        """
        raise NotImplementedError(f"{type(self).__name__} cannot read a single host: {host_id}")

    def listed_hosts(self) -> dict[str, Mapping[str, Any]]:
        """List the hosts as `host` returns them, by id."""
        return {row["host_id"]: row for row in self.hosts().iter_rows(named=True)}

    @abstractmethod
    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set the given values of a host in one request, sent once; an empty value clears.

        Calls `right_before` when the request is about to go out; an error there keeps it from being sent.
        """
