"""Reads and checks instance files, with messages for their author."""

import difflib
import json
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from ownership.matching import Present
from ownership.names import some_of
from resources.errors import ConfigurationError, why_unreadable
from resources.settings.environment import instances_folder
from resources.settings.models import (
    MAX_NAME,
    RESERVED_SLUGS,
    Instance,
    OneQuery,
    is_slug,
    read_text,
    slug_of,
)

CALLED_AS = "_ASSET_OWNERS_CALLED_AS"  # how `serve` was called, whose processes have Dagster's names
MAX_COMPLAINTS = 20
MAX_SHOWN = 200  # characters of a wrong value
# Besides its own errors YAML raises these: for a date such as 2026-02-30, a tag such as !!int "".
_YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
_OF_ITS_TABLES = {"name", "platform"}
_INTEGER = "tag:yaml.org,2002:int"
_OF_YAML = {
    ".*'<block (mapping|sequence) start>'": "the line is indented unlike the others of its section",
    "mapping values are not allowed": "a key cannot begin here: check the blanks before this line, or put "
    "quotes around a text with a colon",
    "could not find expected ':'": "a line above has no colon with a blank after its key",
}
"""Our words for YAML's most frequent complaints."""
_QUOTED = re.compile(r"""(['"]).{4,}\1""", re.DOTALL)
_DAY = "is not a day; write it as 2026-01-31"
_PLAIN = {
    "missing": "is missing; this key is required",
    "date_from_datetime_inexact": _DAY,
    "model_type": "must hold keys of its own, each with its value, indented below it",
    "dict_type": "must hold keys of its own, each with its value, indented below it",
}
_OF_PYDANTIC = {
    "be a valid integer.*": "is not a whole number",
    "be a valid boolean.*": "is neither true nor false",
    "be a valid tuple": "must be a list, such as [admin]",
    "be a valid string": "must be one text; put quotes around a number, a date, true or false",
    "be a valid date.*": _DAY,
    "be greater than or equal to": "must be at least",
    "be less than or equal to": "must be at most",
    "": "must ",
}
"""Our words for what follows "should" in pydantic's messages."""


@dataclass(frozen=True)
class BrokenInstance:
    """An instance file that cannot be used, with the message for its author, and a `slug` that no other has.

    That of the name in it if possible, so that what Dagster knows of the instance stays in its place.
    """

    file: Path
    message: str
    slug: str
    name: str | None  # where one can be read


def part_name(instance: Instance | BrokenInstance, part: str) -> str:
    """Return a unique name for a part of an instance; no slug has two underscores in a row."""
    return f"{instance.slug}__{part}"


def slug_of_part(name: str) -> str:
    """Return the slug in the name of a part; the name itself if it is not a part's."""
    return name.partition("__")[0]


def load_instance(path: Path, changes: Sequence[str] = ()) -> Instance:
    """Read and check one instance file, with `SETTING=VALUE` replaced; the file is not changed."""
    content = _content(path)
    for change in changes:
        _change(content, change)
    return validate_instance(content, path, changes)


def _change(content: dict[Any, Any], change: str) -> None:
    """Set a dotted setting in the content of a file to a value in YAML."""
    setting, sign, text = change.partition("=")
    *sections, key = setting.split(".")
    if not sign or not all((*sections, key)):
        example = "rules.share_threshold_percent=80"
        raise ConfigurationError(f"--set: {change!r} is not SETTING=VALUE, such as {example}")
    if (sections or [key])[0] in _OF_ITS_TABLES:
        raise ConfigurationError(f"--set: {setting} says whose tables these are; change it in the file")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise ConfigurationError(f"--set: {setting} is not a setting: {section} has no keys of its own")
    try:
        content[key] = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (as of a file)
    except _YAML_ERRORS as error:
        raise ConfigurationError(f"--set: {setting}: invalid YAML: {_why_invalid(error, text)}") from error


def validate_instance(content: dict[Any, Any], path: Path, changes: Sequence[str] = ()) -> Instance:
    """Return the instance of a file at `path` with this content, to which `changes` have been applied."""
    context = {"file": path.absolute(), "changes": changes}
    try:
        instance = Instance.model_validate(content, context=context)
    except ValidationError as error:
        lines = [_complaint(detail, path, changes) for detail in error.errors(include_url=False)]
        raise ConfigurationError(
            some_of(lines, MAX_COMPLAINTS, joint="\n")
        ) from None  # it shows wrong keys, which may be secrets
    if not is_slug(instance.slug):
        raise ConfigurationError(
            f"{path}: name: {instance.name!r} is not a valid name; use letters or digits, {MAX_NAME} "
            "at most, and no word that DuckDB, Dagster or Python keeps for itself, such as main or class"
        )
    if instance.logs and (single := sorted(instance.model_fields_set & OneQuery.model_fields.keys())):
        raise ConfigurationError(
            f"{path}: logs: {', '.join(single)} cannot be given beside it, for each of the logs has its own; "
            "move what is there into an entry of logs, or remove logs"
        )
    key = "rules.logon_type_weights"
    if instance.rules.logon_type_weights and not any(
        one.logon_type_field for one in instance.sources.values()
    ):
        raise ConfigurationError(
            f"{_origin(key, path, changes)}: {key}: needs logon_type_field; name there the document field "
            "that has the kind of logon, such as winlog.event_data.LogonType, or remove the weights"
        )
    _require_separate_fields(path, instance)
    return instance


def _require_separate_fields(path: Path, instance: Instance) -> None:
    """Refuse two settings that name one field: a write would replace one value by another."""
    contract, section = instance.platform.contract, "platform.contract"
    names = {
        f"{section}.update.id_param": contract.update.id_param,
        f"{section}.tenant_param": contract.tenant_param,
        "platform_hostname_field": instance.platform_hostname_field,
        "platform_user_field": instance.platform_user_field,
        f"{section}.enrich_fields.user_department": contract.enrich_fields.user_department,
        f"{section}.enrich_fields.criticality": contract.enrich_fields.criticality,
    }
    named_by: dict[str, str] = {}
    for setting, name in names.items():
        if name and named_by.setdefault(name, setting) != setting:
            other = named_by[name]
            raise ConfigurationError(f"{path}: {setting}: {name!r} is also {other}; name another field")


def load_instances(place: Path) -> list[Instance | BrokenInstance]:
    """Read all instance files of a folder, or one file; broken ones, or with the same slug, are reported."""
    loaded = {path: _instance_or_complaint(path) for path in instance_files(place)}
    slugs = Counter(found.slug for found in loaded.values() if isinstance(found, Instance))
    for path, found in loaded.items():
        if isinstance(found, Instance) and slugs[found.slug] > 1:
            loaded[path] = (
                f"{path}: name: {found.name!r} gives the identifier {found.slug!r}, as does another file in "
                f"{place}; give each instance its own name"
            )
    taken = {found.slug for found in loaded.values() if isinstance(found, Instance)}
    return [
        BrokenInstance(path, found, _free_slug(path, taken), _name_in(path) or None)
        if isinstance(found, str)
        else found
        for path, found in loaded.items()
    ]


def instance_files(place: Path) -> list[Path]:
    """Return the `*.yaml` and `*.yml` files of a folder that are not hidden, sorted, or the file itself."""
    found = (path for ending in ("[!.]*.yaml", "[!.]*.yml") for path in place.glob(ending))
    return [place] if place.is_file() else sorted(found)


def _instance_or_complaint(path: Path) -> Instance | str:
    """Return the instance of a file, or the message for its author."""
    try:
        return load_instance(path)
    except ConfigurationError as error:
        return str(error)


def _free_slug(path: Path, taken: set[str]) -> str:
    """Return an identifier that is not taken, of the name in a file or else the file's; add it to `taken`."""
    slug = slug_of(_name_in(path))
    if slug in taken or not is_slug(slug):
        slug = slug_of(path.stem)[: MAX_NAME // 2].strip("_") or "unnamed"
    while slug in taken | RESERVED_SLUGS:
        slug += "_broken"
    taken.add(slug)
    return slug


def _name_in(path: Path) -> str:
    """Return the name in an invalid file; empty where none can be read."""
    with suppress(ConfigurationError):
        return str(_content(path).get("name", ""))
    return ""


# Reading YAML, and complaints about it


def _content(path: Path) -> dict[Any, Any]:
    """Return the content of a file; messages do not quote it, because it may be a secret in clear text."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: the file cannot be read: {why_unreadable(error)}") from None
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a SafeLoader that refuses double keys)
    except _YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigurationError(f"{path}: {where}invalid YAML: {_why_invalid(error, text)}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must hold `key: value` lines, such as name and url")
    return content


def _why_invalid(error: Exception, text: str) -> str:
    """Return what is wrong with YAML, without what it holds: what is expected are the names of parts."""
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if mark and (sign := f"{text} "[mark.index]) in "*&%@`!":
            return f"put quotes around a value that begins with {sign}, such as '{sign}$'"
    problem = getattr(error, "problem", None) or str(error)
    for theirs, ours in _OF_YAML.items():
        if re.match(theirs, problem):
            return ours
    return problem if problem.startswith("expected ") else _QUOTED.sub("…", problem)


class _StrictLoader(yaml.SafeLoader):  # not the faster CSafeLoader, which crashes on a deep file
    """Refuses duplicate keys, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"the key {key.value} is written twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        return super().construct_mapping(node, deep)


# Octal and other unusual numbers stay text: tenant 0042 is not 34.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _INTEGER]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(_INTEGER, re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))


def _complaint(detail: Any, path: Path, changes: Sequence[str]) -> str:
    """Return one line about a wrong key: where, its value, what to do."""
    location = [str(part)[:MAX_SHOWN] for part in detail["loc"]]
    key, kind, value = ".".join(location), detail["type"], detail["input"]
    where = _origin(key, path, changes)
    if kind == "extra_forbidden":
        meant = _suggest_key(location[-1], location[:-1], in_file=where != "--set")
        return f"{where}: {key}: unknown key; {meant}"
    message = _PLAIN.get(kind) or re.sub("^(Value error, |Input |String )", "", detail["msg"])
    for theirs, ours in _OF_PYDANTIC.items():
        message = re.sub(f"^should {theirs}", ours, message)
    if location[0] in {"cookies", "notify"}:  # a wrong name may hold the value, and a text instead of a list
        return f"{where}: {location[0]}: {message}"
    # Values in the wrong place may be secrets.
    hidden = kind in {"hidden", *_PLAIN} or value is None or isinstance(value, dict | list)
    return f"{where}: {key}: " + (message if hidden else f"{str(value)[:MAX_SHOWN]!r} {message}")


def _origin(key: str, path: Path, changes: Sequence[str]) -> str:
    """Return where a setting, or one below or above it, has its value from: `--set`, or the file."""
    tried = (f"{change.partition('=')[0]}." for change in changes)
    is_tried = any(f"{key}.".startswith(setting) or setting.startswith(f"{key}.") for setting in tried)
    return "--set" if is_tried else str(path)


def _suggest_key(key: str, section: list[str], *, in_file: bool) -> str:
    """Return the key that was probably meant: of a section whose line is a comment, or a similar one."""
    first, dot, rest = key.partition(".")
    if dot and first in Instance.model_fields and in_file:
        return f"write {rest!r} indented below a line `{first}:`"
    if key in Instance.model_fields:
        return "the known key of this name is not indented" if in_file else f"did you mean {key!r}?"
    if others := [name for name in Instance.model_fields if key in _keys_of([name])]:
        meant = " or ".join(f"{name}.{key}" for name in others)
        place = f" It belongs below a line `{others[0]}:` without a #" if in_file else ""
        return f"did you mean {meant}?{place}"
    nearest = difflib.get_close_matches(key, known := _keys_of(section), n=len(known), cutoff=0)
    is_near = key in nearest[0] or difflib.get_close_matches(key, nearest[:1], cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if is_near else f"known here are {some_of(nearest)}"


def _keys_of(location: list[str]) -> list[str]:
    """Return the keys below a place; empty below a single value."""
    model = _section_of(_annotation_of(location))
    return list(model.model_fields) if model else []


def _annotation_of(location: Iterable[str]) -> Any:
    """Return the type of what stands at a place of a file; None below a single value."""
    annotation: Any = Instance
    for part in location:
        if part.isdigit():  # a place in a list
            continue
        if (model := _section_of(annotation)) is None or part not in model.model_fields:
            return None
        annotation = model.model_fields[part].annotation
    return annotation


def _section_of(annotation: Any) -> type[BaseModel] | None:
    candidates = (annotation, *get_args(annotation))
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def setting_in_words(setting: str, *values: Any) -> str:
    """Return a dotted setting with its value, or with the earlier and the later one.

    Shown are numbers, true, false, null, and words from a fixed list: others may name people or be secret.
    """
    annotation = _annotation_of(setting.split("."))
    words = {word for part in (annotation, *get_args(annotation)) for word in get_args(part)}
    if not all(
        isinstance(value, int | float | None) or (isinstance(value, str) and value in words)
        for value in values
    ):
        return setting
    return f"{setting} {' → '.join(v if isinstance(v, str) else json.dumps(v) for v in values)}"


def changes_in_words(instance: Instance) -> Iterator[str]:
    """Yield each setting that was tried in place of the file's, as `setting_in_words` shows it."""
    for setting in dict.fromkeys(change.partition("=")[0] for change in instance.changes):
        value: Any = instance.model_dump()
        for key in setting.split("."):
            value = value.get(key, ()) if isinstance(value, dict) else ()
        yield setting_in_words(setting, value)


PROGRAM = "asset-owners"


def instance_path(given: str | None = None) -> Path:
    """Return the instance file for a path, a name, a slug or a file's name; by default the only one."""
    if given is not None and Path(given).is_file():
        return Path(given)
    folder = instances_folder()
    found = load_instances(folder)
    matching = [one for one in found if given is None or _names(one) & {given.casefold(), slug_of(given)}]
    if given is not None:  # a broken copy may have the name of a file that can be used
        matching = [one for one in matching if isinstance(one, Instance)] or matching
    files = [one.file for one in matching or found if one.file]
    if len(matching) == 1:
        return files[0]
    if given and not matching and (Path(given).suffix in {".yaml", ".yml"} or len(Path(given).parts) > 1):
        return Path(given)  # reading it says what is wrong
    if not files:
        init = command_line(None, "init")
        raise ConfigurationError(f"--instance: there is no instance file in {folder}; write one: {init}")
    what = "name the instance" if given is None else f"there is no instance {given!r}"
    if matching and given is not None:
        what = f"{given!r} fits several; name its file"
    raise ConfigurationError(f"--instance: {what}. {folder} has {', '.join(file.name for file in files)}")


def _names(one: Instance | BrokenInstance) -> set[str]:
    """Return all names of an instance of the folder, in lower case."""
    own, file = one.name or "", one.file or Path()
    return {name.casefold() for name in (own, slug_of(own), file.name, file.stem, slug_of(file.stem))}


def command_line(instance: Instance | BrokenInstance | None, command: str, *arguments: str) -> str:
    """Return one of our commands so that it can be pasted into a shell."""
    words = [command]
    if instance:
        file = instance.file
        in_folder = file is None or file.resolve().parent == instances_folder().resolve()
        by_slug = in_folder and isinstance(instance, Instance)
        words += ["--instance", instance.slug if by_slug else str(file)]
    # As the shell finds it: its name, or the path by which it, or the `serve` around Dagster, was called.
    called, found = Path(os.environ.get(CALLED_AS, sys.argv[0])), shutil.which(PROGRAM)
    by_name = called.name != PROGRAM or not called.exists() or (found and Path(found).samefile(called))
    return " ".join(map(_shell_word, [PROGRAM if by_name else str(called), *words, *arguments]))


def _shell_word(text: str) -> str:
    """Quote a word for a shell, one with SQL's quotes so that it can be read."""
    return shlex.quote(text) if re.search(r"""^[^']*$|["$`\\!]""", text) else f'"{text}"'


def present_of(instance: Instance) -> Present:
    """Return what advice on the hosts of an instance follows from."""
    commands = (command_line(instance, name) for name in ("undo", "conflicts"))
    days, now = instance.keep.history_days, datetime.now(UTC)
    return Present(instance.rules.as_rules(), instance.field_names, *commands, days, now)
