"""`asset-owners prepare` and `asset-owners serve`: Dagster's home, and Dagster's services on it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Annotated, Any, Self

import requests
import typer
import yaml

from pipelines.cli.metrics import listen_at, notify
from pipelines.cli.options import Port
from pipelines.dagster_gaps.log_lines import json_line
from pipelines.dagster_home import dagster_folder, dagster_home, dagster_instance, forget_daemon, has_daemon
from resources.errors import AssetOwnersError
from resources.settings import CALLED_AS, home, instances_folder, logs_as_json

WATCH_SECONDS = 10
"""How often `serve` asks whether the code server answers, and whether there is space on the disk."""
SPARE_BYTES = 2**20
RELOAD_SECONDS = 60
"""How long the code may take to load before `serve` asks again."""
SECONDS_TO_ANSWER = 30
SECONDS_TO_STOP = 8
"""After which services that were asked to stop are killed: five more than a run waits for answers
(`GRACE_SECONDS`), to store what became of its writes. The next run settles the rest; a container has ten."""


def prepare() -> None:
    """Make the folder of instance files, and Dagster's home with its `dagster.yaml`, where there is none.

    `serve` does it by itself; this is for Dagster's own programs as services.
    """
    instances = instances_folder()
    instances.mkdir(parents=True, exist_ok=True)
    print(f"Dagster's home: {dagster_home(home())}\nInstance files: {instances}")


def serve(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the UI is served; it asks for no log-in.")
    ] = "127.0.0.1",
    port: Port = 3000,
) -> None:
    """Run Dagster's web server and daemon on all instances until Ctrl-C or SIGTERM.

    Both share one code server: a new instance file counts for both after *Reload* in the UI.

    Example: --port 3001
    """
    listen_at("--port", host, port).close()
    os.environ["DAGSTER_HOME"], os.environ[CALLED_AS] = str(dagster_home(home())), sys.argv[0]
    _require_space()
    # To start a process takes minutes on a busy machine; Dagster would wait for one.
    from assets_defs.asset_specs import LOCATION

    os.environ.setdefault("DAGSTER_GRPC_TIMEOUT_SECONDS", "300")
    # gRPC prints lines of its own form, unless it is told not to, when a code server ends amid an answer.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE" if logs_as_json() else "ERROR")
    os.environ["ASSET_OWNERS_UI_HOSTS"] = f"{os.environ.get('ASSET_OWNERS_UI_HOSTS', '')} {host}"
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    with (
        suppress(KeyboardInterrupt),
        dagster_instance(home()) as dagster,
        TemporaryDirectory(prefix="asset-owners-") as folder,
        ExitStack() as stopped,
        _Services() as services,
    ):
        socket, workspace = Path(folder, "code.socket"), Path(folder, "workspace.yaml")
        server = {"socket": str(socket), "location_name": LOCATION}
        workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
        module = ("--module-name", "pipelines.definitions", "--location-name", LOCATION)
        style = ("--log-format", "json") if logs_as_json() else ()
        if style:  # of the process below the code server, which takes options from such variables alone
            os.environ["DAGSTER_CLI_API_GRPC_LOG_FORMAT"] = "json"
        services.start("dagster", "code-server", "start", "--socket", socket, *module, *style)
        services.wait_until(socket.exists)
        place = ("--host", host, "--port", port, "--workspace", workspace)
        services.start("asset-owners-webserver", *place, *style)

        def start_daemon() -> None:
            services.start("dagster-daemon", "run", "--workspace", workspace, *style)
            stopped.callback(forget_daemon, dagster, _say)

        if not (is_beside := has_daemon(dagster)):
            start_daemon()
        services.wait_until(lambda: bool(_health(address)))
        _say(f"The Dagster UI is at {address} (Ctrl-C stops it)")
        notify("READY=1")
        watch = partial(next, _watch(address))
        if is_beside:
            other = f"A Dagster daemon of {dagster_folder(home())} worked within the last minute"
            which = "that of `dg dev`, or of a `serve` that was killed"
            why = "Two would start runs twice: schedules wait until that has been silent for a minute"
            _say(f"{other}: {which}. {why}")
            services.wait_until(lambda: watch() or not has_daemon(dagster))
            _say("That daemon is silent now: ours starts")
            start_daemon()
        services.wait_until(watch)


def _say(text: str) -> None:
    print(json_line(text, level="info") if logs_as_json() else text, flush=True)


def _health(address: str) -> dict[str, Any]:
    """Return what the web server says of Dagster's services; empty if it does not answer."""
    try:
        return requests.get(f"{address}/healthz", timeout=SECONDS_TO_ANSWER).json()
    except requests.RequestException:
        return {}


def _require_space() -> None:
    """Fail if the home's disk is full, or Dagster's: its services would go on, and log traces, 4 GB a day."""
    for folder in (home(), dagster_folder(home())):
        try:
            with TemporaryFile(dir=folder) as file:
                file.write(bytes(SPARE_BYTES))
        except OSError as error:
            error.filename = str(folder)
            raise


def _watch(address: str) -> Iterator[bool]:
    """End `serve` on a full disk; have the code loaded again where the process that holds it has died.

    The code server that `serve` starts goes on without that process, and no run could start. *Reload* in the
    UI does the same. Yields False as often as it is asked: the services go on.
    """
    from pipelines.dagster_gaps.health import UNREACHABLE

    misses, next_at = 0, 0.0
    while True:
        if time.monotonic() >= next_at:
            _require_space()
            next_at = time.monotonic() + WATCH_SECONDS
            states = _health(address).get("code_locations", {}).values()
            misses = misses + 1 if UNREACHABLE in states else 0
        if misses > 1:
            misses, next_at = 0, time.monotonic() + RELOAD_SECONDS
            _say("The process that holds the code has died; it is started again")
            with suppress(requests.RequestException):
                query = {"query": "mutation { reloadWorkspace { __typename } }"}
                requests.post(f"{address}/graphql", json=query, timeout=SECONDS_TO_ANSWER)
        yield False


class _Services(dict[str, subprocess.Popen[bytes]]):
    """Programs of this environment by name, which end together, with whatever they started."""

    def __enter__(self) -> Self:
        return self

    def start(self, program: str, *arguments: object) -> None:
        command = [Path(sys.executable).with_name(program), *map(str, arguments)]
        self[program] = subprocess.Popen(command, start_new_session=True)  # noqa: S603  (our own programs)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait; fail if a service ends before."""
        while not reached():
            for program, process in self.items():
                if process.poll() is not None:
                    ended = f"{program} ended with status {process.returncode}"
                    raise AssetOwnersError(f"{ended}; see its output above")
            time.sleep(0.5)

    def __exit__(self, *error: object) -> None:
        # Their groups, so that a run that writes is told, too. SIGINT makes a starting program print a trace.
        for process in self.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS_TO_STOP
        for process in self.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
