"""`asset-owners-webserver`: Dagster's web server, which pages of other sites cannot use.

It has no log-in, and takes GraphQL from whoever asks, also in the address of a picture. So any page that
somebody opens in a browser could start runs with `force`, or undo them, also where only this machine reaches
it.
"""

import os
import socket
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from dagster_webserver import cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CHANGES = ("/graphql", "/report_asset_")
"""What the paths that change something contain; a prefix of the server may stand before it."""


class OwnPages:
    """Refuses what may change something where a page of another site asks for it, or a mere address does.

    Browsers say whose page asks: to this machine and by https in `Sec-Fetch-Site`, else in `Origin`. Programs
    send neither. A site that lets its own name stand for this server's address (DNS rebinding) passes for the
    server in both, so that nothing is answered under a name that is not among `names`.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", socket.gethostname().lower(), *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application do it."""
        app = self._app
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            host = headers.get("host", "localhost")
            here = {host, headers.get("x-forwarded-host")}
            if site := headers.get("sec-fetch-site"):
                own = site in {"same-origin", "none"}
            else:
                origin = headers.get("origin")
                own = origin is None or origin.partition("://")[2] in here
            changes = any(path in scope["path"] for path in CHANGES)
            if not self._is_own(host):
                said = f"This server is not known as {host}. Where it is, set ASSET_OWNERS_UI_HOSTS to that."
                app = PlainTextResponse(said, 421)
            elif changes and (not own or scope.get("method", "POST") != "POST"):
                app = PlainTextResponse("Only pages of this server, and programs, by POST.", 403)
        await app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        """Whether a server is called by a name of ours or by a number, which no site can have for a name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False


def main() -> None:
    """Run Dagster's own program, with its options, behind `OwnPages`."""
    usual = DagsterWebserver.build_middleware
    names = os.environ.get("ASSET_OWNERS_UI_HOSTS", "").lower().replace(",", " ").split()

    def guarded(self: DagsterWebserver) -> list[Middleware]:
        return [Middleware(OwnPages, names=names), *usual(self)]

    DagsterWebserver.build_middleware = guarded
    cli.main()
