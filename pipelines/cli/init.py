"""`asset-owners init`: an instance file to fill in, with every setting explained."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from resources.errors import ConfigurationError
from resources.settings import command_line
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

    Raises:
        ConfigurationError: the file exists, or cannot be written.
    """
    text = instance_file(SCHEMA.as_uri(), path)
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


def instance_file(schema: str, path: Path) -> str:
    """Return the file's text: required settings with placeholders, all others as comments.

    Args:
        schema: where editors find the JSON schema, an address or path.
        path: where the file will lie, `-` where that is not known.
    """
    head = _HEAD.format(schema=schema, check=_check(path))
    return "\n".join([head, *_body(instance_settings(), "")]) + "\n"


def _check(path: Path) -> str:
    """The command that tries the file."""
    return command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))


def _body(section: Section, indent: str) -> Iterator[str]:
    for setting in section.settings:
        yield from _comment(_meaning(setting), indent)
        if setting.name == "exclude_users":
            yield from _comment(
                "Windows in another language has other names for its built-in accounts", indent
            )
            yield f"{indent}exclude_users:"
            yield from (f"{indent}  - {as_yaml(each):<17} # {why}" for each, why in EXCLUDED_USERS.items())
        else:
            value = setting.example if setting.required or _is_unset(setting) else setting.default
            yield f"{indent}{'' if _is_active(setting) else '#'}{setting.name}: {as_yaml(value)}"
    for inner in section.sections:
        is_active = any(_is_active(setting) for setting in inner.settings)
        yield ""
        yield from _comment(inner.meaning, indent)
        yield f"{indent}{'' if is_active else '#'}{inner.name}:"
        yield from _body(inner, f"{indent}  ")


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
