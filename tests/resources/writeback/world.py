"""An inventory and a clock in memory, and plans, for the tests of the writer."""

from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import polars as pl

from ownership.declaration import polars_schema
from ownership.tables import OwnerWrites
from resources.errors import NotFoundError, SessionExpiredError, TransientError
from resources.inventory.adapter import Inventory
from resources.search.asking import leaves
from resources.writeback.decide import decide_write
from resources.writeback.workers import write_all
from resources.writeback.writer import Writer
from tests.ownership.builders import TARGET, host, hosts

IN_MEMORY = Path(":memory:")
"""Where a ledger lies that no other process opens: on a disk each test would wait for it."""

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
CUT = TransientError("The line was cut.")
BUSY = TransientError("Busy.", retry_after=7)  # as a proxy says, while the service may go on
SLOW = TransientError("Slow down.", not_done=True)
SIGN_IN = SessionExpiredError("Sign in.")


class FakeInventory(Inventory):
    """Hosts h-0 to h-39, called PC-0 to PC-39. Hooks see each call and may raise what a service answers.

    `on_write` gives what is set of the values sent, `after_write` comes once they are.
    """

    where, how_read, how_written = "The inventory", "platform.contract.read", "platform.contract.update"
    account = "Owners@corp.example"

    def __init__(self) -> None:
        self.takes: Collection[str] = ("owner", "department", "criticality")
        self.reads_single_hosts = True
        self.rows: dict[str, dict[str, Any]] = {
            f"h-{number}": holding(f"h-{number}", None, "Old") for number in range(40)
        }
        self.others: dict[str, dict[str, Any]] = {}
        """What it says of a host beside its row."""
        self.on_read: Callable[[str], Any] = lambda _: None
        self.on_connect: Callable[[str], Any] = lambda _: None
        self.on_write: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda _, values: values
        self.after_write: Callable[[str], Any] = lambda _: None
        self.on_list: Callable[[], Any] = lambda: None
        self.calls: Counter[str] = Counter()
        self.done: list[tuple[str, dict[str, Any]]] = []
        self._lock = Lock()

    @property
    def asked(self) -> tuple[int, int]:
        """How many readings and how many writes reached the service."""
        return self.calls["read"], self.calls["write"]

    def users(self) -> pl.DataFrame:
        raise NotImplementedError

    def hosts(self) -> pl.DataFrame:
        self.calls["list"] += 1
        self.on_list()
        return hosts(*self.rows.values())

    def host(self, host_id: str) -> dict[str, Any]:
        with self._lock:
            self.calls["read"] += 1
        if host_id not in self.rows:
            raise NotFoundError("The asset was not found.")
        row = self._row(host_id)
        self.on_read(host_id)
        return row

    def listed_hosts(self) -> dict[str, Any]:
        self.hosts()
        return {host_id: self._row(host_id) for host_id in self.rows}

    def _row(self, host_id: str) -> dict[str, Any]:
        others = self.others.get(host_id)
        said = {} if others is None else {"others": msgspec.json.encode([*leaves(others)])}
        return {**self.rows[host_id], **said}

    def write(self, host_id: str, values: Any, *, right_before: Callable[[], None]) -> None:
        self.on_connect(host_id)
        right_before()
        with self._lock:
            self.calls["write"] += 1
        self.set(host_id, **self.on_write(host_id, dict(values)))
        self.done.append((host_id, dict(values)))
        self.after_write(host_id)

    def set(self, host_id: str, **values: str | None) -> None:
        """What the service does with a write, or somebody else does."""
        row = self.rows[host_id]
        if "owner" in values:
            row["owner_ids"] = (values.pop("owner") or "").split(",") if values["owner"] else []
            values.pop("owner", None)
        row |= {field: value or None for field, value in values.items()}

    def holds(self, host_id: str = "h-0") -> tuple[str | None, str | None, str | None]:
        row = self.rows[host_id]
        return ",".join(row["owner_ids"]) or None, row["department"], row["criticality"]


def holding(host_id: str, owner: str | None = None, department: str | None = None, **changes: Any) -> Any:
    """A row of inventory_hosts."""
    named = host(host_id, host_id.replace("h-", "PC-"), owners=tuple(owner.split(",")) if owner else ())
    return {**named, "department": department, "criticality": None, "problem": None, **changes}


def values(
    owner: str | None = None, department: str | None = None, criticality: str | None = None
) -> dict[str, str | None]:
    return {"owner": owner, "department": department, "criticality": criticality}


WRITTEN = {"old": values(department="Old"), "new": values("u-1", "Sales")}
UNDONE = {"old": values("u-1", "Sales"), "new": values("", "Old")}


def plan(*host_ids: str, new: Any = None, old: Any = None, **changes: Any) -> pl.DataFrame:
    """Rows of owner_writes: give the hosts the owner u-1 and the department Sales."""
    filled = {
        "run_id": "run-1",
        "outcome": "planned",
        "old_values": old or WRITTEN["old"],
        "new_values": new or WRITTEN["new"],
        "message": None,
        "intended_at": NOON,
        "completed_at": None,
        "target": TARGET,
        **changes,
    }
    rows = [{"host_id": name, "hostname": name.replace("h-", "pc-"), **filled} for name in host_ids]
    return pl.DataFrame(rows, schema=polars_schema(OwnerWrites))


def forever(error: Exception) -> Callable[..., Any]:
    """A hook that raises it at each call."""

    def hook(*_: object) -> None:
        raise error

    return hook


def numbered(number: int) -> list[str]:
    return [f"h-{one}" for one in range(number)]


def row(host_id: str = "h-0", **changes: Any) -> dict[str, Any]:
    return plan(host_id, **changes).row(0, named=True)


def write_plan(
    planned: pl.DataFrame,
    writer: Writer,
    ledger: Any,
    *,
    decide: Any = decide_write,
    progress: Callable[[int, int], Any] = lambda *_: None,
    require_running: Callable[[], None] = lambda: None,
    **limits: int,
) -> str | None:
    limits = {"concurrency": 1, "max_failed_writes": 20} | limits
    asked: Any = {"on_progress": progress, "require_running": require_running}
    return write_all(planned, writer, decide, ledger, **asked, **limits)


def outcomes(ledger: Any, run_id: str = "run-1") -> dict[str, str]:
    return dict(ledger.rows("owner_writes", run_id).select("host_id", "outcome").iter_rows())
