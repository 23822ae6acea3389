"""Findings of `asset-owners check`, and the tries that all services share."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from upath import UPath

from resources.failures import operator_message
from resources.http import Transport
from resources.store.files import try_to_store

State = Literal["ok", "warning", "wrong", "not tried"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """What was tried (by the name of its setting, if it has one), how it went, and what to do about it."""

    state: State
    what: str
    text: str


def attempt(what: str, call: Callable[[], T]) -> Generator[Finding, None, T | None]:
    """Call and return the result; a failure that an operator can fix becomes a finding, and returns None."""
    try:
        return call()
    except Exception as error:
        message = operator_message(error)
        if message is None:
            raise
        yield Finding("wrong", what, message.removeprefix(f"{what}: "))
        return None


def tried(what: str, call: Callable[[], None], text: str) -> Iterator[Finding]:
    """Call, and say `text` where that goes well."""
    yield from [*attempt(what, call)] or [Finding("ok", what, text)]


def reached(transport: Transport, method: str, path: str) -> Generator[Finding, None, bool]:
    """Send one request without credentials: whatever HTTP answer comes, the service is reached."""
    section, secure = transport.section, transport.url.startswith("https:")
    if not secure and not is_this_machine(transport.url):
        yield Finding("warning", f"{section}url", "http:// sends the password in the clear; use https://")
    if secure and transport.ignore_ssl:
        text = f"is on: anyone in between can read the password; set {section}ca_file"
        yield Finding("warning", f"{section}ignore_ssl", text)
    with transport.new_session() as session:
        answer = yield from attempt("connection", lambda: transport.send(session, method, path))
    if answer is None:
        return False
    trusted = ", and its certificate is trusted" if secure and not transport.ignore_ssl else ""
    yield Finding("ok", "connection", f"answers{trusted}")
    return True


def is_this_machine(url: str) -> bool:
    """Whether what is sent to an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in {"", "localhost"}  # an address without a host is a file's


def store_findings(location: UPath) -> Iterator[Finding]:
    """Store an object where the tables lie, read it and delete it, as a run does with theirs."""
    done = "an object could be stored, read and deleted"
    yield from tried("ASSET_OWNERS_TABLES", lambda: try_to_store(location), done)


def folder_findings(what: str, folder: Path, *inner: str) -> Iterator[Finding]:
    """Try whether files can be stored in a folder and some in it, or whether these can be made.

    Nothing is left behind. `what` is the setting that names the folder.
    """

    def try_all() -> None:
        for each in (folder, *(folder / name for name in inner)):
            nearest = next(path for path in (each, *each.parents) if os.path.lexists(path))
            try:
                with tempfile.TemporaryFile(dir=nearest):
                    pass
            except OSError as error:
                error.filename = str(nearest)  # and not the name that the file would have had
                raise

    yield from tried(what, try_all, f"files can be stored in {folder}")
