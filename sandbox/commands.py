"""What `asset-owners sandbox` does: run both services, show the demo, open the Dagster UI on them."""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from pipelines.cli.options import Port, flag, number
from pipelines.cli.serve import serve
from pipelines.dagster_gaps.log_lines import LOGGER
from resources.settings import command_line, home, load_instance, slug_of
from resources.store.tables import Tables
from sandbox.stand import NAME, TENANT, running_sandbox

CODES = (
    "SELECT evidence, match, action, count(*) AS hosts FROM demo.owner_decisions GROUP BY ALL ORDER BY ALL"
)


def up(
    *,
    fresh: Annotated[bool, flag("--fresh", "Begin again with the demo's data of today.")] = False,
    port: Annotated[
        int | None,
        number(
            "Port of the search service; the inventory service has the next one.",
            most=65534,
            default="those of last time",
        ),
    ] = None,
) -> None:
    """Run both services until Ctrl-C.

    Example: --port 9200
    """
    with _until_stopped(), running_sandbox(home(), fresh=fresh, port=port, progress=_progress) as sandbox:
        folder = home() / "sandbox"
        _say(f"search service     {sandbox.engine.url}  user {sandbox.engine.reader.username}")
        _say(f"inventory service  {sandbox.inventory.url}  tenant {TENANT}")
        _say(
            "its accounts @corp.example: integration and coded, which wants a code, may write; reader may not"
        )
        _say(f"passwords are in {folder}, the certificate authority is {sandbox.engine.ca_file}")
        _say(f"try: {_to_paste(sandbox.instance_file, 'run', '--dry-run')}")
        while True:
            time.sleep(3600)


def demo() -> None:
    """Fill in the owners of a made-up company, twice, and tell what happened and what to look at."""
    for variable in ("ASSET_OWNERS_TABLES", "ASSET_OWNERS_JOURNAL"):
        os.environ.pop(variable, None)  # what is made up stays in the home
    shutil.rmtree(home() / "tables" / slug_of(NAME), ignore_errors=True)
    log = home() / "sandbox" / "demo.log"
    log.unlink(missing_ok=True)
    with _until_stopped(), running_sandbox(home(), fresh=True, progress=_progress) as sandbox:
        _progress("first run: fetch, decide, write")
        first = _run(sandbox.instance_file, log)
        _progress("second run: nothing is written twice")
        second = _run(sandbox.instance_file, log)
        print(*_happened(sandbox.truth, first, second), "", "To look further:", sep="\n")
        commands = {
            _to_paste(None, "sandbox", "ui"): "the Dagster UI on the sandbox",
            _to_paste(sandbox.instance_file, "explain", "lt-1001"): "why a host has its owner",
            _to_paste(sandbox.instance_file, "report"): "all hosts as a page",
            _to_paste(sandbox.instance_file, "tune"): "how many owners would be wrong, and better settings",
            _to_paste(None, "sql", CODES): "each reason and its number of hosts",
            f"less {shlex.quote(str(log))}": "all that both runs said, with their warnings",
            _to_paste(None, "init"): "an instance file for services of your own",
        }
        for command, what in commands.items():
            print(f"  # {what}\n  {command}")


def _happened(
    truth: Mapping[str | None, str | None], first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[str]:
    """What two runs did, from what they print with `--json`; whose each host is, `truth` says."""
    written = Tables(home(), slug_of(NAME)).run_writes(first["run_id"]).filter(outcome="written")
    given = written.select("host_id", pl.col("new_values").struct.field("owner")).rows()
    right = sum(truth[host_id] == owner for host_id, owner in given)
    hosts = sum(count for codes, count in first["decisions"].items() if not codes.endswith("/no_host"))
    yield f"Hosts: {hosts} in the inventory"
    yield f"Owners written: {len(given)}"
    yield f"Right: of {len(given)} owners written, {right} are right by the company's truth"
    yield f"Conflicts: {first['conflicts']} hosts have another owner than the logons name, and keep theirs"
    yield f"Second run: {second['writes'].get('written', 0)} owners written"


def _to_paste(file: Path | None, command: str, *arguments: str) -> str:
    """A command for the shell that the reader is in, which may not know of this home."""
    chosen = os.environ.get("ASSET_OWNERS_HOME")
    prefix = f"ASSET_OWNERS_HOME={shlex.quote(chosen)} " if chosen else ""
    return prefix + command_line(load_instance(file) if file else None, command, *arguments)


def ui(*, port: Port = 3000) -> None:
    """Run both services, the Dagster web server and its daemon, until Ctrl-C.

    Example: --port 3001
    """
    with _until_stopped(), running_sandbox(home(), fresh=False, progress=_progress):
        serve(port=port)


def _run(instance_file: Path, log: Path) -> dict[str, Any]:
    """Run the instance's job as a shell would; what it prints, or its end where it fails. Its log is kept."""
    program = Path(sys.executable).with_name("asset-owners")
    with log.open("a", encoding="utf-8") as errors:
        command = [program, "run", "--instance", str(instance_file), "--json"]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603  (our own program)
    if done.returncode:
        print(log.read_text(encoding="utf-8"), file=sys.stderr)
        raise typer.Exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def _until_stopped() -> Generator[None]:
    """End well on Ctrl-C, and on SIGTERM alike, so that no process is left behind."""
    # A shell's background job begins with SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _progress("stopped")


def _progress(text: str) -> None:
    """Say how far it is, unless only results are asked for."""
    if logging.getLogger(LOGGER).isEnabledFor(logging.WARNING):
        _say(text)


def _say(text: str) -> None:
    print(f"sandbox: {text}", flush=True)
