"""The endpoints of the sandbox inventory service, after the specification.

Every handled failure is sent with HTTP status 200. Paths and parameters are those of the default contract
(rules 5.5).
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, QueryParams, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sandbox.inventory_state import AssetType, InventoryState, Origin, Session

API = "/api/v1"
ASSETS_LIST, ASSETS_GET, ASSETS_UPDATE = (f"{API}/assets/{what}" for what in ("list", "get", "update"))
COOKIE = "session"
DEFAULT_PAGE_SIZE = 25


@dataclass
class Hooks:
    """Plain functions with which tests make the service misbehave; run in worker threads, they may sleep.

    `faults` is asked before a request is handled and may answer in its place. `after` sees the answer when
    all is applied and may replace it (see `BrokenOff`). `request.state.parameters` holds what was sent.
    """

    faults: Callable[[Request], Response | None] | None = None
    after: Callable[[Request, Response], Response | None] | None = None


class BrokenOff(Response):
    """An answer whose connection is closed before the body arrives."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Announces a body and sends none; the server then closes the connection."""
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})


class RefusedError(Exception):
    """Becomes an envelope with status false; `errors` is field-level detail (field to messages)."""

    def __init__(self, message: str, errors: Mapping[str, list[str]] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.errors = errors


class NoSessionError(Exception):
    """The request has no session, an expired one, or one that still waits for its code."""


def invalid(name: str, problem: str) -> RefusedError:
    """Return the validation failure of one field."""
    return RefusedError("The request is not valid.", {name: [problem]})


@dataclass(frozen=True)
class Call:
    """One request: what was sent, and under which id it is journalled."""

    request: Request
    parameters: FormData | QueryParams
    id: str

    @property
    def path(self) -> str:
        """The path that was asked for."""
        return self.request.url.path

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter that is a text; it must be given unless there is a default."""
        value = self.parameters.get(name) or default
        if not isinstance(value, str):
            raise invalid(name, "This field is required.")
        return value

    def whole_number(self, name: str, default: int) -> int:
        """Return a parameter that is a whole number, `default` when it is not given."""
        value = str(self.parameters.get(name, default))
        if not re.fullmatch(r"-?[0-9]{1,9}", value):
            raise invalid(name, "This field must be a whole number.")
        return int(value)

    def origin(self, session: Session) -> Origin:
        """Return what the journal says about a change made by this call."""
        return Origin(session.account.email, self.path, self.id)


Endpoint = Callable[[Call], Response | Mapping[str, Any] | None]


def envelope(
    data: Any = None, *, status: bool = True, message: str | None = None, **members: Any
) -> dict[str, Any]:
    """Return the response envelope (rules 5.1), with further members where an answer has them."""
    return {"status": status, "message": message, "data": data, **members}


class _Api:
    """The endpoints; each returns the payload for the envelope's `data`, or a whole response."""

    def __init__(self, state: InventoryState, page_size_cap: int, hooks: Hooks) -> None:
        self.state = state
        self.page_size_cap = page_size_cap
        self.hooks = hooks

    def routes(self) -> list[Route]:
        endpoints: list[tuple[str, str, Endpoint]] = [
            ("POST", "/auth/login", self.log_in),
            ("POST", "/auth/mfa", self.verify_code),
            ("GET", "/profile/me", self.profile),
            ("GET", "/profile/avatar", self.avatar),
            ("POST", "/profile/avatar", self.upload_avatar),
            ("POST", "/assets/list", self.list_assets),
            ("POST", "/assets/get", self.get_asset),
            ("POST", "/assets/update", self.update_asset),
        ]
        return [
            Route(API + path, self._serve(endpoint), methods=[method]) for method, path, endpoint in endpoints
        ]

    def _serve(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            parameters = request.query_params if request.method == "GET" else await request.form()
            call = Call(request, parameters, secrets.token_hex(8))
            request.state.parameters = call.parameters
            response = None
            if self.hooks.faults:
                response = await run_in_threadpool(self.hooks.faults, request)
            if response is None:
                response = self._respond(endpoint, call)
            if self.hooks.after:
                response = await run_in_threadpool(self.hooks.after, request, response) or response
            response.headers["X-Request-ID"] = call.id
            return response

        return serve

    def _respond(self, endpoint: Endpoint, call: Call) -> Response:
        try:
            answer = endpoint(call)
        except NoSessionError:
            return JSONResponse(envelope(status=False, message="Sign in to continue."), 401)
        except RefusedError as failure:
            members = {"errors": failure.errors} if failure.errors else {}
            return JSONResponse(envelope(status=False, message=failure.message, **members))
        return answer if isinstance(answer, Response) else JSONResponse(envelope(answer))

    def _session(self, call: Call, *, verified: bool = True) -> Session:
        session = self.state.accounts.session(call.request.cookies.get(COOKIE, ""))
        if session is None or (verified and not session.verified):
            raise NoSessionError
        return session

    def _tenant(self, call: Call, *, write: bool = False) -> tuple[Session, str]:
        session = self._session(call)
        tenant = call.text("tenant_id", "")
        if not tenant:
            raise RefusedError("No tenant is given.")
        role = session.account.roles.get(tenant)
        if role is None:
            raise RefusedError("You have no role in this tenant.")
        if write and role != "admin":
            raise RefusedError("You do not have permission to do this.")
        return session, tenant

    def log_in(self, call: Call) -> Response:
        opened = self.state.accounts.log_in(call.text("email"), call.text("password"))
        if opened is None:
            raise RefusedError("The e-mail address or the password is wrong.")
        token, session = opened
        response = JSONResponse(envelope({"mfa_required": not session.verified}))
        response.set_cookie(COOKIE, token, httponly=True, samesite="lax")
        return response

    def verify_code(self, call: Call) -> None:
        session = self._session(call, verified=False)
        if session.verified:
            raise RefusedError("This session does not wait for a code.")
        if not self.state.accounts.accept_code(session, call.text("code")):
            raise RefusedError("The verification code is wrong or was used before.")

    def profile(self, call: Call) -> dict[str, Any]:
        account = self._session(call).account
        tenants = [{"id": tenant, "role": role} for tenant, role in account.roles.items()]
        return {"email": account.email, "tenants": tenants}

    def avatar(self, call: Call) -> Response:
        avatar = self.state.accounts.avatars.get(self._session(call).account.email)
        if avatar is None:
            raise RefusedError("There is no picture yet.")
        body, media_type = avatar
        return Response(body, media_type=media_type)

    def upload_avatar(self, call: Call) -> None:
        session = self._session(call)
        upload = call.parameters.get("file")
        if not isinstance(upload, UploadFile):
            raise invalid("file", "This field must be a file.")
        if not (upload.content_type or "").startswith("image/"):
            raise invalid("file", "This file must be an image.")
        picture = upload.file.read(), str(upload.content_type)
        self.state.accounts.avatars[session.account.email] = picture

    def _page(self, call: Call) -> tuple[int, int]:
        size = call.whole_number("size", DEFAULT_PAGE_SIZE)
        if size < 1:
            raise invalid("size", "This field must be 1 or more.")
        size = min(size, self.page_size_cap)
        page = call.whole_number("page", 0)
        if page < 0:
            raise invalid("page", "This field must be 0 or more.")
        return page * size, size

    def list_assets(self, call: Call) -> dict[str, Any]:
        _, tenant = self._tenant(call)
        first, size = self._page(call)
        asset_type = call.text("type")
        if asset_type not in ("host", "user"):
            raise invalid("type", "This field must be host or user.")
        total, items = self.state.page(tenant, asset_type, first=first, size=size)
        return {"size": total, "data": items}

    def get_asset(self, call: Call) -> dict[str, Any]:
        _, tenant = self._tenant(call)
        _, item = self._find(tenant, call.text("id"))
        return item

    def update_asset(self, call: Call) -> dict[str, Any]:
        session, tenant = self._tenant(call, write=True)
        asset_id = call.text("id")
        asset_type, _ = self._find(tenant, asset_id)
        names = call.parameters.keys() - {"tenant_id", "id"}
        if not names:
            raise RefusedError("No field to set is given.")
        unknown = sorted(names - self.state.field_names(asset_type))
        if unknown:
            raise RefusedError(
                "The request is not valid.", {name: ["There is no such field."] for name in unknown}
            )
        changes = {name: self._value(tenant, name, call.parameters.getlist(name)) for name in sorted(names)}
        return self.state.update_asset(asset_id, changes, call.origin(session))

    def _find(self, tenant: str, asset_id: str) -> tuple[AssetType, dict[str, Any]]:
        found = self.state.find(tenant, asset_id)
        if found is None:
            raise RefusedError("The asset was not found.")
        return found

    def _value(self, tenant: str, name: str, sent: list[Any]) -> Any:
        """Return what a field's form values mean: an empty one clears it, a repeated key makes a list."""
        values = [value for value in sent if value]
        if name == "asset_owner":
            values = [self._owner_id(tenant, value) for value in values]
        return (values[0] if values else None) if len(values) < 2 else values

    def _owner_id(self, tenant: str, value: str) -> Any:
        found = self.state.find(tenant, value)
        if found is None or found[0] != "user":
            raise invalid("asset_owner", "This field must be the id of a user asset.")
        return found[1]["id"]


async def _http_error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse(envelope(status=False, message=error.detail), error.status_code)
    return JSONResponse(envelope(status=False, message="The service failed."), 500)


def create_app(state: InventoryState, page_size_cap: int, hooks: Hooks) -> Starlette:
    """Return the service as an ASGI application on an open state, which stays the caller's to close."""
    handlers = {HTTPException: _http_error, Exception: _http_error}
    return Starlette(routes=_Api(state, page_size_cap, hooks).routes(), exception_handlers=handlers)
