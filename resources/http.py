"""HTTP as both services need it: certificates, proxies, time-outs, answer limits, bounded retries.

What an answer means (envelopes, search errors) is the business of `inventory` and `search`; here it is
bytes with a status. Failures below that level become the errors of `resources.errors` in one place.
"""

import email.utils
import http.client
import io
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import tenacity
import truststore
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection

from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    ConfigurationError,
    ProtocolError,
    TransientError,
)
from resources.redaction import redacted_start

CONNECT_TIMEOUT_SECONDS = 10
MAX_ANSWER_BYTES = 256 * 2**20
MIN_SESSION = 8  # characters; a cookie with fewer (a language) would take letters out of any message
MAX_TRIES = 5
MAX_RETRY_AFTER_SECONDS = 60.0
_CHUNK_BYTES = 2**16
_LOOKED_AT_BYTES = 2**20  # for an excerpt; no secret that fits into a header is as long as a part of it


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, read to its end; `secrets` are what its request carried and no message may show."""

    status: int
    headers: CaseInsensitiveDict[str]
    body: bytes
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def excerpt(self) -> str:
        """The first 200 characters of the body, for messages."""
        return self.sanitised(self.body[:_LOOKED_AT_BYTES].decode("utf-8", "replace"))

    def sanitised(self, text: str, length: int = 200) -> str:
        """The beginning of a service's words, as messages may show it: in one line and without secrets."""
        shown = redacted_start(text, self.secrets, length)
        return " ".join("".join(letter if letter.isprintable() else " " for letter in shown).split())


@dataclass(frozen=True)
class Transport:
    """How one service is reached.

    Args:
        service: the service's name in messages, "search service".
        section: prefix of its settings in messages, "" or "platform.".
        url: its base URL.
        ignore_ssl: skip certificate checks.
        ca_file: PEM file with the only certificate authorities to trust; None = the operating system's.
        connections: connections kept open.
        read_timeout_seconds: longest silence while an answer is awaited.
        total_timeout_seconds: longest time for one answer, headers and all, however steadily it trickles.
    """

    service: str
    section: str
    url: str
    ignore_ssl: bool = False
    ca_file: Path | None = None
    connections: int = 8
    read_timeout_seconds: float = 60
    total_timeout_seconds: float = 600

    @property
    def where(self) -> str:
        """The service and its address, to begin a message with."""
        return f"The {self.service} at {self.url}"

    def new_session(self) -> requests.Session:
        """Open a session with cookies of its own.

        Environment variables choose proxies and nothing else: requests would let REQUESTS_CA_BUNDLE
        override the instance's certificate settings (rules 3.5).

        Raises:
            ConfigurationError: `ca_file` cannot be read.
        """
        session = _Session()
        session.trust_env = False
        session.proxies.update(requests.utils.get_environ_proxies(self.url))
        session.verify = not self.ignore_ssl
        bounds = {"pool_maxsize": self.connections, "answer_seconds": self.total_timeout_seconds}
        session.mount("https://", _TlsAdapter(self._ssl_context(), **bounds))
        session.mount("http://", _Adapter(**bounds))
        return session

    def _ssl_context(self) -> ssl.SSLContext:
        if self.ignore_ssl:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # said once, by the check
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        if self.ca_file is None:
            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{self.section}ca_file: {self.ca_file} cannot be read as PEM certificates ({error}); "
                "name a file with the certificate authority of the service"
            ) from error

    def send(
        self,
        session: requests.Session,
        method: str,
        path: str,
        *,
        secrets: tuple[str, ...] = (),
        right_before: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> Answer:
        """Send one request, once, and read its answer.

        Args:
            session: from `new_session`.
            method: HTTP method.
            path: appended to the base URL.
            secrets: what its body holds that no message may show; its headers are known here.
            right_before: called when the connection stands and the request is about to go out.
            arguments: as for `requests.Session.request`.

        Raises:
            AuthenticationError: the certificate is not trusted.
            TransientError: time-out, refused or broken connection. The service may have acted.
            ProtocolError: a redirect, or an answer over `MAX_ANSWER_BYTES`.
        """
        deadline = time.monotonic() + self.total_timeout_seconds
        announced = _right_before.set(right_before or _nothing)
        try:
            with session.request(
                method,
                self.url.rstrip("/") + path,
                timeout=(CONNECT_TIMEOUT_SECONDS, self.read_timeout_seconds),
                allow_redirects=False,  # credentials go nowhere but to the configured address
                stream=True,
                **arguments,
            ) as response:
                secrets += tuple(_secrets_of(response.request.headers))
                if 300 <= response.status_code < 400:
                    elsewhere = redacted_start(response.headers.get("Location", ""), secrets, 200)
                    raise ProtocolError(
                        f"{self.where} redirects {path} to {elsewhere!r}; credentials go nowhere else: "
                        f"set {self.section}url to the final address"
                    )
                return Answer(response.status_code, response.headers, self._body(response, path), secrets)
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            if time.monotonic() >= deadline:
                raise TransientError(
                    f"{self.where} has not finished answering {path} in {self.total_timeout_seconds:.0f} s; "
                    f"check {self.section}url and the network"
                ) from error
            if isinstance(error, requests.exceptions.InvalidHeader):
                raise self._unsendable(path) from None  # it quotes the header, and a run's log keeps causes
            raise self._failure(error, f"{method} {path}") from error
        except ValueError:  # http.client's for the same
            raise self._unsendable(path) from None
        finally:
            _right_before.reset(announced)

    def _body(self, response: requests.Response, path: str) -> bytes:
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise ProtocolError(f"{self.where} answered {path} with over {MAX_ANSWER_BYTES} bytes")
        return bytes(body)

    def _unsendable(self, path: str) -> ProtocolError:
        return ProtocolError(
            f"{self.where} was not asked for {path}: a header or value has a character that cannot be "
            "sent, such as a line break; check its settings, the cookies first, and the cookies that it gives"
        )

    def _failure(self, error: Exception, call: str) -> AssetOwnersError:
        """What a call that got no whole answer means."""
        cause = _root_cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return AuthenticationError(
                f"{self.where} could not prove who it is: {cause}. Set {self.section}ca_file to the "
                f"authority that signed its certificate (or, less safe, {self.section}ignore_ssl to true)"
            )
        if isinstance(error, requests.exceptions.InvalidURL):
            return ConfigurationError(f"{self.section}url: {self.url} is not a usable address: {cause}")
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return TransientError(
                f"{self.where} speaks HTTP without TLS; write http:// in {self.section}url, or the port "
                "that speaks TLS"
            )
        if isinstance(error, requests.exceptions.ProxyError):
            return TransientError(
                f"{self.where} was not reached through the proxy: {_in_words(cause)}; "
                "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
            )
        return TransientError(
            f"{self.where} did not answer {call}: {_in_words(cause)}; check {self.section}url and the network"
        )

    def raise_if_transient(self, answer: Answer, path: str) -> None:
        """Raise TransientError, with the server's Retry-After, for 408, 425, 429 and 5xx.

        After 429 the service has not acted; after any other it may have.
        """
        if answer.status in {408, 425, 429} or answer.status >= 500:
            raise TransientError(
                f"{self.where} answered {path} with HTTP status {answer.status}: {answer.excerpt}",
                retry_after=_retry_after_seconds(answer.headers.get("Retry-After")),
                not_done=answer.status == 429,
            )


def retrying(sleep: Callable[[float], None] = time.sleep) -> tenacity.Retrying:
    """Tries for calls that may be repeated: up to `MAX_TRIES`, exponential back-off with jitter.

    The server's Retry-After is kept, up to `MAX_RETRY_AFTER_SECONDS`. This is the only layer that retries.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=tenacity.stop_after_attempt(MAX_TRIES),
        wait=_wait_seconds,
        sleep=sleep,
        reraise=True,
    )


_backoff = tenacity.wait_random_exponential(multiplier=0.5, max=30)


def _wait_seconds(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, TransientError) else None
    if asked is None:
        return _backoff(state)
    return min(asked, MAX_RETRY_AFTER_SECONDS) + random.uniform(0, 0.5)  # noqa: S311  (spreads clients, no secret)


def _retry_after_seconds(header: str | None) -> float | None:
    """Read Retry-After, which holds seconds or an HTTP date; None when it holds neither."""
    if not header:
        return None
    try:
        if header.strip().isdecimal():
            return float(header)
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _secrets_of(headers: Mapping[str, str]) -> Iterator[str]:
    """Credentials and the values of cookies."""
    yield headers.get("Authorization", "").rpartition(" ")[2]
    for cookie in headers.get("Cookie", "").split("; "):
        value = cookie.partition("=")[2]
        if len(value) >= MIN_SESSION:
            yield value


def _root_cause(error: BaseException) -> BaseException:
    """The innermost error: requests and urllib3 wrap the operating system's message in theirs."""
    while True:
        parts = [getattr(error, "reason", None), *reversed(error.args)]
        inner = next((part for part in parts if isinstance(part, BaseException)), None)
        if inner is None:
            return error
        error = inner


def _in_words(cause: BaseException) -> str:
    """What failed, without what Python calls connections and errors."""
    if isinstance(cause, http.client.IncompleteRead):
        return "the answer broke off"
    if isinstance(cause, http.client.BadStatusLine) and not isinstance(cause, ConnectionError):
        return "what came is no HTTP"
    said = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return re.sub(r"^\w+\(host=.*?\): |\[Errno -?\d+\] ", "", said)


class _Session(requests.Session):
    """A session that knows of no redirects: to follow one, requests would read its whole body first."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002
        """Return nothing: `Transport.send` tells what to do."""
        return None


class BoundedReader(io.RawIOBase):
    """What http.client reads an answer from, and http.server a request: a connection, until a deadline.

    The time-out of a socket is for each read alone. A service that sends a byte at a time, in headers, in
    `100 Continue` or in trailers, would keep http.client reading for as long as it likes.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._deadline = time.monotonic() + seconds

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Give the file that http.client asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: D102
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it came too slowly")
        patience = self._connection.gettimeout()
        self._connection.settimeout(left if patience is None else min(left, patience))
        try:
            return self._file.readinto(buffer)
        finally:
            self._connection.settimeout(patience)

    def close(self) -> None:  # noqa: D102
        self._file.close()
        super().close()


def _nothing() -> None:
    """What is called right before most requests."""


_right_before: ContextVar[Callable[[], None]] = ContextVar("right_before", default=_nothing)
"""Called when the connection stands and the request of this thread is about to go out."""


class _Announcing(HTTPConnection):
    """A connection that calls `_right_before` before the first byte of a request, and not to connect."""

    def connect(self) -> None:
        waiting = _right_before.set(_nothing)
        try:
            super().connect()
        finally:
            _right_before.reset(waiting)

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _right_before.get()()
        _right_before.set(_nothing)  # a request goes out in several parts
        super().send(data)


def _pools(answer_seconds: float) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """The kinds of connections that end reading an answer after so many seconds."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            bounded: Any = BoundedReader(sock, answer_seconds)
            super().__init__(bounded, *args, **kwargs)

    class Plain(_Announcing, HTTPConnection):
        response_class = Response

    class Tls(_Announcing, HTTPSConnection):
        response_class = Response

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls: Any = Plain

    class TlsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls: Any = Tls

    return {"http": PlainPool, "https": TlsPool}


class _Adapter(HTTPAdapter):
    """An adapter whose answers end after so many seconds, the answers of a proxy included."""

    def __init__(self, *, pool_maxsize: int, answer_seconds: float) -> None:
        self._pools = _pools(answer_seconds)
        super().__init__(pool_maxsize=pool_maxsize)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> urllib3.ProxyManager:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


class _TlsAdapter(_Adapter):
    """An adapter that checks certificates with the given context only."""

    def __init__(self, context: ssl.SSLContext, *, pool_maxsize: int, answer_seconds: float) -> None:
        self._context = context
        super().__init__(pool_maxsize=pool_maxsize, answer_seconds=answer_seconds)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> urllib3.ProxyManager:
        return super().proxy_manager_for(*args, ssl_context=self._context, **kwargs)

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Leave the context as it is: requests would add certifi's authorities to it."""
