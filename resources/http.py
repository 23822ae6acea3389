"""HTTP for both services: certificates, proxies, one deadline for each exchange, bounded retries."""

import http.client
import json
import logging
import random
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import mktime_tz, parsedate_tz
from functools import cached_property
from http.cookiejar import DefaultCookiePolicy
from multiprocessing.pool import AsyncResult, ThreadPool
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import requests
import tenacity
import truststore
import urllib3
from requests.structures import CaseInsensitiveDict

from resources.connections import Adapter, Exchange
from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    ConfigurationError,
    LogInPageError,
    ProtocolError,
    TransientError,
)
from resources.locks import made_progress
from resources.redaction import redact_start

CONNECT_TIMEOUT_SECONDS = 10
MAX_ANSWER_BYTES = 256 * 2**20
MIN_SESSION = 8  # characters; masking a shorter cookie (a language) would garble messages
MAX_TRIES = 5
PATIENCE_SECONDS = 120  # without an answer of a service, after which no call to it is repeated
PROBE_SECONDS = 6
MAX_RETRY_AFTER_SECONDS = 600.0  # all waits of a call together
_CHUNK_BYTES = 2**16
_EXCERPT_BYTES = 2**20  # far longer than a secret that fits into a header
_LONGEST_SECONDS = 10.0**9  # limit for a date in the future
_WRONG_CLOCK_SECONDS = 86_400  # tolerance for a service's clocks; it deletes a cookie with a date in 1970
_OTHER_TIME, _OTHER_NAME = {9, 10}, {62, 64}  # X509_V_ERR of OpenSSL: not yet valid, expired; host, address
_PROXIES = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY"
_LOG_IN_ADDRESS = re.compile(r"\b(log|sign)[_-]?[io]n\b|\bauth|\bsso\b|\bsaml", re.IGNORECASE)
T = TypeVar("T")

log = logging.getLogger(__name__)


_JSON = msgspec.json.Decoder(  # reads 7.0 as 7: to some services all numbers are of one kind, also ids
    float_hook=lambda text: int(text[:-2]) if text.endswith(".0") else float(text)
)


@dataclass(frozen=True)
class Answer:
    """One complete HTTP answer; messages mask the `secrets` and `personal` data of its request."""

    status: int
    headers: CaseInsensitiveDict[str]
    body: bytes
    secrets: tuple[str, ...] = field(default=(), repr=False)
    personal: tuple[str, ...] = field(default=(), repr=False)

    @property
    def excerpt(self) -> str:
        """The first 200 characters of the body, for messages."""
        return self.sanitise(self.body[:_EXCERPT_BYTES].decode("utf-8", "replace"))

    @cached_property
    def members(self) -> dict[str, Any]:
        """The members of a body that is a JSON object; otherwise empty."""
        found: Any = None
        try:
            found = _JSON.decode(self.body)
        except (msgspec.DecodeError, ValueError, RecursionError):  # UTF-16, half a surrogate pair, NaN, …
            with suppress(ValueError, RecursionError):
                text = self.body.decode(json.detect_encoding(self.body))  # `loads` accepts halves in bytes
                read = json.loads(text, parse_float=_JSON.float_hook, parse_constant=lambda _nan: None)
                # Half of a surrogate pair cannot be stored or sent back.
                found = json.loads(json.dumps(read, ensure_ascii=False).encode(errors="replace"))
        return found if isinstance(found, dict) else {}

    def sanitise(self, text: str, length: int = 200) -> str:
        """Return the start of a service's message on one line, with secrets and personal data masked."""
        shown = redact_start(text, self.secrets, length, self.personal)
        return " ".join("".join(letter if letter.isprintable() else " " for letter in shown).split())


class Session(requests.Session):
    """A session with one service; returns all cookies that it sets, whatever domain and path they name."""

    def __init__(self) -> None:
        super().__init__()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))  # their rules are for many services
        self.kept: dict[tuple[str, str, str], str] = {}

    def keep_cookies(self, response: requests.Response) -> None:
        """Keep the cookies that an answer sets, and drop those that it deletes."""
        for header in response.raw.headers.getlist("Set-Cookie"):
            (name, value), *others = (map(str.strip, part.partition("=")[::2]) for part in header.split(";"))
            said = {attribute.lower(): text.strip('"') for attribute, text in others}
            key = name, said.get("domain", ""), said.get("path", "")
            self.kept.pop(key, None)
            if value and not _is_deleted(said, response.headers):
                self.kept[key] = value


@dataclass
class Transport:
    """How one service is reached, and how patiently."""

    service: str  # its name in messages
    section: str  # the prefix of its settings: "" or "platform."
    url: str
    ignore_ssl: bool = False
    ca_file: Path | None = None  # the only authorities to trust; None: those of the operating system
    connections: int = 8
    read_timeout_seconds: float = 60  # of each silence
    total_timeout_seconds: float = 600  # of a request with its whole answer
    patience_seconds: float = PATIENCE_SECONDS  # a call after such a silence gets as long as a probe
    silent_since: float | None = None  # on the monotonic clock; None while the service answers
    sleep: Callable[[float], None] = time.sleep

    @property
    def where(self) -> str:
        """The service and its address, as the start of a message."""
        return f"The {self.service} at {self.url}"

    def new_session(self) -> Session:
        """Open a session with its own cookies; ConfigurationError: `ca_file` cannot be read."""
        session = Session()
        # The environment only chooses proxies: REQUESTS_CA_BUNDLE would override the instance's (rules 3.5).
        session.trust_env = False
        session.get_redirect_target = lambda resp: None  # noqa: ARG005  (requests would read its whole body)
        session.proxies.update(requests.utils.get_environ_proxies(self.url))
        session.verify = not self.ignore_ssl
        session.mount("https://", Adapter(self._ssl_context(), pool_maxsize=self.connections))
        session.mount("http://", Adapter(None, pool_maxsize=self.connections))
        return session

    def _ssl_context(self) -> ssl.SSLContext:
        if self.ignore_ssl:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # a check reports it
            return urllib3.util.create_urllib3_context(cert_reqs=ssl.CERT_NONE)
        try:
            context = (
                ssl.create_default_context(cafile=str(self.ca_file))
                if self.ca_file
                else truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{self.section}ca_file: {self.ca_file} cannot be read as PEM certificates ({error}); "
                "name a file with the certificate authority of the service"
            ) from error
        # Python 3.13 asks for key identifiers, which authorities of elasticsearch-certutil 8 do not have.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # It also takes, as curl does, an issuing authority or the service's own certificate as `ca_file`.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.hostname_checks_common_name = False
        return context

    def send(
        self,
        session: Session,
        method: str,
        path: str,
        *,
        secrets: tuple[str, ...] = (),
        personal: tuple[str, ...] = (),
        right_before: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> Answer:
        """Send one request, once, and read its answer; `arguments` are those of `requests.Request`.

        Messages mask `secrets` and `personal`, values of its body. Calls `right_before` once the connection
        stands and before anything is sent; an error there keeps the request from being sent.

        Raises:
            AuthenticationError: the certificate is not trusted.
            TransientError: time-out, refused or broken connection, half an answer; it may have acted.
            ProtocolError: a redirect, or an answer over `MAX_ANSWER_BYTES`.
            ConfigurationError: address, proxy or a header cannot be used; nothing was sent.
        """
        begun = time.monotonic()
        deadline = begun + self.total_timeout_seconds
        exchange = Exchange(deadline, right_before)
        exchange.begin()
        silent_since = self.silent_since = self.silent_since or begun  # other threads change it
        kept = list(session.kept.items())  # other threads change it
        place = urlsplit(self.url.rstrip("/") + path).path
        # Of several with one name the last stays: that of the nearest place, which browsers send first.
        kept.sort(key=lambda cookie: len(cookie[0][2]) if place.startswith(cookie[0][2]) else -1)
        sent = {name: value for (name, _domain, _path), value in kept} | arguments.pop("cookies", {})
        try:
            request = session.prepare_request(
                requests.Request(method, self.url.rstrip("/") + path, **arguments)
            )
            if sent:
                request.headers["Cookie"] = "; ".join(map("=".join, sent.items()))
            # A service that has been silent for too long gets no further patience.
            given_up = begun - silent_since >= self.patience_seconds
            seconds = min(self.read_timeout_seconds, PROBE_SECONDS if given_up else self.read_timeout_seconds)
            timeouts = (min(CONNECT_TIMEOUT_SECONDS, seconds), seconds)
            # Credentials go nowhere but to the configured address.
            with session.send(request, timeout=timeouts, allow_redirects=False, stream=True) as response:
                session.keep_cookies(response)
                values = (value.strip('"') for value in (*sent.values(), *session.kept.values()))
                secrets += tuple(value for value in values if len(value) >= MIN_SESSION)
                secrets += (request.headers.get("Authorization", "").rpartition(" ")[2],)
                if 300 <= response.status_code < 400:
                    elsewhere = redact_start(response.headers.get("Location", ""), secrets, 200, personal)
                    is_same = urlsplit(elsewhere).path.endswith(path)  # at another address
                    to_log_in = not is_same and _LOG_IN_ADDRESS.search(elsewhere)
                    raise (LogInPageError if to_log_in else ProtocolError)(
                        f"{self.where} redirects {path} to {elsewhere!r}; credentials go nowhere else: "
                        f"set {self.section}url to the final address"
                    )
                body = self._body(response, path)
                if time.monotonic() >= deadline:  # a cut may look like the end of an answer
                    raise urllib3.exceptions.TimeoutError
                if response.status_code < 500:  # otherwise it may be a proxy's
                    self.silent_since = None
                return Answer(response.status_code, response.headers, body, secrets, personal)
        except ValueError as error:  # `from None`: it may quote a header or a proxy's password
            if isinstance(_root_cause(error), urllib3.exceptions.InvalidHeader):  # the answer's
                raise self._failure(error, f"{method} {path}", deadline) from None
            raise ConfigurationError(
                f"{self.section}url: no request was sent to {self.url} for {path}: the address, a proxy of "
                f"the environment ({_PROXIES}) or a header such as a cookie is not valid; write a proxy as "
                "http://HOST:PORT, and no line break into a cookie"
            ) from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
            raise self._failure(error, f"{method} {path}", deadline) from error
        finally:
            exchange.end()
            made_progress()

    def _body(self, response: requests.Response, path: str) -> bytes:
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise ProtocolError(f"{self.where} answered {path} with over {MAX_ANSWER_BYTES} bytes")
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError) as error:
            is_json = body[:100].lstrip().startswith((b"{", b"["))
            cut = "truncated" in str(error) and not Answer(0, response.headers, bytes(body)).members
            if response.ok and is_json and cut:
                raise urllib3.exceptions.HTTPError(f"its JSON is cut after {len(body):,} bytes") from error
        return bytes(body)

    def _failure(self, error: Exception, call: str, deadline: float) -> AssetOwnersError:
        """Return the error for a call without a complete answer."""
        cause = _root_cause(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return AuthenticationError(
                f"{self.where} could not prove who it is: {cause.verify_message}. "
                f"{self._advise(cause.verify_code)}, or, less safe, set {self.section}ignore_ssl to true"
            )
        proxy = isinstance(error, requests.exceptions.ProxyError)
        if getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER":
            who, what = self.where, f"{self.section}url"
            if proxy:
                who, what = f"The proxy to {self.url}", f"it ({_PROXIES})"
            return TransientError(
                f"{who} did not answer {call} by TLS, and may speak plain HTTP; check whether "
                f"{what} has to begin with http://, and its port"
            )
        check = _PROXIES if proxy else f"{self.section}url and the network"
        if time.monotonic() >= deadline:
            late = f"no whole answer within {self.total_timeout_seconds:g} s"
            return TransientError(f"{self.where} did not answer {call}: {late}; check {check}")
        if isinstance(cause, urllib3.exceptions.NewConnectionError):  # its message names our classes
            cause = cause.__cause__ or cause
        if isinstance(cause, ConnectionRefusedError) and not proxy:
            return TransientError(f"Nothing listens at {self.url} (connection refused); check {check}")
        if isinstance(cause, http.client.RemoteDisconnected | ConnectionResetError) and self.url.startswith(
            "http://"
        ):
            check = f"whether {self.section}url has to begin with https://, and {check}"
        said = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return TransientError(f"{self.where} did not answer {call}: {said}; check {check}")

    def _advise(self, verify_code: int) -> str:
        """Return what to do about a certificate that OpenSSL refuses with this code."""
        if verify_code in _OTHER_NAME:
            return (
                "Its certificate does not name this address as a subjectAltName (a common name alone does "
                f"not count): set {self.section}url to a name that it has, or have it issued anew"
            )
        if verify_code in _OTHER_TIME:
            return (
                "Check this machine's clock, and renew the certificate of the service or its authority "
                f"({self.section}ca_file)"
            )
        return f"Set {self.section}ca_file to the authority that signed its certificate"

    def raise_if_transient(self, answer: Answer, path: str) -> None:
        """Raise TransientError, with the server's Retry-After, for 408, 425, 429 and 5xx."""
        if answer.status in {408, 425, 429} or answer.status >= 500:
            message = f"{self.where} answered {path} with HTTP status {answer.status}: {answer.excerpt}"
            asked = _retry_after_seconds(answer.headers)
            if asked is not None:
                self.silent_since = None  # the service has answered
                until = datetime.now(UTC) + timedelta(seconds=asked)
                message += f"; it asks to wait for {asked:,.0f} s, until {until:%F %T} UTC"
            raise TransientError(message, retry_after=asked, not_done=answer.status == 429)

    def retrying(self) -> tenacity.Retrying:
        """Return the retries of calls that may be repeated, with jitter; no other layer retries."""

        def over(state: tenacity.RetryCallState) -> bool:
            now = time.monotonic()
            silent = now - (self.silent_since or now)
            waits = state.idle_for + state.upcoming_sleep
            too_long = silent >= self.patience_seconds or waits > MAX_RETRY_AFTER_SECONDS
            return state.attempt_number >= MAX_TRIES or too_long

        def log_retry(state: tenacity.RetryCallState) -> None:
            error = state.outcome and state.outcome.exception()
            number, wait = state.attempt_number + 1, state.upcoming_sleep
            text = f"{error}. Trying again, {number} of {MAX_TRIES}, in {wait:.1f} s"
            log.warning(text, extra={"waits": True})

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            stop=over,
            wait=_wait_seconds,
            sleep=self.sleep,
            before_sleep=log_retry,
            reraise=True,
        )

    def in_parallel(self, call: Callable[[Any], T], items: Iterable[Any], *, waiting: int = 0) -> Iterator[T]:
        """Yield what `call` returns for each item, in order; at most `waiting` results wait to be taken."""
        # Its threads end with the process; a ThreadPoolExecutor's would keep it until the last answer.
        with ThreadPool(self.connections) as threads:
            ahead: deque[AsyncResult[T]] = deque()
            for item in items:
                ahead.append(threads.apply_async(call, (item,)))
                if len(ahead) >= self.connections + waiting:
                    yield ahead.popleft().get()
            for result in ahead:
                yield result.get()

    def reach(self, session: Session, method: str, path: str, **arguments: Any) -> None:
        """Send one request, as `send`; any answer shows that the service lives, also a way to log in."""
        with suppress(LogInPageError):
            self.send(session, method, path, **arguments)

    def probe(self, method: str, path: str, **arguments: Any) -> None:
        """Send one request that fails within seconds if the service is away; any answer shows it lives."""
        seconds = min(PROBE_SECONDS, self.read_timeout_seconds)
        quick = replace(self, read_timeout_seconds=seconds, patience_seconds=seconds, silent_since=None)
        with quick.new_session() as session:
            quick.retrying()(quick.reach, session, method, path, **arguments)


_backoff = tenacity.wait_random_exponential(multiplier=0.5, max=30)


def _wait_seconds(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, TransientError) else None
    spread = random.uniform(0, 0.5)  # noqa: S311  (of clients; no secret)
    return _backoff(state) if asked is None else asked + spread


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After, seconds or an HTTP date, in seconds; None for anything else."""
    text = headers.get("Retry-After", "").strip()
    seconds = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else _seconds_ahead(text, headers)
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_SECONDS)


def _seconds_ahead(date: str, headers: Mapping[str, str]) -> float | None:
    """Return the seconds from the Date of an answer, or from now, to a date; None if it is not a date."""
    with suppress(ValueError, OverflowError):
        moment, answered = parsedate_tz(date), parsedate_tz(headers.get("Date", ""))
        if moment:
            return mktime_tz(moment) - (mktime_tz(answered) if answered else datetime.now(UTC).timestamp())
    return None


def _is_deleted(cookie: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    seconds = cookie.get("max-age", "")
    if seconds.lstrip("-").isdecimal():
        return seconds.strip("0")[:1] in {"", "-"}
    ahead = _seconds_ahead(cookie.get("expires", ""), headers)
    return ahead is not None and ahead < -_WRONG_CLOCK_SECONDS


def _root_cause(error: BaseException) -> BaseException:
    """Return the innermost error, because requests and urllib3 wrap the operating system's."""
    parts = [getattr(error, "reason", None), *reversed(error.args)]
    inner = next((part for part in parts if isinstance(part, BaseException)), None)
    return _root_cause(inner) if inner else error
