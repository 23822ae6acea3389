import hashlib
import io
import threading
import zipfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox.engine_files import EngineError, install

pytestmark = pytest.mark.slow

JAR = "/org/example/tool/1.0/tool-1.0.jar"
MODULE = "/org/example/wire/1.0/wire-1.0.jar"
PLUGIN = "/org/example/guard/1.0/guard-1.0.zip"


def zip_of(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, text)
    return buffer.getvalue()


class Mirror(ThreadingHTTPServer):
    """A Maven repository; `served` can be tampered with, `cut` makes the next answer break off half-way."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/maven"
        descriptor = "name=guard\nextended.plugins=other,another;optional=true\nversion=1.0\n"
        self.whole = {
            JAR: b"a jar",
            MODULE: b"a module",
            PLUGIN: zip_of("plugin-descriptor.properties", descriptor),
        }
        self.served = dict(self.whole)
        self.asked = Counter()
        self.cut = False

    @property
    def pins(self) -> str:
        sha256 = {path: hashlib.sha256(content).hexdigest() for path, content in self.whole.items()}
        return (
            f"org.example:tool:1.0 {sha256[JAR]} lib\n"
            f"org.example:wire:1.0 {sha256[MODULE]} modules/transport-netty4\n"
            f"org.example:guard:1.0:zip {sha256[PLUGIN]} plugins/opensearch-security\n"
        )


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        assert isinstance(self.server, Mirror)
        path = self.path.removeprefix("/maven")
        content = self.server.served.get(path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content is not None:
            self.server.asked[path] += 1
            self.wfile.write(content[:2] if self.server.cut else content)
            self.server.cut = False


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A mirror that jgo's own file names, with a password in its address."""
    with Mirror() as server:
        address = server.url.replace("http://", "http://me:hunter2@")
        configuration = tmp_path / "jgo.conf"
        configuration.write_text(f"[repositories]\ncentral = {address}\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def pins(tmp_path, mirror):
    path = tmp_path / "pins.txt"
    path.write_text(mirror.pins)
    return path


def test_what_is_altered_or_missing_is_refused_without_a_password_and_a_retry_heals(tmp_path, mirror, pins):
    cache = tmp_path / "cache"
    mirror.served[JAR] = b"something else"
    with pytest.raises(EngineError, match=r"tool-1\.0\.jar has SHA-256 .*127\.0\.0\.1"):
        install(cache, print, pins=pins)
    del mirror.served[JAR]
    with pytest.raises(EngineError, match=r"tool-1\.0\.jar was not found at 127\.0\.0\.1") as caught:
        install(cache, print, pins=pins)
    assert "hunter2" not in str(caught.value)
    mirror.served[JAR], mirror.cut = mirror.whole[JAR], True
    home = install(cache, print, pins=pins).home
    assert (home / "lib" / "tool-1.0.jar").read_bytes() == b"a jar"
    assert mirror.asked[MODULE] == 1, "what was whole is not fetched again"
