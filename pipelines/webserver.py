"""`asset-owners-webserver`: Dagster's web server, which pages of other sites cannot use.

It has no log-in, and takes GraphQL from whoever asks, also in the address of a picture. So any page that
somebody opens in a browser could start runs with `force`, or undo them, also where only this machine reaches
it.
"""

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
    send neither.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application do it."""
        app = self._app
        if scope["type"] != "lifespan" and any(path in scope["path"] for path in CHANGES):
            headers = Headers(scope=scope)
            here = {headers.get("host"), headers.get("x-forwarded-host")}
            if site := headers.get("sec-fetch-site"):
                own = site in {"same-origin", "none"}
            else:
                origin = headers.get("origin")
                own = origin is None or origin.partition("://")[2] in here
            if not own or scope.get("method", "POST") != "POST":
                app = PlainTextResponse("Only pages of this server, and programs, by POST.", 403)
        await app(scope, receive, send)


def main() -> None:
    """Run Dagster's own program, with its options, behind `OwnPages`."""
    usual = DagsterWebserver.build_middleware

    def guarded(self: DagsterWebserver) -> list[Middleware]:
        return [Middleware(OwnPages), *usual(self)]

    DagsterWebserver.build_middleware = guarded
    cli.main()
