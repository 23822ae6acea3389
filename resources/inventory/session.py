"""The session of one account at the inventory service, which threads share (rules 5.2, 5.3), and its answers.

The kind of a refusal follows from the HTTP status, or else from field-level detail; never from the message.
"""

import base64
import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from resources.errors import (
    AuthenticationError,
    ConfigurationError,
    LogInPageError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    ServiceError,
    SessionExpiredError,
    ValidationError,
)
from resources.http import Answer, Session, Transport
from resources.locks import hold_lock
from resources.search.asking import values_at
from resources.settings import Platform, home

MAX_FIELDS = 20  # with detail in a refusal, and texts of each
_PAGE_BYTES = 2**18
_LOG_IN = re.compile(
    r"^401$|\b(log|sign)(ged|ed)?[ -]?in\b|\bsession\b|authenticat|^unauthori[sz]ed\W*$", re.IGNORECASE
)
_LOG_IN_PAGE = re.compile(
    r"<input[^>]*type\s*=\s*[\"']?password|<title>[^<]*\b((log|sign)[ -]?[io]n|session)\b", re.IGNORECASE
)
_KINDS = {401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError}


@dataclass(frozen=True)
class Envelope:
    """The members of an answer that follows the convention, and the refusal if it is one."""

    members: Mapping[str, Any]
    refusal: ServiceError | None

    def payload(self) -> Any:
        """Return the member `data`, or else all but status and message; raise the refusal."""
        if self.refusal:
            raise self.refusal
        if "data" in self.members:
            return self.members["data"]
        return {name: value for name, value in self.members.items() if name not in {"status", "message"}}


def open_envelope(
    answer: Answer,
    path: str,
    transport: Transport,
    *,
    sent: str = "",
    setting: str | None = None,
    raw: bool = False,
) -> Envelope:
    """Read an answer of the inventory service.

    `sent` has the settings of the call for every refusal, because the refusal of a tenant or a page size is
    not specified (rules 5.7). `setting` is the one that the path comes from. A `raw` body, of which only
    failures have an envelope, becomes the payload.

    Raises:
        TransientError: a failure with HTTP status 408, 425, 429 or 5xx.
        ProtocolError: no envelope.
    """
    members = answer.members if isinstance(answer.members.get("status"), bool) else {}
    if members["status"] if members else raw and answer.status < 400:
        return Envelope({"data": answer.body} if raw else members, refusal=None)
    transport.raise_if_transient(answer, path + sent)
    unknown_path = setting if answer.status == 404 else None
    if not members and answer.status != 401 and not unknown_path:
        raise ProtocolError(
            f"{transport.where} answered {path}{sent} with HTTP status {answer.status} and no envelope; "
            f"{transport.section}url must be the service itself, without /api/v1. It said: {answer.excerpt}"
        )
    if unknown_path:
        sent = f" with HTTP status 404; if for every asset, correct {unknown_path}"
    return Envelope(members, _refusal(answer, members, f"{transport.where} refused {path}{sent}"))


def may_ask_for_log_in(answer: Answer) -> bool:
    """Return whether an answer may ask for a log-in: status 401, a log-in page, or words about log-ins."""
    if answer.status == 401:
        return True
    if answer.status >= 500 or answer.status in {400, 404, 408, 422, 425, 429}:
        return False
    if answer.body[:100].lstrip().startswith(b"<"):
        return bool(_LOG_IN_PAGE.search(answer.body[:_PAGE_BYTES].decode("utf-8", "replace")))
    members = answer.members
    if members.get("status") is True:
        return False
    names = ("status", "code", "status_code", "statusCode", "error", "message")
    text = answer.body[:200].decode("utf-8", "replace")
    said = [members.get(name) for name in names] if members else [text]
    return any(_LOG_IN.search(str(one).replace("_", " ")) for one in said if isinstance(one, int | str))


def _refusal(answer: Answer, members: Mapping[str, Any], refused: str) -> ServiceError:
    reason, detail = members.get("message"), _field_detail(answer, members)
    if not isinstance(reason, str) or not reason:
        reason = f"HTTP status {answer.status}" + ("" if detail else f": {answer.excerpt}")
    text = f"{refused}: {answer.sanitise(reason)}" + (f" ({detail[:200]})" if detail else "")
    if not members and answer.status == 404:
        return ProtocolError(text)  # it may be a proxy's, after the service has acted
    if answer.status in _KINDS:
        return _KINDS[answer.status](text)
    return ValidationError(text) if detail or answer.status in {400, 422} else ServiceError(text)


def _field_detail(answer: Answer, members: Mapping[str, Any]) -> str:
    """Return the texts of a failure by field name, from any member (rules 5.1)."""
    lists = {name: value for name, value in members.items() if isinstance(value, list)}
    parts = [lists, *(value for value in members.values() if isinstance(value, dict))]
    fields = groupby((text for part in parts for text in _texts(part)), lambda text: text[0])
    return "; ".join(
        f"{answer.sanitise(name)}: {', '.join(answer.sanitise(one) for _, one in islice(texts, MAX_FIELDS))}"
        for name, texts in islice(fields, MAX_FIELDS)
    )


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, list | dict):
        for name, one in value.items() if isinstance(value, dict) else (("", one) for one in value):
            yield from _texts(one, f"{field}.{name}".strip("."))


STEP_SECONDS = 30

log = logging.getLogger(__name__)


class TotpCodes:
    """Six-digit codes for steps of 30 seconds; all runs of a home use each code of an account once."""

    def __init__(
        self, secret: str, platform: Platform, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        letters = re.sub(r"[\s-]", "", secret).upper().rstrip("=")
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
        # A service accepts a code once, and instances may share an account.
        account = hashlib.sha256(f"{platform.email} at {platform.address}".lower().encode()).hexdigest()[:16]
        self._last_step = home() / "mfa" / f"{account}.step"
        self._clock = clock
        self._sleep = sleep

    def next(self) -> str:
        """Return the code of the next unused step, waiting for it if necessary."""
        while (step := self._take_step()) is None:
            wait = STEP_SECONDS - self._clock() % STEP_SECONDS
            log.info(f"Waiting {wait:.0f} s: the current verification code for {self._address} was used")
            self._sleep(wait)
        return self._totp.generate(step * STEP_SECONDS).decode()

    def _take_step(self) -> int | None:
        """Reserve the current step; None if another process of the home has used it."""
        self._last_step.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._last_step.with_suffix(".lock"), f"Verification codes for {self._address}"):
            now = int(self._clock() // STEP_SECONDS)
            try:
                # A step in the future comes from a wrong clock and is ignored.
                if int(self._last_step.read_text()) == now:
                    return None
            except (FileNotFoundError, ValueError):  # none yet, or cut off while it was written
                pass
            self._last_step.write_text(str(now))
        return now


LOGIN = "/api/v1/auth/login"
MFA = "/api/v1/auth/mfa"
PROFILE = "/api/v1/profile/me"


class InventorySession:
    """The session of the platform's account; opening it resolves the secrets, the first call logs in."""

    def __init__(self, platform: Platform, transport: Transport, clock: Callable[[], float]) -> None:
        self._transport = transport
        self._email = platform.email
        self._password = platform.password.resolve("platform.password")
        self._password_place = platform.password.how_to_change
        secret = platform.mfa_secret.resolve("platform.mfa_secret") if platform.mfa_secret else None
        self._codes = TotpCodes(secret, platform, clock, transport.sleep) if secret is not None else None
        self._mfa_required = platform.contract.mfa_required
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._useless_log_ins = 0  # since the last session that worked
        self._has_cookie = False
        self._given_up: str | None = None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._session is not None:
                self._session.close()

    def request(self, method: str, path: str, *, resend: bool = True, **arguments: Any) -> Answer:
        """Send one request; if the session has expired, log in once for all threads and send it again.

        `resend` is false for a request that changes something (rules 5.2).

        Raises:
            AuthenticationError: the log-in or its session was refused.
            SessionExpiredError: the session had expired, and `resend` is false; the next call logs in.
            TransientError, ProtocolError: as from `Transport.send`.
        """
        for _ in range(2):
            session = self._require_session(path)
            answer = self._send(session, method, path, **arguments)
            if answer is not None:
                self._useless_log_ins = 0
                return answer
            with self._lock:
                if session is self._session:  # another thread may have logged in since
                    session.kept.clear()
                    self._session = None
            if not resend:
                # The next call logs in, because a failure of the log-in would hide this answer.
                raise SessionExpiredError(
                    f"{self._transport.where}: the session of {self._email} had expired before {path} "
                    f"(status 401, or a log-in page); nothing was done; {self._advice()}"
                )
        raise self._give_up_twice(path)

    def _send(self, session: Session, method: str, path: str, **arguments: Any) -> Answer | None:
        """Send one request; None if the session has ended: a 401, a log-in page or a redirect to one."""
        try:
            answer = self._transport.send(session, method, path, **arguments)
        except LogInPageError:
            return None
        if not may_ask_for_log_in(answer):
            return answer
        # Words may be about log-ins to a host: while the session lives, the account's profile is there.
        lives = answer.status != 401 and path != PROFILE and self._send(session, "GET", PROFILE)
        return answer if lives else None

    def _require_session(self, path: str) -> Session:
        """Return the session; log in if there is none, unless the last two log-ins were useless."""
        with self._lock:
            if self._given_up:
                raise AuthenticationError(self._given_up)
            if self._session is None:
                if self._useless_log_ins > 1:
                    raise self._give_up_twice(path)
                self._session = self._log_in()
                self._has_cookie = bool(self._session.kept)
                self._useless_log_ins += 1
            return self._session

    def _give_up_twice(self, path: str) -> AuthenticationError:
        return self._give_up(
            f"answers {path} twice with HTTP status 401 or a log-in page, with a log-in in between; "
            + self._advice()
        )

    def _advice(self) -> str:
        """Return what to do about sessions that do not last, judging by the answers."""
        advice = "check that the account may use the API, and that no other program logs in with it"
        if not self._has_cookie:
            advice = "no cookie came back after the log-in: check platform.url, and any proxy in between"
        elif self._transport.connections > 1:
            advice += "; if each answer ends the previous session, set writes.concurrency to 1"
        return advice + ("" if self._codes else "; set platform.mfa_secret if it needs a code")

    def _give_up(self, reason: str) -> AuthenticationError:
        """Refuse all further calls; return the error, with the first reason given."""
        with self._lock:
            self._given_up = self._given_up or f"{self._transport.where} {reason}"
            return AuthenticationError(self._given_up)

    def _log_in(self) -> Session:
        """Log in, with a code if one is needed; after a refused code log in again with the next one."""
        refusal: ServiceError | None = None
        for _ in range(2):
            session = self._transport.new_session()  # a refused code may have ended the first one
            if not self._needs_code(session):
                return session
            if self._codes is None:
                raise self._give_up("asks for a verification code; set platform.mfa_secret")
            code = self._codes.next()
            refusal = self._call(session, "POST", MFA, secrets=(code,), data={"code": code}).refusal
            if refusal is None:
                return session
        raise self._give_up(
            f"refused two verification codes in a row; check platform.mfa_secret and this machine's clock "
            f"({refusal})"
        )

    def _needs_code(self, session: Session) -> bool:
        """Send the password; return whether the session also needs a code (rules 5.3)."""
        form = {"email": self._email, "password": self._password}
        # Messages are stored, and the account may be a person's.
        hidden = {"secrets": (self._password,), "personal": (self._email,)}
        login = self._call(session, "POST", LOGIN, **hidden, data=form)
        if self._mfa_required.equals in values_at(login.members, self._mfa_required.member):
            return True
        if login.refusal:
            raise self._give_up(
                "refused the log-in; check platform.email, platform.password "
                f"({self._password_place}) and that platform.url ends before /api/v1 ({login.refusal})"
            )
        if self._codes is None:
            return False
        answer = self._send(session, "GET", PROFILE)
        return answer is None or open_envelope(answer, PROFILE, self._transport).refusal is not None

    def _call(self, session: Session, method: str, path: str, **arguments: Any) -> Envelope:
        return open_envelope(self._transport.send(session, method, path, **arguments), path, self._transport)
