"""A real OpenSearch for trying and testing: TLS, basic auth, and a reader with nothing but two privileges.

The reader may do on an index pattern what the specification asks for (`read` and `view_index_metadata`) and
nothing else: `GET /` and every cluster call answer 403. Where the files come from, and how a mirror is set,
stands in `sandbox.engine_files`.
"""

import ctypes
import hashlib
import json
import logging
import os
import pwd
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import bcrypt
import requests
import trustme
import yaml
from filelock import FileLock, Timeout

from sandbox.engine_files import (
    PLUGIN_FOLDER,
    VERSION,
    EngineError,
    EngineFiles,
    default_cache,
    install,
    others_may_enter,
)

INDEX_PATTERN = "logs-*"
START_SECONDS = 180
STOP_SECONDS = 30
BULK_DOCUMENTS = 2_000

# Elasticsearch's `view_index_metadata` has no namesake in OpenSearch; these actions stand for it.
VIEW_INDEX_METADATA = [
    "indices:admin/get",
    "indices:admin/aliases/get",
    "indices:admin/mappings/get",
    "indices:admin/mappings/fields/get*",
]

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1.} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Credentials:
    """A user of the engine."""

    username: str
    password: str = field(repr=False)


class Engine:
    """An OpenSearch node on the loopback interface, up as long as the `with` block.

    On entering: `url` (`https://127.0.0.1:PORT`), `ca_file` (its certificate authority), `admin` (may do
    everything) and `reader` (may read `INDEX_PATTERN`). Indices, certificates and passwords stay in `data`:
    the next engine on the same folder goes on where this one ended. `engine.log` there says what it did.

    OpenSearch refuses to run as root: root starts it as user `nobody`, who must be able to enter the folders.
    So when `data` lies in a folder closed to others (a home, say), what belongs to the engine's process lies
    beside the downloads.

    On Linux the engine is also ended when the thread that entered the block ends, so that a killed program
    leaves nothing behind: enter it in a thread that lives as long as the engine is wanted.

    `optimized` compiles what runs often as well as Java can, which pays off within the hour; it doubles the
    time to start.
    """

    SCHEME: ClassVar = "https"
    url: str
    ca_file: Path
    admin: Credentials
    reader: Credentials

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        optimized: bool = False,
        progress: Callable[[str], None] = _log.info,
    ) -> None:
        self._data = data.absolute()
        self._port = port
        self._optimized = optimized
        self._progress = progress
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._session = requests.Session()
        self._lock, self._holder = FileLock(self._data / "lock"), self._data / "holder"

    def __enter__(self) -> Self:
        """Fetch what is missing, start the engine and wait until it answers."""
        files = self._install()
        self._data.mkdir(parents=True, exist_ok=True)
        if self._user:
            self._data.chmod(0o755)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            running = f"The sandbox is already running on {self._data}"
            is_known = self._holder.exists()
            holder = self._holder.read_text(encoding="utf-8") if is_known else "another process"
            raise EngineError(f"{running}, in {holder}. Stop that first (Ctrl-C)") from error
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        self._holder.write_text(f"process {os.getpid()} ({command})", encoding="utf-8")
        try:
            self._make_node(files)
            self._start(files)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the engine; its data stays."""
        self._stop()

    def request(self, method: str, path: str, *, timeout: float = 60, **kwargs: Any) -> Any:
        """Send a request as admin and give the JSON of the answer; the rest is for `requests.request`."""
        url = f"{self.url}/{path.lstrip('/')}"
        response = self._session.request(method, url, timeout=timeout, **kwargs)
        if not response.ok:
            raise EngineError(f"{method} {url} was answered {response.status_code}: {response.text[:2000]}")
        return response.json()

    def load(self, index: str, mapping: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]) -> int:
        """Make `index` anew with these documents, ready to be searched, and give their number."""
        self.request("DELETE", index, params={"ignore_unavailable": "true"})
        self.request("PUT", index, json=mapping)
        count = 0
        rest = iter(documents)
        while chunk := list(islice(rest, BULK_DOCUMENTS)):
            self.add(index, "".join(f'{{"index":{{}}}}\n{json.dumps(document)}\n' for document in chunk))
            count += len(chunk)
        self.request("POST", f"{index}/_refresh")
        return count

    def add(self, index: str, lines: str) -> None:
        """Add documents to an index: for each a line with the action, and one with the document."""
        parameters = {"filter_path": "errors,items.*.error"}
        headers = {"Content-Type": "application/x-ndjson"}
        path = f"{index}/_bulk"
        answer = self.request("POST", path, params=parameters, data=lines.encode(), headers=headers)
        if answer["errors"]:
            refused = next(item["index"]["error"] for item in answer["items"] if item)
            raise ValueError(f"A document was refused by index {index}: {refused}")

    def _install(self) -> EngineFiles:
        return install(default_cache(), self._progress)

    @property
    def _node(self) -> Path:
        """What belongs to the engine's process: configuration, index, ports file, temporary files."""
        if self._user is None or others_may_enter(self._data):
            return self._data / "node"
        return default_cache() / "data" / hashlib.sha256(bytes(self._data)).hexdigest()[:16]

    def _make_node(self, files: EngineFiles) -> None:
        """Make the node's folder with certificates, users and passwords, unless it is there."""
        passwords = self._data / "passwords.json"
        self.ca_file = self._data / "ca.pem"
        if not (passwords.exists() and self._node.exists()):
            shutil.rmtree(self._node, ignore_errors=True)
            self._node.parent.mkdir(exist_ok=True)
            self._node.parent.chmod(0o755)
            self._node.mkdir(mode=0o700)
            for folder in ("config", "index", "logs", "tmp"):
                (self._node / folder).mkdir()
            made = {name: secrets.token_urlsafe(24) for name in ("admin", "reader")}
            self._make_certificates()
            self._make_users(made, files.home / PLUGIN_FOLDER / "config")
            (self._node / "config" / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
            unfinished = passwords.with_suffix(".partial")
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(made), encoding="utf-8")
            unfinished.replace(passwords)  # last: all is whole once it is there
        kept = json.loads(passwords.read_text(encoding="utf-8"))
        self.admin, self.reader = (Credentials(name, kept[name]) for name in ("admin", "reader"))
        self._session.auth = (self.admin.username, self.admin.password)
        self._session.verify = str(self.ca_file)
        self._session.trust_env = False  # REQUESTS_CA_BUNDLE would take the place of our authority

    def _make_certificates(self) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        config = self._node / "config"
        authority.cert_pem.write_to_path(self.ca_file)
        authority.cert_pem.write_to_path(config / "ca.pem")
        certificate.private_key_pem.write_to_path(config / "node.key")
        for part in certificate.cert_chain_pems:
            part.write_to_path(config / "node.pem", append=True)

    def _make_users(self, passwords: Mapping[str, str], defaults: Path) -> None:
        folder = self._node / "config" / "opensearch-security"
        shutil.copytree(defaults, folder)
        # Passwords as long as these need no slow hash, and each new connection would wait for it.
        hashes = {
            name: bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
            for name, password in passwords.items()
        }
        permission = {
            "index_patterns": [INDEX_PATTERN],
            "allowed_actions": ["read", *VIEW_INDEX_METADATA],
        }
        files = {
            "internal_users": ("internalusers", {name: {"hash": hash_} for name, hash_ in hashes.items()}),
            "roles": ("roles", {"reader": {"index_permissions": [permission]}}),
            "roles_mapping": (
                "rolesmapping",
                {"all_access": {"users": ["admin"]}, "reader": {"users": ["reader"]}},
            ),
        }
        for name, (kind, content) in files.items():
            text = yaml.safe_dump({"_meta": {"type": kind, "config_version": 2}, **content})
            (folder / f"{name}.yml").write_text(text, encoding="utf-8")

    def _start(self, files: EngineFiles) -> None:
        self._progress(f"starting OpenSearch {VERSION}")
        began = time.monotonic()
        node = self._node
        ports = node / "logs" / "http.ports"
        ports.unlink(missing_ok=True)
        if self._user:
            for path in (node, *node.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        with (self._data / "engine.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                self._command(files),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=node / "tmp",
                env={"LANG": "C.UTF-8", "LIBFFI_TMPDIR": str(node / "tmp")},
                user=self._user and self._user.pw_uid,
                group=self._user and self._user.pw_gid,
                extra_groups=[] if self._user else None,
                umask=0o077,
                start_new_session=True,
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 (takes no lock: it only calls the kernel)
            )
        while not self._answers(ports):
            if self._process.poll() is not None:
                raise EngineError(
                    f"OpenSearch ended with status {self._process.returncode} at its start. {self._tail()}"
                )
            if time.monotonic() - began > START_SECONDS:
                raise EngineError(f"OpenSearch did not answer within {START_SECONDS} s. {self._tail()}")
            time.sleep(0.2)
        self.request("GET", "_cluster/health?wait_for_status=yellow&timeout=60s", timeout=70)
        self._progress(f"OpenSearch is ready at {self.url} after {time.monotonic() - began:.0f} s")
        threading.Thread(target=self._tell_of_end, args=[self._process], daemon=True).start()

    def _tell_of_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the engine's end, and tell of it unless it was asked for."""
        status = process.wait()
        if self._process is process:
            self._progress(
                f"OpenSearch has ended, with status {status}: runs fail from now on. Stop this (Ctrl-C) and "
                f"start it again; why it ended is in {self._data / 'engine.log'}"
            )

    def _command(self, files: EngineFiles) -> list[str]:
        node = self._node
        settings = {
            "cluster.name": "sandbox",
            "node.name": "sandbox",
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self._port,
            "transport.port": 0,
            "node.portsfile": "true",  # a free port is the engine's to choose: no two can choose the same
            "path.data": node / "index",
            "path.logs": node / "logs",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.destructive_requires_name": "true",
            # By default the engine refuses requests (429) while its heap is full, also of what may be freed;
            # the serial collector frees that only when it must: all requests would be refused from then on.
            "indices.breaker.total.use_real_memory": "false",
            "plugins.security.allow_default_init_securityindex": "true",
            "plugins.security.audit.type": "noop",
            "plugins.security.ssl.http.enabled": "true",
        }
        for layer in ("http", "transport"):
            settings[f"plugins.security.ssl.{layer}.pemcert_filepath"] = "node.pem"
            settings[f"plugins.security.ssl.{layer}.pemkey_filepath"] = "node.key"
            settings[f"plugins.security.ssl.{layer}.pemtrustedcas_filepath"] = "ca.pem"
        return [
            str(files.java),
            "-Xms1g",
            "-Xmx1g",
            "-XX:+UseSerialGC",  # starts a second sooner and takes 100 MB less than the default
            *(() if self._optimized else ("-XX:TieredStopAtLevel=1",)),
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            "--enable-native-access=ALL-UNNAMED",
            f"-Djava.io.tmpdir={node / 'tmp'}",
            "-Dlog4j.shutdownHookEnabled=false",  # OpenSearch closes its log itself, after everything else
            f"-Dopensearch.path.home={files.home}",
            f"-Dopensearch.path.conf={node / 'config'}",
            "-Dopensearch.distribution.type=tar",
            "-Dopensearch.bundled_jdk=false",
            "-cp",
            f"{files.home / 'lib'}/*",
            "org.opensearch.bootstrap.OpenSearch",
            *(f"-E{name}={value}" for name, value in settings.items()),
        ]

    def _answers(self, ports: Path) -> bool:
        if not ports.exists():
            return False
        self.url = f"{self.SCHEME}://{ports.read_text(encoding='utf-8').strip()}"
        try:
            return self._session.get(self.url, timeout=10).ok
        except (requests.ConnectionError, requests.Timeout):
            return False

    def _tail(self) -> str:
        log = self._data / "engine.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line for line in lines if not line.lstrip().startswith("at ")]  # no stack frames
        return "\n".join([f"The end of {log}:", *telling[-20:]])

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._session.close()
        self._lock.release()


def _end_with_parent() -> Callable[[], None] | None:
    """What the new process has to call so that the kernel ends it when its parent dies; Linux only."""
    if sys.platform != "linux":
        return None
    set_option = ctypes.CDLL(None).prctl
    return lambda: set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
