"""The example instance files in docs/examples, one for each way of shipping logons."""

from pathlib import Path

import yaml

from pipelines.cli.init import SETTINGS
from resources.settings.models import presets

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_FRAME = """\
# yaml-language-server: $schema=../../resources/settings/instance.schema.json
#
# Written by `make docs`; `asset-owners init --logs {name}` writes a file with all other settings, too.
# Fill in names, addresses and where the secrets lie, then try it: `asset-owners check --instance FILE`.

name: {name}
url: https://search.corp.example:9200
username: asset-owners
password: {{env: SEARCH_PASSWORD}}
sensor: sensor-1

{comment}
{settings}
rules:
{rules}
platform:
  url: https://inventory.corp.example
  email: asset-owners@corp.example
  password: {{env: INVENTORY_PASSWORD}}
  tenant_id: "42"
"""


def refresh() -> None:
    """Write the example of each preset."""
    for name in presets():
        (EXAMPLES / f"{name}.yaml").write_text(example(name), encoding="utf-8")


def example(name: str) -> str:
    """Return the example instance file of a preset."""
    preset = presets()[name]
    usual = yaml.safe_load((SETTINGS / "example.yaml").read_text(encoding="utf-8"))["rules"]["exclude_users"]
    rules = {"hostname_match": "exact", "exclude_users": usual} | preset.rules
    return _FRAME.format(
        name=name,
        comment=preset.comment(),
        settings=yaml.safe_dump(preset.settings, width=108, sort_keys=False),
        rules="".join(f"  {line}\n" for line in yaml.safe_dump(rules, sort_keys=False).splitlines()),
    )
