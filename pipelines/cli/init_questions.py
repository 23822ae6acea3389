"""What `asset-owners init` asks on a terminal; each answer is tried right away, as `check` does it."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
import yaml

from assets_defs.launch import today_of, window_of
from pipelines.cli.terminal import confirm, print_finding, prompt
from resources.errors import ConfigurationError
from resources.findings import Finding, attempt, attempt_all, reached
from resources.inventory.client import AssetInventory, inventory_transport
from resources.inventory.session import PROFILE
from resources.inventory.try_inventory import listed, logged_in
from resources.search import open_source
from resources.search.asking import Asker, search_transport
from resources.search.propose import Proposal, propose
from resources.search.source import Logs
from resources.settings import Instance
from resources.settings.fields import Secret
from resources.settings.files import checked_instance
from resources.settings.presets import presets
from resources.try_names import MATCH, name_findings

Trial = Callable[[Instance], Iterator[Finding]]
SECRETS = {"password": "password", "mfa_secret": "TOTP secret"}
OWN = {
    "index": "Index pattern",
    "user_field": "Field with the user",
    "hostname_field": "Field with the host",
    "time_field": "Field with the time",
    "query": "Query that selects logons",
}
"""What is asked of an index with fields of its own."""
FURTHER = {
    "ca_file": ("ca_file", "File with the certificate authority to trust"),
    "--index": ("index", "Index pattern that it may read"),
}
"""What is asked only where the words of a finding name it: the setting and the question."""


def ask(content: dict[str, Any], path: Path, *, logs: list[str]) -> Proposal | None:
    """Ask for what an instance file has no default for, and put the answers into its content.

    Return the way of shipping that was found in the search service, or that somebody named; None: neither,
    or `logs` has it.
    """
    platform: dict[str, Any] = content["platform"]
    found: list[Proposal] = []
    signed_in: list[bool] = []
    names: list[Finding] = []

    def search_address(instance: Instance) -> Iterator[Finding]:
        yield from reached(search_transport(instance), "POST", "/_search")

    def search_log_in(instance: Instance) -> Iterator[Finding]:
        with Asker(instance) as client:
            ask_for = partial(propose, client, own_fields=True)
            if proposed := (yield from attempt("newest logon", ask_for)):
                state = "ok" if proposed.preset else "warning"
                yield Finding(state, "newest logon", f"is in {proposed.index}: {proposed.title}")
                found.append(proposed)

    def inventory_address(instance: Instance) -> Iterator[Finding]:
        yield from reached(inventory_transport(instance), "GET", PROFILE)

    def inventory_log_in(instance: Instance) -> Iterator[Finding]:
        with AssetInventory(instance) as inventory:
            if (yield from logged_in(inventory)):
                signed_in.append(True)

    def tenant(instance: Instance) -> Iterator[Finding]:
        if signed_in:
            with AssetInventory(instance) as inventory, Logs(instance, open_source) as opened:
                yield from listed("hosts", inventory)
                if found:
                    window = window_of(instance, today_of(instance))
                    names[:] = name_findings(instance, opened, inventory, window)

    def read() -> Instance:
        return checked_instance(content, path)

    _ask_until_good(content, {"url": "Address of the search service"}, read, search_address)
    _ask_until_good(content, {"username": "Its user", "password": ""}, read, search_log_in)
    if found and not (found[-1].preset or logs):
        content |= found[-1].own
        _ask_until_good(content, OWN, read, _logons)
        found.append(Proposal("", content["index"], {key: content[key] for key in OWN}))
    elif not found and not logs:
        ways = f"How logons are shipped ({', '.join(presets())}; Enter: another, in ECS fields)"
        if named := prompt(ways, default="", show_default=False, value_proc=_known_way):
            found.append(Proposal(named, presets()[named].settings["index"]))
    for proposed in found[-1:]:
        content |= proposed.settings
    _ask_until_good(platform, {"url": "Address of the inventory service"}, read, inventory_address)
    account = {"email": "Its account", "password": "", "mfa_secret": ""}
    _ask_until_good(platform, account, read, inventory_log_in)
    _ask_until_good(platform, {"tenant_id": "Tenant"}, read, tenant)
    for finding in names:
        if finding.what == MATCH and finding.rows is not None:
            print_finding(finding)
            if confirm("Ignore the domain part of host names (rules.hostname_match: short)?", default=True):
                content["rules"]["hostname_match"] = "short"
    return found[-1] if found else None


def _logons(instance: Instance) -> Iterator[Finding]:
    """Try index, fields and query as `check` does."""
    with Logs(instance, open_source) as opened:
        window = window_of(instance, today_of(instance))
        yield from opened.find(lambda _, log: log.check(window))


def _ask_until_good(
    section: dict[str, Any], questions: dict[str, str], read: Callable[[], Instance], trial: Trial
) -> None:
    """Ask for keys of a section, and try them, until that goes well or somebody keeps the answers."""
    while True:
        typed, before = list[str](), section.copy()
        for key, question in questions.items():
            if key in SECRETS:
                typed += _ask_for_variable(section, key)
            else:
                known = section.get(key)
                # The address of the template leads nowhere, and Enter would try it again and again.
                is_made_up = key == "url" and (urlsplit(str(known)).hostname or "").endswith(".example")
                section[key] = prompt(question, default=None if is_made_up else known)
        try:
            instance = read()
        except (
            ConfigurationError
        ) as error:  # no file may have this answer, such as an address with a password
            print_finding(Finding("wrong", "answer", str(error).partition(": ")[2]))
            section |= before
            continue
        secrets = [section.get(key, {}).get("env") for key in SECRETS if key in questions]
        if lacking := [variable for variable in filter(None, secrets) if not os.environ.get(variable)]:
            print_finding(Finding("not tried", "log-in", f"{' and '.join(lacking)} is not set"))
            return
        findings = [*attempt_all("answer", partial(trial, instance))]
        for finding in findings:
            print_finding(finding)
        wrong = " ".join(finding.text for finding in findings if finding.state == "wrong")
        further = {key: question for word, (key, question) in FURTHER.items() if word in wrong}
        more = "".join(f", and for the {question[0].lower()}{question[1:]}" for question in further.values())
        if not wrong or confirm(f"Keep these answers, although they do not work? No asks again{more}."):
            return
        for variable in typed:
            del os.environ[variable]
        for key, question in further.items():
            if answer := prompt(question, default="", show_default=False):
                section[key] = str(Path(answer).expanduser().absolute()) if key == "ca_file" else answer


def _ask_for_variable(section: dict[str, Any], key: str) -> Iterator[str]:
    """Ask which environment variable has a secret; yield it where it is not set and the secret is typed."""
    default = "".join(
        place if kind == "env" else f"{{{kind}: {place}}}" for kind, place in section.get(key, {}).items()
    )
    unless = "" if default else " (Enter: none)"
    text = f"Name of the environment variable with its {SECRETS[key]}, or {{file: PATH}}{unless}"
    place = prompt(text, default=default, show_default=bool(default), value_proc=_place)
    if not place:
        return
    section[key] = place
    if (variable := place.get("env")) and not os.environ.get(variable):
        text = f"{variable} is not set. The {SECRETS[key]}, to try it now (Enter: do not)"
        os.environ[variable] = prompt(text, default="", show_default=False, hide_input=True)
        yield variable


def _place(answer: str) -> dict[str, str]:
    """Return where a secret lies; an answer that may be the secret itself is asked for again."""
    try:
        place = yaml.safe_load(answer) if answer.startswith("{") else {"env": answer} if answer else {}
        return Secret.model_validate(place).model_dump(exclude_none=True, mode="json") if place else {}
    except (ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter("Do not type the password here; it is asked for next, hidden") from error


def _known_way(answer: str) -> str:
    """Return the name of a way of shipping, or nothing; another answer is asked for again."""
    if answer and answer not in presets():
        raise typer.BadParameter(f"{answer!r} is not one of them")
    return answer
