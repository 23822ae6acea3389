"""The inventory: listing and writing, against bare clients with as many connections that do the same calls.

The service is the sandbox's, in the process of the benchmark; contenders run in processes of their own.
"""

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local
from typing import Any

import polars as pl
import requests

from bench.results import Experiment, Figure, ratio
from bench.timing import Contender, alternate, function, instance_content
from ownership.declaration import polars_schema
from ownership.tables import OwnerWrites
from resources.inventory.client import AssetInventory
from resources.ledger.ledger import Ledger
from resources.settings import Instance
from resources.writeback.decide import decide_write
from resources.writeback.workers import write_all
from resources.writeback.writer import Writer
from sandbox.inventory import Account, InventoryService, InventoryState

CONNECTIONS = 8
TENANT = "t-1"
EMAIL = "bench@corp.example"
PASSWORD = "BENCH_INVENTORY_PASSWORD"  # noqa: S105  (the name of a variable)
SECRET = {PASSWORD: "bench"}
LIST, GET, UPDATE = (f"/api/v1/assets/{what}" for what in ("list", "get", "update"))
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def measure_listing(assets: int, repetitions: int, *, page: int = 100) -> Experiment:
    """List so many hosts and as many users."""
    with served(page) as service:
        fill(service.state, assets)
        ours, bare = alternate(
            [
                _contender("client", "listing", url=service.url, page=page),
                _contender("bare client", "bare_listing", url=service.url, page=page),
            ],
            repetitions,
            same="assets",
        )
    name = f"{assets:,} hosts and {assets:,} users listed"
    return Experiment(
        f"Inventory: {name}",
        [ours, bare],
        [ratio(4, f"{name}, pages of {page:,}, over a bare client", ours, bare, "≤", 1.2)],
        [
            f"Both clients have {CONNECTIONS} requests in flight. The bare one decodes pages and drops them.",
        ],
    )


def measure_writing(writes: int, repetitions: int) -> Experiment:
    """Write so many owners, reading each host before."""
    with served(1000) as service:
        contenders = [
            _contender("writer", "writing", url=service.url, writes=writes),
            _contender("bare client, the same two calls", "bare_writing", url=service.url, writes=writes),
        ]
        ours, bare = alternate(
            [replace(one, before=lambda: fill(service.state, writes)) for one in contenders],
            repetitions,
            same="written",
        )
    name, times = f"{writes:,} owners written", (bare.minimum / ours.minimum, bare.median / ours.median)
    throughput = f"{name}: throughput over that of a bare client"
    return Experiment(
        f"Inventory: {name}",
        [ours, bare],
        [Figure(4, throughput, *times, "times", "≥", 0.85)],
        ["The writer ledgers each write, before and after; the bare client remembers nothing."],
    )


def reset(state: InventoryState, named: Sequence[tuple[str, str]]) -> None:
    """Begin anew with these hosts and users, one of each for a pair; nobody owns anything yet."""
    hosts = (
        {"id": f"h{number}", "search_agent_name": host, "asset_owner": None}
        for number, (host, _) in enumerate(named)
    )
    users = (
        {"id": f"u{number}", "user_email": f"{user}@corp.example", "user_department": "Sales"}
        for number, (_, user) in enumerate(named)
    )
    state.reset([Account(EMAIL, SECRET[PASSWORD], roles={TENANT: "admin"})], hosts, users, TENANT)


def fill(state: InventoryState, assets: int) -> None:
    """Begin anew with so many hosts and as many users."""
    reset(state, [(f"PC-{number}", f"user{number}") for number in range(assets)])


@contextmanager
def served(page_size: int) -> Generator[InventoryService]:
    """Serve an empty inventory, in pages of this size, while the block lasts."""
    with (
        TemporaryDirectory() as folder,
        InventoryState(Path(folder, "state.json")) as state,
        InventoryService(state, page_size_cap=page_size) as service,
    ):
        yield service


def _contender(name: str, what: str, **arguments: Any) -> Contender:
    return function(name, f"{__name__}:{what}", SECRET, **arguments)


def listing(url: str, page: int) -> Callable[[], dict[str, Any]]:
    """What the assets inventory_hosts and inventory_users do, without Dagster and files."""
    client, _ = _client(url, page)

    def timed() -> dict[str, Any]:
        with client:
            assets = client.hosts().height + client.users().height
        return {"assets": assets}

    return timed


def bare_listing(url: str, page: int) -> Callable[[], dict[str, Any]]:
    """Ask for page after page, decode, and drop."""
    call = _bare_client(url)

    def size_of(kind: str, number: int) -> tuple[int, int]:
        found = call(LIST, type=kind, page=number, size=page)
        return found["size"], len(found["data"])

    def timed() -> dict[str, Any]:
        assets = 0
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for kind in ("host", "user"):
                size, first = size_of(kind, 0)
                rest = range(1, -(-size // page))
                assets += first + sum(pool.map(lambda number, kind=kind: size_of(kind, number)[1], rest))
        return {"assets": assets}

    return timed


def writing(url: str, writes: int) -> Callable[[], dict[str, Any]]:
    """What the sink does, without Dagster: ledger, read, write."""
    client, instance = _client(url)
    nothing = {"owner": None, "department": None, "criticality": None}
    rows = [
        {
            "run_id": "bench",
            "host_id": f"h{number}",
            "hostname": f"pc-{number}",
            "outcome": "planned",
            "old_values": nothing,
            "new_values": {**nothing, "owner": f"u{number}", "department": "Sales"},
            "intended_at": NOW,
            "target": instance.target,
        }
        for number in range(writes)
    ]
    plan = pl.DataFrame(rows, schema=polars_schema(OwnerWrites))

    def timed() -> dict[str, Any]:
        with (
            client,
            TemporaryDirectory() as folder,
            Ledger(Path(folder, "ledger.sqlite")) as ledger,
        ):
            writer = Writer(client, ledger)
            write_all(
                plan,
                writer,
                decide_write,
                ledger,
                concurrency=CONNECTIONS,
                max_failed_writes=1,
                require_running=lambda: None,
                on_progress=lambda _done, _total: None,
            )
            return {"written": ledger.rows("owner_writes", "bench").filter(outcome="written").height}

    return timed


def bare_writing(url: str, writes: int) -> Callable[[], dict[str, Any]]:
    """Read a host, set its owner and department when it has none, on to the next."""
    call = _bare_client(url)

    def write(number: int) -> bool:
        if call(GET, id=f"h{number}")["asset_owner"] is not None:
            return False
        call(UPDATE, id=f"h{number}", asset_owner=f"u{number}", department="Sales")
        return True

    def timed() -> dict[str, Any]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return {"written": sum(pool.map(write, range(writes)))}

    return timed


def _bare_client(url: str) -> Callable[..., Any]:
    """A function that sends a form and gives the payload; a session for each thread, with one log-in."""
    thread = local()
    form = {"email": EMAIL, "password": os.environ[PASSWORD]}
    cookies = requests.post(f"{url}/api/v1/auth/login", data=form, timeout=60).cookies

    def call(path: str, **form: Any) -> Any:
        if not hasattr(thread, "session"):
            thread.session = requests.Session()
            thread.session.cookies = cookies
        answer = thread.session.post(url + path, data={**form, "tenant_id": TENANT}, timeout=60).json()
        if not answer["status"]:
            raise ValueError(answer["message"])
        return answer["data"]

    return call


def _client(url: str, page: int = 1000) -> tuple[AssetInventory, Instance]:
    """A client that has logged in, and the instance whose it is."""
    account = {"email": EMAIL, "tenant_id": TENANT}
    platform = {"url": url, **account, "contract": {"page_size": page}}
    instance = Instance.model_validate(instance_content(PASSWORD, platform))
    client = AssetInventory(instance)
    client.get("/api/v1/profile/me", tenant=False)
    return client, instance
