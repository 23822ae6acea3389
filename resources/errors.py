"""What can go wrong outside the rules, as one small tree.

Every message says what happened, where, and what to fix, and holds no secret.
"""


class AssetOwnersError(Exception):
    """The root of all errors that an operator can fix."""


class ConfigurationError(AssetOwnersError):
    """A setting, a secret or an argument is wrong; nothing helps but correcting it."""


class RunEndedError(AssetOwnersError):
    """Dagster no longer counts this run as running; `canceled` where somebody terminated it."""

    def __init__(self, message: str, *, canceled: bool = False) -> None:
        super().__init__(message)
        self.canceled = canceled


class PlanRefusedError(AssetOwnersError):
    """Something speaks against writing a plan now; nothing was written."""


class ServiceError(AssetOwnersError):
    """A service refused, failed, or answered something unusable."""


class AuthenticationError(ServiceError):
    """One side could not prove who it is: password, code, session or certificate."""


class PermissionDeniedError(ServiceError):
    """The session is valid and the account may not do this."""


class ValidationError(ServiceError):
    """The service refused the values sent; its message shows field-level detail, up to a length."""


class NotFoundError(ServiceError):
    """What was asked for does not exist."""


class SessionExpiredError(ServiceError):
    """The session had ended when a call came that is sent once; read the host before sending it again."""


class TransientError(ServiceError):
    """May succeed when retried.

    `retry_after` is the wait the server asked for, in seconds. `not_done` is true where the service said that
    it has not acted (429); otherwise it may have, as behind a proxy that says 503 with Retry-After.
    """

    def __init__(self, message: str, retry_after: float | None = None, *, not_done: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.not_done = not_done

    @property
    def asks_to_wait(self) -> bool:
        """Whether the service, or a proxy in front of it, asked for fewer calls."""
        return self.not_done or self.retry_after is not None


class ProtocolError(ServiceError):
    """The answer is not what the convention promises (HTML, a redirect, a list that never completes)."""


class RedirectError(ProtocolError):
    """The service redirects to an address, of which `location` is the beginning, without secrets."""

    def __init__(self, message: str, location: str) -> None:
        super().__init__(message)
        self.location = location


def why_unreadable(error: Exception) -> str:
    """Return why a file could not be read, without the number and the path that the system's error adds."""
    return getattr(error, "strerror", None) or str(error)
