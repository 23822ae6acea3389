"""`asset-owners init`: an instance file to fill in, with every setting explained."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import yaml

from assets_defs.run_request import today_of, window_of
from pipelines.cli.files import require_file
from pipelines.cli.options import confirm, file_option, flag, folded, is_on_terminal, print_finding, prompt
from resources.errors import ConfigurationError
from resources.findings import Finding, attempt, attempt_all, check_connection
from resources.inventory.client import AssetInventory, inventory_transport
from resources.inventory.session import PROFILE
from resources.inventory.try_inventory import MATCH, check_first_page, check_log_in, compare_names
from resources.search import open_source
from resources.search.asking import Asker, search_transport
from resources.search.explaining import NAME_THE_INDEX, Proposal, propose
from resources.search.source import Logs
from resources.settings import Instance, command_line, instances_folder
from resources.settings.files import validate_instance
from resources.settings.models import Secret, presets, read_text, slug_of

Trial = Callable[[Instance], Iterator[Finding]]
SECRETS = {"password": "password", "mfa_secret": "TOTP secret"}
SERVICE = ("name", "url", "username", "password", "ca_file")
OWN = {
    "user_field": "Field with the user",
    "hostname_field": "Field with the host",
    "time_field": "Field with the time",
    "query": "Query that selects logons (* is every document)",
}
"""What is asked of an index with fields of its own."""
ASKED_IF_NAMED = {
    "ca_file": ("ca_file", "File with the certificate authority to trust"),
    NAME_THE_INDEX: ("index", "Index pattern to search"),
}
"""What is asked only where the words of a finding name it: the setting and the question."""
TENANT = "42"
"""The tenant of the template, which does not exist."""
NO_DEFAULT: Mapping[str, Any] = {"default": "", "show_default": False}


def ask(content: dict[str, Any], path: Path, found: list[Proposal], *, logs: list[str]) -> None:
    """Ask for what an instance file has no default for, and put the answers into its content.

    The last of `found` is the way of shipping that is in the search service, or that somebody named; it stays
    empty where there is neither, or `logs` has it.
    """
    platform: dict[str, Any] = content["platform"]
    signed_in: list[bool] = []
    names: list[Finding] = []

    def search_address(instance: Instance) -> Iterator[Finding]:
        yield from check_connection(search_transport(instance), "POST", "/_search")

    def search_log_in(instance: Instance) -> Iterator[Finding]:
        with Asker(instance) as client:
            ask_for = partial(propose, client, own_fields=True)
            if proposed := (yield from attempt("newest logon", ask_for)):
                state = "ok" if proposed.preset else "warning"
                if proposed not in found[-1:]:
                    yield Finding(state, "newest logon", f"is in {proposed.index}: {proposed.title}")
                found.append(proposed)

    def inventory_address(instance: Instance) -> Iterator[Finding]:
        yield from check_connection(inventory_transport(instance), "GET", PROFILE)

    def inventory_log_in(instance: Instance) -> Iterator[Finding]:
        with AssetInventory(instance) as inventory:
            if (yield from check_log_in(inventory)):
                signed_in.append(True)

    def tenant(instance: Instance) -> Iterator[Finding]:
        if signed_in:
            with AssetInventory(instance) as inventory, Logs(instance, open_source) as opened:
                yield from check_first_page("hosts", inventory)
                if found:
                    window = window_of(instance, today_of(instance))
                    names[:] = compare_names(inventory, opened, window)

    def read() -> Instance:
        return validate_instance(content, path)

    _ask_until_good(content, {"url": "Address of the search service"}, read, search_address)
    _ask_until_good(content, {"username": "User of the search service", "password": ""}, read, search_log_in)
    if found and not (found[-1].preset or logs):
        _ask_for_fields(content, found, read, search_log_in)
    elif not found and not logs:
        others = "Enter if it is none of these, and the fields have the names of ECS, such as user.name"
        ways = f"How are logons shipped? One of {', '.join(presets())}. {others}"
        if named := prompt(ways, value_proc=_known_way, **NO_DEFAULT):
            found.append(Proposal(named, presets()[named].settings["index"]))
    for proposed in found[-1:]:
        content |= proposed.settings
    _ask_until_good(platform, {"url": "Address of the inventory service"}, read, inventory_address)
    account = {"email": "Account of the inventory service", "password": "", "mfa_secret": ""}
    _ask_until_good(platform, account, read, inventory_log_in)
    _ask_until_good(platform, {"tenant_id": "Tenant"}, read, tenant)
    for finding in names:
        if finding.what == MATCH and finding.rows is not None:
            print_finding(finding)
            if confirm("Ignore the domain part of host names (rules.hostname_match: short)?", default=True):
                content["rules"]["hostname_match"] = "short"


def _ask_for_fields(
    content: dict[str, Any], found: list[Proposal], read: Callable[[], Instance], propose_again: Trial
) -> None:
    """Ask for an index and its own fields; those found in it are the defaults."""

    def another_index(instance: Instance) -> Iterator[Finding]:
        if instance.index != found[-1].index:
            yield from propose_again(instance)

    content["index"] = found[-1].index
    _ask_until_good(content, {"index": "Index pattern"}, read, another_index)
    if not found[-1].preset:
        content |= {**dict.fromkeys(OWN), **found[-1].own, "index": content["index"]}
        _ask_until_good(content, OWN, read, _logons)
        found.append(Proposal("", content["index"], {key: content[key] for key in OWN}))


def _logons(instance: Instance) -> Iterator[Finding]:
    """Try index, fields and query as `check` does."""
    with Logs(instance, open_source) as opened:
        window = window_of(instance, today_of(instance))
        yield from opened.find(lambda _, log: log.check(window))


def _ask_until_good(
    section: dict[str, Any], questions: dict[str, str], read: Callable[[], Instance], trial: Trial
) -> None:
    """Ask for keys of a section, and try them, until they work or somebody keeps the answers.

    A key that a finding names is asked for right away, and tried with the same answers.
    """
    typed, asked, valid = list[str](), questions, section.copy()
    while True:
        for key, question in asked.items():
            if key in SECRETS:
                typed += _ask_for_variable(section, key)
            else:
                known = section.get(key)
                # The address of the template leads nowhere, and Enter would try it again and again.
                is_made_up = key == "url" and (urlsplit(str(known)).hostname or "").endswith(".example")
                is_made_up = is_made_up or (key == "tenant_id" and known == TENANT)
                section[key] = prompt(question, default=None if is_made_up else known)
        try:
            instance = read()
        except ConfigurationError as error:  # such as an address with a password
            print_finding(Finding("wrong", "answer", str(error).partition(": ")[2]))
            section.clear()
            section.update(valid)
            asked = questions
            continue
        valid = section.copy()
        secrets = [section.get(key, {}).get("env") for key in SECRETS if key in questions]
        if lacking := [variable for variable in filter(None, secrets) if not os.environ.get(variable)]:
            print_finding(Finding("not tried", "log-in", f"{' and '.join(lacking)} is not set"))
            return
        findings = [*attempt_all("answer", partial(trial, instance))]
        for finding in findings:
            print_finding(finding)
        wrong = " ".join(finding.text for finding in findings if finding.state == "wrong")
        asked = {} if _ask_further(section, wrong) else questions
        if not asked:
            continue
        is_to_go_on = not wrong or (NAME_THE_INDEX in wrong and "username" not in wrong)  # the log-in works
        if is_to_go_on or confirm(_KEEP):
            return
        for variable in typed:
            del os.environ[variable]
        typed = []


def _ask_further(section: dict[str, Any], wrong: str) -> bool:
    """Ask for what a finding names; return whether it was given."""
    given = False
    for word, (key, question) in ASKED_IF_NAMED.items():
        if word in wrong and (answer := prompt(f"{question} (Enter: none)", **NO_DEFAULT)):
            section[key] = str(Path(answer).expanduser().absolute()) if key == "ca_file" else answer
            given = True
    return given


def _ask_for_variable(section: dict[str, Any], key: str) -> Iterator[str]:
    """Ask which environment variable has a secret; yield it where it is not set and the secret is typed."""
    default = "".join(
        place if kind == "env" else f"{{{kind}: {place}}}" for kind, place in section.get(key, {}).items()
    )
    unless = "" if default else " (Enter: none)"
    text = f"Name of the variable with its {SECRETS[key]}, or path of a file with it{unless}"
    place = prompt(text, default=default, show_default=bool(default), value_proc=partial(_place, key=key))
    if not place:
        return
    section[key] = place
    if (variable := place.get("env")) and not os.environ.get(variable):
        text = f"{variable} is not set. The {SECRETS[key]}, to try it now (Enter: do not)"
        os.environ[variable] = prompt(text, hide_input=True, **NO_DEFAULT)
        yield variable


def _place(answer: str, key: str) -> dict[str, str]:
    """Return where a secret lies; an answer that may be the secret itself is asked for again."""
    if not answer:
        return {}
    is_variable = answer.isidentifier() and answer.isupper()
    try:
        file = Path(answer).expanduser().absolute()
        named = {"file": str(file)} if file.is_file() and not is_variable else {"env": answer}
        place = yaml.safe_load(answer) if answer.startswith("{") else named
        found = Secret.model_validate(place).model_dump(exclude_none=True, mode="json")
        if (secret := Path(found.get("file", ""))).is_absolute():  # another begins where the file will be
            read_text(secret)
    except (ValueError, OSError, RuntimeError, yaml.YAMLError) as error:  # as of a path that is too long
        text = "No file of that path can be read.\n" * ("/" in answer)
        text += f"Do not type the {SECRETS[key]} here: name a variable, such as {key.upper()}"
        raise typer.BadParameter(f"{text};\ninit then asks for it, hidden") from error
    return found


def _known_way(answer: str) -> str:
    """Return the name of a way of shipping, or nothing; another answer is asked for again."""
    if answer and answer not in presets():
        raise typer.BadParameter("That is not one of them")  # it may be a password
    return answer


SETTINGS = Path(__file__).parents[2] / "resources" / "settings"
SCHEMA = SETTINGS / "instance.schema.json"
_ANY_INDEX = ",".join(dict.fromkeys(["logs-*", *(preset.settings["index"] for preset in presets().values())]))

_EXAMPLE = "not set; an example".replace(" ", r"[\n #]+")  # ends the comment above a key
_NOT_SET = re.compile(rf"(?:[\n #]+\({_EXAMPLE}\)|;[\n #]+{_EXAMPLE}(?=\)))(?=\)?\n *\w)")
_ASK = "Shall I ask for the settings, and test each answer? No: you get a file to fill in."
_KEEP = "This does not work yet. Keep it as it is, and go on? No: answer again."
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
            help="Address of the search service. Without --logs, init reads its newest logon: one search.",
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
    stopped = False
    if path != Path("-") and is_on_terminal() and confirm(_ASK, default=True):
        asked: dict[str, Any] = {**yaml.safe_load(text), **service, "index": index or _ANY_INDEX}
        asked["name"], path = _ask_for_name(asked["name"], path, is_named=is_named)
        proposed, stopped = _ask_until_stopped(asked, path, logs or [])
        answered = {*SERVICE, *(OWN if proposed and proposed.own else ())}
        service |= {key: value for key, value in asked.items() if key in answered and value is not None}
        indented = asked["platform"] | {k: v for k, v in asked["rules"].items() if k == "hostname_match"}
        index = asked["index"] if asked["index"] != _ANY_INDEX else None
        if proposed:
            logs, index = logs or [*filter(None, [proposed.preset])], index or proposed.index
    elif url and not logs:
        content = {**yaml.safe_load(text), **service, "index": index or _ANY_INDEX}
        with Asker(validate_instance(content, path)) as client:
            proposed = propose(client)
        logs, index = [proposed.preset], index or proposed.index
        shipped = f"{presets()[proposed.preset].title} ({proposed.preset})"
        print(f"The newest logon is in {proposed.index}: {shipped}.", file=sys.stderr)
    text = _with_keys(text.replace("#scan:", "scan:", 1), service)
    text = _with_keys(text, {**indented, "first_day": _first_day()}, "  ")
    text = _NOT_SET.sub("", with_logs(text, logs or [], index))
    text = text.replace("instance.schema.json", SCHEMA.as_uri(), 1)
    check = command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))
    text = text.replace("asset-owners check --instance FILE", check, 1)
    validate_instance(yaml.safe_load(text), path)  # no option puts a secret into the file in clear text
    if path == Path("-"):
        print(text, end="")
        return
    _write_new(path, text)
    named = " and ".join(dict.fromkeys(re.findall(r"(?m)^ *\w+: \{env: (\w+)\}", text)))
    done = f"Set {named}" if named else "Look at its rules"
    todo = "Fill in the others there" if stopped else done if indented else _FILL_IN
    said = f"\n{path} has the answers so far" if stopped else f"{path} is written"
    print(f"{folded(f'{said}. {todo}, then try it:')}\n    {check}")
    if stopped:
        raise typer.Abort


def _ask_for_name(default: str, path: Path, *, is_named: bool) -> tuple[str, Path]:
    """Ask for the name of the instance; return it with its new file, which has that name or was named."""
    if is_named and path.exists():
        raise ConfigurationError(f"{path} is there already; name another FILE")

    def with_file(name: str) -> tuple[str, Path]:
        file = path if is_named else path.with_stem(slug_of(name) or "instance")
        if file.exists():
            raise typer.BadParameter(f"{file.name} is there already; give another name")
        return name, file

    return prompt("Name of this instance", default=default, value_proc=with_file)


def _ask_until_stopped(content: dict[str, Any], path: Path, logs: list[str]) -> tuple[Proposal | None, bool]:
    """Ask all questions; return the way of shipping, if there is one, and whether somebody stopped."""
    found, before, stopped = list[Proposal](), str(content), False
    try:
        ask(content, path, found, logs=logs)
    except (typer.Abort, KeyboardInterrupt):
        stopped = bool(found) or str(content) != before
        if not stopped:
            print("\nNothing was written. To begin again, use the same command.")
            raise
    return (found[-1] if found else None), stopped


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; name another one") from error


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
