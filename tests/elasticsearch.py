"""Elasticsearch 7.17 for tests that ask both engines: a node without its security, so in plain HTTP.

It needs Java 17 to 23: newer ones, as the sandbox's, lack the security manager that it starts with.
"""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from filelock import FileLock

from sandbox.engine import _LOGGING, Engine
from sandbox.engine_files import TRANSPORT_FOLDER, EngineFiles, Jar, _fetch_all, _publish, default_cache

VERSION = "7.17.29"
PINS = Path(__file__).with_name("elasticsearch_jars.txt")

_DESCRIPTOR = f"""\
name=transport-netty4
description=HTTP and transport over Netty
version={VERSION}
elasticsearch.version={VERSION}
java.version=1.8
classname=org.elasticsearch.transport.Netty4Plugin
"""
_POLICY = """\
grant {
  permission java.lang.RuntimePermission "setContextClassLoader";
  permission java.lang.RuntimePermission "getClassLoader";
  permission java.net.SocketPermission "*", "accept,connect,listen,resolve";
};
"""


def java() -> Path | None:
    """Return the `java` on the path if it has the right age."""
    if not (found := shutil.which("java")):
        return None
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', said)
    return Path(found) if version and int(version[1]) in range(17, 24) else None


class Elasticsearch(Engine):
    """A node with an address, `request` and `load`, as the sandbox's OpenSearch has them."""

    SCHEME: ClassVar = "http"

    def _install(self) -> EngineFiles:
        pins = PINS.read_text(encoding="utf-8")
        home = default_cache() / f"elasticsearch-{VERSION}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
        home.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(home.parent / "install.lock"):
            if not home.exists():
                partial = home.with_name(f"{home.name}.partial")
                _fetch_all([Jar.parse(line) for line in pins.splitlines()[1:]], partial, self._progress)
                transport = partial / TRANSPORT_FOLDER
                (transport / "plugin-descriptor.properties").write_text(_DESCRIPTOR, encoding="utf-8")
                (transport / "plugin-security.policy").write_text(_POLICY, encoding="utf-8")
                for folder in ("bin", "plugins"):
                    (partial / folder).mkdir(exist_ok=True)
                _publish(partial, home)
        found = java()
        assert found
        return EngineFiles(home, found)

    def _make_node(self, files: EngineFiles) -> None:  # noqa: ARG002
        for folder in ("config", "index", "logs", "tmp"):
            (self._node / folder).mkdir(parents=True)
        (self._node / "config" / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        (self._node / "config" / "elasticsearch.yml").touch()
        self._session.trust_env = False

    def _command(self, files: EngineFiles) -> list[str]:
        node = self._node
        settings = {
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self._port,
            "transport.port": 0,
            "node.portsfile": "true",
            "path.data": node / "index",
            "path.logs": node / "logs",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        return [
            str(files.java),
            *("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            "-Djava.security.manager=allow",
            f"-Djava.io.tmpdir={node / 'tmp'}",
            *("-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true"),
            *("-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true"),
            f"-Des.path.home={files.home}",
            f"-Des.path.conf={node / 'config'}",
            *("-Des.distribution.flavor=oss", "-Des.distribution.type=tar", "-Des.bundled_jdk=false"),
            *("-cp", f"{files.home / 'lib'}/*", "org.elasticsearch.bootstrap.Elasticsearch"),
            *(f"-E{name}={value}" for name, value in settings.items()),
        ]
