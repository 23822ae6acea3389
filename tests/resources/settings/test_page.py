import re
from pathlib import Path

import pytest

from resources.settings import load_instance
from resources.settings.page import configuration_page
from resources.settings.schema import EXAMPLES, instance_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def example(tmp_path):
    """An instance of which every key is set as the page's examples say."""
    path = tmp_path / "instance.yaml"
    path.write_text(EXAMPLES, encoding="utf-8")
    return load_instance(path)


def test_the_page_is_what_the_models_say():
    stored = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert stored == configuration_page(), "run `make docs`"


@pytest.mark.parametrize(
    ("key", "default", "unit", "limits", "example"),
    [
        ("username", "**required**", "", "", "`asset-owners`"),
        ("ca_file", "`null`", "", "", "`corp-ca.pem`"),
        ("first_day", "`2020-01-01`", "", "", "`2025-01-01`"),
        ("lookback_days", "`30`", "days", "(1 to 3660)", "`90`"),
        ("share_threshold_percent", "`60`", "%", "(50 to 99)", "`75`"),
        ("max_write_percent", "`null`", "%", "(above 0, up to 100)", "`2.5`"),
        ("min_events", "`1`", "events", "(1 or more)", "`5`"),
        ("page_size", "`1000`", "items", "(1 or more)", "`500`"),
        ("hostname_match", "`exact`", "", "(exact or short)", "`short`"),
    ],
)
def test_a_row_tells_default_unit_meaning_limits_and_an_example(key, default, unit, limits, example):
    row = next(line for line in configuration_page().splitlines() if line.startswith(f"| `{key}` |"))
    _, _, *facts, meaning, shown, _ = (cell.strip() for cell in row.split("|"))
    assert [*facts, shown] == [default, unit, example]
    assert re.fullmatch(rf"\w.{{8,}}{re.escape(limits)}", meaning)


def test_every_key_of_every_section_has_a_row(example):
    page = configuration_page()
    platform = example.platform
    sections = {"platform": platform, "platform.contract": platform.contract}
    sections |= {name: getattr(example, name) for name in ("scan", "rules", "writes", "keep")}
    for section, model in {"": example, **sections}.items():
        heading = f"## `{section}`: " if section else "## The instance\n"
        rows = page.partition(heading)[2].partition("\n## ")[0]
        keys = {key for key in type(model).model_fields if f"{section}.{key}".lstrip(".") not in sections}
        assert set(re.findall(r"^\| `(\w+)`", rows, flags=re.MULTILINE)) == keys


def test_no_example_only_repeats_the_default():
    sections = [instance_settings()]
    for section in sections:
        sections.extend(section.sections)
        assert [each.name for each in section.settings if each.example == each.default] == []


def test_every_environment_variable_that_the_code_reads_is_on_the_page():
    packages = ("assets_defs", "ownership", "pipelines", "resources")
    code = "\n".join(
        file.read_text(encoding="utf-8") for room in packages for file in (ROOT / room).rglob("*.py")
    )
    read = set(re.findall(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](\w+)""", code))
    assert {"ASSET_OWNERS_HOME", "DAGSTER_HOME"} <= read
    assert {name for name in read if f"`{name}`" not in configuration_page()} == set()
