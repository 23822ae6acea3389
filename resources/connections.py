"""Connections of `requests` whose exchange ends at a deadline, whatever the service sends meanwhile."""

import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import connection

# Elasticsearch warns of each deprecated setting in a header of its own; Python takes 100 headers.
vars(http.client)["_MAXHEADERS"] = 10_000


@dataclass(eq=False)
class Exchange:
    """One request with its answer: its deadline (monotonic), what is called before it, and its socket."""

    deadline: float
    right_before: Callable[[], None] | None
    sock: Any = None

    def begin(self) -> None:
        """Make this the exchange of this thread, and have it cut at its deadline."""
        _EXCHANGE.set(self)
        _WATCH.add(self)

    def end(self) -> None:
        """Cut it no more."""
        _WATCH.remove(self)

    def cut(self) -> None:
        """Shut the socket down to end sending and reading."""
        if self.sock is not None:
            # TLS through a proxy has a socket inside; SSLSocket.shutdown is not safe between threads.
            with suppress(OSError):
                socket.socket.shutdown(getattr(self.sock, "socket", self.sock), socket.SHUT_RDWR)


_EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")
"""This thread's exchange, which requests and urllib3 do not pass to a connection."""


class _Watch:
    """Cuts each exchange at its deadline: requests limits each silence only, not an answer in single bytes.

    One thread watches all: to start one for each takes a fifth of a long listing.
    """

    def __init__(self) -> None:
        self._exchanges: set[Exchange] = set()
        self._changed = threading.Condition()
        self._next = math.inf
        self._thread = threading.Thread()

    def add(self, exchange: Exchange) -> None:
        with self._changed:
            self._exchanges.add(exchange)
            if not self._thread.is_alive():  # as in a forked process
                self._thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                self._thread.start()
            elif exchange.deadline < self._next:
                self._changed.notify()

    def remove(self, exchange: Exchange) -> None:
        with self._changed:
            self._exchanges.discard(exchange)

    def _watch(self) -> None:
        with self._changed:
            while True:
                for exchange in [*self._exchanges]:
                    if exchange.deadline <= time.monotonic():
                        exchange.cut()
                        self._exchanges.remove(exchange)
                self._next = min((one.deadline for one in self._exchanges), default=math.inf)
                self._changed.wait(max(0.0, self._next - time.monotonic()) if self._exchanges else None)


_WATCH = _Watch()


class _Response(http.client.HTTPResponse):
    """An answer without the notices before it."""

    def begin(self) -> None:
        """Skip notices such as 103: Python takes them for the answer, and that for the next request's."""
        super().begin()
        while self.status < 200:
            self.headers: Any = None  # otherwise it does not begin again
            super().begin()


class _Connection(connection.HTTPConnection):
    """A connection that gives its socket to the exchange, and calls `right_before`."""

    response_class = _Response

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        if right_before := _EXCHANGE.get().right_before:
            right_before()
        super().endheaders(*args, **kwargs)

    def send(self, data: Any) -> None:  # also to a proxy, before TLS replaces its socket
        exchange = _EXCHANGE.get()
        exchange.sock = self.sock
        if time.monotonic() >= exchange.deadline:  # while it was connecting
            raise TimeoutError
        super().send(data)


class _TlsConnection(_Connection, connection.HTTPSConnection):
    pass


class Adapter(HTTPAdapter):
    """Opens our connections, and checks certificates with the given context only."""

    def __init__(self, context: ssl.SSLContext | None, *, pool_maxsize: int) -> None:
        self._context = context
        super().__init__(pool_maxsize=pool_maxsize)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """Return a pool of our connections."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _TlsConnection if pool.scheme == "https" else _Connection
        return pool

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        """Give a pool the context instead of what requests makes of `verify`."""
        host, tls = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {"ssl_context": self._context} if self._context else tls

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Leave the context as it is: requests would add certifi's authorities to it."""
