"""What authors of instance files read: the schema, the example with every key, the page."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from resources.errors import ConfigurationError
from resources.settings import Instance, load_instance
from resources.settings.schema import instance_schema_text

ROOT = Path(__file__).parents[3]
STORED = ROOT / "docs" / "instance.schema.json"
EXAMPLE = (ROOT / "resources" / "settings" / "example.yaml").read_text(encoding="utf-8")
EVERY_KEY = re.sub(r"(?m)^( *)#(?=\S)", r"\1", EXAMPLE)
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

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
        EXAMPLE,
        EVERY_KEY,
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
    return [
        error.message
        for error in jsonschema.Draft7Validator(json.loads(instance_schema_text())).iter_errors(content)
    ]


def test_the_example_sets_what_is_required_and_the_excluded_users(tmp_path):
    instance = load_instance(written(EXAMPLE, tmp_path))
    required = {name for name, field in Instance.model_fields.items() if field.is_required()}
    assert instance.model_fields_set == required | {"rules"}
    assert instance.platform.model_fields_set == {"url", "email", "password", "tenant_id"}
    assert instance.rules.model_fields_set == {"exclude_users"}


def test_the_example_and_the_page_have_every_key_with_its_default(tmp_path):
    instance = load_instance(written(EVERY_KEY, tmp_path))
    sections = {"platform": instance.platform, "platform.contract": instance.platform.contract}
    sections |= {name: getattr(instance, name) for name in ("scan", "rules", "writes", "keep")}
    for section, settings in {"": instance, **sections}.items():
        fields = type(settings).model_fields
        assert settings.model_fields_set == set(fields), "in the example"
        heading = f"## `{section}`: " if section else "## The instance\n"
        rows = re.findall(r"(?m)^\| `(\w+)` \| (.*?) \|", PAGE.partition(heading)[2].partition("\n## ")[0])
        own = [name for name in fields if f"{section}.{name}".lstrip(".") not in sections]
        assert [name for name, _ in rows] == own, "on the page"
        for name, shown in rows:
            default = fields[name].get_default()
            if fields[name].is_required():
                assert shown == "**required**", name
            else:
                default = default.model_dump() if isinstance(default, BaseModel) else default
                assert yaml.safe_load(shown.strip("`")) == (
                    [*default] if isinstance(default, tuple) else default
                ), name
                if default not in (None, (), {}, "") and name != "exclude_users":
                    assert getattr(settings, name) == fields[name].get_default(), name


def test_each_setting_of_the_example_has_its_meaning_above_it():
    lines = EXAMPLE.splitlines()
    settings = [number for number, line in enumerate(lines) if re.match(r" *#?\w+:", line)]
    assert [lines[number] for number in settings if not re.match(r" *# \S", lines[number - 1])] == []


def test_every_environment_variable_that_the_code_reads_is_on_the_page():
    packages = ("assets_defs", "ownership", "pipelines", "resources")
    code = "\n".join(
        file.read_text(encoding="utf-8") for room in packages for file in (ROOT / room).rglob("*.py")
    )
    read = set(re.findall(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](\w+)""", code))
    assert {"ASSET_OWNERS_HOME", "DAGSTER_HOME"} <= read
    assert {name for name in read if f"`{name}`" not in PAGE} == set()
