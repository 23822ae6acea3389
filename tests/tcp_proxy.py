"""A small proxy in front of a service, which loses, cuts and delays what a test says.

Faults happen to whole requests, so the proxy reads HTTP; before a service with TLS it opens TLS, too, and
shows a certificate of its own.
"""

import re
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import trustme

ALWAYS = 10**9
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Exchange:
    """One request on its way, in the hands of a fault."""

    def __init__(self, client: socket.socket, request: bytes, send: Callable[[bytes], bytes]):
        self._client = client
        self._send = send
        self.request = request

    def forward(self) -> bytes:
        """Hand the request to the service; its whole answer says that it has been applied.

        Raises:
            OSError: the service gave none; then the client's connection breaks as well.
        """
        return self._send(self.request)

    def answer(self, data: bytes) -> None:
        self._client.sendall(data)

    def end(self) -> None:
        """Close the client's connection as a service does that has said all it had to say."""
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Break the client's connection."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        raise ConnectionResetError


Fault = Callable[[Exchange], None]


def none(exchange: Exchange) -> None:
    exchange.answer(exchange.forward())


def reset_before(exchange: Exchange) -> None:
    """The service never sees the request."""
    exchange.reset()


def reset_after(exchange: Exchange) -> None:
    """The service has applied the request; its answer is lost."""
    exchange.forward()
    exchange.reset()


def cut(exchange: Exchange) -> None:
    answer = exchange.forward()
    exchange.answer(answer[: len(answer) - len(answer) // 4])
    exchange.end()


def late(seconds: float) -> Fault:
    """The answer comes after so many seconds."""

    def fault(exchange: Exchange) -> None:
        answer = exchange.forward()
        time.sleep(seconds)
        exchange.answer(answer)

    return fault


def trickle(pause: float) -> Fault:
    """The answer's body comes letter by letter."""

    def fault(exchange: Exchange) -> None:
        head, end, body = exchange.forward().partition(b"\r\n\r\n")
        exchange.answer(head + end)
        for letter in body:
            exchange.answer(bytes([letter]))
            time.sleep(pause)

    return fault


def trickle_of_headers(pause: float) -> Fault:
    """A promise that the answer comes, over and over, and then its headers letter by letter."""

    def fault(exchange: Exchange) -> None:
        answer = exchange.forward()
        for part in (*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 20, *(bytes([letter]) for letter in answer)):
            exchange.answer(part)
            time.sleep(pause)

    return fault


class Proxy:
    """Carries what is sent to 127.0.0.1, at a port of its own, to the service at `target`; a context manager.

    Args:
        target: base URL of the service, which may be changed while it runs.
        authority: the service's certificate authority; the proxy's own one is written to `ca_file`.
        ca_file: where to.
    """

    def __init__(self, target: str, *, authority: Path | None = None, ca_file: Path | None = None):
        self.target = target
        self.requests: Counter[str] = Counter()
        """Requests by path, those that a fault swallowed included."""
        self._faults: list[tuple[str, Fault, int]] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server_tls = self._client_tls = None
        if authority and ca_file:
            own = trustme.CA()
            own.cert_pem.write_to_path(ca_file)
            self._server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            own.issue_cert("127.0.0.1").configure_cert(self._server_tls)
            self._client_tls = ssl.create_default_context(cafile=authority)
        self._port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._server_tls else 'http'}://127.0.0.1:{self._port}"

    def __enter__(self):
        self._listen()
        return self

    def __exit__(self, *_):
        self._refuse()

    def misbehave(self, fault: Fault, *, at: str = "", times: int = 1) -> None:
        """Let a fault befall the next requests whose path holds `at`; several wait for their turn."""
        with self._lock:
            self._faults.append((at, fault, times))

    def behave(self) -> None:
        """Forget the faults that are still to come."""
        with self._lock:
            self._faults.clear()

    @contextmanager
    def refusing(self):
        """Break all connections and refuse new ones, as a service does that is not running."""
        self._refuse()
        yield
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def _refuse(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                self._start(self._serve, listener.accept()[0])

    def _serve(self, accepted: socket.socket) -> None:
        with suppress(OSError), ExitStack() as stack:
            client = stack.enter_context(self._tls(accepted))
            self._connections.add(client)
            stack.callback(self._connections.discard, client)
            requests = stack.enter_context(client.makefile("rb"))
            while request := _message(requests):
                with self._upstream() as send:
                    self._fault_of(request)(Exchange(client, request, send))

    def _tls(self, accepted: socket.socket) -> socket.socket:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._server_tls.wrap_socket(accepted, server_side=True) if self._server_tls else accepted

    @contextmanager
    def _upstream(self):
        """Give what sends a request to the service, over a connection of its own, and returns the answer."""
        with ExitStack() as stack:

            def send(request: bytes) -> bytes:
                address = urlsplit(self.target)
                service = stack.enter_context(socket.create_connection((address.hostname, address.port), 30))
                if self._client_tls:
                    service = stack.enter_context(
                        self._client_tls.wrap_socket(service, server_hostname=address.hostname)
                    )
                service.sendall(request)
                answer = _message(stack.enter_context(service.makefile("rb")))
                if not answer:
                    raise ConnectionResetError
                return answer

            yield send

    def _fault_of(self, request: bytes) -> Fault:
        path = urlsplit(request.split(b" ", 2)[1].decode()).path
        with self._lock:
            self.requests[path] += 1
            for place, (at, fault, times) in enumerate(self._faults):
                if at in path:
                    self._faults[place : place + 1] = [(at, fault, times - 1)] if times > 1 else []
                    return fault
        return none


def _message(stream: BinaryIO) -> bytes:
    """One request or answer, head and body; empty when the other side has closed the connection in between.

    Raises:
        ConnectionResetError: it closed the connection in the middle.
    """
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    assert length or b"transfer-encoding" not in head.lower(), head
    expected = int(length[1]) if length else 0
    body = stream.read(expected)
    if len(body) < expected:
        raise ConnectionResetError
    return head + body
