"""Findings of `asset-owners check` and of asset checks, and the checks that all services share."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import polars as pl
from upath import UPath

from resources.failures import operator_message
from resources.http import Transport
from resources.store.files import try_to_store

State = Literal["ok", "warning", "wrong", "not tried"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """The result of a check: `what` was checked (a setting, if it has one), and what to do about it."""

    state: State
    what: str
    text: str
    rows: pl.DataFrame | None = field(default=None, compare=False)
    """Rows that violate the property."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Counts for metadata."""

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


def attempt(what: str, call: Callable[[], T]) -> Generator[Finding, None, T | None]:
    """Call and return the result; yield a failure that an operator can fix, and return None."""
    try:
        return call()
    except Exception as error:
        message = operator_message(error)
        if message is None:
            raise
        yield Finding("wrong", what, message.removeprefix(f"{what}: "))
        return None


def attempt_all(what: str, find: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings; a failure that an operator can fix is the last one."""
    findings = iter((yield from attempt(what, find)) or ())
    while finding := (yield from attempt(what, lambda: next(findings, None))):
        yield finding


def check_call(what: str, call: Callable[[], None], text: str) -> Iterator[Finding]:
    """Call, and yield the result; `text` describes success."""
    yield from [*attempt(what, call)] or [Finding("ok", what, text)]


def check_connection(transport: Transport, method: str, path: str) -> Generator[Finding, None, bool]:
    """Send one request without credentials; any HTTP answer means that the service is reachable."""
    certificate = check_certificate(transport.section, transport.url, ignore_ssl=transport.ignore_ssl)
    if certificate.state != "ok":
        yield certificate
    is_trusted = certificate.state == "ok" and transport.url.startswith("https:")
    text = "answers, and its certificate is trusted" if is_trusted else "answers"
    with transport.new_session() as session:
        (found,) = check_call("connection", lambda: transport.reach(session, method, path), text)
    yield found
    return found.state == "ok"


def check_certificate(section: str, url: str, *, ignore_ssl: bool) -> Finding:
    """Check that the password is sent only to a verified service, or stays on this machine."""
    if ignore_ssl and url.startswith("https:"):
        text = f"is on: anyone in between can read the password; set {section}ca_file"
        return Finding("warning", f"{section}ignore_ssl", text)
    host = urlsplit(url).hostname or "localhost"  # an address without a host is a file's
    with suppress(ValueError):  # a name
        host = "localhost" if ip_address(host).is_loopback else host
    if not url.startswith("https:") and host != "localhost":
        return Finding("warning", f"{section}url", "http:// sends the password in the clear; use https://")
    return Finding("ok", f"{section}url", "the password is sent to this service only")


def check_store(location: UPath) -> Iterator[Finding]:
    """Store, read and delete an object where the tables are."""
    done = "an object could be stored, read and deleted"
    yield from check_call("ASSET_OWNERS_TABLES", lambda: try_to_store(location), done)


def check_folder(what: str, folder: Path, *inner: str) -> Iterator[Finding]:
    """Check that files can be stored in a folder, named by the setting `what`, and in some below it."""

    def try_all() -> None:
        for each in (folder, *(folder / name for name in inner)):
            nearest = next(path for path in (each, *each.parents) if os.path.lexists(path))
            try:
                with tempfile.TemporaryFile(dir=nearest):
                    pass
            except OSError as error:
                error.filename = str(nearest)  # and not the name that the file would have had
                raise

    yield from check_call(what, try_all, f"files can be stored in {folder}")
