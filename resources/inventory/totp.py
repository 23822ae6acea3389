"""Verification codes of an account that needs one to log in (TOTP, RFC 6238)."""

import base64
import hashlib
import logging
from collections.abc import Callable

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from resources.errors import ConfigurationError
from resources.locks import locked
from resources.settings import Platform, home

STEP_SECONDS = 30

log = logging.getLogger(__name__)


class TotpCodes:
    """Codes of six digits for steps of 30 seconds; of one account, each is given once to all runs of a home.

    A service accepts a code once. The last step that was given is kept in the home, in a file named by a hash
    of platform and e-mail address: instances may share an account.
    """

    def __init__(
        self, secret: str, platform: Platform, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        letters = "".join(secret.split()).upper().rstrip("=")
        try:
            key = base64.b32decode(letters + "=" * (-len(letters) % 8))
        except ValueError:
            key = b""
        if not key:
            raise ConfigurationError(
                "platform.mfa_secret: not a TOTP secret in base32; copy what the service shows for typing in"
            )
        sha1 = SHA1()  # noqa: S303  (what RFC 6238 and every authenticator app start from)
        self._totp = TOTP(key, 6, sha1, STEP_SECONDS, enforce_key_length=False)
        self._address = platform.address
        account = hashlib.sha256(f"{platform.email} at {platform.address}".lower().encode()).hexdigest()[:16]
        self._last_step = home() / "mfa" / f"{account}.step"
        self._clock = clock
        self._sleep = sleep

    def next(self) -> str:
        """Return the code of the present step, or wait for one that no other run of the home has used."""
        while (step := self._take_step()) is None:
            wait = STEP_SECONDS - self._clock() % STEP_SECONDS
            log.info(f"Waiting {wait:.0f} s: the present verification code for {self._address} was used")
            self._sleep(wait)
        return self._totp.generate(step * STEP_SECONDS).decode()

    def _take_step(self) -> int | None:
        """Return the present step, which no other process of the home will take; None if one has taken it.

        Only present steps are taken, so one that lies ahead was taken by a clock that was wrong.
        """
        self._last_step.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._last_step.with_suffix(".lock"), f"Verification codes for {self._address}"):
            now = int(self._clock() // STEP_SECONDS)
            try:
                if int(self._last_step.read_text()) == now:
                    return None
            except (FileNotFoundError, ValueError):  # none yet, or cut off while it was written
                pass
            self._last_step.write_text(str(now))
        return now
