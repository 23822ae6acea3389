"""What an error answer of the search service means: the error to raise names the setting to fix."""

import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from resources.errors import AuthenticationError, ConfigurationError, PermissionDeniedError, ProtocolError
from resources.http import Answer, Transport
from resources.redaction import redacted
from resources.settings import Instance

MIN_PAGE = 100
"""Buckets on the smallest page that is asked for."""
FIELDS = ("hostname_field", "user_field", "logon_type_field", "user_domain_field")
"""Settings that name a field by whose values documents are counted."""

_QUERY_ERRORS = re.compile("(^|_)(parse|parsing|query_shard|named_object_not_found)_exception$")
_MISSING_SHARD = re.compile(r"\[\[([^\]]+)\]\[\d+\]")
_MIXED_TYPES = re.compile("class_cast_exception|cannot be cast to class|two different types")


class TooManyBucketsError(ProtocolError):
    """The page is larger than the cluster's bucket limit."""


class MixedTypesError(ConfigurationError):
    """A field has values of two types, which the service cannot count together; it says not which field."""


class TextFieldError(ConfigurationError):
    """A field is text, which cannot be aggregated. `field` is its name."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


def raise_refusal(answer: Answer, instance: Instance, transport: Transport, path: str) -> NoReturn:
    """Raise what an error answer means; TransientError only for what may succeed when it is asked again."""
    where = f"the search service at {instance.url}"
    causes = _causes(answer.body)
    kinds = causes["type"]
    reason = answer.sanitised("; ".join(dict.fromkeys(causes["reason"])), 500) or answer.excerpt
    indexes = answer.sanitised(", ".join(sorted(set(causes["index"]))))
    in_index = f" in the index {indexes}" if indexes else ""
    # Messages are stored, and the user, whom such an answer names, may be a person.
    reason = redacted(reason, (), (instance.username,) if answer.status in {401, 403} else ())
    if answer.status == 401:
        raise AuthenticationError(
            f"The log-in is refused by {where}; check username and password "
            f"({instance.password.how_to_change}): {reason}"
        )
    if answer.status == 403:
        raise PermissionDeniedError(
            f"The user that `username` names may not search {instance.index} at {where}; grant read and "
            f"view_index_metadata on exactly that index pattern ({reason})"
        )
    if "too_many_buckets_exception" in kinds or "too many buckets" in reason.lower():
        raise TooManyBucketsError(f"Even pages of {MIN_PAGE} buckets are refused by {where} ({reason})")
    if {"index_not_found_exception", "no_such_remote_cluster_exception"} & {*kinds}:
        raise ConfigurationError(
            f"index: {instance.index!r} names an index, or a remote cluster, that {where} does not have; "
            f"correct the name or use a pattern such as logs-* ({reason})"
        )
    if "text fields" in reason.lower() or "fielddata" in reason.lower():
        for setting in FIELDS:
            if (field := getattr(instance, setting)) and f"[{field}]" in reason:
                raise TextFieldError(
                    f"{setting}: {field!r} is a text field{in_index}, which cannot be aggregated; name a "
                    f"keyword field that all indexes of {instance.index} have, often {field + '.keyword'!r}, "
                    f"or exclude from index those that lack it ({reason})",
                    field,
                )
    if any(map(_MIXED_TYPES.search, (*kinds, reason))):
        raise MixedTypesError(
            f"A field has another type in one index of {instance.index} than in the others, so {where} "
            f"cannot count by it; look at {', '.join(FIELDS)} ({reason})"
        )
    if "no_shard_available_action_exception" in kinds or "missing shards" in reason:
        red = ", ".join(sorted(set(_MISSING_SHARD.findall(reason)))) or indexes or instance.index
        raise ProtocolError(
            f"The index {red} at {where} is red: a part of it is on no node; have the cluster repaired, or "
            f"leave it out of index, and run again ({reason})"
        )
    if any(map(_QUERY_ERRORS.search, kinds)):
        shown = answer.sanitised(instance.query)
        raise ConfigurationError(f"query: {shown!r} is refused by {where}: {reason}")
    if "illegal_argument_exception" not in kinds:
        transport.raise_if_transient(replace(answer, body=reason.encode()) if kinds else answer, path)
    if not kinds:
        raise not_a_search_service(answer, instance)
    raise ConfigurationError(
        f"The search is refused by {where}{in_index} with HTTP status {answer.status}; check index, "
        f"query, time_field, hostname_field, user_field, user_domain_field and logon_type_field "
        f"({reason})"
    )


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
