"""What the sandbox inventory remembers: accounts, sessions, assets, and a journal of what was changed.

Nothing here knows HTTP. Tests and demos look in and change things by hand while the service runs.
"""

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

Role = Literal["admin", "reader"]
AssetType = Literal["host", "user"]

TOTP_STEP_SECONDS = 30

# The fields the specification names (rules 5.6); they can be set although no asset carries them yet.
SPECIFIED_FIELDS: Mapping[AssetType, tuple[str, ...]] = {
    "host": ("asset_owner", "department", "criticality", "search_agent_name"),
    "user": (
        "user_email",
        "user_department",
        "criticality",
        "directory_user_sam_account_name",
        "directory_user_surname",
    ),
}


@dataclass(frozen=True)
class Account:
    """A platform account.

    `mfa_secret` is a TOTP secret in base32, of any length; without one no code is asked for. `roles` maps a
    tenant's id to the account's role there.
    """

    email: str
    password: str = field(repr=False)
    mfa_secret: str | None = field(default=None, repr=False)
    roles: Mapping[str, Role] = field(default_factory=dict)


@dataclass
class Session:
    """A session; `verified` is false while a code is still to come."""

    account: Account
    verified: bool


class Origin(NamedTuple):
    """Where a change came from; `path` and `request_id` are None when it was made beside the API."""

    account: str
    path: str | None = None
    request_id: str | None = None


class JournalEntry(NamedTuple):
    """One field set by one accepted call, also when the new value equals the old one; see `Origin`.

    All fields set by one request share its `request_id`.
    """

    seq: int
    account: str
    path: str | None
    request_id: str | None
    asset_id: str
    field: str
    old: Any
    new: Any


class Accounts:
    """The accounts, their sessions and pictures."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._last_steps: dict[str, int] = {}
        self.known: dict[str, Account] = {}
        self.avatars: dict[str, tuple[bytes, str]] = {}

    def reset(self, accounts: Iterable[Account]) -> None:
        """Keep these accounts, and no session of any."""
        with self._lock:
            self.known = {account.email: account for account in accounts}
            self._last_steps, self.avatars = {}, {}
            self._sessions.clear()

    def log_in(self, email: str, password: str) -> tuple[str, Session] | None:
        """Open a session when the password is right; return its token, the cookie's value, with it."""
        with self._lock:
            account = self.known.get(email)
            if account is None or not secrets.compare_digest(account.password.encode(), password.encode()):
                return None
            token = secrets.token_urlsafe(32)
            self._sessions[token] = Session(account, account.mfa_secret is None)
            return token, self._sessions[token]

    def accept_code(self, session: Session, code: str) -> bool:
        """Complete a session if its code is of this step or one beside it, and later than any earlier one."""
        account, now = session.account, int(self._clock() // TOTP_STEP_SECONDS)
        with self._lock:
            last = self._last_steps.get(account.email, 0)
            for step in range(max(now - 1, last + 1), now + 2):
                if totp_code(account.mfa_secret or "", step * TOTP_STEP_SECONDS) == code:
                    self._last_steps[account.email] = step
                    session.verified = True
                    return True
        return False

    def session(self, token: str) -> Session | None:
        """Return the session of a token; None when it is unknown or was ended."""
        return self._sessions.get(token)

    def expire_sessions(self) -> None:
        """End every session."""
        with self._lock:
            self._sessions.clear()


class InventoryState:
    """The state of one inventory; safe to use from several threads.

    `clock` gives the seconds since the epoch. Accounts and assets are kept in the file at `path` when the
    state is closed.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._lock = threading.RLock()
        self.accounts = Accounts(clock)
        self._forget()
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.accounts.reset(Account(**account) for account in kept["accounts"])
            for tenant, asset_type, item in kept["assets"]:
                self.add_assets(tenant, asset_type, [item])

    def _forget(self) -> None:
        self._assets: dict[str, tuple[str, AssetType, dict[str, Any]]] = {}
        self._lists: dict[tuple[str, AssetType], list[dict[str, Any]]] = {}
        self._fields = {kind: set(names) for kind, names in SPECIFIED_FIELDS.items()}
        self._journal: list[JournalEntry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Store accounts and assets."""
        with self._lock:
            kept = {
                "accounts": [asdict(account) for account in self.accounts.known.values()],
                "assets": list(self._assets.values()),
            }
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._path.write_text(json.dumps(kept), encoding="utf-8")

    def reset(
        self,
        accounts: Iterable[Account],
        hosts: Iterable[Mapping[str, Any]],
        users: Iterable[Mapping[str, Any]],
        tenant: str,
    ) -> None:
        """Forget everything, sessions and journal too; keep these accounts and one tenant's assets."""
        with self._lock:
            self.accounts.reset(accounts)
            self._forget()
            self.add_assets(tenant, "user", users)
            self.add_assets(tenant, "host", hosts)

    def add_assets(self, tenant: str, asset_type: AssetType, items: Iterable[Mapping[str, Any]]) -> None:
        """Append assets, each with an `id` of its own among all assets, to what a tenant has."""
        with self._lock:
            for item in items:
                kept = dict(item)
                self._assets[str(item["id"])] = (tenant, asset_type, kept)
                self._lists.setdefault((tenant, asset_type), []).append(kept)
                self._fields[asset_type].update(kept)

    def assets(self, asset_type: AssetType) -> list[dict[str, Any]]:
        """Return all assets of one type, `id` and fields side by side, in the order they were added."""
        with self._lock:
            return [dict(item) for _, kind, item in self._assets.values() if kind == asset_type]

    def asset(self, asset_id: str) -> dict[str, Any]:
        """Return one asset, `id` and fields side by side. Raises KeyError when there is none."""
        with self._lock:
            return dict(self._assets[asset_id][2])

    def find(self, tenant: str, asset_id: str) -> tuple[AssetType, dict[str, Any]] | None:
        """Return type and item of one of a tenant's assets, None when the tenant has no such asset."""
        with self._lock:
            owner, asset_type, item = self._assets.get(asset_id, (None, "host", {}))
            return (asset_type, dict(item)) if owner == tenant else None

    def set_field(self, asset_id: str, name: str, value: Any, by: str = "person") -> None:
        """Set a field beside the API, as a person would. Raises KeyError when there is no such asset."""
        self.update_asset(asset_id, {name: value}, Origin(by))

    def update_asset(self, asset_id: str, changes: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """Set and journal fields of an asset and return it. Raises KeyError when there is none."""
        with self._lock:
            item = self._assets[asset_id][2]
            for name, value in changes.items():
                entry = JournalEntry(len(self._journal) + 1, *origin, asset_id, name, item.get(name), value)
                self._journal.append(entry)
            item.update(changes)
            return dict(item)

    def journal(self) -> list[JournalEntry]:
        """Return every change since the last reset, oldest first."""
        with self._lock:
            return list(self._journal)

    def field_names(self, asset_type: AssetType) -> set[str]:
        """Return the fields of this type of asset: the specification's, and those of added assets."""
        return self._fields[asset_type]

    def page(
        self, tenant: str, asset_type: AssetType, *, first: int, size: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return how many assets a tenant has, and `size` of them from `first` on."""
        with self._lock:
            items = self._lists.get((tenant, asset_type), [])
            return len(items), [dict(item) for item in items[first : first + size]]


def totp_code(secret: str, at: float) -> str:
    """Return the six digits of a base32 secret at a time since the epoch (SHA-1, steps of 30 seconds)."""
    letters = secret.replace(" ", "").upper().rstrip("=")
    key = base64.b32decode(letters + "=" * (-len(letters) % 8))
    sha1 = SHA1()  # noqa: S303 - what RFC 6238 and every authenticator app start from
    return TOTP(key, 6, sha1, TOTP_STEP_SECONDS, enforce_key_length=False).generate(int(at)).decode()
