"""One YAML file, checked as a whole against the model of what it holds, with messages for its author."""

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from resources.errors import ConfigurationError
from resources.settings.fields import Section, read_text

MAX_COMPLAINTS = 20
MAX_SHOWN = 200  # characters of a wrong value
# Besides its own errors YAML raises these: for a date such as 2026-02-30, a tag such as !!int "".
_YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
_INTEGER = "tag:yaml.org,2002:int"
_QUOTED = re.compile(r"""(['"]).*\1""", re.DOTALL)
_PLAIN = {
    "missing": "is missing; this key is required",
    "model_type": "must hold keys of its own, each with its value, indented below it",
    "dict_type": "must hold keys of its own, each with its value, indented below it",
}

SectionT = TypeVar("SectionT", bound=Section)


def plain_value(path: Path, key: str) -> str | None:
    """The text that one line of a file gives a key, read many times faster than the whole file.

    None where no line does, or more than one, or in another way than `key: text`.
    """
    lines = re.findall(rf"^{key}[ \t]*:[^\n]*$(?!\n[ \t])", _text_of(path), re.MULTILINE)
    try:
        value = yaml.safe_load(lines[0])[key] if len(lines) == 1 else None
    except _YAML_ERRORS:
        return None
    return value if isinstance(value, str) else None


def read_section(path: Path, model: type[SectionT]) -> SectionT:
    """Read a YAML file and check it against the model of what it holds."""
    text = _text_of(path)
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a SafeLoader that refuses double keys)
    except _YAML_ERRORS as error:
        raise ConfigurationError(f"{path}: {_yaml_complaint(error)}") from None  # it quotes the line
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must hold `key: value` lines, such as name and url")
    try:
        return model.model_validate(
            content, context={"folder": path.parent.absolute(), "file": path.absolute()}
        )
    except ValidationError as error:
        details = error.errors(include_url=False)[:MAX_COMPLAINTS]
        lines = [f"{path}: {_complaint(model, detail)}" for detail in details]
        raise ConfigurationError("\n".join(lines)) from None  # it shows wrong keys, which may be secrets


def _text_of(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: the file cannot be read: {error}") from None


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"the key {key.value} is written twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        return super().construct_mapping(node, deep)


# What YAML would read as another number than it looks like stays text: tenant 0042 is not 34.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INTEGER]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(_INTEGER, re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))


def _yaml_complaint(error: Exception) -> str:
    """Where and why a text is no YAML, without what it says there: that may be a secret in clear text."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}is no usable YAML: {_QUOTED.sub('…', getattr(error, 'problem', None) or str(error))}"


def _complaint(model: type[Section], detail: Any) -> str:
    """One line for one wrong key: where, its value, what to do."""
    location = [str(part)[:MAX_SHOWN] for part in detail["loc"]]
    key, kind, value = ".".join(location), detail["type"], detail["input"]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _keys_of(model, location[:-1]), n=1, cutoff=0)
        return f"{key}: is an unknown key; the nearest known one is {near[0]!r}"
    message = _PLAIN.get(kind) or re.sub("^(Value error, |Input |String )", "", detail["msg"])
    if location[0] == "cookies":  # a wrong name may hold the value
        return f"cookies: {message}"
    # What should not be there at all may be a secret in the wrong place.
    hidden = kind in {"hidden", *_PLAIN} or value is None or isinstance(value, dict | list)
    return f"{key}: {message}" if hidden else f"{key}: {str(value)[:MAX_SHOWN]!r} {message}"


def _keys_of(model: type[BaseModel], location: list[str]) -> list[str]:
    for part in location:
        field = model.model_fields[part]
        candidates = (field.annotation, *get_args(field.annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
