"""Notices to people by chat, mail or webhook, whose addresses are written as Apprise reads them.

An address holds secrets, so neither it nor what Apprise logs of it is shown; its warnings are, without any
part of the address. Nothing that goes wrong here fails a run.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from threading import Thread, local
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from ownership.names import printable
from resources.errors import ConfigurationError
from resources.findings import Finding, attempt
from resources.redaction import redacted
from resources.settings.fields import Secret
from resources.settings.models import Instance

if TYPE_CHECKING:
    from apprise import NotifyBase

Kind = Literal["info", "failure"]
SECONDS = 30
"""How long a run waits for all notices together; Apprise gives up earlier on most services."""
_sending = local()
"""`warnings`: what was logged as one in this thread, which sends a notice."""


def _keep_to_itself(record: logging.LogRecord) -> bool:
    """Keep what Apprise logs, and connections of its threads, out of every log: they hold addresses."""
    warnings = getattr(_sending, "warnings", None)
    if warnings is not None and record.levelno >= logging.WARNING:
        warnings.append(record.getMessage().strip())
    return warnings is None and record.name != "apprise"


def send_notices(
    instance: Instance, text: str, *, kind: Kind = "info", seconds: float = SECONDS
) -> dict[str, str]:
    """Send a text to each address of `notify`, at the same time; return why some failed, by setting.

    Chats and webhooks show or carry its `kind`.
    """
    why = dict.fromkeys(_addresses(instance), f"no answer within {seconds:g} seconds")

    def deliver(setting: str, secret: Secret) -> None:
        try:
            why[setting] = _send(setting, secret, instance.name, text, kind)
        except ConfigurationError as error:
            why[setting] = str(error).removeprefix(f"{setting}: ")

    # The name of a host may take minutes to look up, and nothing can end that.
    threads = [Thread(target=deliver, args=one, daemon=True) for one in _addresses(instance).items()]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {setting: reason for setting, reason in why.copy().items() if reason}


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


def _service(setting: str, secret: Secret) -> "NotifyBase":
    """Return what sends to an address; ConfigurationError: the address is not set, or not a known one."""
    from apprise import Apprise, AppriseAsset  # noqa: PLC0415  (a tenth of a second that most runs do not need)

    for logger in ("apprise", "urllib3.connectionpool"):
        logging.getLogger(logger).addFilter(_keep_to_itself)
    # Redirected, a request would take the secrets of its headers to another host.
    asset = AppriseAsset(app_id="asset-owners", app_desc="asset-owners", app_url="", http_redirects=False)
    if service := Apprise.instantiate(secret.resolve(setting), asset=asset, suppress_exceptions=True):
        return service
    raise ConfigurationError(
        f"{setting}: is not an address of a service; write it as https://appriseit.com/services/ says, such "
        "as mailto:// or slack://"
    )


def _send(setting: str, secret: Secret, title: str, text: str, kind: Kind) -> str:
    """Send a text to one address; return why it was not delivered, or nothing."""
    _sending.warnings = []
    service = _service(setting, secret)
    try:
        if service.notify(body=text, title=title, notify_type=kind):
            return ""
    except Exception as error:  # noqa: BLE001  (of any of a hundred services; a notice never fails a run)
        return f"{type(error).__name__} in Apprise"
    address = secret.resolve(setting)
    parts = [part for part in re.split(r"[/:@?&=,]+", unquote(address.partition("://")[2])) if len(part) > 3]
    return printable(redacted(" ".join(_sending.warnings), [address, *parts])) or "the service refused it"
