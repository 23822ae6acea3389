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
MAX_STEPS_AHEAD = 24 * 3600 // STEP_SECONDS
"""A step that lies further ahead was taken by a clock that was wrong."""

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
        """Return the code of this step, or wait for the first step whose code was not given yet."""
        step = self._take_step()
        if (wait := step * STEP_SECONDS - self._clock()) > 0:
            log.info(f"Waiting {wait:.0f} s: the verification codes for {self._address} until then were used")
            self._sleep(wait)
        return self._totp.generate(step * STEP_SECONDS).decode()

    def _take_step(self) -> int:
        """Return a step that no other process of the home has taken or will take."""
        self._last_step.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._last_step.with_suffix(".lock"), f"Verification codes for {self._address}"):
            now = int(self._clock() // STEP_SECONDS)
            try:
                last = int(self._last_step.read_text())
            except (FileNotFoundError, ValueError):  # none yet, or cut off while it was written
                last = 0
            step = now if last > now + MAX_STEPS_AHEAD else max(now, last + 1)
            self._last_step.write_text(str(step))
        return step
