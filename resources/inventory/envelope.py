"""The inventory service's response envelope (rules 5.1): what an answer says.

The envelope's `status` decides whether a call went well, whatever the HTTP status. What a refusal means is
said by the HTTP status where that says something, else by field-level detail; the words of its message are
for people and decide nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from resources.errors import (
    AuthenticationError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    ServiceError,
    ValidationError,
)
from resources.http import Answer, Transport

MAX_TEXT = 200  # characters of the service's own words in a message
MAX_FIELDS = 20  # that a refusal tells of
_KINDS = {401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError}


@dataclass(frozen=True)
class Envelope:
    """An answer that follows the convention: `members` as they came, and the refusal if it is one."""

    members: Mapping[str, Any]
    refusal: ServiceError | None

    @property
    def payload(self) -> Any:
        """What lies under `data`, or else what lies beside status and message."""
        if "data" in self.members:
            return self.members["data"]
        return {name: value for name, value in self.members.items() if name not in {"status", "message"}}


def open_envelope(
    answer: Answer, path: str, transport: Transport, *, tenant: str | None = None, on_404: str | None = None
) -> Envelope:
    """Read an answer of the inventory service.

    Args:
        answer: what came.
        path: the endpoint, for messages.
        transport: the service, for messages.
        tenant: the tenant of a tenant-scoped call; how such a call is rejected for its tenant is not shown
            (rules 5.7), so every refusal names the setting.
        on_404: what to do about a path that the service does not have, where it comes from the contract.

    Raises:
        TransientError: a failure with HTTP status 408, 425, 429 or 5xx.
        ProtocolError: no envelope.
    """
    members = envelope_members(answer.body)
    if members is not None and members["status"]:
        return Envelope(members, refusal=None)
    transport.raise_if_transient(answer, path)
    if on_404 and answer.status == 404:
        said = answer.sanitised(_reason(answer, members)) if members else answer.excerpt
        message = f"{transport.where} answered {path} with HTTP status 404; {on_404}. It said: {said}"
        return Envelope(members or {}, NotFoundError(message))
    if members is None and answer.status != 401:
        raise ProtocolError(
            f"{transport.where} answered {path} with HTTP status {answer.status} and no envelope; "
            f"{transport.section}url must be the service itself, without /api/v1. It said: {answer.excerpt}"
        )
    refused = f"{transport.where} refused {path}"
    if tenant:
        refused += f" for tenant {tenant} ({transport.section}tenant_id)"
    return Envelope(members or {}, _refusal(answer, members or {}, refused))


def envelope_members(body: bytes) -> dict[str, Any] | None:
    """The members of an envelope; None when the body is no JSON object with a boolean `status`."""
    try:
        members = json.loads(body)
        if re.search(rb"\\u[dD][89a-fA-F]", body):
            # Half of a surrogate pair is no text: nothing could store it or send it back.
            members = json.loads(json.dumps(members, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) and isinstance(members.get("status"), bool) else None


def field_detail(members: Mapping[str, Any]) -> dict[str, list[str]]:
    """Field-level detail of a failure: field name to texts, from whichever member holds it (rules 5.1).

    Of the first `MAX_FIELDS` fields that have some, and so many texts of each at most.
    """
    parts = [value for name, value in members.items() if name != "message" and isinstance(value, dict)]
    details = (
        (name, list(islice(_texts(value), MAX_FIELDS))) for part in parts for name, value in part.items()
    )
    return dict(islice(((name, texts) for name, texts in details if texts), MAX_FIELDS))


def _texts(value: Any) -> Iterator[str]:
    """The texts anywhere inside a value, however deep."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list | dict):
            left += reversed(one.values() if isinstance(one, dict) else one)


def _reason(answer: Answer, members: Mapping[str, Any]) -> str:
    message = members.get("message")
    return (
        message if isinstance(message, str) and message else f"HTTP status {answer.status}, no reason given"
    )


def _refusal(answer: Answer, members: Mapping[str, Any], refused: str) -> ServiceError:
    status, reason = answer.status, _reason(answer, members)
    fields = {
        answer.sanitised(name, MAX_TEXT): [answer.sanitised(text, MAX_TEXT) for text in texts]
        for name, texts in field_detail(members).items()
    }
    detail = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in fields.items())
    text = f"{refused}: {answer.sanitised(reason, MAX_TEXT)}"
    if detail:
        text += f" ({detail[:MAX_TEXT]})"
    if status in _KINDS:
        return _KINDS[status](text)
    return ValidationError(text, fields) if fields or status in {400, 422} else ServiceError(text)
