"""The inventory as runs need it: hosts and users as rows, one host, one write.

`Inventory` is all that the rest of the program knows of such a service. `AssetInventory` is the one there is:
it turns the instance's contract into these calls. Another service is another adapter, with its settings.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import polars as pl

from ownership.names import printable
from ownership.quality import too_many_unreadable, unreadable_assets
from resources.errors import ProtocolError
from resources.findings import Finding
from resources.inventory.client import InventoryClient, OnProgress, no_progress
from resources.inventory.findings import inventory_findings
from resources.inventory.records import AssetRows, host_form, host_rows, taken_fields, user_rows
from resources.settings import Instance, ListCall

Values = Mapping[str, str | None]
"""What a host holds or is to hold: owner, department, criticality; None = nothing, or not sent."""

_MAX_NAMED = 3


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
        """Try the service without writing, and tell what works and what to fix."""
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
        self.how_read = (
            f"platform.contract.read ({contract.read.path if contract.read else 'null'}), "
            f"platform.contract.fields_in ({contract.fields_in!r}) and platform_user_field "
            f"({instance.platform_user_field})"
        )
        self.how_written = (
            f"platform.contract.update (path {contract.update.path}, id_param {contract.update.id_param}) "
            f"and platform_user_field ({instance.platform_user_field})"
        )

    def hosts(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`.

        Raises:
            ProtocolError: so many cannot be read that the contract or the name of a field must be wrong.
        """
        frame = self._listed(self._instance.platform.contract.hosts, self._host_rows, on_progress)
        return _mostly_readable(frame, "hosts", ("platform_user_field", "platform_hostname_field"))

    def users(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`; raises as `hosts`."""
        frame = self._listed(self._instance.platform.contract.users, user_rows(self._instance), on_progress)
        return _mostly_readable(frame, "users", ("platform_user_value_field",))

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at."""
        return self._host_rows.record(host_id, self._client.read(host_id))

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None]) -> None:
        """Set the values of a host that are named; as `InventoryClient.update`."""
        self._client.update(host_id, host_form(self._instance, values), right_before=right_before)

    def findings(self) -> Iterator[Finding]:
        """Try the service without writing, and tell what works and what to fix."""
        return inventory_findings(self._instance, self._client)

    def _listed(self, call: ListCall, rows: AssetRows, on_progress: OnProgress) -> pl.DataFrame:
        listed_at = datetime.now(UTC)
        frame = self._client.list_assets(call, rows.read, on_progress=on_progress)
        return rows.table(frame).with_columns(listed_at=listed_at)


@contextmanager
def open_inventory(instance: Instance) -> Generator[AssetInventory]:
    """Open the inventory of an instance; the first call logs in.

    Raises:
        ConfigurationError: a secret is not set or not usable.
    """
    with InventoryClient(instance.platform, connections=instance.writes.concurrency) as client:
        yield AssetInventory(instance, client)


def _mostly_readable(frame: pl.DataFrame, kind: str, settings: Sequence[str]) -> pl.DataFrame:
    """Let single odd assets pass (rules 2.7).

    Raises:
        ProtocolError: they are so many that the contract or the name of a field must be wrong.
    """
    odd = unreadable_assets(frame)
    if not too_many_unreadable(odd.height, frame.height):
        return frame
    first = "; ".join(f"{printable(one)}: {problem}" for one, problem in odd.head(_MAX_NAMED).iter_rows())
    raise ProtocolError(
        f"{odd.height:,} of the {frame.height:,} {kind} that the inventory lists cannot be read, too "
        f"many to be exceptions; nothing was written. Check {', '.join(settings)} and platform.contract "
        f"({kind}, fields_in). The first are {first}"
    )
