"""What an author of an instance file needs to know, taken from the settings models.

`instance_schema` is for editors; `instance_settings` is the same as plain values, from which the guide
(`page`) and `asset-owners init` are written. Checking a file is the business of `settings`.
"""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema

from resources.settings import Instance

# One value for each key; a key without one is an error when the pages are made.
EXAMPLES = """\
name: Head office
url: https://search.corp.example:9200
username: asset-owners
password: {env: SEARCH_PASSWORD}
cookies: {gateway_session: {env: SEARCH_COOKIE}}
index: winlogbeat-*
query: event.code:4624 AND winlog.event_data.LogonType:(2 OR 10 OR 11)
user_field: winlog.event_data.TargetUserName
hostname_field: host.name
time_field: event.created
logon_type_field: winlog.event_data.LogonType
platform_hostname_field: hostname
platform_user_field: owner
platform_user_value_field: login_name
sensor: sensor-1
ignore_ssl: true
ca_file: corp-ca.pem
platform:
  url: https://inventory.corp.example
  email: asset-owners@corp.example
  password: {env: INVENTORY_PASSWORD}
  mfa_secret: {file: /run/secrets/inventory-mfa}
  tenant_id: "42"
  ignore_ssl: true
  ca_file: corp-ca.pem
  contract:
    tenant_param: tenant
    mfa_required: {member: message, equals: code required}
    hosts: {path: /api/v1/hosts/list, params: {status: active}}
    users: {path: /api/v1/people/list, params: {}}
    read: {path: /api/v1/assets/read, id_param: asset_id}
    update: {path: /api/v1/assets/edit, id_param: asset_id}
    fields_in: attributes
    page_size: 500
    enrich_fields: {user_department: user_department, criticality: null}
scan:
  lookback_days: 90
  enrich: false
  timezone: Europe/Berlin
  first_day: 2025-01-01
  late_days: 3
  schedule: 30 4 * * 1-5
  require_complete_window: true
rules:
  share_threshold_percent: 75
  hostname_match: short
  exclude_users: ["*$", "svc_*"]
  exclude_hosts: ["kiosk-*", "ts-??"]
  min_events: 5
  min_active_days: 3
  evidence_metric: days
  logon_type_weights: {2: 10, 7: 5, 11: 10}
  skip_account_kinds: [service, computer]
  skip_host_kinds: [kiosk, server]
writes:
  dry_run: true
  max_writes: 500
  max_write_percent: 2.5
  max_failed_writes: 5
  concurrency: 4
  plan_days: 1
keep:
  evidence_days: 200
  history_days: 1000
"""
_UNITS = {"percent": "%", "size": "items", "concurrency": "requests"}


@dataclass(frozen=True)
class Setting:
    """One key of the instance file; `default` and `example` as YAML holds them.

    `unit` and `limits` are empty where there are none; `unit` is for numbers only.
    """

    name: str
    meaning: str
    required: bool
    default: Any
    example: Any
    unit: str
    limits: str


@dataclass(frozen=True)
class Section:
    """A mapping with keys of its own; `key` is its dotted path, empty for the whole file."""

    key: str
    meaning: str
    settings: tuple[Setting, ...]
    sections: tuple["Section", ...]

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


class _Untitled(GenerateJsonSchema):
    """Leaves out titles, which would only say the key again."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  (pydantic's signature)
        return False


def instance_schema() -> dict[str, Any]:
    """Return the instance file as a JSON schema, draft 7: what editors for YAML read."""
    schema = Instance.model_json_schema(schema_generator=_Untitled)
    models = schema["$defs"]
    places = models["Secret"]["properties"]
    models["Secret"]["oneOf"] = [{"required": [name]} for name in places]
    for place in places.values():
        place |= {"type": "string", "minLength": 1}
        del place["anyOf"], place["default"]
    # YAML may say these in more ways than the settings object keeps.
    platform = models["Platform"]["properties"]
    schema["properties"]["query"]["type"] = ["string", "object"]
    platform["tenant_id"]["type"] = ["string", "integer"]
    inline = {"$ref": platform["contract"].pop("$ref")}
    platform["contract"]["anyOf"] = [inline, {"type": "string", "format": "path"}]
    models["ListCall"]["properties"]["params"]["additionalProperties"]["type"] = ["string", "integer"]
    for model in (schema, *models.values()):
        for setting in model.get("properties", {}).values():
            if _is_section(_resolved(setting, models)):
                setting.pop("default", None)  # its keys have their own
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def instance_schema_text() -> str:
    """Return the schema as it is stored in docs/instance.schema.json."""
    return json.dumps(instance_schema(), indent=2, ensure_ascii=False) + "\n"


def instance_settings() -> Section:
    """Return every key of the instance file, in the order of the settings models.

    Raises:
        KeyError: a key has no example.
    """
    schema = instance_schema()
    return _section("", schema, yaml.safe_load(EXAMPLES), schema["$defs"])


def as_yaml(value: object) -> str:
    """Write a value on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return text.removesuffix("...\n").strip()


def _section(key: str, node: dict[str, Any], examples: dict[str, Any], models: dict[str, Any]) -> Section:
    required = node.get("required", [])
    settings: list[Setting] = []
    sections: list[Section] = []
    for name, unresolved in node["properties"].items():
        inner = _resolved(unresolved, models)
        if _is_section(inner):
            sections.append(_section(f"{key}.{name}".lstrip("."), inner, examples[name], models))
        else:
            settings.append(_setting(name, inner, examples[name], required=name in required))
    return Section(key, node["description"], tuple(settings), tuple(sections))


def _setting(name: str, node: dict[str, Any], example: object, *, required: bool) -> Setting:
    number = node.get("type") in ("integer", "number")
    last_word = name.rpartition("_")[2]
    default: Any = node.get("default")
    return Setting(
        name=name,
        meaning=node["description"],
        required=required,
        default=date.fromisoformat(default) if node.get("format") == "date" else default,
        example=example,
        unit=_UNITS.get(last_word, last_word) if number else "",
        limits=_limits(node),
    )


def _limits(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(node["enum"])
    if "exclusiveMinimum" in node:
        return f"above {node['exclusiveMinimum']}, up to {node['maximum']}"
    if "minimum" in node:
        return (
            f"{node['minimum']} to {node['maximum']}" if "maximum" in node else f"{node['minimum']} or more"
        )
    return ""


def _is_section(node: dict[str, Any]) -> bool:
    """Whether the keys are described and no alternatives; endpoints and secrets are written as one value."""
    keys = node.get("properties", {}).values()
    return bool(keys) and all("description" in key for key in keys) and "oneOf" not in node


def _resolved(node: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """A property with what it refers to, as if it could not be null; what it says itself wins."""
    alternative = node.get("anyOf", [node])[0]
    model = models[alternative["$ref"].rpartition("/")[2]] if "$ref" in alternative else alternative
    return {**model, **node}
