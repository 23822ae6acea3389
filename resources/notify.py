"""Notices to people by chat, mail or webhook, whose addresses are written as Apprise reads them.

An address holds secrets, so neither it nor what Apprise logs of it is shown; its warnings are, without any
part of the address. Nothing that goes wrong here fails a run.
"""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal
from urllib.parse import unquote

from ownership.names import printable
from resources import send_notice
from resources.errors import ConfigurationError
from resources.findings import Finding, attempt
from resources.redaction import redacted_start
from resources.settings.fields import Secret
from resources.settings.models import Instance

Kind = Literal["info", "failure"]
SECONDS = 30
"""How long a run waits for all notices together; Apprise gives up earlier on most services."""
MAX_REASON = 300
"""Characters that are shown of why a notice was not delivered."""


def send_notices(
    instance: Instance, text: str, *, kind: Kind = "info", seconds: float = SECONDS
) -> dict[str, str]:
    """Send a text to each address of `notify`, at the same time; return why some failed, by setting.

    Chats and webhooks show or carry its `kind`.
    """
    notice = {"title": instance.name, "body": text, "notify_type": kind}

    def deliver(setting: str, secret: Secret) -> str:
        try:
            _service(setting, secret)
            return _send(secret.resolve(setting), notice, seconds)
        except ConfigurationError as error:
            return str(error).removeprefix(f"{setting}: ")

    addresses = _addresses(instance)
    with ThreadPoolExecutor(len(addresses) or 1) as senders:
        reasons = senders.map(deliver, addresses.keys(), addresses.values())
        return {setting: why for setting, why in zip(addresses, reasons, strict=True) if why}


def notify_findings(instance: Instance, *, send: bool) -> Iterator[Finding]:
    """Say for each address whether it can be used; `send` tries it with a notice."""
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
    """Return what sends to an address; ConfigurationError: the address is not set, or not a known one."""
    logging.getLogger("apprise").disabled = True  # it logs addresses
    if service := send_notice.service_of(secret.resolve(setting)):
        return service
    raise ConfigurationError(
        f"{setting}: is not an address of a service; write it as https://appriseit.com/services/ says, such "
        "as mailto:// or slack://"
    )


def _send(address: str, notice: Mapping[str, str], seconds: float) -> str:
    """Send a notice to one address; return why it was not delivered, or nothing."""
    command = [sys.executable, "-P", "-m", send_notice.__name__]
    given = json.dumps([address, notice]).encode()
    try:
        sender = subprocess.run(command, input=given, capture_output=True, timeout=seconds, check=True)  # noqa: S603  (ours)
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} seconds"
    except subprocess.CalledProcessError as error:
        return f"what sends it ended with status {error.returncode}"
    parts = [part for part in re.split(r"[/:@?&=,]+", unquote(address.partition("://")[2])) if len(part) > 3]
    return printable(redacted_start(json.loads(sender.stdout), [address, *parts], MAX_REASON))
