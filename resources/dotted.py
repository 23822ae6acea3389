"""Dotted paths in JSON, as settings name fields of documents and assets."""

from collections.abc import Iterator
from typing import Any


def values_at(source: Any, path: str) -> list[Any]:
    """Return the values at a path, of each element of the lists on the way; keys may hold dots themselves."""
    if isinstance(source, list):
        return [value for each in source for value in values_at(each, path)]
    if not path:
        return [] if source is None else [source]
    if not isinstance(source, dict):
        return []
    parts = path.split(".")
    ways = ((".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts) + 1))
    return [value for key, rest in ways if key in source for value in values_at(source[key], rest)]


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """Yield path and text of each value inside that is not empty; elements of a list have the list's path."""
    left = [("", value)]
    while left:  # a service may nest more deeply than Python calls
        path, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{path}.{key}" if path else key, inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(path, element) for element in value]
        elif value not in (None, ""):
            yield path, str(value)
