"""What an error answer of the search service means: the error to raise names the setting to fix."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError, ProtocolError
from resources.http import Answer, Transport
from resources.redaction import redacted
from resources.settings import Instance

MIN_PAGE = 100
"""Buckets on the smallest page that is asked for."""
_FAULT_OF_REQUEST = re.compile(
    "(illegal_argument|class_cast|number_format|aggregation_execution|parse|parsing|query_shard)_exception$"
)
_MISSING_SHARD = re.compile(r"\[\[([^\]]+)\]\[\d+\]")
_BLOCKED_INDEX = re.compile(r"index \[([^\]]+)\] blocked by: \[([^\]]+)\]")


class TooManyBucketsError(ProtocolError):
    """The page is larger than the cluster's bucket limit."""


@dataclass
class RefusedSearchError(ConfigurationError):
    """The service refuses a search, and only more questions tell which setting is wrong (`why_refused`).

    `kinds` are the types of its causes. The texts name no secret and nothing that was sent of people.
    """

    status: int
    kinds: Sequence[str]
    reason: str
    in_index: str
    where: str
    query: str

    def __str__(self) -> str:
        return f"The search is refused by {self.where}{self.in_index}: {self.reason}"


def raise_refusal(answer: Answer, instance: Instance, transport: Transport, path: str) -> NoReturn:
    """Raise what an error answer means; TransientError only for what may succeed when it is asked again.

    The types of the causes decide, for the status of one cause differs between services and versions.
    """
    where = f"the search service at {instance.url}"
    causes = _causes(answer.body)
    kinds = causes["type"]
    reason = answer.sanitised("; ".join(dict.fromkeys(causes["reason"])), 500) or answer.excerpt
    indexes = answer.sanitised(", ".join(sorted(set(causes["index"]))))
    # Messages are stored, and the user, whom such an answer names, may be a person.
    reason = redacted(reason, (), (instance.username,) if answer.status in {401, 403} else ())
    if answer.status == 401:
        raise AuthenticationError(
            f"The log-in is refused by {where}; check username and password "
            f"({instance.password.how_to_change}): {reason}"
        )
    if blocked := _BLOCKED_INDEX.search(reason):
        raise ProtocolError(
            f"The index {blocked[1]} at {where} is blocked ({blocked[2]}); have the block removed, or "
            "exclude the index in the setting index, and run again"
        )
    if answer.status == 403:
        raise PermissionDeniedError(
            f"The user that `username` names may not search {instance.index} at {where}; correct the "
            f"setting index, or grant read and view_index_metadata on exactly that index pattern ({reason})"
        )
    if "too_many_buckets_exception" in kinds or "too many buckets" in reason.lower():
        raise TooManyBucketsError(f"Even pages of {MIN_PAGE} buckets are refused by {where} ({reason})")
    if {"index_not_found_exception", "no_such_remote_cluster_exception"} & {*kinds}:
        raise ConfigurationError(
            f"index: {instance.index!r} names an index, or a remote cluster, that {where} does not have; "
            f"correct the name or use a pattern such as logs-* ({reason})"
        )
    if "no_shard_available_action_exception" in kinds or "missing shards" in reason:
        red = ", ".join(sorted(set(_MISSING_SHARD.findall(reason)))) or indexes or instance.index
        raise ProtocolError(
            f"The index {red} at {where} is red: a part of it is on no node; have the cluster repaired, or "
            f"leave it out of index, and run again ({reason})"
        )
    if not any(map(_FAULT_OF_REQUEST.search, kinds)):
        status = 503 if "task_cancelled_exception" in kinds else answer.status
        body = reason.encode() if kinds else answer.body
        transport.raise_if_transient(replace(answer, status=status, body=body), path)
    if not kinds:
        raise not_a_search_service(answer, instance)
    in_index, query = f" in the index {indexes}" if indexes else "", answer.sanitised(instance.query)
    raise RefusedSearchError(answer.status, kinds, reason, in_index, where, query)


def not_a_search_service(answer: Answer, instance: Instance) -> ProtocolError:
    """Return the error for an answer that no search service gives."""
    # These hold names of hosts and users, which no message may show.
    names = any(part in answer.body for part in (b'"aggregations"', b'"hits"'))
    return ProtocolError(
        f"{instance.url} does not answer as a search service; url must name the service itself, no "
        f"dashboard or cache. It said, with HTTP status {answer.status}: "
        f"{'...' if names else answer.excerpt}"
    )


def _causes(body: bytes) -> dict[str, list[str]]:
    """The texts of an error answer by their key, innermost first, without the grammar in further lines."""
    found: dict[str, list[str]] = defaultdict(list)

    def keep(members: list[tuple[str, Any]]) -> None:
        for name, text in members:
            if isinstance(text, str) and text:
                found[name].append(text.splitlines()[0])

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=keep)
    return found
