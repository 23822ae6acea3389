"""Turns assets into rows of inventory_hosts and inventory_users; the row of an unreadable one says why."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import polars as pl

from ownership.declaration import Table, polars_schema
from ownership.matching import FIELDS
from ownership.tables import InventoryHosts, InventoryUsers
from resources.inventory.adapter import Values
from resources.search.asking import values_at
from resources.settings import Instance

Fields = Mapping[str, Any]
Kind = Literal["hosts", "users"]
_LISTED = "listed values"  # the key that `_with_listed_values` adds to the fields of an asset


@dataclass(frozen=True)
class Field:
    """A field of an asset: its name in the inventory, if any, and the setting that has it.

    `is_ordered`: the order of its values says something, such as which name of a host is its first.
    """

    name: str | None
    setting: str = ""
    is_ordered: bool = True


def texts(value: object) -> list[str]:
    """Return the values of a field with none, one or several (rules 2.4); TypeError for any other."""
    if value is None or isinstance(value, str):  # nearly always
        return [value] if value else []
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float | None) for one in values):
        raise TypeError
    return [str(one) for one in values if one not in (None, "")]


def _with_listed_values(fields: Any, item: Fields, names: Collection[str]) -> Any:
    """Return the fields of an asset, and under _LISTED a `name: value` for each of the named ones."""
    if not names or not isinstance(fields, dict):
        return fields

    def filled(place: Fields, name: str) -> list[Any]:
        return [value for value in values_at(place, name) if value != ""]

    found = [(name, value) for name in names for value in filled(item, name) or filled(fields, name)]
    listed = [f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in found]
    # An object cannot be compared: it replaces the texts, so that the asset is unreadable and gets no owner.
    return {**fields, _LISTED: next((value for _, value in found if isinstance(value, dict)), listed)}


class AssetRows:
    """Turns items, as an inventory lists them, into rows of a table, without listed_at.

    The fields of an asset lie at the path `fields_in` of its item; `fields` has the source of each column.
    Values of `named` fields may exclude an asset; they are looked for in its whole item first.
    """

    def __init__(
        self, table: type[Table], fields: Mapping[str, Field], named: Iterable[str] = (), fields_in: str = ""
    ) -> None:
        self._named, self._fields_in = tuple(named), fields_in
        self._schema = {name: kind for name, kind in polars_schema(table).items() if name != "listed_at"}
        self.id_column = next(iter(self._schema))
        self._fields = [
            (name, kind == pl.String, fields.get(name, Field(None)))
            for name, kind in self._schema.items()
            if name not in {self.id_column, "problem"}
        ]

    def fields_of(self, item: Fields) -> Any:
        """Return the fields of an item; None if none, or several, of which none may be whole, are there."""
        found = values_at(item, self._fields_in)
        return found[0] if len(found) == 1 else None

    def table(self, ids: Sequence[str], items: Sequence[Fields]) -> pl.DataFrame:
        """Return the rows of some items."""
        fields = {column: field.name for column, _, field in self._fields}
        assets = [_with_listed_values(self.fields_of(item), item, self._named) for item in items]
        try:
            found = {column: [asset.get(name) for asset in assets] for column, name in fields.items()}
            values = pl.DataFrame(found, schema=dict.fromkeys(fields, pl.String))
        except (AttributeError, TypeError):  # several values, or an odd asset: one by one
            records = [self.record(*one) for one in zip(ids, items, strict=True)]
            # Through JSON: Polars takes several times as long for lists of Python's strings.
            return pl.read_json(msgspec.json.encode(records), schema=self._schema)
        filled = pl.element() != ""  # nor null, for which `list.drop_nulls` would take ten times as long
        columns = (
            pl.col(name).replace("", None) if single else pl.concat_list(name).list.filter(filled)
            for name, single, _ in self._fields
        )
        ids_as_read = pl.Series(self.id_column, ids, pl.String)
        return values.select(ids_as_read, *columns, problem=pl.lit(None, pl.String)).select(*self._schema)

    def record(self, asset_id: str, item: Fields) -> dict[str, Any]:
        """Return the row of one item as plain values; unreadable ones are null and named in `problem`."""
        row: dict[str, Any] = {**dict.fromkeys(self._schema), self.id_column: asset_id}
        asset, problems = _with_listed_values(self.fields_of(item), item, self._named), {}
        if not isinstance(asset, dict):
            return row | {"problem": "its fields are not at one place, platform.contract.fields_in"}
        for column, single, field in self._fields:
            raw = asset.get(field.name) if field.name else None
            try:
                values = texts(raw)
            except TypeError:
                values = None
            if values is None or (single and len(values) > 1):
                should = f"{field.setting} must name a field of text" if field.setting else "it must be text"
                problem = f"its field {field.name} is a {type(raw).__name__}, which cannot be used; {should}"
                problems[problem] = None
            else:
                values = values if field.is_ordered else sorted(values)
                row[column] = (values[0] if values else None) if single else values
        row["problem"] = "; ".join(problems) or None
        return row


def host_fields(instance: Instance) -> dict[str, Field]:
    """Return the fields of a host asset that the program uses, by its own names."""
    section, enriched = "platform.contract.enrich_fields", instance.platform.contract.enrich_fields
    return {
        "hostnames": Field(instance.platform_hostname_field, "platform_hostname_field"),
        "owner": Field(instance.platform_user_field, "platform_user_field", is_ordered=False),
        "department": Field(enriched.user_department, f"{section}.user_department"),
        "criticality": Field(enriched.criticality, f"{section}.criticality"),
    }


def host_rows(instance: Instance) -> AssetRows:
    """Return what turns host assets into rows of inventory_hosts."""
    fields = host_fields(instance)
    return _rows(InventoryHosts, {"owner_ids": fields.pop("owner"), **fields}, "exclude_assets", instance)


def user_rows(instance: Instance) -> AssetRows:
    """Return what turns user assets into rows of inventory_users."""
    fields = {name: Field(name) for name in FIELDS}
    for name, of_host in instance.platform.contract.enrich_fields.model_dump().items():
        fields[name] = Field(name if of_host else None, f"platform.contract.enrich_fields.{name}")
    fields["user_value"] = Field(instance.platform_user_value_field, "platform_user_value_field")
    return _rows(InventoryUsers, fields, "exclude_user_assets", instance)


def _rows(table: type[Table], fields: dict[str, Field], setting: str, instance: Instance) -> AssetRows:
    if named := getattr(instance.rules, setting):
        fields["listed_values"] = Field(_LISTED, f"rules.{setting} ({', '.join(named)})")
    return AssetRows(table, fields, named, instance.platform.contract.fields_in)


def taken_fields(instance: Instance) -> dict[str, str]:
    """Return the fields that a write may set, owner and `enrich_fields`, by our names."""
    fields = host_fields(instance)
    return {name: field for name in ("owner", "department", "criticality") if (field := fields[name].name)}


def host_form(instance: Instance, values: Values) -> dict[str, str]:
    """Return the form that sets these values of a host, by the inventory's fields; "" clears one."""
    fields = taken_fields(instance)
    return {fields[name]: value or "" for name, value in values.items()}
