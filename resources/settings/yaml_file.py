"""One YAML file, checked as a whole against the model of what it holds, with messages for its author."""

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from resources.errors import ConfigurationError
from resources.settings.section import Section, read_text

# Bounds far beyond any use: a wrong file must not keep the others waiting.
MAX_VALUES = 20_000  # an alias counts as what it stands for: a few of them can be more than there is memory
MAX_COMPLAINTS = 20
MAX_SHOWN = 200  # characters of a wrong value
# Besides its own errors YAML raises these: for a date such as 2026-02-30, a tag such as !!int "".
_YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)

_INTEGER = "tag:yaml.org,2002:int"
_QUOTED = re.compile(r"""(['"]).*\1""", re.DOTALL)

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
        first = " and ".join(list(model.model_fields)[:2])
        raise ConfigurationError(f"{path}: must hold `key: value` lines, such as {first}")
    try:
        return model.model_validate(
            content, context={"folder": path.parent.absolute(), "file": path.absolute()}
        )
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = [_complaint(model, detail) for detail in details[:MAX_COMPLAINTS]]
        if len(details) > MAX_COMPLAINTS:
            lines.append(f"and {len(details) - MAX_COMPLAINTS:,} more")
        raise ConfigurationError("\n".join(f"{path}: {line}" for line in lines)) from error


def _text_of(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: the file cannot be read: {error}") from error


class _StrictLoader(yaml.SafeLoader):
    """Refuses too many values, and a key that is written twice, of which YAML would keep the last."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._values_in: dict[yaml.Node | None, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark, before = self.peek_event().start_mark, self._values
        node = super().compose_node(parent, index)
        self._values += self._values_in.get(node, 1)
        if self._values > MAX_VALUES:
            problem = f"it holds more than {MAX_VALUES:,} values, counting what aliases stand for"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        self._values_in[node] = self._values - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value} is written twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


# What YAML would read as another number than it looks like stays text: tenant 0042 is not 34, 1:30 is not 90.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INTEGER]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(_INTEGER, re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))


def _yaml_complaint(error: Exception) -> str:
    """Where and why a text is no YAML, without what it says there: that may be a secret in clear text."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    if isinstance(error, LookupError | AttributeError | TypeError):
        return f"{where}is no usable YAML: a value does not fit its tag, such as !!int; leave the tag away"
    problem = getattr(error, "problem", None) or str(error)
    return f"{where}is no usable YAML: {_QUOTED.sub('…', problem)}"


def _complaint(model: type[Section], detail: Any) -> str:
    """One line for one wrong key: where, its value, what to do."""
    location = [str(part)[:MAX_SHOWN] for part in detail["loc"]]
    key, kind, value = ".".join(location), detail["type"], detail["input"]
    if kind == "missing":
        return f"{key}: is missing; this key is required"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _keys_of(model, location[:-1]), n=1, cutoff=0)
        return f"{key}: is an unknown key" + "".join(f"; the nearest known one is {name!r}" for name in near)
    if kind in {"model_type", "dict_type"}:
        return f"{key}: must hold keys of its own, each with its value, indented below it"
    message = re.sub("^(Value error, |Input |String )", "", detail["msg"])
    message = message[0].lower() + message[1:].replace("a valid tuple", "a list")
    if location[-1] == "[key]":  # what pydantic adds where a key of a mapping is wrong
        return f"{'.'.join(location[:-2])}: the key {_shown(value)} {message}"
    # What should not be there at all may be a secret in the wrong place.
    hidden = kind == "secret" or isinstance(value, dict | list)
    return f"{key}: {message}" if hidden else f"{key}: {_shown(value)} {message}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _keys_of(model: type[BaseModel], location: list[str]) -> list[str]:
    for part in location:
        field = model.model_fields[part]
        candidates = (field.annotation, *get_args(field.annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
