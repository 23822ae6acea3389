"""The whole sandbox: search engine, inventory service and the demo company, with an instance file for them.

Below ASSET_OWNERS_HOME:

    sandbox/               data of both services, their secrets, the ports they keep
    instances/demo.yaml    the instance that points at them
"""

import json
import secrets
import shutil
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import yaml

from sandbox.company import DEMO_RULES, MAPPING, Company, generate
from sandbox.engine import Engine
from sandbox.inventory import Account, InventoryService, InventoryState, totp_code

INDEX = "logs-winlogbeat-demo"
TENANT = "acme"
ACCOUNT = "integration@corp.example"


@dataclass(frozen=True)
class Sandbox:
    """Both services running on this machine, and how to use them."""

    engine: Engine
    inventory: InventoryService
    instance_file: Path


@contextmanager
def running_sandbox(
    home: Path, *, fresh: bool, progress: Callable[[str], None], today: date | None = None
) -> Generator[Sandbox]:
    """Run both services while the block lasts.

    Args:
        home: ASSET_OWNERS_HOME.
        fresh: begin with the data of the demo; otherwise go on with what there is, if anything.
        progress: told what is being done.
        today: last day of the demo's logons; today in UTC when not given.
    """
    folder = home / "sandbox"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if fresh:
        (folder / "loaded").unlink(missing_ok=True)
    ports = _ports(folder / "ports.json")
    with (
        Engine(folder / "engine", port=ports["engine"], progress=progress) as engine,
        InventoryState(folder / "inventory.sqlite") as state,
        InventoryService(state, port=ports["inventory"]) as inventory,
    ):
        account = _account(folder)
        if not (folder / "loaded").exists():
            _load(generate(today=today or datetime.now(UTC).date()), engine, state, account, progress)
            (folder / "loaded").touch()
        instance_file = home / "instances" / "demo.yaml"
        _write_secret(folder / "search-password", engine.reader.password)
        instance_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        instance_file.write_text(_instance_text(folder, engine, inventory), encoding="utf-8")
        yield Sandbox(engine, inventory, instance_file)


def _load(
    company: Company,
    engine: Engine,
    state: InventoryState,
    account: Account,
    progress: Callable[[str], None],
) -> None:
    documents = engine.load(INDEX, {"mappings": MAPPING}, company.documents())
    state.reset([account], company.hosts, company.users, TENANT)
    progress(f"loaded {documents} logon documents, {len(company.hosts)} hosts, {len(company.users)} users")
