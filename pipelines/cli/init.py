"""`asset-owners init`: an instance file to fill in, with every setting explained."""

import re
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pipelines.cli.files import require_file
from pipelines.cli.init_questions import ask
from pipelines.cli.options import file_option, flag
from pipelines.cli.terminal import confirm, is_on_terminal, prompt
from resources.errors import ConfigurationError
from resources.search.asking import Asker
from resources.search.propose import propose
from resources.settings import command_line, instances_folder
from resources.settings.files import checked_instance
from resources.settings.names import slug_of
from resources.settings.presets import presets

SETTINGS = Path(__file__).parents[2] / "resources" / "settings"
_ANY_INDEX = ",".join(dict.fromkeys(["logs-*", *(preset.settings["index"] for preset in presets().values())]))

_ASK = "Answer some questions, each of which is tried right away? Otherwise the file is to fill in."
_FILL_IN = "Fill in names, addresses and where the secrets lie"


def init(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="File to write, - for standard output; never an existing one.",
            show_default="in ASSET_OWNERS_HOME/instances, by the instance's name",
        ),
    ] = None,
    *,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"How logons are shipped: {', '.join(presets())}. Several count together.",
            show_default="as specified: Windows logons in the fields of ECS",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the search service. Without --logs, its newest logon is looked at: one search.",
            show_default=False,
        ),
    ] = None,
    username: Annotated[
        str | None, typer.Option(metavar="NAME", help="Search-service user.", show_default="asset-owners")
    ] = None,
    password_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with that user's password.")
    ] = "SEARCH_PASSWORD",  # noqa: S107  (a variable's name)
    index: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Index pattern to search.", show_default="that of the logs"),
    ] = None,
    ca_file: Annotated[
        Path | None, file_option("Certificate authority of the service.", default="the system's")
    ] = None,
    ignore_ssl: Annotated[bool, flag("--ignore-ssl", "Skip certificate checks.")] = False,
) -> None:
    """Write an instance file to fill in; on a terminal it asks, and tries each answer.

    Example: head-office.yaml --logs elastic-agent
    """
    is_named = path is not None
    if path is None:
        path = instances_folder() / "instance.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
    require_file("FILE", path)
    if unknown := set(logs or ()) - presets().keys():
        raise ConfigurationError(
            f"--logs: {min(unknown)!r} is not a known way of shipping; write one of {', '.join(presets())}"
        )
    text = (SETTINGS / "example.yaml").read_text(encoding="utf-8")
    service: dict[str, Any] = {
        "url": url,
        "username": username,
        "password": {"env": password_env},
        "ignore_ssl": ignore_ssl or None,
        "ca_file": str(ca_file.absolute()) if ca_file else None,
    }
    service = {key: value for key, value in service.items() if value is not None}
    indented: dict[str, Any] = {}
    if path != Path("-") and is_on_terminal() and confirm(_ASK, default=True):
        asked: dict[str, Any] = {**yaml.safe_load(text), **service, "index": index or _ANY_INDEX}
        asked["name"] = prompt("Name of this instance", default=asked["name"])
        if not is_named:
            path = path.with_stem(slug_of(asked["name"]) or "instance")
        if path.exists():
            raise ConfigurationError(f"{path} is there already; give another name, or name another FILE")
        proposed = ask(asked, path, logs=logs or [])
        answered = {"name", "url", "username", "password", "ca_file", *(proposed.own if proposed else ())}
        service |= {key: value for key, value in asked.items() if key in answered}
        indented = asked["platform"] | {k: v for k, v in asked["rules"].items() if k == "hostname_match"}
        index = asked["index"] if asked["index"] != _ANY_INDEX else None
        if proposed:
            logs, index = logs or [*filter(None, [proposed.preset])], index or proposed.index
    elif url and not logs:
        content = {**yaml.safe_load(text), **service, "index": index or _ANY_INDEX}
        with Asker(checked_instance(content, path)) as client:
            proposed = propose(client)
        logs, index = [proposed.preset], index or proposed.index
        found = f"{proposed.index}: {presets()[proposed.preset].title} ({proposed.preset})"
        print(f"The newest logon is in {found}.", file=sys.stderr)
    text = _with_keys(text.replace("#scan:", "scan:", 1), service)
    text = _with_keys(text, {**indented, "first_day": _first_day()}, "  ")
    text = with_logs(text, logs or [], index)
    check = command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))
    schema = (SETTINGS / "instance.schema.json").as_uri()
    text = text.replace("instance.schema.json", schema, 1)
    text = text.replace("asset-owners check --instance FILE", check, 1)
    checked_instance(yaml.safe_load(text), path)  # no option puts a secret into the file in clear text
    if path == Path("-"):
        print(text, end="")
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another one") from error
    filled_in = "Set the variables that it names" if indented else _FILL_IN
    print(f"{path} is written. {filled_in}, then try it:\n    {check}")


def with_logs(text: str, names: list[str], index: str | None) -> str:
    """Return an instance file that counts these logs; for one, its fields and query are written out."""
    chosen = [presets()[name] for name in names]
    settings = {"logs": names} if len(chosen) > 1 else chosen[0].settings if chosen else {}
    text = _with_keys(text, {**settings, **({"index": index} if index else {})})
    if not chosen:
        return text
    comments = "\n#\n".join(preset.comment() for preset in chosen)
    text = text.replace("# Index pattern to search\n", f"{comments}\n#\n# Index pattern to search\n", 1)
    if any(preset.rules.get("hostname_match") for preset in chosen):
        text = _with_keys(text, {"hostname_match": "short"}, "  ")
    excluded = [preset.rules.get("exclude_users") for preset in chosen]
    if any(excluded):
        usual = yaml.safe_load(text)["rules"]["exclude_users"]
        users = list(dict.fromkeys(user for users in excluded for user in users or usual))
        listed = re.compile(r"(?m)^  exclude_users:\n(    - .*\n)+")
        text = listed.sub(lambda _: _line("exclude_users", users, "  ") + "\n", text, count=1)
    return text


def _first_day() -> date:
    """Return the first of a month, before any window that `tune` tries: Dagster lists the days since then."""
    return (datetime.now(UTC) - timedelta(days=90)).date().replace(day=1)


def _with_keys(text: str, values: dict[str, Any], indent: str = "") -> str:
    """Set keys where the file has them, commented out or not."""
    for key, value in values.items():
        line = _line(key, value, indent)
        text = re.sub(rf"(?m)^{indent}#?{key}:.*$", lambda _, line=line: line, text, count=1)
    return text


def _line(key: str, value: Any, indent: str) -> str:
    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return f"{indent}{key}: " + dumped.removesuffix("...\n").rstrip()
