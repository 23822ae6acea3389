"""A small web server that answers what a test says, for answers a well-behaved service never gives."""

import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Request:
    """What arrived; `client` tells connections apart."""

    method: str
    path: str
    query: dict[str, str]
    form: dict[str, str]
    headers: dict[str, str]
    cookies: dict[str, str]
    client: tuple[str, int]
    body: bytes = b""


@dataclass
class Reply:
    """An answer; `write` sends what follows the headers in the body's place, and the connection is closed."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, Any] = field(default_factory=dict)  # a list of texts is a header of each
    write: Callable[[Any], None] | None = None


def envelope(data=None, *, status=True, message=None, http=200, headers=None, **members):
    """An answer after the convention."""
    body = {"status": status, "message": message, "data": data, **members}
    return Reply(json.dumps(body).encode(), http, headers or {})


class Stub:
    """Serves `answer` on 127.0.0.1 and keeps what arrived in `requests`; a context manager."""

    def __init__(self, answer: Callable[[Request], Reply], tls: ssl.SSLContext | None = None):
        self.requests: list[Request] = []
        self.answer = answer
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self):
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(
                    self.command,
                    url.path,
                    dict(parse_qsl(url.query)),
                    dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True)),
                    dict(self.headers.items()),
                    {name: morsel.value for name, morsel in SimpleCookie(self.headers["Cookie"]).items()},
                    self.client_address,
                    body,
                )
                stub.requests.append(request)
                reply = stub.answer(request)
                self.send_response(reply.status)
                headers = {} if reply.write else {"Content-Length": str(len(reply.body))}
                for name, values in {**headers, **reply.headers}.items():
                    for value in [values] if isinstance(values, str) else values:
                        self.send_header(name, value)
                self.end_headers()
                if reply.write:
                    self.close_connection = True
                    reply.write(self.wfile)
                else:
                    self.wfile.write(reply.body)

            do_GET = do_POST = do_PATCH = do_CONNECT = handle_any  # noqa: N815  (names that http.server looks for)

            def log_message(self, format, *args):  # noqa: A002  (the base class's names)
                """Nothing: tests read `requests`."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request, client_address):
                """Nothing: clients that hang up are what these tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'https' if tls else 'http'}://localhost:{self._server.server_port}"
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self):
        """Serve until it is over; `serve_forever` would notice that at intervals only."""
        while not self._is_over:
            self._server.handle_request()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        socket.create_connection(("127.0.0.1", self._server.server_port)).close()  # so that it looks
        self._thread.join()
        self._server.server_close()
