"""Assets of the inventory as rows of our tables.

The service gives an asset as JSON; here its fields become the plain columns of inventory_hosts and
inventory_users. A list may hold an odd asset, whose row says what cannot be read. How assets are fetched is
done in `client`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import polars as pl

from ownership.matching import FIELDS
from resources.errors import ProtocolError
from resources.inventory.client import Fields
from resources.settings import Instance

_NO_FIELDS = object()
"""Stands for each field of an asset that has none at all."""
_TEXTS = pl.List(pl.String)
_NO_TEXTS = pl.lit(pl.Series([[]], dtype=_TEXTS))


def owner_ids(value: object) -> list[str]:
    """Ids in an owner field as the inventory returns it: null, an id, or a list of ids (rules 2.4).

    Returns:
        Ids as strings, in the inventory's order; [] when the host has no owner.

    Raises:
        TypeError: the field holds something else than ids.
    """
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | None):
            raise TypeError(f"an owner is an id or a list of ids, not {value!r:.80}")
    return [str(item) for item in items if item not in (None, "")]


def _lists(column: str) -> str:
    """The name beside a column's own under which a page gives lists."""
    return f"{column}, lists"


def _problem(column: str) -> str:
    """The name beside a column's own under which a page tells why values of it cannot be read."""
    return f"{column}, problem"


def _texts(value: object) -> list[str]:
    """The values of a field that may hold none, one or several."""
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float | None) for one in values):
        raise TypeError
    return [str(one) for one in values if one not in (None, "")]


@dataclass(frozen=True)
class Field:
    """A field of an asset: its name in the inventory, None for none, and the setting that says so."""

    name: str | None
    setting: str


@dataclass(frozen=True)
class _Column:
    """A column of lists of texts, or of texts and nulls (`single`), and the field it comes from.

    Args:
        field: the field, which may be none.
        texts: takes the texts out of a field; raises TypeError where it holds something else.
        single: the field holds one text at most.
    """

    field: Field
    texts: Callable[[object], list[str]] = _texts
    single: bool = False

    def value(self, raw: object) -> list[str] | str | None:
        """What it holds of one asset.

        Raises:
            TypeError: saying what the field holds instead, without its value.
        """
        if raw is _NO_FIELDS:
            raise TypeError("it has no fields where platform.contract.fields_in says they are")
        try:
            texts = self.texts(raw)
        except TypeError:
            texts = None
        if texts is None or (self.single and len(texts) > 1):
            setting = self.field.setting
            remedy = (
                f"{setting} must name a field of text" if setting else "the inventory must hold text there"
            )
            kind = type(raw).__name__
            raise TypeError(f"its field {self.field.name} holds a {kind}, which is not usable; {remedy}")
        return next(iter(texts), None) if self.single else texts

    def read(self, name: str, assets: Sequence[Fields]) -> Iterator[pl.Series]:
        """What a page gives for it: texts under its name, or lists of texts under another one.

        Where some cannot be read, these are null, and why stands under a third name.
        """
        field = self.field.name
        raw = [fields.get(field) for fields in assets] if field else [None] * len(assets)
        if set(map(type, raw)) <= {str, NoneType}:  # nearly always
            yield pl.Series(name, raw, dtype=pl.String)
            return
        values: list[list[str] | str | None] = [None] * len(raw)
        problems: list[str | None] = [None] * len(raw)
        for number, one in enumerate(raw):
            try:
                values[number] = self.value(one)
            except TypeError as error:
                problems[number] = str(error)
        if any(problems):
            yield pl.Series(_problem(name), problems, dtype=pl.String)
        if self.single:
            yield pl.Series(name, values, dtype=pl.String)
            return
        # Through JSON: Polars takes ten times as long for lists of Python's strings.
        texts = pl.Series(_lists(name), [json.dumps(values)]).str.json_decode(pl.List(_TEXTS))
        yield texts.list.explode(empty_as_null=False)

    def stored(self, name: str) -> pl.Expr:
        """What the table holds, from what pages gave."""
        said, text = pl.when(pl.col(name) != ""), pl.col(name)
        if self.single:
            return said.then(text)
        return pl.coalesce(_lists(name), said.then(pl.concat_list(text)).otherwise(_NO_TEXTS)).alias(name)


@dataclass(frozen=True)
class AssetRows:
    """How assets become rows of a table, without listed_at: page by page, or one by one.

    A field that holds something else than text, a number or a list of them cannot be read, nor can an asset
    whose fields are no object.
    """

    id_column: str
    columns: Mapping[str, _Column]

    def read(self, ids: Sequence[str], assets: Sequence[Fields]) -> pl.DataFrame:
        """Take the columns out of a page of assets, as `InventoryClient.list_assets` wants them."""
        if set(map(type, assets)) - {dict}:
            without = {column.field.name: _NO_FIELDS for column in self.columns.values() if column.field.name}
            assets = [fields if isinstance(fields, dict) else without for fields in assets]
        columns = (series for name, column in self.columns.items() for series in column.read(name, assets))
        return pl.DataFrame([pl.Series(self.id_column, ids, dtype=pl.String), *columns])

    def table(self, read: pl.DataFrame) -> pl.DataFrame:
        """Turn what was read from any number of pages into rows of the table.

        What cannot be read is null, and `problem` says why.
        """
        given = {**dict.fromkeys(self.columns, pl.String), **dict.fromkeys(map(_lists, self.columns), _TEXTS)}
        whole = pl.concat([pl.DataFrame(schema=given), read], how="diagonal")
        problems = {name: pl.col(_problem(name)) for name in self.columns if _problem(name) in read.columns}
        stored = {name: column.stored(name) for name, column in self.columns.items()}
        for name, problem in problems.items():
            stored[name] = pl.when(problem.is_null()).then(stored[name]).alias(name)
        problem = pl.lit(None, pl.String)
        if problems:
            reasons = pl.concat_list(problems.values()).list.drop_nulls().list.unique(maintain_order=True)
            problem = pl.when(reasons.list.len() > 0).then(reasons.list.join("; "))
        return whole.select(self.id_column, *stored.values(), problem=problem)

    def record(self, asset_id: str, fields: Fields) -> dict[str, Any]:
        """The row of one asset as plain values, where all of it can be read.

        Raises:
            ProtocolError: a field cannot be read.
        """
        try:
            columns = {
                name: column.value(fields.get(column.field.name) if column.field.name else None)
                for name, column in self.columns.items()
            }
        except TypeError as error:
            raise ProtocolError(f"Asset {asset_id}: {error}") from error
        return {self.id_column: asset_id, **columns, "problem": None}


def host_fields(instance: Instance) -> dict[str, Field]:
    """The fields of a host asset that the program knows, by what it calls them."""
    section, enriched = "platform.contract.enrich_fields", instance.platform.contract.enrich_fields
    return {
        "hostnames": Field(instance.platform_hostname_field, "platform_hostname_field"),
        "owner": Field(instance.platform_user_field, "platform_user_field"),
        "department": Field(enriched.user_department, f"{section}.user_department"),
        "criticality": Field(enriched.criticality, f"{section}.criticality"),
    }


def host_rows(instance: Instance) -> AssetRows:
    """How host assets become rows of inventory_hosts."""
    fields = host_fields(instance)
    columns = {
        "hostnames": _Column(fields["hostnames"]),
        "owner_ids": _Column(fields["owner"], owner_ids),
        "department": _Column(fields["department"], single=True),
        "criticality": _Column(fields["criticality"], single=True),
    }
    return AssetRows("host_id", columns)


def taken_fields(instance: Instance) -> dict[str, str]:
    """The inventory's names of what a write may set: the owner, and what `enrich_fields` names."""
    fields = host_fields(instance)
    return {name: field for name in ("owner", "department", "criticality") if (field := fields[name].name)}


def host_form(instance: Instance, values: Mapping[str, str | None]) -> dict[str, str]:
    """What is sent to set these values of a host, by the inventory's fields; an empty text clears one."""
    fields = taken_fields(instance)
    return {fields[name]: value or "" for name, value in values.items()}


def user_rows(instance: Instance) -> AssetRows:
    """How user assets become rows of inventory_users."""
    value = Field(instance.platform_user_value_field, "platform_user_value_field")
    columns = {
        "user_value": _Column(value),
        **{name: _Column(Field(name, "")) for name in FIELDS},
        "user_department": _Column(Field("user_department", ""), single=True),
        "criticality": _Column(Field("criticality", ""), single=True),
    }
    return AssetRows("user_id", columns)
