"""The inventory as runs need it: hosts and users as rows, one host, one write.

`Inventory` is all that the rest of the program knows of such a service. `AssetInventory` turns the instance's
contract into these calls; `open_inventory` chooses the inventory of an instance.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import polars as pl

from ownership.names import printable
from ownership.quality import too_many_unreadable, unreadable_assets
from resources.errors import ProtocolError
from resources.findings import Finding
from resources.http import no_telling
from resources.inventory.client import InventoryClient, OnProgress, no_progress
from resources.inventory.findings import inventory_findings
from resources.inventory.records import AssetRows, host_form, host_rows, taken_fields, user_rows
from resources.inventory.session import PROFILE
from resources.settings import Instance, ListCall

Values = Mapping[str, str | None]
"""What a host holds or is to hold: owner, department, criticality; None = nothing, or not sent."""


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
        ...

    def hosts(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`."""
        ...

    def users(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`."""
        ...

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at."""
        ...

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set the values of a host that are named, in one request that is sent once; None clears one.

        `right_before` is called when the request is about to go out; what it raises keeps it from being sent.
        """
        ...

    def findings(self) -> Iterator[Finding]:
        """Try the service without writing, and say what works and what to fix."""
        ...


class AssetInventory:
    """The asset-inventory service of one instance, by its contract (rules 5.5)."""

    def __init__(self, instance: Instance, client: InventoryClient) -> None:
        contract = instance.platform.contract
        self._instance = instance
        self._client = client
        self._host_rows = host_rows(instance)
        self.where = client.where
        self.takes: Collection[str] = taken_fields(instance)
        self.reads_single_hosts = contract.read is not None
        self.how_read = "platform.contract (read, fields_in) and platform_user_field"
        self.how_written = "platform.contract.update (path, id_param) and platform_user_field"

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""
        self._client.transport.probe("GET", PROFILE)

    def hosts(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`.

        Raises:
            ProtocolError: so many cannot be read that the contract or the name of a field must be wrong.
        """
        return self._listed("hosts", self._instance.platform.contract.hosts, self._host_rows, on_progress)

    def users(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`; raises as `hosts`."""
        rows = user_rows(self._instance)
        return self._listed("users", self._instance.platform.contract.users, rows, on_progress)

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at."""
        host = self._host_rows.record(host_id, self._client.read(host_id))
        if host["problem"]:
            raise ProtocolError(f"Asset {host_id}: {host['problem']}")
        return host

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set the values of a host that are named; as `InventoryClient.update`."""
        self._client.update(host_id, host_form(self._instance, values), right_before=right_before)

    def findings(self) -> Iterator[Finding]:
        """Try the service without writing, and say what works and what to fix."""
        return inventory_findings(self._instance, self._client)

    def _listed(self, kind: str, call: ListCall, rows: AssetRows, on_progress: OnProgress) -> pl.DataFrame:
        """List hosts or users; single ones that cannot be read are let pass (rules 2.7)."""
        listed_at = datetime.now(UTC)
        frame = self._client.list_assets(call, rows.table, on_progress=on_progress)
        odd = unreadable_assets(frame)
        if too_many_unreadable(odd.height, frame.height):
            first = "; ".join(f"{printable(one)}: {problem}" for one, problem in odd.head(3).iter_rows())
            raise ProtocolError(
                f"{odd.height:,} of the {frame.height:,} {kind} that the inventory lists cannot be read, too "
                "many to be exceptions; nothing was written. Check the names of their fields "
                f"(platform_...) and platform.contract ({kind}, fields_in). The first are {first}"
            )
        return frame.with_columns(listed_at=listed_at)


@contextmanager
def open_inventory(instance: Instance, tell: Callable[[str], None] = no_telling) -> Generator[Inventory]:
    """Open the inventory of an instance; ConfigurationError when a secret is not usable.

    `tell` hears of each call that is repeated.
    """
    connections = instance.writes.concurrency
    with InventoryClient(instance.platform, connections=connections, tell=tell) as client:
        yield AssetInventory(instance, client)
