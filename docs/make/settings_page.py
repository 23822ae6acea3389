"""An instance file's settings: the page from the models, the schema for editors with the example's texts."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resources.settings import Instance
from resources.settings.models import Logs, OneQuery

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
SETTINGS = Path(__file__).parents[2] / "resources" / "settings"
_IS_EXAMPLE = re.compile(r" \(not set; an example\)|; not set; an example")
_BLOCK = re.compile(r"(?<=```yaml\n).*?(?=```)", re.DOTALL)


def refresh() -> None:
    """Write the settings of today's models into the page and the schema."""
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    (SETTINGS / "instance.schema.json").write_text(schema_text(), encoding="utf-8")


def refreshed(page: str) -> str:
    """Return the page with the settings that the models have, in its first block."""
    block = "".join(f"{line}\n" for line in _lines(Instance))
    return _BLOCK.sub(lambda _: block, page, count=1)


def schema_text() -> str:
    """Return the schema for editors, draft 7, as it is stored in instance.schema.json."""
    schema: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#"}
    schema |= Instance.model_json_schema()
    definitions = schema["$defs"]
    for key, text in texts().items():
        *above, name = key.split(".")
        of_section = definitions[_section(above).__name__] if above else schema
        of_section["properties"][name]["description"] = text
    for name in OneQuery.model_fields:
        definitions[Logs.__name__]["properties"][name]["description"] = texts()[name]
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@cache
def texts() -> Mapping[str, str]:
    """Return the comment above each key of the example, by the dotted key, in order."""
    found, path, said = dict[str, str](), list[str](), list[str]()
    for line in (SETTINGS / "example.yaml").read_text(encoding="utf-8").splitlines():
        comment = re.fullmatch(" *# (.*)", line)
        if key := re.match(r"( *)#?(\w+):( |$)", line):
            path = [*path[: len(key[1]) // 2], key[2]]
            found[".".join(path)] = _IS_EXAMPLE.sub("", " ".join(said))
        said = [*said, comment[1]] if comment else []
    return found


def _section(path: list[str]) -> Any:
    """Return the model of a section, by the keys that lead to it."""
    model: Any = Instance
    for name in path:
        kind = model.model_fields[name].annotation
        model = next(one for one in (kind, *get_args(kind)) if hasattr(one, "model_fields"))  # it may be null
    return model


def _lines(model: type[BaseModel], *above: str) -> Iterator[str]:
    """Yield the settings of a section with their defaults, then its sections, in the order of the example."""
    keys = [name for *path, name in (key.split(".") for key in texts()) if path == [*above]]
    sections = [one for one in keys if any(key.startswith(".".join((*above, one, ""))) for key in texts())]
    indent = "  " * len(above)
    for name in keys:
        if name not in sections:
            yield f"{indent}{name}: {_default(model.model_fields[name])}".rstrip()
    for name in sections:
        yield f"{indent}{name}:"
        yield from _lines(_section([*above, name]), *above, name)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default()
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    listed = [*plain] if isinstance(plain, tuple) else plain
    text = yaml.safe_dump(listed, default_flow_style=True, width=1_000, sort_keys=False)
    return text.removesuffix("...\n").strip()
