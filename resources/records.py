"""Assets of the inventory as rows of our tables.

The service gives an asset as JSON; here its fields become the plain columns of inventory_hosts and
inventory_users. How assets are fetched is told in `inventory`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import polars as pl

from ownership.identities import owner_ids
from resources.errors import ProtocolError
from resources.settings import Instance

Fields = Mapping[str, Any]

_TEXTS = pl.List(pl.String)
_NO_TEXTS = pl.lit(pl.Series([[]], dtype=_TEXTS))


def host_rows(ids: Sequence[str], assets: Sequence[Fields], instance: Instance) -> pl.DataFrame:
    """Rows of inventory_hosts, without listed_at, for hosts given as ids and fields.

    Raises:
        ProtocolError: a field holds something else than text, a number or a list of them.
    """
    columns = {name: column.series(ids, assets) for name, column in _host_columns(instance).items()}
    return pl.DataFrame({"host_id": pl.Series(ids, dtype=pl.String), **columns})


def host_record(asset_id: str, fields: Fields, instance: Instance) -> dict[str, Any]:
    """One row of `host_rows`, as plain values."""
    columns = {name: column.value(asset_id, fields) for name, column in _host_columns(instance).items()}
    return {"host_id": asset_id, **columns}


def user_rows(ids: Sequence[str], assets: Sequence[Fields], instance: Instance) -> pl.DataFrame:
    """Rows of inventory_users, without listed_at; as `host_rows`."""
    columns = {name: column.series(ids, assets) for name, column in _user_columns(instance).items()}
    return pl.DataFrame({"user_id": pl.Series(ids, dtype=pl.String), **columns})


def _texts(value: object) -> list[str]:
    """The values of a field that may hold none, one or several."""
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float | None) for one in values):
        raise TypeError
    return [str(one) for one in values if one not in (None, "")]


@dataclass(frozen=True)
class _Column:
    """A column of lists of texts, or of texts and nulls (`single`), and the field it comes from.

    Args:
        field: None for a column without values.
        setting: where the instance names the field; empty when it does not.
        texts: takes the texts out of a field; raises TypeError for what holds something else.
        single: the field holds one text at most.
    """

    field: str | None
    setting: str = ""
    texts: Callable[[object], list[str]] = _texts
    single: bool = False

    def value(self, asset_id: str, fields: Fields) -> list[str] | str | None:
        """What it holds of one asset."""
        found = fields.get(self.field) if self.field else None
        try:
            texts = self.texts(found)
        except TypeError as error:
            raise self._unusable(asset_id, found) from error
        if not self.single:
            return texts
        if len(texts) > 1:
            raise self._unusable(asset_id, found)
        return texts[0] if texts else None

    def series(self, ids: Sequence[str], assets: Sequence[Fields]) -> pl.Series:
        """What it holds of many."""
        found = [fields.get(self.field) for fields in assets] if self.field else [None] * len(assets)
        if set(map(type, found)) <= {str, NoneType}:  # nearly always
            text = pl.Series(found, dtype=pl.String)
            said = pl.when(text != "").then(text if self.single else pl.concat_list(text))
            return pl.select(said if self.single else said.otherwise(_NO_TEXTS)).to_series()
        values = [self.value(*asset) for asset in zip(ids, assets, strict=True)]
        # Through JSON: Polars takes ten times as long for lists of Python's strings.
        kind = pl.List(pl.String() if self.single else _TEXTS)
        return pl.Series([json.dumps(values)]).str.json_decode(kind).list.explode(empty_as_null=False)

    def _unusable(self, asset_id: str, found: object) -> ProtocolError:
        remedy = (
            f"{self.setting} must name a field of text"
            if self.setting
            else "the inventory must hold text there"
        )
        kind = type(found).__name__
        return ProtocolError(
            f"Asset {asset_id}: its field {self.field} holds a {kind}, which is not usable; {remedy}"
        )


def _host_columns(instance: Instance) -> dict[str, _Column]:
    enriched = instance.platform.contract.enrich_fields
    return {
        "hostnames": _Column(instance.platform_hostname_field, "platform_hostname_field"),
        "owner_ids": _Column(instance.platform_user_field, "platform_user_field", owner_ids),
        "department": _Column(enriched.user_department, single=True),
        "criticality": _Column(enriched.criticality, single=True),
    }


def _user_columns(instance: Instance) -> dict[str, _Column]:
    named = ("user_email", "directory_user_sam_account_name", "directory_user_surname")
    return {
        "user_value": _Column(instance.platform_user_value_field, "platform_user_value_field"),
        **{name: _Column(name) for name in named},
        "user_department": _Column("user_department", single=True),
        "criticality": _Column("criticality", single=True),
    }
