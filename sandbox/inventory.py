"""A small asset-inventory service after the specification, for trying and testing: this is its door.

What it answers is in `inventory_api`, what it remembers in `inventory_state`.
"""

import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import uvicorn

from sandbox.inventory_api import BrokenOff, Hooks, create_app
from sandbox.inventory_state import Account, InventoryState, JournalEntry, totp_code

__all__ = [
    "Account",
    "BrokenOff",
    "InventoryService",
    "InventoryState",
    "JournalEntry",
    "serving",
    "totp_code",
]


class InventoryService:
    """The service in a background thread on 127.0.0.1, at a free port unless one is given; a context manager.

    `hooks` may be changed while it runs. Stopping it leaves the state open.
    """

    def __init__(self, state: InventoryState, *, page_size_cap: int = 100, port: int = 0) -> None:
        self.state = state
        self.hooks = Hooks()
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(state, page_size_cap, self.hooks),
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="inventory-service", daemon=True
        )

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

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


@contextmanager
def serving(
    file: Path, *, clock: Callable[[], float] = time.time, **service: Any
) -> Generator[InventoryService]:
    """Serve what a file remembers, an empty inventory at first, while the block lasts."""
    with InventoryState(file, clock=clock) as state, InventoryService(state, **service) as running:
        yield running
