"""The errors outside the rules; every message says what happened, where, and what to fix, without secrets."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class AssetOwnersError(Exception):
    """An error that an operator can fix."""


class ConfigurationError(AssetOwnersError):
    """A setting, a secret or an argument is wrong and must be corrected."""


class RunEndedError(AssetOwnersError):
    """Dagster no longer counts this run as running; `canceled`: it was terminated."""

    def __init__(self, message: str, *, canceled: bool = False) -> None:
        super().__init__(message)
        self.canceled = canceled


class PlanRefusedError(AssetOwnersError):
    """A plan must not be written now; nothing was written."""


class ServiceError(AssetOwnersError):
    """A service refused, failed, or gave an invalid answer."""


class AuthenticationError(ServiceError):
    """A password, code, session or certificate is not accepted."""


class PermissionDeniedError(ServiceError):
    """The account may not do this."""


class ValidationError(ServiceError):
    """The service refused the values sent; the message has field-level detail."""


class NotFoundError(ServiceError):
    """The requested object does not exist."""


class SessionExpiredError(ServiceError):
    """The session had expired for a call that is sent once; read the host before sending it again."""


class TransientError(ServiceError):
    """A call may succeed when retried.

    `retry_after` is the wait that the service asked for, in seconds. `not_done`: the service has not acted
    (429); otherwise it may have, such as behind a proxy that answers 503.
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
    """The answer does not follow the convention (HTML, a redirect, a list that never completes)."""


class LogInPageError(ProtocolError):
    """The service redirects to a page for logging in, judging by its address."""


def call_each(names: Iterable[str], call: Callable[[str], T], *, joint: str = "; ") -> dict[str, T]:
    """Call for each name; one ConfigurationError has the messages of all."""
    results, wrong = dict[str, T](), []
    for name in names:
        try:
            results[name] = call(name)
        except ConfigurationError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigurationError(joint.join(wrong))
    return results


def why_unreadable(error: Exception) -> str:
    """Return why a file could not be read, without error number and path."""
    return getattr(error, "strerror", None) or str(error)
