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


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value inside as text, with its path; the elements of a list have the list's own path.

    Nothing is yielded for what is empty.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, path)
    elif value not in (None, ""):
        yield path, str(value)
