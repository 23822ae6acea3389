"""Sends notices by chat, mail or webhook, to addresses as Apprise reads them.

An address contains secrets, so messages mask each part of it. A notice that fails does not fail a run.
"""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Any, Literal
from urllib.parse import unquote

from ownership.names import printable
from resources import send_notice
from resources.errors import ConfigurationError
from resources.findings import Finding, attempt
from resources.redaction import redact_start
from resources.settings.models import Instance, Secret

Kind = Literal["info", "failure"]
SECONDS = 30  # time for all notices of a run; Apprise gives up earlier on most services
MAX_REASON = 300  # characters of the reason why a notice was not delivered


def send_notices(instance: Instance, text: str, *, kind: Kind = "info") -> dict[str, str]:
    """Send a text to each address of `notify`, in parallel; return why some failed, by setting."""
    notice = {"title": instance.name, "body": text, "notify_type": kind}
    addresses = _addresses(instance)
    with ThreadPool(len(addresses) or 1) as senders:  # which an interrupted run does not wait for
        reasons = senders.starmap(partial(_send, notice=notice), addresses.items())
        return {setting: why for setting, why in zip(addresses, reasons, strict=True) if why}


def check_addresses(instance: Instance, *, send: bool) -> Iterator[Finding]:
    """Check that each address can be used; `send` tries it with a notice."""
    why = send_notices(instance, "This is a test: `asset-owners check --notify` sent it.") if send else {}
    for setting, secret in _addresses(instance).items():
        service = yield from attempt(setting, partial(_service, setting, secret))
        if service is None:
            continue
        if setting in why:
            yield Finding("wrong", setting, f"{service.service_name}: not delivered: {why[setting]}")
        else:
            done = "delivered" if send else "try it with --notify"
            yield Finding("ok", setting, f"{service.service_name}: {done}")


def _addresses(instance: Instance) -> Mapping[str, Secret]:
    return {f"notify.{number}": secret for number, secret in enumerate(instance.notify)}


def _service(setting: str, secret: Secret) -> Any:
    """Return Apprise's service for an address; ConfigurationError: it is not set, or not known."""
    logging.getLogger("apprise").disabled = True  # it logs addresses
    if service := send_notice.service_of(secret.resolve(setting)):
        return service
    raise ConfigurationError(
        f"{setting}: is not the address of a known service, such as mailto:// or slack://; see "
        "https://appriseit.com/services/"
    )


def _send(setting: str, secret: Secret, notice: Mapping[str, str]) -> str:
    """Send a notice to one address; return why it was not delivered, or ""."""
    try:
        _service(setting, secret)
        address = secret.resolve(setting)
    except ConfigurationError as error:
        return str(error).removeprefix(f"{setting}: ")
    command = [sys.executable, "-P", "-m", send_notice.__name__]
    given = json.dumps([address, notice]).encode()
    try:
        sender = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS, check=True)  # noqa: S603  (ours)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS:g} seconds"
    except subprocess.CalledProcessError as error:
        return f"the sending process exited with status {error.returncode}"
    parts = [part for part in re.split(r"[/:@?&=,]+", unquote(address.partition("://")[2])) if len(part) > 3]
    return printable(redact_start(json.loads(sender.stdout), [address, *parts], MAX_REASON))
