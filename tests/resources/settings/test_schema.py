"""What authors of instance files read: the schema, the example with every key, the page."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from docs.make.settings_page import refreshed, schema_text, texts
from resources.settings import Instance, changes_in_words, load_instance

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "resources" / "settings" / "example.yaml").read_text(encoding="utf-8")
EVERY_KEY = re.sub(r"(?m)^( *)#(?=\S)", r"\1", EXAMPLE)
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def loaded(text, folder):
    path = folder / "instance.yaml"
    path.write_text(text, encoding="utf-8")
    return load_instance(path)


def test_the_stored_schema_is_what_the_models_say():
    stored = (ROOT / "resources" / "settings" / "instance.schema.json").read_text(encoding="utf-8")
    assert stored == schema_text(), "run `make docs`"


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (EXAMPLE, True),
        (EVERY_KEY, True),
        (EXAMPLE.replace("'42'", "42"), True),
        (EXAMPLE.replace("{env: SEARCH_PASSWORD}", "Summer2024"), False),
        (EXAMPLE.replace("{env: SEARCH_PASSWORD}", "{env: A, file: b}"), False),
        (EXAMPLE.replace("sensor: sensor-1", ""), False),
        (EXAMPLE + "colour: red", False),
    ],
)
def test_editors_accept_what_the_program_accepts(text, accepted):
    content = json.loads(json.dumps(yaml.safe_load(text), default=str))  # dates are text to an editor
    assert jsonschema.Draft7Validator(json.loads(schema_text())).is_valid(content) == accepted


def settings_below(content, above=""):
    """Each dotted setting with its value, sections and single keys alike."""
    for key, value in content.items():
        yield f"{above}{key}", value
        if isinstance(value, dict):
            yield from settings_below(value, f"{above}{key}.")


EACH_SETTING = {
    name: value
    for name, value in settings_below(yaml.safe_load(EVERY_KEY))
    if name.partition(".")[0] not in {"name", "platform"}
}


def test_each_setting_that_can_be_tried_is_told_by_its_name_and_values_that_cannot_name_people(tmp_path):
    path = tmp_path / "instance.yaml"
    path.write_text(EVERY_KEY, encoding="utf-8")
    for setting, value in EACH_SETTING.items():
        [told] = changes_in_words(load_instance(path, [f"{setting}={json.dumps(value, default=str)}"]))
        is_shown = value is None or isinstance(value, bool | int | float) or setting in OF_A_LIST
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        assert told == (f"{setting} {shown}" if is_shown else setting)
    assert {"scan.first_day", "ca_file", "notify", "keep", "logs"} <= EACH_SETTING.keys()


OF_A_LIST = {"rules.hostname_match", "rules.evidence_metric"}
"""Settings whose value is a word from a fixed list."""

RECOMMENDED = {
    *("exclude_users", "min_active_days", "evidence_metric", "primary_devices", "unite_accounts"),
    *("max_idle_days", "min_stable_days", "lookback_days"),
}


def test_the_example_sets_what_is_required_and_recommended(tmp_path):
    instance = loaded(EXAMPLE, tmp_path)
    required = {name for name, field in Instance.model_fields.items() if field.is_required()}
    assert instance.model_fields_set == required | {"rules", "scan"}
    assert instance.platform.model_fields_set == {"url", "email", "password", "tenant_id"}
    assert instance.rules.model_fields_set | instance.scan.model_fields_set == RECOMMENDED


def test_the_page_lists_the_keys_of_the_models():
    assert refreshed(PAGE) == PAGE, "run `make docs`"
    assert all(texts().values()), "each key of the example has its text above it"


def test_the_example_has_every_key_with_its_default(tmp_path):
    instance = loaded(EVERY_KEY, tmp_path)
    sections = [instance, instance.platform, instance.platform.contract]
    sections += [getattr(instance, name) for name in ("scan", "rules", "writes", "keep")]
    for settings in sections:
        fields = type(settings).model_fields
        assert settings.model_fields_set == set(fields)
        for name, field in fields.items():
            value, default = getattr(settings, name), None if field.is_required() else field.get_default()
            if default not in (None, (), {}, "") and name not in RECOMMENDED and value not in sections:
                assert value == default, name


def test_every_environment_variable_that_the_code_reads_is_on_the_page():
    packages = ("assets_defs", "ownership", "pipelines", "resources")
    code = "\n".join(
        file.read_text(encoding="utf-8") for room in packages for file in (ROOT / room).rglob("*.py")
    )
    read = set(re.findall(r'"((?:ASSET_OWNERS|DAGSTER|SUDO)_\w+)"', code))
    assert {"ASSET_OWNERS_HOME", "DAGSTER_HOME"} <= read
    assert {name for name in read if f"`{name}`" not in PAGE} == set()
