"""Assets of the inventory as rows of our tables.

The service gives an asset as JSON; here its fields become the plain columns of inventory_hosts and
inventory_users. How assets are fetched is told in `inventory`.
"""

from collections.abc import Mapping
from typing import Any

from ownership.identities import owner_ids
from resources.errors import ProtocolError
from resources.settings import Instance


def host_record(asset_id: str, fields: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """One row of inventory_hosts, without listed_at.

    Raises:
        ProtocolError: a field holds something else than text, a number or a list of them.
    """
    enriched = instance.platform.contract.enrich_fields
    owner = fields.get(instance.platform_user_field)
    try:
        owners = owner_ids(owner)
    except TypeError as error:
        raise _unusable(asset_id, instance.platform_user_field, owner, "platform_user_field") from error
    return {
        "host_id": asset_id,
        "hostnames": _texts(asset_id, fields, instance.platform_hostname_field, "platform_hostname_field"),
        "owner_ids": owners,
        "department": _text(asset_id, fields, enriched.user_department),
        "criticality": _text(asset_id, fields, enriched.criticality),
    }


def user_record(asset_id: str, fields: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    """One row of inventory_users, without listed_at.

    Raises:
        ProtocolError: a field holds something else than text, a number or a list of them.
    """
    named = ("user_email", "directory_user_sam_account_name", "directory_user_surname")
    value_field = instance.platform_user_value_field
    return {
        "user_id": asset_id,
        "user_value": _texts(asset_id, fields, value_field, "platform_user_value_field"),
        **{name: _texts(asset_id, fields, name) for name in named},
        "user_department": _text(asset_id, fields, "user_department"),
        "criticality": _text(asset_id, fields, "criticality"),
    }


def _texts(asset_id: str, fields: Mapping[str, Any], field: str, setting: str = "") -> list[str]:
    """The values of a field that may hold none, one or several."""
    value = fields.get(field)
    if value is None or isinstance(value, str):  # nearly all are
        return [value] if value else []
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float | None) for one in values):
        raise _unusable(asset_id, field, value, setting)
    return [str(one) for one in values if one not in (None, "")]


def _text(asset_id: str, fields: Mapping[str, Any], field: str | None) -> str | None:
    """The value of a field that holds one value or none."""
    values = _texts(asset_id, fields, field) if field else []
    if len(values) > 1:
        raise _unusable(asset_id, field or "", values, "")
    return values[0] if values else None


def _unusable(asset_id: str, field: str, value: object, setting: str) -> ProtocolError:
    remedy = f"{setting} must name a field of text" if setting else "the inventory must hold text there"
    kind = type(value).__name__
    return ProtocolError(f"Asset {asset_id}: its field {field} holds a {kind}, which is not usable; {remedy}")
