"""The tables of the report's page: what their columns show, and their rows packed for its script.

A text stands in the page once, whatever tables it is in, and texts are in the order in which people sort
them, so that the script compares numbers. What it gets is ready to be shown: printable and not too long.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import polars as pl

from ownership.names import printable

MAX_NAME = 120
PAGE_ROWS = 100
"""Rows of a table that are shown at once, and without scripts the only ones."""
MAX_ROWS = 100_000
"""Rows of one table in the page: those of more hosts would make it too large for a browser."""
MAX_LOGONS = 250_000
"""Pairs of person and host in the page."""

Column = list[Any] | dict[str, list[Any]]
"""A column as the script gets it, in one of the ways of `compact`."""

PEOPLE = ("people", "old_people")
NUMBERS = ("count", "percent", "part", "logons")
TEXTS = ("name", "user", "words", "date", "small", "note", "old")


@dataclass(frozen=True)
class Filter:
    """Rows of a table that a number of the page counts: its name in links, words, groups of rows."""

    name: str
    words: str
    groups: Sequence[int]
    rows: int


@dataclass(frozen=True)
class RowTable:
    """A table of the page.

    Attributes:
        name: names it in the page.
        title: what it holds.
        columns: by the words at its head, the parts of a cell: a style and the columns of the frame it shows.
            `name` and `small` (what others chose), `user` (a user name), `words`, `date` and `note` (ours),
            `old` (struck through), `people` and `old_people` (ids of user assets), `count`, `percent`,
            `part` (how many, of how many), `logons` (the same, on how many days). The first one sorts.
        frame: the rows, in the order in which they are shown first; a column `group` where there are filters.
        nothing: what to say where there are no rows.
        filters: what the rows can be narrowed to.
        unseen: parts that are not shown, which the script needs.
    """

    name: str
    title: str
    columns: Mapping[str, Sequence[Sequence[str]]]
    frame: pl.DataFrame
    nothing: str = "None."
    filters: Sequence[Filter] = ()
    unseen: Sequence[Sequence[str]] = ()

    @property
    def first_rows(self) -> list[dict[str, Any]]:
        """The rows that stand in the page itself."""
        return self.frame.head(PAGE_ROWS).to_dicts()

    def styled(self, *styles: str) -> Iterator[str]:
        """The columns of the frame that are shown in one of the styles, some of them twice."""
        for style, *names in self.parts:
            if style in styles:
                yield from names

    @property
    def parts(self) -> Iterator[Sequence[str]]:
        """The parts of all cells of a row."""
        return chain(*self.columns.values(), self.unseen)


@dataclass(frozen=True)
class People:
    """Who is known: user assets, and accounts that are no one user asset.

    Attributes:
        labels: what to call user assets, by id.
        accounts: user names of the logons that stand for one user asset: username, user_id.
        candidates: user names that stand for none or several: username, candidate_ids.
    """

    labels: Mapping[str, str]
    accounts: pl.DataFrame
    candidates: pl.DataFrame


class Packed:
    """Tables and people as JSON: codes instead of texts, numbers instead of people.

    Args:
        tables: the tables.
        people: who is known.
        logons: of whom on which row of the table `hosts`: username, row, events, active_days, last_seen.
    """

    def __init__(self, tables: Sequence[RowTable], people: People, logons: pl.DataFrame) -> None:
        self._tables = tables
        self._people = people
        self._logons = logons

    def as_json(self) -> str:
        """Return the JSON; nothing in it can end the script that it stands in."""
        packed = {
            "page_rows": PAGE_ROWS,
            "texts": self._texts[0],
            "people": self._packed_people(),
            "logons": self._packed_logons(),
            "tables": {table.name: self._packed(table) for table in self._tables},
        }
        text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Numbers of the user assets that any table names."""
        people = self._people
        named = (table.frame[name].explode() for table in self._tables for name in table.styled(*PEOPLE))
        known = (people.accounts["user_id"], people.candidates["candidate_ids"].explode())
        ids = pl.concat([*named, *known]).drop_nulls().unique().sort()
        return {user_id: number for number, user_id in enumerate(ids)}

    @cached_property
    def _texts(self) -> tuple[list[str], dict[str, int]]:
        """The texts as they are shown, sorted, and which of them stands for a text."""
        people = self._people
        columns = [
            *(self._text_columns()),
            pl.Series([*self._ids], dtype=pl.String),
            pl.Series([people.labels.get(user_id) for user_id in self._ids], dtype=pl.String),
            people.accounts["username"],
            people.candidates["username"],
            self._logons["last_seen"],
        ]
        raw = pl.concat(column.cast(pl.String).unique() for column in columns).drop_nulls().unique().to_list()
        shown = {text: _shown(text) for text in raw if text}
        texts = sorted(set(shown.values()), key=natural_order)
        codes = {text: code for code, text in enumerate(texts)}
        return texts, {text: codes[as_shown] for text, as_shown in shown.items()}

    def _text_columns(self) -> Iterator[pl.Series]:
        for table in self._tables:
            for name in table.styled(*TEXTS):
                yield table.frame[name]

    def _coded(self, texts: pl.Series) -> list[int | None]:
        known = self._texts[1]
        return [known.get(text) for text in texts.cast(pl.String)]

    def _packed(self, table: RowTable) -> dict[str, Any]:
        fields: dict[str, Column] = {}
        for style, *names in table.parts:
            for name in names:
                fields[name] = self._field(table.frame[name], style)
        if table.filters:
            fields["group"] = compact(table.frame["group"].to_list())
        return {
            "title": table.title,
            "nothing": table.nothing,
            "rows": table.frame.height,
            "columns": list(table.columns.items()),
            "parts": list(table.parts),
            "fields": fields,
            "filters": [[one.name, one.words, list(one.groups), one.rows] for one in table.filters],
        }

    def _field(self, values: pl.Series, style: str) -> Column:
        if style in PEOPLE:
            people = ([self._ids[one] for one in ids or ()] for ids in values.to_list())
            return [ids[0] if len(ids) == 1 else ids or None for ids in people]
        if style in NUMBERS:
            rounded = values.round(4) if values.dtype.is_float() else values
            return compact(rounded.to_list())
        return compact(self._coded(values))

    def _packed_people(self) -> dict[str, Any]:
        """User assets first, then the accounts that are none, each by its number."""
        people, known = self._people, self._texts[1]
        accounts: dict[int, list[int]] = {}
        for username, user_id in people.accounts.select("username", "user_id").iter_rows():
            accounts.setdefault(self._ids[user_id], []).append(known[username])
        candidates = people.candidates["candidate_ids"].to_list()
        return {
            "ids": self._coded(pl.Series([*self._ids], dtype=pl.String)),
            "labels": [
                *(known.get(people.labels.get(user_id, "")) for user_id in self._ids),
                *self._coded(people.candidates["username"]),
            ],
            "accounts": accounts,
            "candidates": [[self._ids[one] for one in ids] for ids in candidates],
        }

    def _packed_logons(self) -> dict[str, Any]:
        """Logons by person, most events first: how many hosts each has, and these one after the other."""
        first = len(self._ids)
        candidates = self._people.candidates.select("username")
        ids = pl.DataFrame(
            {"user_id": [*self._ids], "person": range(first)},
            schema={"user_id": pl.String, "person": pl.Int64},
        )
        numbers = pl.concat(
            [
                self._people.accounts.join(ids, on="user_id").select("username", "person"),
                candidates.with_columns(person=first + pl.int_range(pl.len())),
            ]
        )
        kept = (
            self._logons.join(numbers, on="username")
            .sort("person", "events", "row", descending=[False, True, False])
            .with_columns(place=pl.int_range(pl.len()).over("person"))
        )
        if kept.height > MAX_LOGONS:
            kept = kept.sort("place", maintain_order=True).head(MAX_LOGONS).sort("person", "place")
        hosts = dict(kept.group_by("person").len().iter_rows())
        return {
            "all": self._logons.height,
            "hosts": [hosts.get(number, 0) for number in range(first + candidates.height)],
            "row": compact(kept["row"].to_list()),
            "events": compact(kept["events"].to_list()),
            "days": compact(kept["active_days"].to_list()),
            "last_seen": compact(self._coded(kept["last_seen"])),
        }


def compact(values: list[Any]) -> Column:
    """Write a column of numbers in the shortest of three ways.

    As it is; as steps from one to the next, which are small where they are sorted; or as distinct values and
    which of them each row has, where they are few.
    """
    distinct = [*dict.fromkeys(values)]
    numbers = {value: number for number, value in enumerate(distinct)}
    forms: list[Column] = [
        values,
        {"of": distinct, "at": [numbers[value] for value in values]},
    ]
    if not {None, float} & {None if value is None else type(value) for value in distinct}:
        forms.append({"steps": [after - before for before, after in pairwise([0, *values])]})
    return min(forms, key=lambda form: len(json.dumps(form)))


def natural_order(text: str) -> tuple[list[str | tuple[int, str]], str]:
    """A key that sorts texts as people do: without regard to case, and 2 before 10."""
    parts = re.split(r"([0-9]+)", text.casefold())
    return [_size(part) if number % 2 else part for number, part in enumerate(parts)], text


def _size(digits: str) -> tuple[int, str]:
    """Sorts digits as numbers, also where they are more than Python makes a number of."""
    significant = digits.lstrip("0")
    return len(significant), significant


def in_natural_order(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Sort rows by columns of texts as people do, nothing last."""
    rows: Iterable[tuple[Any, ...]] = frame.select(columns).iter_rows()
    keys = [[(text is None, natural_order(text or "")) for text in row] for row in rows]
    return frame[sorted(range(frame.height), key=keys.__getitem__)]


def _shown(text: str) -> str:
    shown = text if len(text) <= MAX_NAME else text[:MAX_NAME] + "…"
    return shown if shown.isprintable() else printable(shown)
