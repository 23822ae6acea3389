"""Forget a person: in the stored tables a hash replaces their names and ids; counts and keys stay."""

import hashlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl
from upath import UPath

from ownership.matching import FIELDS
from ownership.names import normalise_username
from ownership.tables import TABLES
from resources.store.files import parquet_files
from resources.store.tables import Tables, read_files, write_file

PERSONS = {
    *("document_username", "username", "runner_up_username", "skipped_username", "username_spellings"),
    *("leader", "by", "owner_emails"),
    *("user_id", "owner", "owner_ids", "resolved_owner", "existing_owner", "candidate_ids"),
}
"""Columns whose values are people, by their names or ids; so is `owner` in `old_values` and `new_values`."""
TEXTS = {
    *("message", "problem", "reason", "reasons", "options", "rules", "excluded_by", "value", "note"),
    "listed_values",
}
"""Columns of words, in which people may be named."""


@dataclass(frozen=True)
class Person:
    """A person's normalised user names and ids of user assets, in the tables with that slug."""

    slug: str
    usernames: Collection[str]
    user_ids: Collection[str]

    @classmethod
    def known(cls, slug: str, usernames: Collection[str], users: pl.DataFrame) -> "Person":
        """Return the person with these user assets, by each of their names except the surname."""
        columns = [name for name in ("user_value", *FIELDS) if name != "directory_user_surname"]
        named = pl.concat([users.select(pl.col(name).explode().alias("name")) for name in columns])
        folded = named.select(normalise_username(pl.col("name")))["name"].drop_nulls()
        return cls(slug, {*usernames, *folded}, set(users["user_id"]))

    def stand_in(self, name: str) -> str:
        """Return the hash that replaces a name or an id."""
        return f"forgotten-{hashlib.sha256(f'{self.slug}/{name}'.encode()).hexdigest()[:16]}"

    @cached_property
    def _in_texts(self) -> str:
        # A number may be an id, or count something.
        words = [pl.escape_regex(one) for one in {*self.usernames, *self.user_ids} if not one.isdecimal()]
        return rf"(?i)\b(?:{'|'.join(words)})\b" if words else "$^"

    def forgotten_in(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a table with stand-ins for the person."""
        return frame.with_columns(self._in_column(name, kind) for name, kind in frame.schema.items())

    def _in_column(self, name: str, kind: pl.DataType) -> pl.Expr:
        values = pl.col(name)
        if isinstance(kind, pl.Struct):
            return values.struct.with_fields(owner=self._as_person(pl.field("owner")))
        if name not in PERSONS | TEXTS:
            return values
        change = self._as_person if name in PERSONS else self._as_text
        return values.list.eval(change(pl.element())) if isinstance(kind, pl.List) else change(values)

    def _as_person(self, value: pl.Expr) -> pl.Expr:
        def known(value: pl.Expr, names: Collection[str]) -> pl.Expr:
            return value.replace_strict(list(names), list(map(self.stand_in, names)), default=None)

        names = normalise_username(value)
        return pl.coalesce(known(value, self.user_ids), known(names, self.usernames), self._as_text(value))

    def _as_text(self, value: pl.Expr) -> pl.Expr:
        return value.str.replace_all(self._in_texts, "forgotten")


def forget(tables: Tables, person: Person, *, really: bool) -> dict[str, int]:
    """Return how many rows name a person, by table; with `really`, stand-ins replace the person there.

    Their user assets are deleted. A file keeps its time, by which it is deleted when it is old.
    """
    found: dict[str, int] = {}
    for table, path in _files(tables):
        before = read_files(table, [path]).collect()
        after = person.forgotten_in(before)
        rows = before.filter(before.hash_rows() != after.hash_rows()).height
        if table == "inventory_users":
            after = before.filter(~pl.col("user_id").is_in(list(person.user_ids)))
            rows = before.height - after.height
        if not rows:
            continue
        found[table] = found.get(table, 0) + rows
        if really:
            if table == "logon_counts":  # two spellings may now be one
                keys = pl.exclude("events")
                after = after.group_by(keys, maintain_order=True).agg(pl.sum("events")).select(before.columns)
            changed = path.stat()
            published = path.parent in (tables.folder, tables.folder / table)
            write_file(after, path, tables.analysts if published else None)
            if isinstance(path, Path):
                os.utime(path, (changed.st_atime, changed.st_mtime))
    return found


def _files(tables: Tables) -> Iterator[tuple[str, UPath]]:
    """Yield each table's name and file, those of runs included."""
    for path in parquet_files(tables.folder):
        parts = path.relative_to(tables.folder).parts
        table = Path(parts[2] if parts[0] == "runs" and len(parts) > 2 else parts[0]).stem
        if table in TABLES:
            yield table, path
