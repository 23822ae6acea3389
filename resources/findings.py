"""What a try of a service finds: `asset-owners check` prints it, each service's package makes it."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from requests import Session

from resources.errors import AssetOwnersError, ConfigurationError, TransientError
from resources.failures import operator_message
from resources.http import Answer, Transport

State = Literal["ok", "warning", "wrong", "not tried"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """How it went, what was tried (by the name of its setting, if it has one), and what to do about it."""

    state: State
    what: str
    text: str


def attempt(what: str, call: Callable[[], T]) -> Generator[Finding, None, T | None]:
    """Call and give the result; a failure that an operator can fix is a finding, and gives None."""
    try:
        return call()
    except Exception as error:
        message = operator_message(error)
        if message is None:
            raise
        yield Finding("wrong", what, message.removeprefix(f"{what}: "))
        return None


def not_tried(reason: str, *names: str) -> Iterator[Finding]:
    """Tell what a failure makes impossible to try."""
    for what in names:
        yield Finding("not tried", what, reason)


def reached(
    service: str, section: str, url: str, method: str, path: str, *, ignore_ssl: bool, ca_file: Path | None
) -> Generator[Finding, None, bool]:
    """Send one request without credentials: whatever HTTP answer comes, the service is reached.

    Args:
        service: its name in messages.
        section: prefix of its settings, "" or "platform.".
        url: its base URL.
        method: of the request.
        path: of the request.
        ignore_ssl: as set for the service.
        ca_file: as set for the service.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_this_machine(url):
        yield Finding("warning", f"{section}url", "http:// sends the password in the clear; use https://")
    if parts.scheme == "https" and ignore_ssl:
        text = (
            "is on: whoever stands between can pose as the service and read the password; "
            f"better set {section}ca_file"
        )
        yield Finding("warning", f"{section}ignore_ssl", text)
    transport = Transport(service, section, url, ignore_ssl=ignore_ssl, ca_file=ca_file)
    with transport.new_session() as session:
        answer = yield from attempt("connection", lambda: _answer(transport, session, method, path))
    if answer is None:
        return False
    trusted = parts.scheme == "https" and not ignore_ssl
    yield Finding("ok", "connection", "answers, and its certificate is trusted" if trusted else "answers")
    return True


def _answer(transport: Transport, session: Session, method: str, path: str) -> Answer:
    try:
        answer = transport.send(session, method, path)
        refused = answer.status == 400 and b"https" in answer.body.lower()  # so nginx, Apache and Go
        if not (refused and _speaks_tls(transport, method, path)):
            return answer
    except TransientError:
        if not _speaks_tls(transport, method, path):
            raise
    raise ConfigurationError(f"{transport.where} speaks TLS; write https:// in {transport.section}url")


def _speaks_tls(transport: Transport, method: str, path: str) -> bool:
    """Tell whether an address that was written with http:// answers with https://."""
    if not transport.url.startswith("http:"):
        return False
    tls = replace(transport, url=transport.url.replace("http", "https", 1), ignore_ssl=True)
    try:
        with tls.new_session() as session:
            tls.send(session, method, path)
    except AssetOwnersError:
        return False
    return True


def is_this_machine(url: str) -> bool:
    """Tell whether what is sent to an address leaves this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
