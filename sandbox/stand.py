"""The whole sandbox: search engine, inventory service and the demo company, with an instance file for them.

Below ASSET_OWNERS_HOME:

    sandbox/               data of both services, their ports, and the secrets to try them with
    instances/demo.yaml    the instance that points at them
"""

import secrets
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from resources.settings import slug_of
from resources.store.tables import CLAIM
from sandbox.company import DEMO_RULES, MAPPING, generate
from sandbox.draft import Expectation
from sandbox.engine import Engine
from sandbox.inventory import Account, InventoryService, serving

NAME = "Demo"
INDEX = "logs-winlogbeat-demo"
TENANT = "acme"
SEARCH_PASSWORD = "search-password"  # noqa: S105  (the name of a file)
ACCOUNTS = {
    "integration": "may write",
    "coded": "may write, and wants a code of coded-mfa-secret",
    "reader": "may not write",
}
"""Those of the inventory service, at corp.example."""
_HEAD = "# Written by the sandbox at each start, until somebody changes it.\n"


@dataclass(frozen=True)
class Sandbox:
    """Both services, running on this machine, and the instance file that points at them.

    `truth` says whose each host is and why the logons may say otherwise, by id, of a company that was loaded
    just now.
    """

    engine: Engine
    inventory: InventoryService
    instance_file: Path
    truth: Mapping[str | None, Expectation] = field(default_factory=dict)


@contextmanager
def running_sandbox(
    home: Path,
    *,
    fresh: bool,
    progress: Callable[[str], None],
    port: int | None = None,
    today: date | None = None,
    optimized: bool = False,
) -> Generator[Sandbox]:
    """Run both services while the block lasts; the search service at a port, the inventory at the next."""
    folder = home / "sandbox"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if port:
        # The tables are held to where the inventory was.
        (home / "tables" / slug_of(NAME) / CLAIM).unlink(missing_ok=True)
        (folder / "engine-port").write_text(f"{port}", encoding="utf-8")
        (folder / "inventory-port").write_text(f"{port + 1}", encoding="utf-8")
    with (
        Engine(
            folder / "engine",
            port=_kept_port(folder / "engine-port"),
            optimized=optimized,
            progress=progress,
        ) as engine,
        serving(folder / "inventory.json", port=_kept_port(folder / "inventory-port")) as inventory,
    ):
        truth, state = dict[str | None, Expectation](), inventory.state
        if fresh or not (state.assets("host") and INDEX in engine.request("GET", "_alias")):
            company = generate(today=today or datetime.now(UTC).date())
            progress("loading the logon documents")
            documents = engine.load(INDEX, MAPPING, company.documents())
            state.reset(_accounts(folder), company.hosts, company.users, TENANT)
            truth = {row.host_id: row for row in company.truth}
            progress(f"{documents} documents, {len(company.hosts)} hosts, {len(company.users)} users loaded")
        _write_secret(folder / SEARCH_PASSWORD, engine.reader.password)
        instance_file = home / "instances" / "demo.yaml"
        instance_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = yaml.safe_dump(_instance(folder, engine, inventory), sort_keys=False, allow_unicode=True)
        write_unless_changed(instance_file, f"{_HEAD}{text}", folder / "demo.yaml", progress)
        yield Sandbox(engine, inventory, instance_file, truth)


def write_unless_changed(file: Path, text: str, copy: Path, progress: Callable[[str], None]) -> None:
    """Write an instance file, unless somebody has changed it since: `copy` is what was written last."""
    if file.exists() and copy.exists() and file.read_bytes() != copy.read_bytes():
        progress(f"{file} was changed and is kept as it is; to have it written again, delete it")
        return
    for path in (file, copy):
        path.write_text(text, encoding="utf-8", newline="")


def _instance(folder: Path, engine: Engine, inventory: InventoryService) -> dict[str, Any]:
    return {
        "name": NAME,
        "url": engine.url,
        "username": engine.reader.username,
        "password": {"file": str(folder / SEARCH_PASSWORD)},
        "ca_file": str(engine.ca_file),
        "sensor": "sandbox",
        "platform": {
            "url": inventory.url,
            "email": "integration@corp.example",
            "password": {"file": str(folder / "integration-password")},
            "tenant_id": TENANT,
        },
        "rules": DEMO_RULES,
    }


def _accounts(folder: Path) -> list[Account]:
    """An account for the integration, one that may only read, and one that needs a verification code."""

    def password(name: str) -> str:
        return _kept_secret(folder / f"{name}-password", secrets.token_urlsafe(12))

    mfa_secret = _kept_secret(folder / "coded-mfa-secret", "JBSWY3DPEHPK3PXP")
    return [
        Account("integration@corp.example", password("integration"), roles={TENANT: "admin"}),
        Account("reader@corp.example", password("reader"), roles={TENANT: "reader"}),
        Account("coded@corp.example", password("coded"), mfa_secret, roles={TENANT: "admin"}),
    ]


def _kept_secret(path: Path, fresh: str) -> str:
    """Return the secret in a file, written when there is none."""
    if not path.exists():
        _write_secret(path, fresh)
    return path.read_text(encoding="utf-8")


def _write_secret(path: Path, secret: str) -> None:
    """Write a secret into a file of its owner alone."""
    path.touch(mode=0o600)
    path.write_text(secret, encoding="utf-8")


def _kept_port(path: Path) -> int:
    """Return the port of last time, so that fetched days stay settled; a free one at first."""
    if not path.exists():
        with socket.create_server(("127.0.0.1", 0)) as free:
            path.write_text(str(free.getsockname()[1]), encoding="utf-8")
    return int(path.read_text(encoding="utf-8"))
