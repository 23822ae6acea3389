"""`asset-owners init`: an instance file to fill in, with every setting explained."""

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from ownership.names import fits_any, printable
from pipelines.cli.errors import require_file
from pipelines.cli.stored import tables_of
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, instances_folder, load_instances
from resources.settings.schema import Section, Setting, as_yaml, instance_settings

SCHEMA = Path(__file__).parents[2] / "docs" / "instance.schema.json"

EXCLUDED_USERS = {
    "*$": "computer accounts",
    "system": "Windows itself",
    "local service": "built-in account for services",
    "network service": "built-in account for services",
    "anonymous logon": "logons without an account",
    "dwm-*": "window manager, an account for each session",
    "umfd-*": "font driver, an account for each session",
    "administrator": "built-in administrator",
    "adm-*": "administrators' second accounts, where they are named so",
    "svc_*": "service accounts, where they are named so",
}

_HEAD = """\
# yaml-language-server: $schema={schema}
#
# One integration instance. Fill in the lines without a #. A # with no blank after it hides a setting: its
# default or, where the text says so, an example; take that # away to change it (its section's, too).
# Paths are relative to this file's folder. To try the file on both services, without writing anything:
#     {check}
"""


def init(path: Path) -> None:
    """Write the file, `-` for standard output; never over an existing one.

    Where tuning has found accounts to leave out of the instances of this home, the file excludes them, too.

    Raises:
        ConfigurationError: the file exists or cannot be written, or the home's tables cannot be reached.
    """
    require_file("FILE", path)
    text = instance_file(SCHEMA.as_uri(), path, {**EXCLUDED_USERS, **_suggested_users()})
    if path == Path("-"):
        print(text, end="")
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(f"{path}: the file exists and is left as it is; name another one") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: the file cannot be written: {error}") from error
    print(
        f"{path} is written. Fill in names, addresses and where the secrets lie, then try it:\n"
        f"    {_check(path)}"
    )


def _suggested_users() -> dict[str, str]:
    """User names that tuning suggests to exclude for the home's instances, each with the reason."""
    known = pl.col("value").pipe(fits_any, tuple(EXCLUDED_USERS))
    suggested: dict[str, str] = {}
    for instance in load_instances(instances_folder()):
        if isinstance(instance, Instance):
            rows = tables_of(instance).of_tuning("suggestions").filter(~known, setting="rules.exclude_users")
            for user, reason in rows.select("value", "reason").iter_rows():
                suggested[user] = f"suggested for {instance.name}: {reason}"
    return suggested


def instance_file(schema: str, path: Path, excluded_users: Mapping[str, str]) -> str:
    """Return the file's text: required settings with placeholders, all others as comments.

    Args:
        schema: where editors find the JSON schema, an address or path.
        path: where the file will lie, `-` where that is not known.
        excluded_users: what `exclude_users` holds, each with the reason.
    """
    head = _HEAD.format(schema=schema, check=_check(path))
    return "\n".join([head, *_body(instance_settings(), "", excluded_users)]) + "\n"


def _check(path: Path) -> str:
    """The command that tries the file."""
    return command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))


def _body(section: Section, indent: str, excluded_users: Mapping[str, str]) -> Iterator[str]:
    for setting in section.settings:
        yield from _comment(_meaning(setting), indent)
        if setting.name == "exclude_users":
            yield from _comment(
                "Windows in another language has other names for its built-in accounts", indent
            )
            yield f"{indent}exclude_users:"
            for each, why in excluded_users.items():
                yield f"{indent}  - {as_yaml(each):<17} # {printable(why)}"
        else:
            value = setting.example if setting.required or _is_unset(setting) else setting.default
            yield f"{indent}{'' if _is_active(setting) else '#'}{setting.name}: {as_yaml(value)}"
    for inner in section.sections:
        is_active = any(_is_active(setting) for setting in inner.settings)
        yield ""
        yield from _comment(inner.meaning, indent)
        yield f"{indent}{'' if is_active else '#'}{inner.name}:"
        yield from _body(inner, f"{indent}  ", excluded_users)


def _is_active(setting: Setting) -> bool:
    return setting.required or setting.name == "exclude_users"


def _is_unset(setting: Setting) -> bool:
    return setting.default in (None, "", [], {})


def _meaning(setting: Setting) -> str:
    notes = [f"{setting.limits} {setting.unit}".strip()] if setting.limits else []
    if _is_unset(setting) and not _is_active(setting):
        notes.append("not set; an example:")
    return setting.meaning + (f" ({', '.join(notes)})" if notes else "")


def _comment(text: str, indent: str) -> list[str]:
    lead = f"{indent}# "
    return textwrap.wrap(text[0].upper() + text[1:], 110, initial_indent=lead, subsequent_indent=lead)
