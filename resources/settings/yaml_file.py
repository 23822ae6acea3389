"""One YAML file, checked as a whole against the model of what it holds, with messages for its author."""

import difflib
import re
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from resources.errors import ConfigurationError
from resources.settings.section import Section, read_text

# Bounds on what is read, far beyond any use: a file may be wrong, and must not keep the others waiting.
MAX_NODES = 20_000  # keys and values in it, what aliases stand for counted each time
MAX_DEPTH = 100  # of values in values
MAX_NUMBER_DIGITS = 100
MAX_COMPLAINTS = 20
MAX_SHOWN = 200  # characters of a wrong value

_MUST = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "date": "must be a day such as 2026-01-31",
}
"""What a value must be, by what the kind of its fault begins with."""

SectionT = TypeVar("SectionT", bound=Section)


def plain_value(path: Path, key: str) -> str | None:
    """The text that one line of a file gives a key, read many times faster than the whole file.

    None where no line does, or more than one, or in another way than `key: text`.
    """
    lines = re.findall(rf"^{key}[ \t]*:[^\n]*$(?!\n[ \t])", _text_of(path), re.MULTILINE)
    try:
        value = yaml.safe_load(lines[0])[key] if len(lines) == 1 else None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError):
        return None
    return value if isinstance(value, str) else None


def read_section(path: Path, model: type[SectionT]) -> SectionT:
    """Read a YAML file and check it against the model of what it holds."""
    text = _text_of(path)
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a SafeLoader that refuses double keys)
    # Besides its own errors it raises these: for a date such as 2026-02-30, a tag such as !!int "".
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
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
        lines = [_complaint(model, content, detail) for detail in details[:MAX_COMPLAINTS]]
        if len(details) > MAX_COMPLAINTS:
            lines.append(f"and {len(details) - MAX_COMPLAINTS:,} more")
        raise ConfigurationError("\n".join(f"{path}: {line}" for line in lines)) from error


def _text_of(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: the file cannot be read: {error}") from error


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML would silently keep the last, and what goes too far.

    A few lines of aliases to aliases can stand for more values than there is memory.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._nodes = 0
        self._sizes: dict[yaml.Node | None, int] = {}  # an alias counts as what it stands for

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        before, self._depth = self._nodes, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise _refused(event, f"values are nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and node not in self._sizes:
            raise _refused(event, "an alias refers to a value that contains it")
        self._nodes += self._sizes.get(node, 1)
        if self._nodes > MAX_NODES:
            raise _refused(event, f"it holds more than {MAX_NODES:,} values, counting what aliases stand for")
        self._sizes[node] = self._nodes - before
        if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT and len(node.value) > MAX_NUMBER_DIGITS:
            raise _refused(event, f"a number has more than {MAX_NUMBER_DIGITS} digits")
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

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Refuse what YAML reads as another number than it looks like: 0042 as 34, 1:30 as 90."""
        if not re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", node.value):
            raise yaml.constructor.ConstructorError(
                problem=f"the number {node.value} would be read as {super().construct_yaml_int(node)}; write "
                "it in quotes, or without leading zeros and other signs",
                problem_mark=node.start_mark,
            )
        return super().construct_yaml_int(node)

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> date:
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                problem=str(error), problem_mark=node.start_mark
            ) from error


_TEXT = "tag:yaml.org,2002:str"
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _StrictLoader.construct_yaml_timestamp)


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_TOKENS = {vars(token).get("id") for token in yaml.tokens.Token.__subclasses__()}
"""What YAML calls the parts of a text, such as `<stream end>`."""


def _of_yaml_itself(quoted: re.Match[str]) -> str:
    """What a message quotes, where that is YAML's own word or one character; all else may be a secret."""
    said = quoted[0][1:-1]
    return quoted[0] if said in _TOKENS or re.fullmatch(r"\\?.", said) else "…"


def _yaml_complaint(error: Exception) -> str:
    """Where and why a text is no YAML, without what it says there: that may be a secret in clear text."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = _QUOTED.sub(_of_yaml_itself, getattr(error, "problem", None) or str(error))
    if isinstance(error, LookupError | AttributeError | TypeError):
        problem = "a value does not fit its tag, such as !!int; leave the tag away"
    return f"{where}is no usable YAML: {problem}"


def _complaint(model: type[Section], content: dict[str, Any], detail: Any) -> str:
    """One line for one wrong key: where, its value, what to do."""
    location = [str(part)[:MAX_SHOWN] for part in detail["loc"]]
    key = ".".join(location)
    if detail["type"] == "missing":
        return f"{key}: is missing; this key is required"
    if detail["type"] == "extra_forbidden":
        known = _keys_of(model, location[:-1])
        near = difflib.get_close_matches(location[-1], known, n=1, cutoff=0)
        return (
            f"{key}: is an unknown key; the nearest known one is {near[0]!r}"
            if near
            else f"{key}: is an unknown key"
        )
    if detail["type"] in {"model_type", "dict_type"}:
        return f"{key}: must hold keys of its own, each with its value, indented below it"
    if location[-1] == "[key]":  # what pydantic adds where a key of a mapping is wrong
        *_, wrong, _ = location
        return f"{'.'.join(location[:-2])}: the key {_cut(repr(wrong))} {_message(detail)}"
    message = _message(detail)
    value = _value_at(content, location)
    # What should not be there at all may be a secret in the wrong place.
    shown = "" if detail["type"] == "secret" or isinstance(value, dict | list) else f"{_cut(repr(value))} "
    return f"{key}: {shown}{message}"


def _message(detail: Any) -> str:
    message = _MUST.get(detail["type"].split("_")[0]) or re.sub(
        "^(Value error, |Input |String )", "", detail["msg"]
    )
    return (message[0].lower() + message[1:]).replace("a valid tuple", "a list")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _value_at(content: Any, location: list[str]) -> object:
    for part in location:
        try:
            content = content[int(part)] if isinstance(content, list) else content[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return content
    return content


def _keys_of(model: type[BaseModel], location: list[str]) -> list[str]:
    for part in location:
        field = model.model_fields[part]
        candidates = (field.annotation, *get_args(field.annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
