"""The inventory as runs need it: hosts and users as rows, one host, one write.

`Inventory` is all that the rest of the program knows of such a service; `open_inventory` chooses the one of
an instance.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import polars as pl

from resources.findings import Finding
from resources.inventory.client import AssetInventory
from resources.inventory.records import Values
from resources.settings import Instance


class Inventory(Protocol):
    """A service that lists hosts and users, and takes owners.

    Every call may raise the errors of `resources.errors`; their messages name the settings to fix.

    Attributes:
        where: The service and its address, to begin a message with.
        reads_single_hosts: Whether `host` may be called; otherwise `hosts` is the only look there is.
        takes: What a write may set, of owner, department and criticality.
        how_read: The settings that say how a host is read, for messages.
        how_written: The settings that say how a host is written, for messages.
    """

    where: str
    reads_single_hosts: bool
    takes: Collection[str]
    how_read: str
    how_written: str

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""

    def hosts(self) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`."""

    def users(self) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`."""

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at."""

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set the values of a host that are named, in one request that is sent once; None clears one.

        `right_before` is called when the request is about to go out; what it raises keeps it from being sent.
        """

    def findings(self) -> Iterator[Finding]:
        """Try the service without writing, and say what works and what to fix."""


def open_inventory(instance: Instance) -> AbstractContextManager[Inventory]:
    """Open the inventory of an instance; ConfigurationError when a secret is not usable."""
    return AssetInventory(instance)
