"""`asset-owners-webserver`: Dagster's web server, which pages of other sites cannot use, with pages of ours.

They are `/healthz`, and `/reports/SLUG`: the report that the runs of an instance leave.

It has no log-in, and takes GraphQL from anybody, an `<img>` URL included. So any page that somebody opens in
a browser could start runs with `force`, or undo them, even if only this machine reaches the server. Not
needed once Dagster's own web server checks `Host` and `Origin`.
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
from resources.settings import home, is_slug, tables_location
from resources.store.tables import Tables

WRITES = ("/graphql", "/report_asset_")
"""What the paths that change something contain, after a prefix of the server."""
UNFRAMED = [(b"content-security-policy", b"frame-ancestors 'none'"), (b"x-frame-options", b"DENY")]
"""In a frame of another page a form could be filled in, and a click on that page would send it."""


class SameOriginGuard:
    """Refuses what may change something if a page of another site asks for it, or if it is not a POST.

    No page may show one of this server in a frame.

    Browsers say whose page asks: to this machine and by https in `Sec-Fetch-Site`, else in `Origin`. Programs
    send neither. A site whose own name leads to this server (DNS rebinding) passes in both, so a request must
    use one of `names`, or a number, which no site has for a name (and `TrustedHostMiddleware` does not know).
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
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
            own_hosts = {host, headers.get("x-forwarded-host")}
            same = site in {"same-origin", "none"} if site else origin.partition("//")[2] in own_hosts
            writes = any(path in scope["path"] for path in WRITES)
            if not self._is_known(host):
                text = f"This server is not known as {host}. If it is, add that to ASSET_OWNERS_UI_HOSTS."
                app = PlainTextResponse(text, 421)
            elif writes and not (same and scope.get("method", "POST") == "POST"):
                app = PlainTextResponse("Only pages of this server, and programs, by POST.", 403)
        await app(scope, receive, send_unframed)

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False


def report(request: Request) -> Response:
    """Answer with the report of an instance; the page brings its own policy, by which it loads nothing."""
    from assets_defs.report import published_report  # noqa: PLC0415  (the server does not wait for it)

    slug = request.path_params["slug"]
    with suppress(FileNotFoundError):
        if is_slug(slug):
            tables = Tables(home(), slug, location=tables_location())
            return HTMLResponse(published_report(tables).read_bytes())
    return PlainTextResponse("No run has left a report of such an instance.", 404)


def main() -> None:
    """Run Dagster's own program, with its options, behind `SameOriginGuard`, with our pages."""
    server: Any = DagsterWebserver
    make_app, build_routes = server.create_asgi_app, server.build_routes
    names = os.environ.get("ASSET_OWNERS_UI_HOSTS", "").lower().replace(",", " ").split()
    # Around the app and not within: what answers for an error of its own stands in front of all its parts.
    server.create_asgi_app = lambda self, **options: SameOriginGuard(make_app(self, **options), names)
    server.build_routes = lambda self: [
        Route("/reports/{slug}", report),
        *routes(self._process_context),
        *build_routes(self),
    ]
    cli.main()
