"""Sends one notice by Apprise in its own process, because Apprise does not limit the answers of services."""

import io
import json
import logging
import resource
import sys
from typing import Any

MAX_BYTES = 2**30


def service_of(address: str) -> Any:
    """Return Apprise's service for an address; None if it knows none."""
    from apprise import Apprise, AppriseAsset  # noqa: PLC0415  (a tenth of a second that most runs do not need)

    # A redirect would send the secrets in its headers to another host.
    asset = AppriseAsset(app_id="asset-owners", app_desc="asset-owners", app_url="", http_redirects=False)
    return Apprise.instantiate(address, asset=asset, suppress_exceptions=True)


if __name__ == "__main__":  # prints why the notice was not delivered, unmasked
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    logging.basicConfig(stream=(logged := io.StringIO()), level=logging.WARNING, format="%(message)s")
    address, notice = json.load(sys.stdin)
    try:
        sent = service_of(address).notify(**notice)
        why = "" if sent else " ".join(logged.getvalue().split()) or "the service refused it"
    except Exception as error:  # noqa: BLE001  (of any of a hundred services)
        why = f"{type(error).__name__} in Apprise"
    json.dump(why, sys.stdout)
