"""Identifiers of instances: what their names give, and which words are taken."""

import keyword
from functools import lru_cache

from slugify import slugify

MAX_NAME = 200  # a folder's name has 255 bytes, and what is made of it needs some

# DuckDB's own schemas, and the databases of a session: warehouse.conflicts would be two things at once.
_OF_DUCKDB = {"main", "information_schema", "pg_catalog", "temp", "system", "warehouse", "scratch"}
# Names that Dagster refuses for a job: with one of them it loads no instance at all.
_OF_DAGSTER = {
    *keyword.kwlist,
    *("arg_dict", "bool", "conf", "config", "context", "dict", "float", "input", "input_arg_dict", "int"),
    *("meta", "output", "output_arg_dict", "str", "type"),
}
RESERVED_SLUGS = frozenset(_OF_DUCKDB | _OF_DAGSTER)


@lru_cache(maxsize=1024)  # all parts of an instance are named after it
def slug_of(name: str) -> str:
    """Turn free text into letters, digits and underscores; empty when nothing is left."""
    return slugify(name, separator="_")


def is_slug(text: str) -> bool:
    """Return whether an instance may have this slug."""
    return 0 < len(text) <= MAX_NAME and text == slug_of(text) and text not in RESERVED_SLUGS
