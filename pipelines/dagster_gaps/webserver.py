"""`asset-owners-webserver`: Dagster's web server with `/healthz` and reports, safe from other sites' pages.

Dagster's has no log-in and accepts GraphQL even from an `<img>` URL, so any page that somebody opens in a
browser could start runs with `force`, or undo them, even if only this machine reaches the server. Not needed
once it checks `Host` and `Origin`.
"""

import os
import socket
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from dagster_webserver import cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.dagster_gaps.health import routes
from resources.settings import home, is_slug, tables_location, ui_url
from resources.store.tables import Tables

WRITES = ("/graphql", "/report_asset_")
"""Parts of the paths that change something; the server may add a prefix."""
UNFRAMED = [(b"content-security-policy", b"frame-ancestors 'none'"), (b"x-frame-options", b"DENY")]
"""Headers against frames: in one, a click on another page could send a form of ours."""


class SameOriginGuard:
    """Refuses changes that a page of another site asks for, or that are not a POST, and forbids frames.

    Browsers name the site of the page in `Sec-Fetch-Site` (to this machine and by https) or `Origin`;
    programs send neither. A site whose own name resolves to this server (DNS rebinding) passes both, so a
    request must use one of `names`, or an IP address, which `TrustedHostMiddleware` cannot allow. `url` is
    the address of this server for browsers: a proxy may pass on another one, or without its port.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = (), url: str | None = None) -> None:
        self._app = app
        self._address = urlsplit(url or "").netloc.lower() or None  # "" is what `Origin: null` names
        self._names = {"localhost", socket.gethostname().lower(), *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""

        async def send_unframed(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            headers = {"headers": [*message["headers"], *UNFRAMED]} if is_start else {}
            await send({**message, **headers})

        app = self._app
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            host = headers.get("host", "localhost")
            origin, site = headers.get("origin", f"//{host}"), headers.get("sec-fetch-site")
            own_hosts = {host, headers.get("x-forwarded-host"), self._address}
            same = site in {"same-origin", "none"} if site else origin.partition("//")[2] in own_hosts
            writes = any(path in scope["path"] for path in WRITES)
            if not self._is_known(host):
                text = f"This server is not known as {host}. If it is, add that to ASSET_OWNERS_UI_HOSTS."
                app = PlainTextResponse(text, 421)
            elif writes and not (same and scope.get("method", "POST") == "POST"):
                text = "Only pages of this server (ASSET_OWNERS_UI_URL), and programs, by POST."
                app = PlainTextResponse(text, 403)
        await app(scope, receive, send_unframed)

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False


def report(request: Request) -> Response:
    """Return the report of an instance; its own policy forbids it to load anything."""
    from assets_defs.report import published_report  # noqa: PLC0415  (the server does not wait for it)

    slug = request.path_params["slug"]
    with suppress(FileNotFoundError):
        if is_slug(slug):
            tables = Tables(home(), slug, location=tables_location())
            return HTMLResponse(published_report(tables).read_bytes())
    return PlainTextResponse("There is no report of this instance.", 404)


def main() -> None:
    """Run Dagster's own program, with its options, behind `SameOriginGuard`, with our pages."""
    server: Any = DagsterWebserver
    make_app, build_routes = server.create_asgi_app, server.build_routes
    names = os.environ.get("ASSET_OWNERS_UI_HOSTS", "").lower().replace(",", " ").split()
    # Around the app, because Starlette puts its handler of errors in front of all middleware.
    url = ui_url()
    server.create_asgi_app = lambda self, **options: SameOriginGuard(make_app(self, **options), names, url)
    server.build_routes = lambda self: [
        *_own_routes(self._process_context, self._app_path_prefix),
        *build_routes(self),
    ]
    cli.main()


def _own_routes(process_context: Any, path_prefix: str) -> list[Route]:
    """Return our pages, with and without the prefix below which a proxy asks for Dagster's."""
    pages = [Route("/reports/{slug}", report), *routes(process_context)]
    return [Route(f"{prefix}{page.path}", page.endpoint) for prefix in {"", path_prefix} for page in pages]
