"""Dotted paths in JSON, as settings name fields of documents and assets."""

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
