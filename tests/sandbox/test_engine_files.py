"""The engine's files: fetched from a Maven repository, and used where they are what is pinned."""

import hashlib
import io
import zipfile

import pytest

from sandbox.engine_files import EngineError, install
from tests.resources.http_stub import Reply, Stub

pytestmark = pytest.mark.slow

JAR = "/org/example/tool/1.0/tool-1.0.jar"
MODULE = "/org/example/wire/1.0/wire-1.0.jar"
PLUGIN = "/org/example/guard/1.0/guard-1.0.zip"


def plugin() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("plugin-descriptor.properties", "name=guard\nextended.plugins=other\nversion=1.0\n")
    return buffer.getvalue()


def test_what_is_altered_or_missing_is_refused_without_a_password_and_a_retry_heals(tmp_path, monkeypatch):
    whole = {JAR: b"a jar", MODULE: b"a module", PLUGIN: plugin()}
    jar, module, guard = (hashlib.sha256(content).hexdigest() for content in whole.values())
    (pins := tmp_path / "pins.txt").write_text(
        f"org.example:tool:1.0 {jar} lib\n"
        f"org.example:wire:1.0 {module} modules/transport-netty4\n"
        f"org.example:guard:1.0:zip {guard} plugins/opensearch-security\n"
    )
    served = whole | {JAR: b"something else"}

    def answer(request):
        content = served.get(request.path.removeprefix("/maven"))
        return Reply(b"", 404) if content is None else Reply(content)

    with Stub(answer) as mirror:
        address = mirror.url.replace("http://", "http://me:hunter2@")
        (configuration := tmp_path / "jgo.conf").write_text(f"[repositories]\ncentral = {address}/maven\n")
        monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
        monkeypatch.setenv("NO_PROXY", "localhost")
        monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
        cache = tmp_path / "cache"
        with pytest.raises(EngineError, match=r"tool-1\.0\.jar has SHA-256 .*localhost"):
            install(cache, print, pins=pins)
        del served[JAR]
        with pytest.raises(EngineError, match=r"tool-1\.0\.jar was not found at localhost") as caught:
            install(cache, print, pins=pins)
        assert "hunter2" not in str(caught.value)
        served[JAR] = whole[JAR]
        home = install(cache, print, pins=pins).home
        assert (home / "lib" / "tool-1.0.jar").read_bytes() == b"a jar"
        fetched = [request.path for request in mirror.requests]
        assert fetched.count(f"/maven{MODULE}") == 1, "what was whole is not fetched again"
