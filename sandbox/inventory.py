"""A small asset-inventory service after the specification, for trying and testing: this is its door.

`InventoryService` runs it in a background thread, `serve` in the foreground. What it answers is in
`inventory_api`, what it remembers in `inventory_state`.
"""

import socket
import threading
import time
from pathlib import Path
from typing import Self

import uvicorn

from sandbox.inventory_accounts import Account, Role, totp_code
from sandbox.inventory_api import BrokenOff, Hooks, ServiceOptions, create_app
from sandbox.inventory_database import JournalEntry
from sandbox.inventory_state import AssetType, InventoryState

__all__ = [
    "Account",
    "AssetType",
    "BrokenOff",
    "Hooks",
    "InventoryService",
    "InventoryState",
    "JournalEntry",
    "Role",
    "ServiceOptions",
    "create_app",
    "serve",
    "totp_code",
]


def serve(state_path: Path, port: int, options: ServiceOptions | None = None) -> None:
    """Serves the state file on 127.0.0.1 until the process is told to stop (SIGINT, SIGTERM)."""
    with InventoryState(state_path) as state:
        _server(state, options or ServiceOptions(), Hooks(), port).run()


class InventoryService:
    """The service in a background thread on 127.0.0.1, at a free port unless one is given; a context manager.

    `hooks` may be changed while it runs. Stopping it leaves the state open.
    """

    def __init__(
        self,
        state: InventoryState,
        options: ServiceOptions | None = None,
        *,
        hooks: Hooks | None = None,
        port: int = 0,
    ) -> None:
        self.state = state
        self.options = options or ServiceOptions()
        self.hooks = hooks or Hooks()
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server = _server(state, self.options, self.hooks, self.port)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="inventory-service", daemon=True
        )

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"{'https' if self.options.certificate else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the inventory service did not start")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the service and waits for its thread."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _server(state: InventoryState, options: ServiceOptions, hooks: Hooks, port: int) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            create_app(state, options, hooks),
            host="127.0.0.1",
            port=port,
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.private_key,
        )
    )
