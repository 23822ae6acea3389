"""Reads the inventory service's response envelope (rules 5.1).

The envelope's `status` decides whether a call succeeded, whatever the HTTP status. The kind of a refusal
follows from the HTTP status, or else from field-level detail; never from the message, which is for people.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from resources.errors import (
    AuthenticationError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    ServiceError,
    ValidationError,
)
from resources.http import Answer, Transport

MAX_FIELDS = 20  # with detail in a refusal, and texts of each
_PAGE_BYTES, _REFUSAL_BYTES = 2**18, 2**14  # smaller than a page of a list, which is not parsed twice
_LOG_IN = re.compile(  # whole phrases: a message may repeat names of hosts
    r"^401$|^\W*(please |you (must|need to|have to) )?(log|sign)[ -]?in\b|\bnot (logged|signed)[ -]in\b"
    r"|\bunauthenticated\b|\bnot authenticated\b|\bauthentication required\b|^unauthori[sz]ed\W*$"
    r"|\bsession\b.{0,20}\b(expired|ended|invalid)\b|\b(expired|invalid|no) session\b",
    re.IGNORECASE,
)
_LOG_IN_PAGE = re.compile(
    r"<input[^>]*type\s*=\s*[\"']?password|<title>[^<]*\b(log|sign)[ -]?[io]n\b", re.IGNORECASE
)
_LOG_IN_ADDRESS = re.compile(r"\b(log|sign)[_-]?[io]n\b|\bauth|\bsso\b|\bsaml", re.IGNORECASE)
_KINDS = {401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError}


@dataclass(frozen=True)
class Envelope:
    """The members of an answer that follows the convention, and the refusal if it is one."""

    members: Mapping[str, Any]
    refusal: ServiceError | None

    def payload(self) -> Any:
        """Return the member `data`, or else all but status and message; raise the refusal."""
        if self.refusal:
            raise self.refusal
        if "data" in self.members:
            return self.members["data"]
        return {name: value for name, value in self.members.items() if name not in {"status", "message"}}


def open_envelope(
    answer: Answer,
    path: str,
    transport: Transport,
    *,
    sent: str = "",
    setting: str | None = None,
    raw: bool = False,
) -> Envelope:
    """Read an answer of the inventory service.

    `sent` has the settings of the call for every refusal, because the refusal of a tenant or a page size is
    not specified (rules 5.7). `setting` is the one that the path comes from. A `raw` body, of which only
    failures have an envelope, becomes the payload.
    """
    members = envelope_members(answer.body)
    if members["status"] if members else raw and answer.status < 400:
        return Envelope({"data": answer.body} if raw else members or {}, refusal=None)
    transport.raise_if_transient(answer, path + sent)
    unknown_path = setting if answer.status == 404 else None
    if members is None and answer.status != 401 and not unknown_path:
        raise ProtocolError(
            f"{transport.where} answered {path}{sent} with HTTP status {answer.status} and no envelope; "
            f"{transport.section}url must be the service itself, without /api/v1. It said: {answer.excerpt}"
        )
    if unknown_path:
        sent = f" with HTTP status 404; if for every asset, correct {unknown_path}"
    return Envelope(members or {}, _refusal(answer, members or {}, f"{transport.where} refused {path}{sent}"))


def envelope_members(body: bytes) -> dict[str, Any] | None:
    """Return the members of an envelope; None unless the body is a JSON object with a boolean `status`."""
    try:
        text = body.decode(json.detect_encoding(body))  # `loads` accepts halves of surrogate pairs in bytes
        members = json.loads(text)
        if re.search(r"\\u[dD][89a-fA-F]", text):
            # Half of a surrogate pair cannot be stored or sent back.
            members = json.loads(json.dumps(members, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and isinstance(members.get("status"), bool) else None


def asks_for_log_in(answer: Answer) -> bool:
    """Return whether an answer asks for a log-in: HTTP status 401, or a log-in page, or JSON that says so."""
    if answer.status == 401:
        return True
    if answer.status >= 500 or answer.status in {404, 408, 425, 429}:
        return False
    if answer.body[:100].lstrip().startswith(b"<"):
        return bool(_LOG_IN_PAGE.search(answer.body[:_PAGE_BYTES].decode("utf-8", "replace")))
    try:
        members = json.loads(answer.body) if len(answer.body) <= _REFUSAL_BYTES else None
    except (ValueError, RecursionError):
        return False
    if not isinstance(members, dict) or members.get("status") is True:
        return False
    said = [members.get(name) for name in ("status", "code", "status_code", "statusCode", "error", "message")]
    return any(_LOG_IN.search(str(one).replace("_", " ")) for one in said if isinstance(one, int | str))


def leads_to_log_in(location: str, path: str) -> bool:
    """Return whether a redirect leads to a log-in, and not to the same path elsewhere."""
    return not urlsplit(location).path.endswith(path) and bool(_LOG_IN_ADDRESS.search(location))


def _refusal(answer: Answer, members: Mapping[str, Any], refused: str) -> ServiceError:
    reason = members.get("message")
    if not isinstance(reason, str) or not reason:
        reason = answer.excerpt if not members else f"HTTP status {answer.status}, no reason given"
    fields = _field_detail(answer, members)
    text = f"{refused}: {answer.sanitise(reason)}"
    if fields:
        detail = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in fields.items())
        text += f" ({detail[:200]})"
    if not members and answer.status == 404:
        return ProtocolError(text)  # it may be a proxy's, after the service has acted
    if answer.status in _KINDS:
        return _KINDS[answer.status](text)
    return ValidationError(text) if fields or answer.status in {400, 422} else ServiceError(text)


def _field_detail(answer: Answer, members: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the texts of a failure by field name, from any member (rules 5.1)."""
    parts = [value for name, value in members.items() if name != "message" and isinstance(value, dict)]
    details = (
        (name, list(islice(_texts(value), MAX_FIELDS))) for part in parts for name, value in part.items()
    )
    found = islice(((name, texts) for name, texts in details if texts), MAX_FIELDS)
    return {answer.sanitise(name): [answer.sanitise(text) for text in texts] for name, texts in found}


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
