"""The sandbox inventory's platform accounts: passwords, one-time codes, sessions and profiles."""

import base64
import hashlib
import hmac
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from sandbox.inventory_database import Database, Origin

Role = Literal["admin", "reader"]

TOTP_STEP_SECONDS = 30


@dataclass(frozen=True)
class Account:
    """A platform account as it is set up; only a hash of the password is stored.

    `mfa_secret` is a TOTP secret in base32, of any length; without one no code is asked for. `roles` maps a
    tenant's id to the account's role there.
    """

    email: str
    password: str = field(repr=False)
    mfa_secret: str | None = field(default=None, repr=False)
    roles: Mapping[str, Role] = field(default_factory=dict)
    unread_notifications: int = 0


@dataclass(frozen=True)
class Member:
    """A stored account, as its sessions see it."""

    id: str
    email: str
    needs_code: bool
    roles: Mapping[str, Role]
    unread_notifications: int


@dataclass(frozen=True)
class Session:
    """A live session; `verified` is false while a code is still to come."""

    token: str
    member: Member
    verified: bool


class Accounts:
    """The accounts and sessions kept in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check_password(self, email: str, password: str) -> Member | None:
        """The account when the password is right, else None."""
        rows = self._database.rows("select salt, password_hash from accounts where email = ?", email)
        if not rows or not hmac.compare_digest(_password_hash(password, rows[0][0]), rows[0][1]):
            return None
        return self._member(email)

    def accept_code(self, email: str, code: str) -> bool:
        """Whether a code is right: of this step or one beside it, and later than any code accepted before."""
        now = int(self._database.clock() // TOTP_STEP_SECONDS)
        with self._database.transaction() as connection:
            ((secret, last),) = connection.execute(
                "select mfa_secret, mfa_last_step from accounts where email = ?", (email,)
            ).fetchall()
            for step in range(max(now - 1, last + 1), now + 2):
                if hmac.compare_digest(totp_code(secret, step * TOTP_STEP_SECONDS).encode(), code.encode()):
                    connection.execute("update accounts set mfa_last_step = ? where email = ?", (step, email))
                    return True
        return False

    def open_session(self, email: str, *, verified: bool) -> str:
        """Starts a session and returns its token, the cookie's value."""
        token = secrets.token_urlsafe(32)
        self._database.rows(
            "insert into sessions (token, email, verified, opened_at) values (?, ?, ?, ?)",
            token,
            email,
            verified,
            self._database.clock(),
        )
        return token

    def use_session(self, token: str, *, seconds: float, calls: int | None) -> Session | None:
        """Counts one call of a session; None when it is unknown, `seconds` old, or has had its `calls`."""
        rows = self._database.rows(
            "update sessions set calls = calls + 1"
            " where token = ? and opened_at > ? and (? is null or calls < ?) returning email, verified",
            token,
            self._database.clock() - seconds,
            calls,
            calls,
        )
        return Session(token, self._member(rows[0][0]), bool(rows[0][1])) if rows else None

    def verify_session(self, token: str) -> None:
        """Completes a session after its code was accepted; its lifetime starts now."""
        self._database.rows(
            "update sessions set verified = 1, opened_at = ?, calls = 0 where token = ?",
            self._database.clock(),
            token,
        )

    def expire_sessions(self) -> None:
        """Ends every session at once."""
        self._database.rows("delete from sessions")

    def page(self, *, query: str, first: int, size: int) -> tuple[int, list[Member]]:
        """How many accounts have `query` in their address, and `size` of them from number `first` on."""
        emails = [email for (email,) in self._database.rows("select email from accounts order by rowid")]
        found = [email for email in emails if query.casefold() in email.casefold()]
        return len(found), [self._member(email) for email in found[first : first + size]]

    def avatar(self, email: str) -> tuple[bytes, str] | None:
        """The account's picture and its media type, None before the first upload."""
        ((body, media_type),) = self._database.rows(
            "select avatar, avatar_type from accounts where email = ?", email
        )
        return None if body is None else (body, media_type)

    def set_avatar(self, body: bytes, media_type: str, origin: Origin) -> None:
        """Stores the picture of `origin.account`; the journal gets the SHA-256 of the old and the new one."""
        with self._database.transaction() as connection:
            old = self.avatar(origin.account)
            connection.execute(
                "update accounts set avatar = ?, avatar_type = ? where email = ?",
                (body, media_type, origin.account),
            )
            old_digest = hashlib.sha256(old[0]).hexdigest() if old else None
            change = (old_digest, hashlib.sha256(body).hexdigest())
            self._database.write_journal(None, {"avatar": change}, origin)

    def _member(self, email: str) -> Member:
        ((account_id, secret, roles, unread),) = self._database.rows(
            "select id, mfa_secret, roles, unread_notifications from accounts where email = ?", email
        )
        return Member(account_id, email, secret is not None, json.loads(roles), unread)


def insert_accounts(connection: sqlite3.Connection, accounts: Iterable[Account]) -> None:
    """Stores accounts in an empty table; their ids are `a-1`, `a-2` and so on."""
    for number, account in enumerate(accounts, 1):
        salt = secrets.token_bytes(16)
        connection.execute(
            "insert into accounts (email, id, salt, password_hash, mfa_secret, roles, unread_notifications)"
            " values (?, ?, ?, ?, ?, ?, ?)",
            (
                account.email,
                f"a-{number}",
                salt,
                _password_hash(account.password, salt),
                account.mfa_secret,
                json.dumps(dict(account.roles)),
                account.unread_notifications,
            ),
        )


def totp_code(secret: str, at: float) -> str:
    """The six digits of a base32 secret at a time in seconds since the epoch (SHA-1, steps of 30 seconds)."""
    letters = secret.replace(" ", "").upper().rstrip("=")
    key = base64.b32decode(letters + "=" * (-len(letters) % 8))
    sha1 = SHA1()  # noqa: S303 - what RFC 6238 and every authenticator app start from
    return TOTP(key, 6, sha1, TOTP_STEP_SECONDS, enforce_key_length=False).generate(int(at)).decode()


def _password_hash(password: str, salt: bytes) -> bytes:
    # Cheap on purpose: the sandbox's passwords are public, and tests log in often.
    return hashlib.scrypt(password.encode(), salt=salt, n=1024, r=8, p=1)
