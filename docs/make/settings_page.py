"""The keys of an instance file as docs/configuration.md lists them, from the models of the settings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resources.settings import Instance
from resources.settings.models import Secret

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
EXAMPLE = Path(__file__).parents[2] / "resources" / "settings" / "example.yaml"
_FIRST, _NEXT = "## The instance\n", "## Secrets\n"


def refresh() -> None:
    """Write the keys of today's models into the page."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def refreshed(page: str) -> str:
    """Return the page with the keys that the models have."""
    before, _, rest = page.partition(_FIRST)
    keys = "\n".join(_section(Instance, _FIRST, ""))
    return f"{before}{keys}\n{_NEXT}{rest.partition(_NEXT)[2]}"


def _section(model: type[BaseModel], heading: str, path: str) -> Iterator[str]:
    """The keys of a section, then its sections."""
    fields = {name: (field, _model_of(field)) for name, field in _fields_of(model).items()}
    yield heading
    yield from (_key(name, field) for name, (field, section) in fields.items() if not section)
    yield ""
    for name, (field, section) in fields.items():
        if section:
            yield from _section(section, f"## `{path}{name}`: {field.description}\n", f"{path}{name}.")


def _fields_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section, of an instance as its example has them: a model has those of its base first."""
    if not issubclass(section, Instance):
        return section.model_fields
    in_order = re.findall(r"(?m)^#?(\w+):", EXAMPLE.read_text(encoding="utf-8"))
    return {name: section.model_fields[name] for name in sorted(section.model_fields, key=in_order.index)}


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a section: one whose keys are described, but for a secret's."""
    kind = field.annotation
    if not isinstance(kind, type) or not issubclass(kind, BaseModel) or kind is Secret:
        return None
    return kind if all(key.description for key in kind.model_fields.values()) else None


def _key(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"`{_as_yaml(field.get_default())}`"
    said, values = " ".join((field.description or "").split()), _values(field)
    text, such_as, example = said.partition("; such as ")
    return f"- `{name}` ({default}): {text}{f' ({values})' if values else ''}{such_as}{example}"


def _as_yaml(value: object) -> str:
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    listed = [*plain] if isinstance(plain, tuple) else plain
    text = yaml.safe_dump(listed, default_flow_style=True, width=1_000, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _values(field: FieldInfo) -> str:
    """Say which values a choice or a number may have; nothing for others."""
    if get_origin(field.annotation) is Literal:
        return " or ".join(get_args(field.annotation))
    bounds = {bound.__class__: bound for bound in field.metadata if isinstance(bound, Ge | Gt | Le)}
    if isinstance(bounds.get(Gt), Gt):
        return f"above {bounds[Gt].gt}, up to {bounds[Le].le}"
    least, most = getattr(bounds.get(Ge), "ge", None), getattr(bounds.get(Le), "le", "more")
    return f"{least} {'or' if most == 'more' else 'to'} {most}" if isinstance(least, int) else ""
