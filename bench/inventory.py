"""The inventory: listing and writing, against bare clients with as many connections that do the same calls.

The service is the sandbox's, in the process of the benchmark; contenders run in processes of their own.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local
from typing import Any

import polars as pl
import requests

from bench.results import Experiment, compare
from bench.timing import function, instance_content
from ownership.declaration import polars_schema
from ownership.tables import OwnerWrites
from resources.inventory.client import AssetInventory
from resources.ledger.ledger import Ledger
from resources.settings import Instance
from resources.writeback.decide import decide_write
from resources.writeback.workers import write_all
from resources.writeback.writer import Writer
from sandbox.inventory import Account, serving
from sandbox.inventory_api import ASSETS_GET, ASSETS_LIST, ASSETS_UPDATE

CONNECTIONS = 8
PAGE = 100
TENANT = "t-1"
EMAIL = "bench@corp.example"
PASSWORD = "BENCH_INVENTORY_PASSWORD"  # noqa: S105  (the name of a variable)
SECRET = {PASSWORD: "bench"}
ASKED = {
    "listing": (f"hosts and as many users listed, pages of {PAGE}", "assets", 1.2),
    "writing": ("owners written, each after its host is read", "written", 1.18),
}
"""What is done, what is counted, and how many times as long it may take."""


def measure(what: str, number: int, tries: int) -> Experiment:
    """Let both do the same to an inventory of so many hosts and as many users, whose hosts are nobody's."""
    done, counted, bound = ASKED[what]

    def fill() -> None:
        hosts = ({"id": f"h{n}", "search_agent_name": f"PC-{n}", "asset_owner": None} for n in range(number))
        users = ({"id": f"u{n}", "user_email": f"user{n}@corp.example"} for n in range(number))
        account = Account(EMAIL, SECRET[PASSWORD], roles={TENANT: "admin"})
        service.state.reset([account], hosts, users, TENANT)

    with (
        TemporaryDirectory() as folder,
        serving(Path(folder, "state.json"), page_size_cap=PAGE) as service,
    ):
        ours, bare = (
            function(name, f"{__name__}:{how}", SECRET, url=service.url, number=number)
            for name, how in (("ours", what), ("a bare client", f"bare_{what}"))
        )
        name = f"{number:,} {done}"
        return compare(
            f"Inventory: {name}",
            *(4, f"{name}, over a bare client", bound, ours, bare, tries),
            same=counted,
            before=fill,
            notes=[f"Both have {CONNECTIONS} requests in flight. The bare client keeps nothing."],
        )


def listing(url: str, number: int) -> Callable[[], dict[str, int]]:  # noqa: ARG001  (called like the others)
    """What the assets inventory_hosts and inventory_users do, without Dagster and files."""
    client, _ = _client(url)

    def timed() -> dict[str, int]:
        with client:
            return {"assets": client.hosts().height + client.users().height}

    return timed


def bare_listing(url: str, number: int) -> Callable[[], dict[str, int]]:
    """Ask for page after page, decode, and drop."""
    call, pages = _bare_client(url), range(-(-number // PAGE))

    def size_of(page: tuple[str, int]) -> int:
        return len(call(ASSETS_LIST, type=page[0], page=page[1], size=PAGE)["data"])

    def timed() -> dict[str, int]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return {"assets": sum(pool.map(size_of, product(("host", "user"), pages)))}

    return timed


def writing(url: str, number: int) -> Callable[[], dict[str, int]]:
    """What the sink does, without Dagster: ledger, read, write."""
    client, instance = _client(url)
    nothing = {"owner": None, "department": None, "criticality": None}
    row = {"run_id": "bench", "outcome": "planned", "old_values": nothing, "target": instance.target}
    rows = [
        row
        | {"host_id": f"h{n}", "hostname": f"pc-{n}", "intended_at": datetime.now(UTC)}
        | {"new_values": {**nothing, "owner": f"u{n}", "department": "Sales"}}
        for n in range(number)
    ]
    plan = pl.DataFrame(rows, schema=polars_schema(OwnerWrites))

    def timed() -> dict[str, int]:
        with client, TemporaryDirectory() as folder, Ledger(Path(folder, "ledger.sqlite")) as ledger:
            write_all(
                *(plan, Writer(client, ledger), decide_write, ledger),
                concurrency=CONNECTIONS,
                max_failed_writes=1,
                require_running=lambda: None,
                on_progress=lambda _done, _total: None,
            )
            return {"written": ledger.rows("owner_writes", "bench").filter(outcome="written").height}

    return timed


def bare_writing(url: str, number: int) -> Callable[[], dict[str, int]]:
    """Read a host, set its owner and department when it has none, on to the next."""
    call = _bare_client(url)

    def write(n: int) -> bool:
        if call(ASSETS_GET, id=f"h{n}")["asset_owner"] is not None:
            return False
        call(ASSETS_UPDATE, id=f"h{n}", asset_owner=f"u{n}", department="Sales")
        return True

    def timed() -> dict[str, int]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return {"written": sum(pool.map(write, range(number)))}

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


def _client(url: str) -> tuple[AssetInventory, Instance]:
    """A client that has logged in, and the instance whose it is."""
    platform = {"url": url, "email": EMAIL, "tenant_id": TENANT, "contract": {"page_size": PAGE}}
    instance = Instance.model_validate(instance_content(PASSWORD, platform))
    client = AssetInventory(instance)
    client.get("/api/v1/profile/me", tenant=False)
    return client, instance
