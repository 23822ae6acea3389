"""The schema must say of a file what `load_instance` says, as far as a schema can."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from resources.errors import ConfigurationError
from resources.settings import load_instance
from resources.settings.schema import EXAMPLES, instance_schema, instance_schema_text

STORED = Path(__file__).parents[3] / "docs" / "instance.schema.json"

LEAST = """
name: Head office
url: https://search.example:9200
username: reader
password: {env: SEARCH_PASSWORD}
sensor: sensor-1
platform:
  url: https://inventory.example
  email: asset-owners@corp.example
  password: {file: inventory-password}
  tenant_id: "42"
"""


def test_the_stored_schema_is_what_the_models_say():
    assert STORED.read_text(encoding="utf-8") == instance_schema_text(), "run `make docs`"


@pytest.mark.parametrize(
    "text",
    [
        LEAST,
        EXAMPLES,
        LEAST + "query: {term: {event.code: 4624}}",
        LEAST + "ca_file:",
        LEAST + "cookies: {gateway: {env: COOKIE}}",
        LEAST + "scan: {schedule: null, first_day: 2024-02-29}",
        LEAST + "writes: {max_write_percent: 0.5}",
        LEAST.replace('"42"', "42"),
        LEAST + "  contract: {hosts: {path: /hosts, params: {kind: 7}}, read: null}",
        LEAST + "  contract: contract.yaml",
        LEAST + "  contract: {mfa_required: {member: code, equals: 211}}",
    ],
)
def test_accepts_what_the_program_accepts(text, tmp_path):
    (tmp_path / "contract.yaml").write_text("page_size: 500", encoding="utf-8")
    load_instance(written(text, tmp_path))
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        LEAST.replace("{env: SEARCH_PASSWORD}", "Summer2024"),
        LEAST.replace("{env: SEARCH_PASSWORD}", "{env: SEARCH_PASSWORD, file: password}"),
        LEAST.replace("{env: SEARCH_PASSWORD}", "{}"),
        LEAST.replace("{env: SEARCH_PASSWORD}", "{vault: search}"),
        LEAST.replace("sensor: sensor-1", ""),
        LEAST.replace("name: Head office", 'name: ""'),
        LEAST + "colour: red",
        LEAST + "query: 4624",
        LEAST + "scan: {lookback_days: 0}",
        LEAST + "scan:",
        LEAST + "rules: {hostname_match: fuzzy}",
        LEAST + "rules: {exclude_users: svc_*}",
        LEAST + "  contract: {hosts: {params: {kind: host}}}",
        LEAST + "  contract: [tenant_param]",
        LEAST + "  contract: {tenant_parm: tenant}",
    ],
)
def test_refuses_what_the_program_refuses(text, tmp_path):
    with pytest.raises(ConfigurationError):
        load_instance(written(text, tmp_path))
    assert complaints(text) != []


def written(text, folder):
    path = folder / "instance.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaints(text):
    content = json.loads(json.dumps(yaml.safe_load(text), default=str))  # dates are text to an editor
    return [error.message for error in jsonschema.Draft7Validator(instance_schema()).iter_errors(content)]
