"""The settings of an instance file as docs/configuration.md lists them, from their models."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resources.settings import Instance
from resources.settings.models import Secret

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
EXAMPLE = Path(__file__).parents[2] / "resources" / "settings" / "example.yaml"
_BLOCK = re.compile(r"(?<=```yaml\n).*?(?=```)", re.DOTALL)


def refresh() -> None:
    """Write the settings of today's models into the page."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def refreshed(page: str) -> str:
    """Return the page with the settings that the models have, in its first block."""
    block = "".join(f"{line}\n" for line in _lines(Instance, ""))
    return _BLOCK.sub(lambda _: block, page, count=1)


def _lines(model: type[BaseModel], indent: str) -> Iterator[str]:
    """Yield the settings of a section with their defaults, then its sections."""
    fields = _fields_of(model)
    sections = {name: section for name, field in fields.items() if (section := _model_of(field))}
    yield from (
        f"{indent}{name}: {_default(fields[name])}".rstrip() for name in fields if name not in sections
    )
    for name, section in sections.items():
        yield f"{indent}{name}:"
        yield from _lines(section, f"{indent}  ")


def _fields_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section; those of an instance in the order of its example."""
    if not issubclass(section, Instance):
        return section.model_fields
    in_order = re.findall(r"(?m)^#?(\w+):", EXAMPLE.read_text(encoding="utf-8"))
    return {name: section.model_fields[name] for name in sorted(section.model_fields, key=in_order.index)}


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section: one whose keys are described, but for a secret's."""
    kind = field.annotation
    if not isinstance(kind, type) or not issubclass(kind, BaseModel) or kind is Secret:
        return None
    return kind if all(key.description for key in kind.model_fields.values()) else None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default()
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    listed = [*plain] if isinstance(plain, tuple) else plain
    text = yaml.safe_dump(listed, default_flow_style=True, width=1_000, sort_keys=False)
    return text.removesuffix("...\n").strip()
