"""Both services at names of their own, so that a stored home finds them again at the addresses it knows.

What a run stores is bound to the addresses of its services, and those on this machine have another port each
time. So an instance names hosts that do not exist, and a proxy of ours leads to where the services are.
"""

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from sandbox.engine import Engine
from sandbox.inventory import InventoryService, InventoryState, ServiceOptions
from tests.end_to_end.stand import ADMIN

SEARCH_URL = "https://search.corp.example:9200"
INVENTORY_URL = "https://inventory.corp.example"


@contextmanager
def named_services(
    engine: Engine, state: InventoryState, folder: Path
) -> Generator[tuple[InventoryService, dict[str, str]]]:
    """Run the inventory service on the state; give it, and the environment in which both are reached.

    Args:
        engine: the search service, running.
        state: what the inventory service remembers.
        folder: where to keep a certificate.
    """
    certificate = trustme.CA().issue_cert(urlsplit(INVENTORY_URL).hostname or "")
    pem = folder / "inventory.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(pem)
    with InventoryService(state, ServiceOptions(certificate=pem, private_key=pem)) as inventory:
        ports = {
            urlsplit(SEARCH_URL).hostname: urlsplit(engine.url).port,
            urlsplit(INVENTORY_URL).hostname: inventory.port,
        }
        with _proxy(ports) as url:
            yield (
                inventory,
                {
                    "https_proxy": url,
                    "no_proxy": "127.0.0.1",
                    "SEARCH_PASSWORD": engine.reader.password,
                    "INVENTORY_PASSWORD": ADMIN.password,
                },
            )


@contextmanager
def _proxy(ports: Mapping[str | None, int | None]) -> Generator[str]:
    """Give the address of a proxy that connects (CONNECT) each of these names with a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _start(_accept, listener, ports)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, ports: Mapping[str | None, int | None]) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            _start(_serve, listener.accept()[0], ports)


def _serve(client: socket.socket, ports: Mapping[str | None, int | None]) -> None:
    with client, suppress(OSError):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            letter = client.recv(1)
            if not letter:
                return
            head += letter
        name = head.split(b" ")[1].decode().partition(":")[0]
        with socket.create_connection(("127.0.0.1", ports[name])) as service:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            answers = _start(_carry, service, client)
            _carry(client, service)
            answers.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes until its end, and then the end."""
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _start(work, *arguments) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
